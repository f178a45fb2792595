"""Defines ViLT: words and patches in one transformer, without encoders of their own."""

import re
from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

import vlcli.nn as vl
from vlcli.registry import AttentionSpec, PositionSpec
from vlcli_vlmo.blocks import add_types

_NAMES = {
    "text.words.": "embeddings.text_embeddings.word_embeddings.",
    "text.positions.0.table.": "embeddings.text_embeddings.position_embeddings.",
    "text.segments.": "embeddings.text_embeddings.token_type_embeddings.",
    "text.norm.": "embeddings.text_embeddings.LayerNorm.",
    "types.": "embeddings.token_type_embeddings.",
    "cls_token": "embeddings.cls_token",
    "patch.": "embeddings.patch_embeddings.projection.",
    "positions.0.table.weight": "embeddings.position_embeddings",
    "stack.norm.": "layernorm.",
    "pooler.": "pooler.",
    "objectives.mlm.head.transform.dense.": "mlm_score.transform.dense.",
    "objectives.mlm.head.transform.norm.": "mlm_score.transform.LayerNorm.",
    "objectives.mlm.head.bias": "mlm_score.decoder.bias",
    **{
        f"objectives.{objective}.head.{ours}.": f"classifier.{row}."
        for objective in ("answering", "classification")
        for ours, row in (("inner", 0), ("norm", 1), ("outer", 3))
    },
}
_LAYER = {
    **vl.BERT_NAMES,
    "self_attention.attention.": "attention.attention.",
    "self_attention.norm.": "layernorm_before.",
    "feed_forward.norm.": "layernorm_after.",
}
TABLE = "embeddings.position_embeddings"
# The word table once more, which transformers' masked-word head is tied to
DECODER = "mlm_score.decoder.weight"


class ViLT(vl.Model):
    """ViLT: a single-stream transformer over words and patches, ViT's layers behind BERT's and ViT's embeddings.

    Attention is recorded under ``fuse.N``. Pictures are squares of ``image_size``; the authors keep their proportions.

    Args:
        hidden: width.
        layers: depth.
        heads: attention heads.
        intermediate: width inside a feed-forward; None: four times ``hidden``.
        image: what is read of a picture: its pixels in square patches, or a grid of stored features.
        image_size: height and width in pixels.
        patch: side of a patch.
        grid: rows and columns of stored features, with ``image: features``.
        length: rows of the text's position table.
        text_position: further token encodings of words.
        image_position: token encodings of patches.
        position: pairwise encodings of all tokens, one or several.
        attention: a registered attention.
        dropout: of embeddings and blocks.
        drop_path: stochastic depth of the last layer.
        images: pictures an example that are told apart by a type row each (2 for NLVR2).
        init_std: deviation of freshly drawn weights; ``auto``: 0.02 at width 768, more in a narrower model.
        packed: compute token-wise layers without padding.
    """

    paper = "ViLT, Kim et al., ICML 2021, arXiv:2102.03334"
    grid: tuple[int, int]
    capabilities = frozenset({"fuse", "hide"})
    fuse_takes = "embeddings"
    readouts = frozenset({"pooler"})
    slots: ClassVar[Mapping[str, vl.Slot]] = {
        "text_position": vl.Slot.of("text_position", ["tokens"], ["word"]),
        "image_position": vl.Slot.of("image_position", ["tokens"], ["cell", "special"]),
        "position": vl.Slot.of("position", ["pairs"], ["word", "cell", "special"]),
    }
    heads: ClassVar[Mapping[str, str]] = {
        "mlm": "bert-mlm",
        "matching": "linear",
        "answer": "vlmo-answer",
        "pair": "vlmo-pair",
    }

    def __init__(
        self,
        data_spec: vl.DataSpec,
        *,
        hidden: int = 768,
        layers: int = 12,
        heads: int = 12,
        intermediate: int | None = None,
        image: Literal["pixels", "features"] = "pixels",
        image_size: int = 384,
        patch: int = 32,
        grid: tuple[int, int] = (6, 6),
        length: int = 40,
        text_position: PositionSpec | list[PositionSpec] | None = None,
        image_position: PositionSpec | list[PositionSpec] | None = "learned",
        position: PositionSpec | list[PositionSpec] | None = None,
        attention: AttentionSpec = "standard",
        dropout: float = 0.0,
        drop_path: float = 0.0,
        images: int = 1,
        init_std: vl.InitStd = "auto",
        packed: bool = True,
    ) -> None:
        super().__init__(data_spec)
        self.image_source, self.image_size, self.patch_size = image, image_size, patch
        self.init_std = vl.init_scale(init_std, hidden)
        self.grid = vl.image_grid(image, image_size, patch, grid, "vilt")
        shape = vl.AttentionShape(hidden, heads, layers, dropout=dropout)
        of_words = [{"name": "learned", "length": length}, *vl.chosen(text_position)]
        words = vl.build_positions(of_words, shape, self.slots["text_position"])[0]
        self.text = vl.TextEmbeddings(data_spec, hidden, words, dropout=dropout)
        self.types = nn.Embedding(1 + images, hidden)
        self.patch = vl.patch_embedding(image, patch, data_spec.region_dim, hidden, dropout)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, hidden))
        of_patches = vl.with_grid(image_position, self.grid)
        self.positions = vl.build_positions(of_patches, shape, self.slots["image_position"])[0]
        pairs = vl.build_positions(position, shape, self.slots["position"])[1]
        style = vl.BlockStyle("pre", 1e-12, dropout, drop_path=drop_path)
        self.stack = vl.Stack.of(layers, shape, intermediate, style, attention, pairs)
        self.stack.packed = packed
        self.pooler = vl.Pooler(hidden)
        vl.initialise_model(self, self.init_std)
        nn.init.trunc_normal_(self.cls_token, std=self.init_std)

    @property
    def dim(self) -> int:
        return self.pooler.dense.out_features

    def input_spec(self) -> vl.InputSpec:
        if self.image_source == "features":
            return vl.InputSpec(text=True, regions=True, grid=self.grid)
        half = (0.5, 0.5, 0.5)
        return vl.InputSpec(text=True, pixels=True, size=(self.image_size, self.image_size), mean=half, std=half)

    def word_table(self) -> nn.Embedding:
        return self.text.words

    def embed_text(self, text: vl.Text) -> vl.EncoderOutput:
        return vl.EncoderOutput(*self.text(text))

    def embed_image(self, images: vl.Images) -> vl.EncoderOutput:
        return vl.embed_grid(images, self.patch, self.cls_token, self.positions, self.grid, "vilt", self.image_size)

    def fuse(
        self, text: vl.EncoderOutput, image: vl.EncoderOutput, record: vl.Recorder | None = None
    ) -> vl.FusionOutput:
        x, words = torch.cat(add_types(self.types, text, image), 1), text.hidden.shape[1]  # (P, T + R, D)
        layout = text.layout + image.layout
        hidden, _ = self.stack(x, layout, vl.AttentionMask(layout.valid), record=record, name="fuse")
        of_text = vl.EncoderOutput(hidden[:, :words], text.layout)
        return vl.FusionOutput(of_text, vl.EncoderOutput(hidden[:, words:], image.layout), self.pooler(hidden))

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        return vl.fit_weights(self, from_transformers(self, state, report), report)

    def layer_of(self, name: str) -> int | None:
        return vl.layer_number(name, {"stack.layers.": 0}, ("stack.", "pooler."), len(self.stack.layers))


def public_name(name: str) -> str | None:
    """Returns transformers' name of a parameter, without ``vilt.``; None where it has no such thing."""
    if layer := re.match(r"stack\.layers\.(\d+)\.(.+)", name):
        inner = vl.translate(layer[2], _LAYER)
        return inner and f"encoder.layer.{layer[1]}.{inner}"
    return vl.translate(name, _NAMES)


def to_transformers(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns weights of a model or module by transformers' names without ``vilt.``; unknown names stay."""
    named = {public_name(name.removeprefix("model.")) or name: value for name, value in state.items()}
    if (table := named.get(TABLE)) is not None:
        named[TABLE] = table[None]  # (1, T, D) there
    return named


def from_transformers(model: ViLT, state: Mapping[str, Tensor], report: list[str]) -> dict[str, Tensor]:
    """Returns weights of any of transformers' ViLT classes by our names; unknown names stay."""
    plain = {name.removeprefix("vilt."): value for name, value in state.items() if name != DECODER}
    if TABLE not in plain:
        return dict(state)
    known = {public_name(name): name for name in dict(model.named_parameters())}
    wide = plain.get("classifier.0.weight")
    other = "answering" if wide is not None and wide.shape[1] > model.dim else "classification"
    heads = {theirs: ours for ours, theirs in _NAMES.items() if ours.startswith("objectives.") and other not in ours}
    heads["mlm_score.bias"] = "objectives.mlm.head.bias"  # transformers 4
    renamed = {known.get(name) or vl.translate(name, heads) or name: value for name, value in plain.items()}
    renamed["positions.0.table.weight"] = renamed["positions.0.table.weight"][0]
    types = renamed["types.weight"]
    if missing := len(model.types.weight) - len(types):  # a second picture begins as a copy of the first
        renamed["types.weight"] = torch.cat([types, types[-1:].expand(max(missing, 0), -1)])[: len(model.types.weight)]
    report.append(f"{len(renamed)} weights had the names of transformers' ViLT")
    return renamed
