"""Defines ``two-tower-fused``: METER-like fusion layers on top of two public towers."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import nn

import vlcli.nn as vl
from vlcli.errors import ComponentError
from vlcli.registry import AttentionSpec, PositionSpec
from vlcli_two_tower.towers import TowerModel

Fusion = Literal["co-attention", "merged"]
_OTHER = {
    "merged": "words and cells share one sequence: use position, or set fusion: co-attention",
    "co-attention": "words and cells are two sequences: use cross_position and joint_*_position, or set fusion: merged",
}


class TwoTowerFused(TowerModel):
    """Fusion layers over the tokens of an image tower and a text tower, as METER has them.

    Both towers' states are projected to ``hidden``, and an embedding of their modality is added. With ``co-attention``,
    words and cells each attend to themselves, then to the other, in every layer; with ``merged``, to all tokens in one
    sequence. Attention of the fusion layers alone is recorded, under ``cross.N...`` or ``fused.N``. METER's heads read
    both pooled vectors side by side; here one layer brings them to the width ``hidden``.

    The towers are chosen and tuned as those of ``two-tower``; of ``both``, projections and scale are left out.

    Args:
        fusion: two sequences that look at one another, or one sequence.
        hidden: width of the fusion layers; None: the text tower's.
        heads: attention heads of the fusion layers.
        cross_layers: number of fusion layers.
        intermediate: width inside a feed-forward; None: four times ``hidden``.
        dropout: of the fusion layers.
        cross_position: pairwise encodings between words and cells (``co-attention``).
        joint_text_position: encodings of words there.
        joint_image_position: encodings of cells there.
        position: encodings of words and cells in one sequence (``merged``).
        attention: a registered attention of the fusion layers.
        init_std: deviation of the fusion layers' first weights; ``auto``: 0.02 at width 768, more in a narrower model.
    """

    paper = "METER, Dou et al., CVPR 2022, arXiv:2111.02387"
    capabilities = frozenset({"text", "image", "fuse"})
    slots: ClassVar[Mapping[str, vl.Slot]] = {
        "cross_position": vl.Slot.of("cross_position", ["pairs"], ["word"], ["cell", "special"]),
        "joint_text_position": vl.Slot.of("joint_text_position", ["tokens", "pairs"], ["word"]),
        "joint_image_position": vl.Slot.of("joint_image_position", ["tokens", "pairs"], ["cell", "special"]),
        "position": vl.Slot.of("position", ["pairs"], ["word", "cell", "special"]),
    }
    heads: ClassVar[Mapping[str, str]] = {"mlm": "vlmo-mlm", "answer": "vlmo-answer", "pair": "vlmo-pair"}

    def __init__(
        self,
        data_spec: vl.DataSpec,
        *,
        fusion: Fusion = "co-attention",
        hidden: Annotated[int, Field(ge=1, le=65_536)] | None = None,
        heads: Annotated[int, Field(ge=1, le=1024)] = 12,
        cross_layers: Annotated[int, Field(ge=1, le=1024)] = 6,
        intermediate: Annotated[int, Field(ge=1, le=1_048_576)] | None = None,
        dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1,
        cross_position: PositionSpec | list[PositionSpec] | None = None,
        joint_text_position: PositionSpec | list[PositionSpec] | None = None,
        joint_image_position: PositionSpec | list[PositionSpec] | None = None,
        position: PositionSpec | list[PositionSpec] | None = None,
        attention: AttentionSpec = "standard",
        init_std: vl.InitStd = "auto",
        **options: Any,
    ) -> None:
        super().__init__(data_spec, **options)
        self._dual.clear()
        width = hidden or self.text.hidden
        if width % heads:
            got, where = f"{width} and {heads}", "model two-tower-fused"
            raise ComponentError("The heads do not divide the width.", where=where, got=got, expected="heads * n")
        self.init_std, self.width, self.fusion = vl.init_scale(init_std, width), width, fusion
        self.text_transform, self.image_transform = (nn.Linear(one.hidden, width) for one in (self.text, self.image))
        self.text_summary, self.image_summary = (nn.Linear(one.pooled, width) for one in (self.text, self.image))
        self.kinds = nn.Embedding(2, width)
        self.pooler = nn.Linear(2 * width, width)
        shape = vl.AttentionShape(width, heads, layers=cross_layers, dropout=dropout)
        style = replace(vl.BERT_STYLE, dropout=dropout)
        slots = dict(self.slots)
        for name, slot in slots.items():
            if (name == "position") is (fusion == "co-attention"):
                slots[name] = slot.without("pairs", _OTHER[fusion]).without("tokens", _OTHER[fusion])
        across = vl.build_positions(cross_position, replace(shape, cross=True), slots["cross_position"])[1]
        self.joint_text, among_words = vl.build_positions(joint_text_position, shape, slots["joint_text_position"])
        placed = vl.with_grid(joint_image_position, self.grid, self.image.special)
        self.joint_image, among_cells = vl.build_positions(placed, shape, slots["joint_image_position"])
        together = vl.build_positions(position, shape, slots["position"])[1]
        layers = cross_layers, shape, intermediate, style, attention
        self.stack = vl.Stack.of(*layers, together) if fusion == "merged" else None
        apart = fusion == "co-attention"
        self.cross = vl.CrossEncoder(*layers, across, among_words, among_cells, True, 1) if apart else None
        vl.initialise_model(self, self.init_std, skip=(self.text, self.image))

    @property
    def dim(self) -> int:
        return self.width

    def word_table(self) -> nn.Embedding:
        return self.text.embeddings()

    def encode_text(self, text: vl.Text, record: vl.Recorder | None = None) -> vl.EncoderOutput:
        hidden, pooled = self.text(text, self.pad_id)
        layout = vl.Layout.for_text(text.mask, text.special)
        return vl.EncoderOutput(self.text_transform(hidden), layout, self.text_summary(pooled))

    def encode_image(self, images: vl.Images, record: vl.Recorder | None = None) -> vl.EncoderOutput:
        hidden, pooled = self.read_pixels(images)
        layout = self.image.layout(hidden.device)
        return vl.EncoderOutput(self.image_transform(hidden), layout, self.image_summary(pooled))

    def fuse(
        self, text: vl.EncoderOutput, image: vl.EncoderOutput, record: vl.Recorder | None = None
    ) -> vl.FusionOutput:
        words = self._placed(text, self.joint_text, 0)
        cells = self._placed(image, self.joint_image, 1)
        if self.stack is not None:
            joined, layout = torch.cat([words.hidden, cells.hidden], 1), words.layout + cells.layout
            hidden, _ = self.stack(joined, layout, vl.AttentionMask(layout.valid), record=record, name="fused")
            seen, looked = hidden.split([words.hidden.shape[1], cells.hidden.shape[1]], 1)
        elif self.cross is not None:
            seen, looked = self.cross(words, [cells], record)  # (P, T, D), (P, R, D)
        pooled = torch.tanh(self.pooler(torch.cat([seen[:, 0], looked[:, 0]], -1)))
        return vl.FusionOutput(vl.EncoderOutput(seen, text.layout), vl.EncoderOutput(looked, image.layout), pooled)

    def _placed(self, states: vl.EncoderOutput, positions: nn.ModuleList, kind: int) -> vl.EncoderOutput:
        hidden: Any = states.hidden + self.kinds.weight[kind]
        for position in positions:
            hidden = position(hidden, states.layout)
        return vl.EncoderOutput(hidden, states.layout)
