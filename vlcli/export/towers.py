"""Converts encoders of vlcli's blocks to transformers' BERT and ViT."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

import vlcli.nn as vl
from vlcli.export.conversion import check_plain, fill, largest_difference, refused
from vlcli.nn.fake import fake_text
from vlcli.nn.names import BERT_NAMES, VIT_NAMES, translate


def layer_names(state: Mapping[str, Tensor], table: Mapping[str, str], prefix: str) -> dict[str, Tensor]:
    """Return weights of numbered layers (``3.feed_forward.inner.weight``) under the names of another library.

    ``table`` maps beginnings of names inside a layer; ``prefix`` stands before the number.
    """
    renamed = {}
    for name, value in state.items():
        number, rest = name.split(".", 1)
        renamed[f"{prefix}{number}.{translate(rest, table) or rest}"] = value
    return renamed


def layer_facts(layers: nn.Module) -> dict[str, Any]:
    """Return the sizes of a list of layers by the keys of transformers' configurations."""
    attention = next(part for part in layers.modules() if isinstance(part, vl.StandardAttention))
    inner = next(part for name, part in layers.named_modules() if name.endswith(("feed_forward.inner", "feed.inner")))
    norm = next(part for part in layers.modules() if isinstance(part, nn.LayerNorm))
    return {"num_attention_heads": attention.heads, "intermediate_size": inner.out_features, "layer_norm_eps": norm.eps}


def learned(positions: Iterable[nn.Module], family: str, of: str) -> Tensor:
    """Return the table (T, D) of the only encoding; raise ComponentError unless there is one, a learned one."""
    parts = list(positions)
    if len(parts) == 1 and isinstance(parts[0], vl.LearnedPosition) and (parts[0].grid is None) == (of == "words"):
        return parts[0].table.weight
    named = " and ".join(type(part).__name__ for part in parts) or "none"
    raise refused(family, f"other positions of {of} ({named})", f"learned positions of {of} and no others")


def bert(embed: vl.TextEmbeddings, stack: vl.Stack, pooler: vl.Pooler | None, family: str = "BERT") -> Any:
    """Return transformers' ``BertModel`` with the weights of a text encoder; ComponentError if it is no BERT.

    ``stack`` holds post-norm layers without a pairwise encoding; ``pooler`` may be None, ``family`` is for messages.
    """
    from transformers import BertConfig, BertModel

    check_plain(stack, family, "text_position")
    table, words = learned(embed.positions, family, "words"), embed.words
    segments = torch.zeros(2, words.embedding_dim) if embed.segments is None else embed.segments.weight
    config = BertConfig(
        vocab_size=words.num_embeddings,
        hidden_size=words.embedding_dim,
        num_hidden_layers=len(stack.layers),
        max_position_embeddings=len(table),
        type_vocab_size=len(segments),
        **layer_facts(stack.layers),
    )
    state = {
        "embeddings.word_embeddings.weight": words.weight,
        "embeddings.position_embeddings.weight": table,
        "embeddings.token_type_embeddings.weight": segments,
        "embeddings.LayerNorm.weight": embed.norm.weight,
        "embeddings.LayerNorm.bias": embed.norm.bias,
        **layer_names(stack.layers.state_dict(), BERT_NAMES, "encoder.layer."),
        **({} if pooler is None else {f"pooler.dense.{n}": v for n, v in pooler.dense.state_dict().items()}),
    }
    return fill(BertModel(config, add_pooling_layer=pooler is not None), state, family)


def vit_state(
    patch: nn.Conv2d, tokens: Mapping[str, Tensor], positions: nn.ModuleList, stack: vl.Stack, family: str
) -> dict[str, Tensor]:
    """Return the weights of an image encoder by transformers' names; ComponentError if it is no ViT.

    ``tokens`` are special tokens (1, 1, D) by transformers' names, ``positions`` one learned table of a grid; ``stack``
    holds pre-norm layers without a pairwise encoding, and a last norm. ``family`` is for messages.
    """
    check_plain(stack, family)
    table, norm = learned(positions, family, "cells"), stack.norm
    assert isinstance(norm, nn.LayerNorm)
    return {
        **{f"embeddings.{name}": value for name, value in tokens.items()},
        "embeddings.position_embeddings": table[None],
        **{f"embeddings.patch_embeddings.projection.{n}": v for n, v in patch.state_dict().items()},
        **layer_names(stack.layers.state_dict(), VIT_NAMES, "layers."),
        **{f"layernorm.{n}": v for n, v in norm.state_dict().items()},
    }


def vit(patch: nn.Conv2d, token: Tensor, positions: nn.ModuleList, stack: vl.Stack, image_size: tuple[int, int]) -> Any:
    """Return transformers' ``ViTModel`` with the weights of an image encoder; its pooler returns the class token.

    ``token`` is (1, 1, D); the others are as in :func:`vit_state`, with its errors.
    """
    from transformers import ViTConfig, ViTModel

    state = vit_state(patch, {"cls_token": token}, positions, stack, "ViT")
    state |= {
        "pooler.dense.weight": torch.eye(patch.out_channels),
        "pooler.dense.bias": torch.zeros(patch.out_channels),
    }
    return fill(ViTModel(ViTConfig(pooler_act="linear", **vit_facts(patch, stack, image_size))), state, "ViT")


def vit_facts(patch: nn.Conv2d, stack: vl.Stack, image_size: tuple[int, int]) -> dict[str, Any]:
    """Return the sizes of an image encoder by the keys of ``ViTConfig`` and ``DeiTConfig``."""
    return {
        "hidden_size": patch.out_channels,
        "num_hidden_layers": len(stack.layers),
        "image_size": image_size[0] if image_size[0] == image_size[1] else list(image_size),
        "patch_size": patch.kernel_size[0],
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        **layer_facts(stack.layers),
    }


def class_labels(model: vl.Model) -> dict[int, str]:
    """Return the names of the classes of a model's image classifier: the data's answers, if there are as many."""
    rows, answers = model.own_classes, model.data_spec.answers
    return dict(enumerate(answers if len(answers) == rows else map(str, range(rows))))


def random_text(data_spec: vl.DataSpec, rows: int = 3) -> vl.Text:
    """Make sentences of random pieces and falling length, padded to the longest; the same at every call."""
    text, draw = fake_text(data_spec, rows), torch.Generator().manual_seed(0)
    length = data_spec.text_length
    real = torch.arange(length) < torch.tensor([[max(length - 3 * row, 2)] for row in range(rows)])
    ids = torch.randint(0, data_spec.vocab_size, (rows, length), generator=draw)
    text.ids, text.mask = ids.masked_fill(~real, data_spec.pad_id), real
    text.special, text.words = torch.zeros_like(real), text.words.masked_fill(~real, -1)
    return text


def random_images(size: tuple[int, int], rows: int = 2) -> vl.Images:
    """Make pictures of random numbers (rows, 3, H, W); the same at every call."""
    pixels = torch.randn(rows, 3, *size, generator=torch.Generator().manual_seed(0))
    return vl.Images([str(row) for row in range(rows)], None, vl.Pixels(pixels, torch.tensor([size] * rows)))


def text_difference(model: vl.Model, network: Any) -> float:
    """Return the largest difference of a hidden state of a text encoder from transformers' class, without padding."""
    text = random_text(model.data_spec)
    with torch.no_grad():
        ours = model.encode_text(text)
        theirs = network(input_ids=text.ids, attention_mask=text.mask.long())
    return largest_difference((ours.hidden[text.mask], theirs.last_hidden_state[text.mask]))


def image_difference(model: vl.Model, network: Any, size: tuple[int, int]) -> float:
    """Return the largest difference of a hidden or pooled state of an image encoder from transformers' class."""
    images = random_images(size)
    with torch.no_grad():
        ours = model.encode_image(images)
        theirs = network(pixel_values=images.pixels_for("transformers"))
    assert ours.pooled is not None
    return largest_difference((ours.hidden, theirs.last_hidden_state), (ours.pooled, theirs.pooler_output))


def class_difference(model: Any, network: Any) -> float:
    """Return the largest difference of a class score of an image classifier from transformers' class."""
    pixels = random_images(model.image_size).pixels_for("transformers")  # (2, 3, H, W)
    with torch.no_grad():
        return largest_difference((model.eval()(pixels), network(pixel_values=pixels).logits))
