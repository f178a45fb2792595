"""A single stream over words and regions with a slot for pairwise position encodings of the regions."""

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

from torch import nn

from vlcli.nn import (
    AttentionMask,
    AttentionShape,
    BlockStyle,
    DataSpec,
    EncoderOutput,
    FeatureEmbeddings,
    FusionOutput,
    InitStd,
    InputSpec,
    Layout,
    Model,
    Pooler,
    Slot,
    Stack,
    TextEmbeddings,
    build_positions,
    init_scale,
    initialise,
)
from vlcli.registry import PositionSpec

Positions = PositionSpec | list[PositionSpec] | None


class Meadow(Model):
    """A text encoder and a region encoder, joined by a product of their poolers."""

    paper = "none: an example of a package from outside"
    capabilities = frozenset({"text", "image", "fuse"})
    slots: ClassVar[Mapping[str, Slot]] = {
        "text_position": Slot.of("text_position", ["tokens", "pairs"], ["word", "special"]),
        "image_position": Slot.of("image_position", ["tokens", "pairs"], ["box"]),
    }

    def __init__(
        self,
        data_spec: DataSpec,
        *,
        hidden: int = 32,
        heads: int = 2,
        layers: int = 1,
        dropout: float = 0.1,
        text_position: Positions = "learned",
        image_position: Positions = "box",
        init_std: InitStd = "auto",
    ) -> None:
        super().__init__(data_spec)
        self.hidden, style = hidden, BlockStyle(dropout=dropout)
        shape = AttentionShape(hidden, heads, layers, dropout=dropout)
        tokens, pairs = build_positions(text_position, shape, self.slots["text_position"])
        self.words = TextEmbeddings(data_spec, hidden, tokens, dropout=dropout)
        self.reading = Stack.of(layers, shape, style=style, position=pairs)
        tokens, pairs = build_positions(image_position, shape, self.slots["image_position"])
        self.regions = FeatureEmbeddings(data_spec.region_dim, hidden, tokens, dropout=dropout)
        self.looking = Stack.of(layers, shape, style=style, position=pairs)
        self.text_pooler, self.image_pooler = Pooler(hidden), Pooler(hidden)
        self.init_std = init_scale(init_std, hidden)
        self.apply(partial(initialise, std=self.init_std))

    @property
    def dim(self) -> int:
        return self.hidden

    def input_spec(self) -> InputSpec:
        return InputSpec(text=True, regions=True)

    def word_table(self) -> nn.Embedding:
        return self.words.words

    def encode_text(self, text, record=None) -> EncoderOutput:
        hidden, layout = self.words(text)
        hidden, _ = self.reading(hidden, layout, AttentionMask(keys=layout.valid), record=record, name="text")
        return EncoderOutput(hidden, layout, self.text_pooler(hidden))

    def encode_image(self, images, record=None) -> EncoderOutput:
        layout = Layout.for_boxes(images.regions.boxes, images.regions.mask)
        hidden = self.regions(images.regions.features, layout)
        hidden, _ = self.looking(hidden, layout, AttentionMask(keys=layout.valid), record=record, name="image")
        return EncoderOutput(hidden, layout, self.image_pooler(hidden))

    def fuse(self, text: EncoderOutput, image: EncoderOutput, record=None) -> FusionOutput:
        return FusionOutput(text, image, text.pooled * image.pooled)
