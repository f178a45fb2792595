"""The single-stream models of Table 6: as UNITER and VL-BERT embed, with any attention."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from vlcli.errors import DataError
from vlcli.nn import (
    PUBLISHED_STD,
    BoxProjection,
    DataSpec,
    EncoderOutput,
    FusionOutput,
    Images,
    InitStd,
    Recorder,
    Regions,
    geometry,
)
from vlcli.registry import AttentionSpec, PositionSpec
from vlcli_dimbert.stream import Core, SingleStream
from vlcli_dimbert.weights import adapt

_UNITER = {
    "regions.project.": "img_embeddings.img_linear.",
    "regions.norm.": "img_embeddings.img_layer_norm.",
    "regions.place.": "img_embeddings.pos_linear.",
    "regions.place_norm.": "img_embeddings.pos_layer_norm.",
    "image_norm.": "img_embeddings.LayerNorm.",
}


class UNITERRegions(nn.Module):
    """UNITER's: LN(W f) + LN(W_g g), geometry g of 7 numbers."""

    def __init__(self, data_spec: DataSpec, dim: int, eps: float) -> None:
        super().__init__()
        self.project, self.norm = nn.Linear(data_spec.region_dim, dim), nn.LayerNorm(dim, eps=eps)
        self.place, self.place_norm = BoxProjection(7, dim), nn.LayerNorm(dim, eps=eps)

    def forward(self, regions: Regions, segment: Tensor | None = None) -> Tensor:
        """(M, R, D), with the segment (D,) added."""
        kind = self.project.weight.dtype
        place = self.place_norm(self.place(geometry(regions.boxes, 7).to(kind)))
        x = self.norm(self.project(regions.features.to(kind))) + place
        out: Tensor = x if segment is None else x + segment
        return out


class UNITER(SingleStream):
    """UNITER-like: words and regions in one stream, a region as LN of its feature plus LN of 7 geometry numbers.

    The sequence is [CLS] words [SEP] and the regions, each with a norm of its own, as in the released code; the mask
    embedding of its masked-region objectives is not there.

    Args:
        data_spec: vocabulary and feature sizes.
        hidden: width.
        heads: attention heads.
        layers: depth.
        intermediate: width inside the feed-forward; None: four times ``hidden``.
        dropout: of embeddings, blocks and attention probabilities.
        attention: any registered attention; ``disentangled`` is the paper's Table 6.
        position: pairwise encodings, one or several.
        length: rows of the position table.
        init_std: deviation of freshly drawn weights; ``auto``: 0.02 at width 768, more in a narrower model.
        packed: leave padding out of all that is done token by token.
    """

    paper = "UNITER, Chen et al., ECCV 2020, section 3.1; DiMBERT, Table 6"
    separators = False
    segment_sources: ClassVar[dict[int, list[int]]] = {2: [1, 1, 0]}

    def __init__(
        self,
        data_spec: DataSpec,
        *,
        hidden: int = 768,
        heads: int = 12,
        layers: int = 12,
        intermediate: int | None = None,
        dropout: float = 0.1,
        attention: AttentionSpec = "standard",
        position: PositionSpec | list[PositionSpec] | None = None,
        length: int = 512,
        init_std: InitStd = "auto",
        packed: bool = True,
    ) -> None:
        core = Core(hidden, heads, layers, intermediate, dropout, attention, position)
        core = replace(core, concepts=0, length=length, eps=1e-12, init_std=init_std, packed=packed)
        super().__init__(data_spec, UNITERRegions(data_spec, hidden, core.eps), core)
        self.image_norm = nn.LayerNorm(hidden, eps=core.eps)
        self.initialise()

    def normalise(self, x: Tensor, prefix: int) -> Tensor:
        words = self.norm(torch.cat([x[:, :1], x[:, prefix:]], 1))
        return torch.cat([words[:, :1], self.image_norm(x[:, 1:prefix]), words[:, 1:]], 1)

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        named = {}
        for name, value in state.items():
            plain = re.sub(r"^(module\.|uniter\.|bert\.)+(?=embeddings|img_embeddings|encoder|pooler)", "", name)
            place = next((ours for ours, theirs in _UNITER.items() if plain.startswith(theirs)), None)
            named[plain if place is None else place + plain[len(_UNITER[place]) :]] = value
        return adapt(self, named, report)


class VLBERTRegions(nn.Module):
    """VL-BERT's visual feature embedding: feature and sines of the box, one layer with ReLU.

    Args:
        data_spec: width of a feature.
        dim: width of the tokens.
        dropout: before the layer.
    """

    def __init__(self, data_spec: DataSpec, dim: int, dropout: float) -> None:
        super().__init__()
        self.waves = max(data_spec.region_dim // 8, 1)
        self.read = nn.Sequential(nn.Dropout(dropout), nn.Linear(data_spec.region_dim + 8 * self.waves, dim), nn.ReLU())

    @torch.no_grad()
    def calm(self) -> None:
        """Weaken the waves that turn several times within the picture, where few waves are left.

        With narrow features most of the waves' length would be noise: 100 radians turn once in six hundredths of the
        picture, which is less than a box is sure of.
        """
        turns = 100 / 1000 ** (torch.arange(self.waves) / self.waves)  # radians over the width of a picture
        weaker = (torch.pi / turns).clamp(max=1).repeat(8)  # of each coordinate sines, then cosines
        weight = next(self.read.parameters())
        weight[:, -8 * self.waves :] *= weaker

    def forward(self, features: Tensor, boxes: Tensor) -> Tensor:
        """(..., D) of features (..., F) with boxes (..., 4)."""
        kind = next(self.read.parameters()).dtype
        steps = torch.arange(self.waves, device=boxes.device) / self.waves
        angle = 100 * boxes.to(torch.float32)[..., None] / 1000**steps  # (..., 4, F / 8)
        waves = torch.cat([angle.sin(), angle.cos()], -1).flatten(-2)
        out: Tensor = self.read(torch.cat([features.to(kind), waves.to(kind)], -1))
        return out


class VLBERT(SingleStream):
    """VL-BERT-like: every word carries the whole picture's visual feature, every region its own.

    The whole picture is the mean of its regions with a box as large as the picture. All regions share one word (a row
    of their own beside the vocabulary), one segment and no place, which is one learned vector for all of them.

    Args:
        data_spec: vocabulary and feature sizes.
        hidden: width.
        heads: attention heads.
        layers: depth.
        intermediate: width inside the feed-forward; None: four times ``hidden``.
        dropout: of embeddings, blocks and attention probabilities.
        attention: any registered attention; ``disentangled`` is the paper's Table 6.
        position: pairwise encodings, one or several.
        length: rows of the position table.
        init_std: deviation of freshly drawn weights; ``auto``: 0.02 at width 768, more in a narrower model.
        packed: leave padding out of all that is done token by token.
    """

    paper = "VL-BERT, Su et al., ICLR 2020, section 3.2; DiMBERT, Table 6"
    separators = False

    def __init__(
        self,
        data_spec: DataSpec,
        *,
        hidden: int = 768,
        heads: int = 12,
        layers: int = 12,
        intermediate: int | None = None,
        dropout: float = 0.1,
        attention: AttentionSpec = "standard",
        position: PositionSpec | list[PositionSpec] | None = None,
        length: int = 512,
        init_std: InitStd = "auto",
        packed: bool = True,
    ) -> None:
        core = Core(hidden, heads, layers, intermediate, dropout, attention, position)
        core = replace(core, concepts=0, length=length, eps=1e-12, init_std=init_std, packed=packed)
        regions = VLBERTRegions(data_spec, hidden, dropout)
        super().__init__(data_spec, regions, core)
        self.text_look, self.image_look = nn.LayerNorm(hidden, eps=1e-12), nn.LayerNorm(hidden, eps=1e-12)
        self.initialise()
        if self.init_std > PUBLISHED_STD:
            # The authors start both norms with weights of 0 (visual_scale_text_init, visual_scale_object_init): words
            # are not drowned by the whole picture's feature. Published widths keep the ones they have had here.
            nn.init.zeros_(self.text_look.weight)
            regions.calm()

    def region_tokens(self, regions: Regions, segment: Tensor | None) -> Tensor:
        x = self.image_look(self.regions(regions.features, regions.boxes))
        out: Tensor = x if segment is None else x + segment
        return out

    def embed_image(self, images: Images) -> EncoderOutput:
        states = super().embed_image(images)
        if images.regions is None:
            raise DataError("The model reads region features, and the batch has none.")
        regions = images.regions
        real = regions.mask[..., None].to(regions.features.dtype)
        mean = (regions.features * real).sum(1) / real.sum(1).clamp(min=1)  # (M, F)
        frame = regions.boxes.new_tensor([0.0, 0.0, 1.0, 1.0]).expand(mean.shape[0], 4)
        states.extra["whole"] = self.text_look(self.regions(mean, frame))
        return states

    def fuse(self, text: EncoderOutput, image: EncoderOutput, record: Recorder | None = None) -> FusionOutput:
        words = text.hidden + image.extra["whole"][:, None] if "whole" in image.extra else text.hidden
        return super().fuse(replace(text, hidden=words), image, record)

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        return adapt(self, state, report)
