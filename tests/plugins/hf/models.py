"""Tiny detectors and open-vocabulary models with random weights, written by save_pretrained."""

from __future__ import annotations

import json

import torch
import transformers as T

from tests.plugins.hf.tiny import SMALL, VIT, WORDS, save

CLASSES = {0: "person", 1: "cat", 2: "dog"}
LABELS = {"id2label": CLASSES, "label2id": {name: number for number, name in CLASSES.items()}}
RESNET = {"embedding_size": 8, "hidden_sizes": [8, 8, 8, 16], "depths": [1, 1, 1, 1], "layer_type": "basic"}
DEFORMABLE = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 2,
              "decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}  # fmt: skip


def bert_tokenizer(folder):
    """WordPieces of which "." has the number that Grounding DINO expects."""
    words = sorted({part for word in WORDS for part in word.split()} | {"a", "of", "photo"})
    rows = [f"[unused{n}]" for n in range(1040)]
    rows[0], rows[100], rows[101], rows[102], rows[103] = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
    rows[1012], rows[1029] = ".", "?"
    rows[200 : 200 + len(words)] = words
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(rows) + "\n")
    return T.BertTokenizer.from_pretrained(folder)


def clip_tokenizer(folder):
    """Letters as CLIP's byte pairs."""
    letters = sorted(set("".join(WORDS)) | set("a photo of") - {" "})
    tokens = ["!", *(x for x in letters if x != " "), *(f"{x}</w>" for x in letters if x != " ")]
    tokens += ["<|startoftext|>", "<|endoftext|>"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps({token: n for n, token in enumerate(tokens)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    return T.CLIPTokenizer.from_pretrained(folder)


def detr(folder):
    config = T.DetrConfig(use_timm_backbone=False, use_pretrained_backbone=False, backbone=None,
                          backbone_config=T.ResNetConfig(**RESNET, out_features=["stage4"]), d_model=16, num_queries=12,
                          encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
                          encoder_ffn_dim=16, decoder_ffn_dim=16, **LABELS)  # fmt: skip
    processor = T.DetrImageProcessor(size={"shortest_edge": 48, "longest_edge": 80})
    return save(folder, T.DetrForObjectDetection(config), processor)


def rt_detr(folder):
    backbone = T.RTDetrResNetConfig(**RESNET, out_features=["stage2", "stage3", "stage4"])
    config = T.RTDetrConfig(backbone_config=backbone, encoder_hidden_dim=16, encoder_in_channels=[8, 8, 16],
                            feat_strides=[8, 16, 32], encoder_layers=1, encoder_ffn_dim=16, encoder_attention_heads=2,
                            d_model=16, num_queries=12, decoder_in_channels=[16, 16, 16], decoder_ffn_dim=16,
                            decoder_layers=1, decoder_attention_heads=2, num_denoising=0, anchor_image_size=None,
                            **LABELS)  # fmt: skip
    processor = T.RTDetrImageProcessor(size={"height": 64, "width": 64})
    return save(folder, T.RTDetrForObjectDetection(config), processor)


def owlv2(folder):
    tokenizer = clip_tokenizer(folder)
    text = {**SMALL, "vocab_size": len(tokenizer), "max_position_embeddings": 16}
    config = T.Owlv2Config(text_config=text, vision_config=VIT, projection_dim=16)
    processor = T.Owlv2ImageProcessor(size={"height": 32, "width": 32})
    return save(folder, T.Owlv2ForObjectDetection(config), T.Owlv2Processor(processor, tokenizer))


def grounding_dino(folder):
    tokenizer = bert_tokenizer(folder)
    backbone = T.SwinConfig(image_size=64, embed_dim=8, depths=[1, 1, 1], num_heads=[1, 1, 1], window_size=4,
                            out_features=["stage1", "stage2", "stage3"])  # fmt: skip
    text = T.BertConfig(**SMALL, vocab_size=1040, max_position_embeddings=64)
    config = T.GroundingDinoConfig(backbone_config=backbone, text_config=text, num_queries=12, num_feature_levels=4,
                                   encoder_n_points=2, decoder_n_points=2, max_text_len=32, **DEFORMABLE)  # fmt: skip
    processor = T.GroundingDinoImageProcessor(size={"shortest_edge": 48, "longest_edge": 80})
    model = T.GroundingDinoForObjectDetection(config)
    return save(folder, model, T.GroundingDinoProcessor(processor, tokenizer))


def clip(folder):
    tokenizer = clip_tokenizer(folder)
    text = {**SMALL, "vocab_size": len(tokenizer), "max_position_embeddings": 24,
            "eos_token_id": tokenizer.eos_token_id, "bos_token_id": tokenizer.bos_token_id}  # fmt: skip
    config = T.CLIPConfig(text_config=text, vision_config=VIT, projection_dim=12)
    processor = T.CLIPImageProcessor(size={"shortest_edge": 36}, crop_size={"height": 32, "width": 32})
    return save(folder, T.CLIPModel(config), T.CLIPProcessor(processor, tokenizer))


def siglip(folder):
    tokenizer = bert_tokenizer(folder)
    text = {**SMALL, "vocab_size": 1040, "max_position_embeddings": 16, "projection_size": 16}
    model = T.SiglipModel(T.SiglipConfig(text_config=text, vision_config=VIT))
    return save(folder, model, T.SiglipImageProcessor(size={"height": 32, "width": 32}), tokenizer)


def siglip2(folder):
    tokenizer = bert_tokenizer(folder)
    text = {**SMALL, "vocab_size": 1040, "max_position_embeddings": 16, "projection_size": 16}
    vision = {**SMALL, "patch_size": 8, "num_patches": 16}
    model = T.Siglip2Model(T.Siglip2Config(text_config=text, vision_config=vision))
    return save(folder, model, T.Siglip2ImageProcessor(patch_size=8, max_num_patches=16), tokenizer)


KINDS = {"detr": detr, "rt_detr": rt_detr, "owlv2": owlv2, "grounding_dino": grounding_dino, "clip": clip,
         "siglip": siglip, "siglip2": siglip2}  # fmt: skip


def build(name, folder):
    torch.manual_seed(1)
    return KINDS[name](folder)
