"""Folders as hubs hold them, with random weights: CLIP, SigLIP, BERT, RoBERTa, ViT, timm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import timm
import tokenizers
import torch
from safetensors.torch import save_file
from tokenizers import models, pre_tokenizers
from transformers import (
    AutoModel,
    BertConfig,
    CLIPConfig,
    RobertaConfig,
    SiglipConfig,
    ViTConfig,
)

from vlcli.nn import Batch, DataSpec, Images, Text, View
from vlcli.nn.batch import Pixels

WORDS = ["a", "red", "green", "blue", "circle", "square", "triangle", "left", "of", "and"]
SPEC = DataSpec(vocab_size=30, pad_id=1, unk_id=3, cls_id=2, sep_id=3, mask_id=3, text_length=12)
_LAYER = {"intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
TEXT = {"vocab_size": 40, "hidden_size": 16, "max_position_embeddings": 16, **_LAYER}
VISION = {"hidden_size": 24, "image_size": 32, "patch_size": 8, **_LAYER}


def clip(folder: Path) -> Any:
    """A CLIP whose towers have two widths, with tokenizer and processor."""
    ids = {"eos_token_id": 3, "bos_token_id": 2, "pad_token_id": 3}
    config = CLIPConfig(text_config=TEXT | ids, vision_config=VISION, projection_dim=20)
    return _saved(config, folder, ["!", "?", "<|startoftext|>", "<|endoftext|>"])


def siglip(folder: Path) -> Any:
    """A SigLIP; its sentences are padded with </s> to 16 pieces."""
    config = SiglipConfig(text_config=TEXT | {"hidden_size": 24}, vision_config=VISION)
    return _saved(config, folder, ["<pad>", "</s>", "<unk>"], mean=[0.5, 0.5, 0.5])


def bert(folder: Path) -> Any:
    return _saved(BertConfig(**TEXT, pad_token_id=0), folder, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])


def roberta(folder: Path) -> Any:
    return _saved(RobertaConfig(**TEXT), folder, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"])


def vit(folder: Path) -> Any:
    return _saved(ViTConfig(**VISION), folder, None, mean=[0.1, 0.2, 0.3])


def of_timm(folder: Path) -> Any:
    """A timm folder as `timm.models.save_for_hf` writes it."""
    options = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 2}
    torch.manual_seed(3)
    model = timm.create_model("vit_tiny_patch16_224", num_classes=0, **options).eval()
    folder.mkdir()
    save_file(model.state_dict(), folder / "model.safetensors")
    cfg = {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.2, 0.2], "input_size": [3, 32, 32]}
    config = {"architecture": "vit_tiny_patch16_224", "model_args": options, "pretrained_cfg": cfg}
    (folder / "config.json").write_text(json.dumps(config))
    return model


def _saved(config: Any, folder: Path, specials: list[str] | None, mean: list[float] | None = None) -> Any:
    torch.manual_seed(0)
    model = AutoModel.from_config(config).eval()
    with torch.no_grad():  # drawn biases and norms hide swapped names
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    if specials is not None:
        tokenizer(specials).save(str(folder / "tokenizer.json"))
    size = {"height": 32, "width": 32}
    said = {"image_mean": mean or [0.48, 0.46, 0.41], "image_std": [0.27, 0.26, 0.28], "size": size}
    (folder / "preprocessor_config.json").write_text(json.dumps(said))
    return model


def tokenizer(specials: list[str]) -> tokenizers.Tokenizer:
    """Whole words, as a model of byte pairs without any merge of letters."""
    words = {word: number for number, word in enumerate([*specials, *WORDS])}
    unknown = next(word for word in specials if "unk" in word.lower() or "endoftext" in word)
    made = tokenizers.Tokenizer(models.BPE(words, [], unk_token=unknown, ignore_merges=True))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.add_special_tokens(specials)
    return made


def texts(last: int, seed: int = 0) -> Text:
    """Three sentences of 4, 7 and 5 pieces that end with ``last``, padded with rubbish."""
    rng = torch.Generator().manual_seed(seed)
    ids = torch.randint(4, 14, (3, 7), generator=rng)
    lengths = torch.tensor([4, 7, 5])
    places = torch.arange(7)[None]
    ids[torch.arange(3), lengths - 1] = last
    mask = places < lengths[:, None]
    return Text(ids, mask, places == lengths[:, None] - 1, ids * 0, keys=list("abc"), raw=list("abc"))


def pictures(count: int = 4, size: int = 32) -> Images:
    rng = torch.Generator().manual_seed(1)
    pixels = torch.randn(count, 3, size, size, generator=rng)
    return Images([f"i{n}" for n in range(count)], pixels=Pixels(pixels, torch.full((count, 2), size)))


def batch(last: int = 3) -> Batch:
    order = torch.arange(3)
    view = View(texts(last), pictures(3), order, order[:, None], aligned=True)
    return Batch({"clean": view}, {}, list("abc"), order)
