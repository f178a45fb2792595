"""Defines VLMo: one transformer that encodes texts, images, and both together."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

import vlcli.nn as vl
from vlcli.errors import ComponentError
from vlcli.registry import AttentionSpec, PositionSpec
from vlcli_vlmo.blocks import FUSED_EXPERT, IMAGE_EXPERT, TEXT_EXPERT, MoMEStack, Parts, add_types
from vlcli_vlmo.weights import adapt

# BEiT's attention: no bias on keys, softmax in float32
STANDARD = {"name": "standard", "bias": "query_value", "float32_softmax": True}


@dataclass(frozen=True)
class Size:
    """Sizes of a model of the paper or of the released code."""

    hidden: int
    layers: int
    heads: int
    fused_layers: int
    relative: bool = True
    layer_scale: float | None = 0.1


# Paper section 4.1; ``base_plus`` and the layer scale are the released code's
SIZES = {
    "base": Size(768, 12, 12, 2),
    "base_plus": Size(544, 24, 16, 3, relative=False, layer_scale=None),
    "large": Size(1024, 24, 16, 3),
}


class VLMo(vl.Model):
    """VLMo: mixture-of-modality-experts transformer, a dual encoder and a fusion encoder in one.

    Texts alone and images alone pass their own expert in every layer; a pair passes both, then the vision-language
    experts of the top layers. Attention is recorded under ``text.N``, ``image.N`` and ``fuse.N``.

    Args:
        size: width, depth, heads, vision-language layers, positions and layer scale of a released model.
        hidden: another width.
        layers: another depth.
        heads: another number of heads.
        intermediate: width inside an expert; None: four times ``hidden``.
        fused_layers: how many top layers have a vision-language expert; 0 in the text-only stage.
        image: what is read of a picture: its pixels in square patches, or a grid of stored features.
        image_size: height and width in pixels.
        patch: side of a patch.
        grid: rows and columns of stored features, with ``image: features``.
        position_type: one relative table for all layers, absolute positions (the paper), or the size's own.
        position: pairwise encodings instead of the relative table, one or several.
        fused_position: further pairwise encodings of a pair in the vision-language layers, measured on their input
            (ACE-RPE's).
        text_position: token encodings of texts instead of those of ``position_type``.
        image_position: token encodings of images instead of those of ``position_type``.
        length: words the relative table serves; 196 in every stage, so that stages share it.
        layer_scale: initial factor on each block's output, ``auto``: the size's own, null: none.
        shared_norm: one norm before all experts of a layer (the paper) instead of one each (the code).
        attention: a registered attention for all layers.
        lower_attention: another one below the vision-language layers (Table 7).
        drop_path: stochastic depth of the last layer; the released code drops text embeddings at the same rate.
        mixture: an expert for each modality; false: the image's alone for all tokens (Table 5, standard transformer).
        text_start: text experts that weights lack: freshly drawn, or copies of the image's (Table 4, image-only
            pre-training).
        fused_start: the same for the vision-language experts: freshly drawn (the released code), or copies.
        second_path: texts and images alone also pass the vision-language experts, for a second contrast.
        pooled: the vector of a pair: the first token through a linear layer and tanh (the released code's ``pooler``),
            or this token as it is (section 4.3).
        images: pictures an example that are told apart by a type row each (2 for NLVR2).
        init_std: deviation of freshly drawn weights; ``auto``: 0.02 at the released widths, more in a narrower model.
        packed: compute token-wise layers without padding.
    """

    paper = "VLMo, Bao et al., NeurIPS 2022, arXiv:2111.02358"
    grid: tuple[int, int]
    capabilities = frozenset({"text", "image", "fuse", "hide"})
    fuse_takes = "embeddings"
    partial_passes = frozenset({"text", "image", "fused"})
    readouts = frozenset({"pooler"})
    slots: ClassVar[Mapping[str, vl.Slot]] = {
        "position": vl.Slot.of("position", ["pairs"], ["word", "cell", "special"]),
        "fused_position": vl.Slot.of("fused_position", ["pairs"], ["word", "cell", "special"]),
        "text_position": vl.Slot.of("text_position", ["tokens"], ["word"]),
        "image_position": vl.Slot.of("image_position", ["tokens"], ["cell", "special"]),
    }
    heads: ClassVar[Mapping[str, str]] = {
        "mlm": "vlmo-mlm",
        "matching": "linear",
        "answer": "vlmo-answer",
        "pair": "vlmo-pair",
    }

    def __init__(
        self,
        data_spec: vl.DataSpec,
        *,
        size: Literal["base", "base_plus", "large"] = "base",
        hidden: int | None = None,
        layers: int | None = None,
        heads: int | None = None,
        intermediate: int | None = None,
        fused_layers: int | None = None,
        image: Literal["pixels", "features"] = "pixels",
        image_size: int = 224,
        patch: int = 16,
        grid: tuple[int, int] = (6, 6),
        position_type: Literal["auto", "relative", "absolute"] = "auto",
        position: PositionSpec | list[PositionSpec] | None = None,
        fused_position: PositionSpec | list[PositionSpec] | None = None,
        text_position: PositionSpec | list[PositionSpec] | None = None,
        image_position: PositionSpec | list[PositionSpec] | None = None,
        length: int = 196,
        layer_scale: float | Literal["auto"] | None = "auto",
        shared_norm: bool = False,
        attention: AttentionSpec | None = None,
        lower_attention: AttentionSpec | None = None,
        drop_path: float = 0.1,
        mixture: bool = True,
        text_start: Literal["fresh", "image"] = "fresh",
        fused_start: Literal["fresh", "image", "text"] = "fresh",
        second_path: bool = True,
        pooled: Literal["pooler", "token"] = "pooler",
        images: int = 1,
        init_std: vl.InitStd = "auto",
        packed: bool = True,
    ) -> None:
        super().__init__(data_spec)
        published = SIZES[size]
        width, depth = hidden or published.hidden, layers or published.layers
        top = published.fused_layers if fused_layers is None else fused_layers
        if not 0 <= top <= depth:
            what = "There are more vision-language layers than layers."
            raise ComponentError(what, where="model vlmo", got=f"{top} of {depth}")
        if top and not mixture:
            what = "A standard transformer has no vision-language layers."
            raise ComponentError(what, where="model vlmo", hint="set fused_layers: 0")
        self.starts: dict[str, str] = {TEXT_EXPERT: text_start, FUSED_EXPERT: fused_start}
        self.init_std = vl.init_scale(init_std, width, published=544)
        self.second_path = second_path and top > 0
        self.image_source, self.image_size, self.patch_size = image, image_size, patch
        self.grid = vl.image_grid(image, image_size, patch, grid, "vlmo")
        shape = vl.AttentionShape(width, heads or published.heads, depth)
        relative = published.relative if position_type == "auto" else position_type == "relative"
        unread = relative and text_position is None
        if relative and position is None:
            position = {"name": "vlmo-bias", "grid": list(self.grid), "length": length}
        if not relative and text_position is None:
            text_position = {"name": "learned", "length": data_spec.text_length}
        cells = "learned" if image_position is None and not relative else image_position
        words = vl.build_positions(text_position, shape, self.slots["text_position"])[0]
        self.text = vl.TextEmbeddings(data_spec, width, words, dropout=drop_path)
        # The released files hold a table of text positions even where nothing reads it.
        self.idle_positions = nn.Embedding(data_spec.text_length, width).requires_grad_(False) if unread else None
        self.types = nn.Embedding(1 + images, width)
        self.patch = vl.patch_embedding(image, patch, data_spec.region_dim, width, 0.0)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = vl.build_positions(vl.with_grid(cells, self.grid), shape, self.slots["image_position"])[0]
        scale = published.layer_scale if layer_scale == "auto" else layer_scale
        style = vl.BlockStyle("pre", 1e-6, 0.0, layer_scale=scale, drop_path=drop_path)
        usual = attention or STANDARD
        attentions = [lower_attention or usual] * (depth - top) + [usual] * top
        encoding = vl.build_positions(position, shape, self.slots["position"])[1]
        why = "there are no vision-language layers here: set fused_layers"
        among_both = self.slots["fused_position"] if top else self.slots["fused_position"].without("pairs", why)
        further = vl.build_positions(fused_position, replace(shape, layers=max(top, 1)), among_both)[1]
        inner, experts = intermediate or 4 * width, (depth - top, shared_norm, mixture)
        self.stack = MoMEStack(shape, inner, style, attentions, encoding, *experts, further)
        self.stack.packed = packed
        self.pooler = vl.Pooler(width) if pooled == "pooler" else None
        self._initialise(open_scales=layer_scale == "auto")

    def _initialise(self, open_scales: bool) -> None:
        vl.initialise_model(self, self.init_std)
        nn.init.trunc_normal_(self.cls_token, std=self.init_std)
        if self.init_std > vl.PUBLISHED_STD and self.image_source == "features":
            vl.match_normalised(self.positions)
        if self.init_std > vl.PUBLISHED_STD and open_scales:  # a layer scale of 0.1 belongs to twelve layers and more
            for name, parameter in self.stack.layers.named_parameters():
                if name.endswith(".scale"):
                    nn.init.ones_(parameter)

    @property
    def dim(self) -> int:
        return self.types.embedding_dim

    @property
    def depth(self) -> int:
        return len(self.stack.layers)

    def input_spec(self) -> vl.InputSpec:
        if self.image_source == "features":
            return vl.InputSpec(text=True, regions=True, grid=self.grid)
        return vl.InputSpec(text=True, pixels=True, size=(self.image_size, self.image_size))

    def word_table(self) -> nn.Embedding:
        return self.text.words

    def embed_text(self, text: vl.Text) -> vl.EncoderOutput:
        return vl.EncoderOutput(*self.text(text))

    def embed_image(self, images: vl.Images) -> vl.EncoderOutput:
        return vl.embed_grid(images, self.patch, self.cls_token, self.positions, self.grid, "vlmo", self.image_size)

    def encode_text(self, text: vl.Text, record: vl.Recorder | None = None, rows: vl.Rows = "all") -> vl.EncoderOutput:
        return self._alone(self.embed_text(text), TEXT_EXPERT, record, rows)

    def encode_image(
        self, images: vl.Images, record: vl.Recorder | None = None, rows: vl.Rows = "all"
    ) -> vl.EncoderOutput:
        return self._alone(self.embed_image(images), IMAGE_EXPERT, record, rows)

    def _alone(
        self, states: vl.EncoderOutput, expert: str, record: vl.Recorder | None, rows: vl.Rows
    ) -> vl.EncoderOutput:
        # ``extra["fused"]`` (N, D): the first token by the vision-language experts, for the second contrast.
        x, layout, extra = states.hidden + self.types.weight[int(expert == IMAGE_EXPERT)], states.layout, {}
        parts, start = [(expert, x.shape[1])], self.stack.fused_from
        keep = {*self.output_hidden_states, *([start] if self.second_path else [])}
        hidden, kept = self.stack(x, layout, parts, fused=False, rows=rows, keep=keep, record=record, name=expert)
        if self.second_path:
            again, _ = self.stack(kept[start], layout, parts, fused=True, first=start, rows="pooled")
            extra["fused"] = again[:, 0]
        layers = {number: kept[number] for number in self.output_hidden_states}
        return replace(_finished(hidden, layout, layers), pooled=hidden[:, 0], extra=extra)

    def fuse(
        self, text: vl.EncoderOutput, image: vl.EncoderOutput, record: vl.Recorder | None = None, rows: vl.Rows = "all"
    ) -> vl.FusionOutput:
        words, x = text.hidden.shape[1], torch.cat(add_types(self.types, text, image), 1)
        parts: Parts = [(TEXT_EXPERT, words), (IMAGE_EXPERT, image.hidden.shape[1])]
        options = {"rows": rows, "keep": self.output_hidden_states, "record": record, "name": "fuse"}
        hidden, kept = self.stack(x, text.layout + image.layout, parts, fused=True, **options)
        of_text, of_image = _finished(hidden[:, :words], text.layout, kept), _finished(hidden[:, words:], image.layout)
        return vl.FusionOutput(of_text, of_image, hidden[:, 0] if self.pooler is None else self.pooler(hidden))

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        return adapt(self, state, report)

    def parameter_groups(self) -> Iterable[tuple[str, dict[str, float]]]:
        return ((r"^stack\.position\.", {"decay": 0.0}),)

    def layer_of(self, name: str) -> int | None:
        return vl.layer_number(name, {"stack.layers.": 0}, ("stack.", "pooler."), self.depth)


def _finished(hidden: Tensor, layout: vl.Layout, layers: dict[int, Tensor] | None = None) -> vl.EncoderOutput:
    # The first tokens of a sequence, which are all that a pass has finished.
    whole = hidden.shape[1] == layout.route.shape[1]
    return vl.EncoderOutput(hidden, layout if whole else layout.cut(0, hidden.shape[1]), layers=layers or {})
