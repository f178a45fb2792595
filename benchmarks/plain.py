"""A plain encoder for comparison: words and regions in one ``torch.nn.TransformerEncoder``, drawn as torch does."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from vlcli import registry
from vlcli.nn import DataSpec, EncoderOutput, FusionOutput, InputSpec, Layout, Model, Recorder
from vlcli.nn.batch import Images, Text


class Plain(Model):
    """``torch.nn.TransformerEncoder`` over words with learned places and regions with their boxes.

    Args:
        data_spec: vocabulary and feature sizes.
        image: which scenes the bench writes for it: things as regions, or all cells of the board as a grid.
        norm: before each block, or after it.
        hidden: width.
        heads: attention heads.
        layers: depth.
    """

    capabilities = frozenset({"fuse"})
    fuse_takes = "embeddings"

    def __init__(
        self,
        data_spec: DataSpec,
        *,
        image: Literal["regions", "features"] = "regions",
        norm: Literal["pre", "post"] = "pre",
        hidden: int = 64,
        heads: int = 4,
        layers: int = 3,
    ) -> None:
        super().__init__(data_spec)
        self.words = nn.Embedding(data_spec.vocab_size, hidden)
        self.places = nn.Embedding(data_spec.text_length, hidden)
        self.look, self.box = nn.Linear(data_spec.region_dim, hidden), nn.Linear(4, hidden)
        self.word_norm, self.region_norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        layer = nn.TransformerEncoderLayer(
            hidden, heads, 4 * hidden, 0.0, "gelu", batch_first=True, norm_first=norm == "pre"
        )
        last = nn.LayerNorm(hidden) if norm == "pre" else None
        self.encoder = nn.TransformerEncoder(layer, layers, last, enable_nested_tensor=False)
        self.init_std = hidden**-0.5  # its heads'

    @property
    def dim(self) -> int:
        """Width."""
        return self.words.embedding_dim

    def input_spec(self) -> InputSpec:
        """Texts and region features."""
        return InputSpec(text=True, regions=True)

    def embed_text(self, text: Text) -> EncoderOutput:
        """(N, T, D)."""
        x = self.word_norm(self.words(text.ids) + self.places.weight[: text.ids.shape[1]])
        return EncoderOutput(x, Layout.for_text(text.mask, text.special))

    def embed_image(self, images: Images) -> EncoderOutput:
        """(M, R, D)."""
        regions = images.regions
        assert regions is not None
        x = self.region_norm(self.look(regions.features) + self.box(regions.boxes))
        return EncoderOutput(x, Layout.for_boxes(regions.boxes, regions.mask))

    def fuse(self, text: EncoderOutput, image: EncoderOutput, record: Recorder | None = None) -> FusionOutput:
        """Both in one sequence; the first word is the pooled vector."""
        words = text.hidden.shape[1]
        padding = ~torch.cat([self._valid(text), self._valid(image)], 1)
        x = self.encoder(torch.cat([text.hidden, image.hidden], 1), src_key_padding_mask=padding)
        return FusionOutput(
            EncoderOutput(x[:, :words], text.layout), EncoderOutput(x[:, words:], image.layout), x[:, 0]
        )

    @staticmethod
    def _valid(states: EncoderOutput) -> Tensor:
        return states.layout.valid.expand(len(states.hidden), -1)


registry.register("models", "bench-plain", Plain)
