"""Tiny models of transformers with random weights, written by save_pretrained."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
import transformers as T
from PIL import Image

SHARED = Path(os.environ.get("VLCLI_SHARED", Path(__file__).parents[4] / "shared")) / "data/images"
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
VIT = {**SMALL, "image_size": 32, "patch_size": 8}
DINO = {key: value for key, value in VIT.items() if key != "intermediate_size"} | {"mlp_ratio": 2}
WORDS = ("red circle", "cat", "dog", "green bus")


def _square(kind, side=32, **more):
    return kind(size={"height": side, "width": side}, **more)


def _cropped(kind):
    return kind(size={"shortest_edge": 36}, crop_size={"height": 32, "width": 32}, do_center_crop=True)


def _text(**more):
    return {**SMALL, "vocab_size": 99, "max_position_embeddings": 16, **more}


def tower(name):
    """A tiny tower and its image processor."""
    made = {
        "dinov2": lambda: (T.Dinov2Model(T.Dinov2Config(**DINO)), _cropped(T.BitImageProcessor)),
        "registers": lambda: (
            T.Dinov2WithRegistersModel(T.Dinov2WithRegistersConfig(**DINO, num_register_tokens=3)),
            _cropped(T.BitImageProcessor),
        ),
        "dinov3": lambda: (
            T.DINOv3ViTModel(T.DINOv3ViTConfig(**VIT, num_register_tokens=2)),
            _square(T.DINOv3ViTImageProcessor),
        ),
        "clip": lambda: (T.CLIPVisionModel(T.CLIPVisionConfig(**VIT)), _cropped(T.CLIPImageProcessor)),
        "clip-both": lambda: (
            T.CLIPModel(T.CLIPConfig(text_config=_text(), vision_config=VIT, projection_dim=12)),
            _cropped(T.CLIPImageProcessor),
        ),
        "siglip": lambda: (T.SiglipVisionModel(T.SiglipVisionConfig(**VIT)), _square(T.SiglipImageProcessor)),
        "siglip-both": lambda: (
            T.SiglipModel(T.SiglipConfig(text_config=_text(projection_size=16), vision_config=VIT)),
            _square(T.SiglipImageProcessor),
        ),
        "siglip2": lambda: (
            T.Siglip2VisionModel(T.Siglip2VisionConfig(**SMALL, patch_size=8, num_patches=16)),
            T.Siglip2ImageProcessor(patch_size=8, max_num_patches=16),
        ),
        "mae": lambda: (T.ViTMAEModel(T.ViTMAEConfig(**VIT)), _square(T.ViTImageProcessor)),
        "vit": lambda: (T.ViTModel(T.ViTConfig(**VIT)), _square(T.ViTImageProcessor)),
        "resnet": lambda: (
            T.ResNetModel(T.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")),
            T.ConvNextImageProcessor(size={"shortest_edge": 32}),
        ),
        "convnext": lambda: (
            T.ConvNextModel(T.ConvNextConfig(hidden_sizes=[8, 16], depths=[1, 1], num_stages=2)),
            _cropped(T.BitImageProcessor),
        ),
    }[name]
    torch.manual_seed(1)
    return made()


TOWERS = ("dinov2", "registers", "dinov3", "clip", "clip-both", "siglip", "siglip-both", "siglip2", "mae", "vit",
          "resnet", "convnext")  # fmt: skip


def save(folder, model, *parts):
    for part in (model, *parts):
        part.save_pretrained(folder)
    return folder


def pictures(folder, count=3):
    """Photographs where they are there, else generated ones; of several shapes."""
    folder.mkdir(parents=True, exist_ok=True)
    known = sorted((SHARED / "coco").glob("*.jpg"))[:count] if (SHARED / "coco").is_dir() else []
    rng = np.random.default_rng(0)
    made = []
    for place in range(count):
        size = (80, 60) if place % 2 else (64, 96)
        image = Image.open(known[place]).convert("RGB").resize(size) if known else None
        image = image or Image.fromarray(rng.integers(0, 255, (size[1], size[0], 3), dtype=np.uint8))
        image.save(folder / f"p{place}.png")
        made.append((f"p{place}", folder / f"p{place}.png"))
    return made


def opened(images):
    return [Image.open(path).convert("RGB") for _, path in images]
