"""Defines the single-stream models of Table 6, UNITER and VL-BERT, with any attention."""

import re
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

import vlcli.nn as vl
from vlcli_dimbert.embedding import whole_picture
from vlcli_dimbert.stream import SingleStream

_UNITER = {
    "img_embeddings.img_linear.": "regions.project.",
    "img_embeddings.img_layer_norm.": "regions.norm.",
    "img_embeddings.pos_linear.": "regions.place.",
    "img_embeddings.pos_layer_norm.": "regions.place_norm.",
    "img_embeddings.LayerNorm.": "image_norm.",
}


class UNITERRegions(nn.Module):
    """UNITER's: LN(W f) + LN(W_g g), geometry g of 7 numbers."""

    def __init__(self, data_spec: vl.DataSpec, dim: int, eps: float) -> None:
        super().__init__()
        self.project, self.norm = nn.Linear(data_spec.region_dim, dim), nn.LayerNorm(dim, eps=eps)
        self.place, self.place_norm = vl.BoxProjection(7, dim), nn.LayerNorm(dim, eps=eps)

    def forward(self, regions: vl.Regions, segment: Tensor | None = None) -> Tensor:
        kind = self.project.weight.dtype
        place = self.place_norm(self.place(vl.geometry(regions.boxes, 7).to(kind)))
        x: Tensor = self.norm(self.project(regions.features.to(kind))) + place  # (M, R, D)
        return x if segment is None else x + segment


class UNITER(SingleStream):
    """UNITER-like: words and regions in one stream, a region as LN of its feature plus LN of 7 geometry numbers.

    The sequence is [CLS] words [SEP] and the regions, each with a norm of its own, as in the released code, without the
    mask embedding of its masked-region objectives.
    """

    paper = "UNITER, Chen et al., ECCV 2020, section 3.1; DiMBERT, Table 6"
    separators = False
    segment_sources: ClassVar[dict[int, list[int]]] = {2: [1, 1, 0]}

    def __init__(self, data_spec: vl.DataSpec, **options: Any) -> None:
        super().__init__(data_spec, lambda width, _: UNITERRegions(data_spec, width, 1e-12), **options)
        self.image_norm = nn.LayerNorm(self.dim, eps=1e-12)
        self.initialise()

    def normalise(self, x: Tensor, prefix: int) -> Tensor:
        words = self.norm(torch.cat([x[:, :1], x[:, prefix:]], 1))
        return torch.cat([words[:, :1], self.image_norm(x[:, 1:prefix]), words[:, 1:]], 1)

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        prefix = re.compile(r"^(module\.|uniter\.|bert\.)+(?=embeddings|img_embeddings|encoder|pooler)")
        plain = {prefix.sub("", name): value for name, value in state.items()}
        return super().adapt({vl.translate(name, _UNITER) or name: value for name, value in plain.items()}, report)


class VLBERTRegions(nn.Module):
    """VL-BERT's visual feature embedding: feature and sines of the box, one layer with ReLU behind a dropout."""

    def __init__(self, data_spec: vl.DataSpec, dim: int, dropout: float) -> None:
        super().__init__()
        self.waves = max(data_spec.region_dim // 8, 1)
        self.read = nn.Sequential(nn.Dropout(dropout), nn.Linear(data_spec.region_dim + 8 * self.waves, dim), nn.ReLU())

    @torch.no_grad()
    def calm(self) -> None:
        """Weakens waves that turn several times within the picture: with few waves most of them would be noise."""
        turns = 100 / 1000 ** (torch.arange(self.waves) / self.waves)  # radians over the width of a picture
        weaker = (torch.pi / turns).clamp(max=1).repeat(8)  # of each coordinate sines, then cosines
        next(self.read.parameters())[:, -8 * self.waves :] *= weaker

    def forward(self, features: Tensor, boxes: Tensor) -> Tensor:
        kind = next(self.read.parameters()).dtype
        steps = torch.arange(self.waves, device=boxes.device) / self.waves
        angle = 100 * boxes.to(torch.float32)[..., None] / 1000**steps  # (..., 4, F / 8)
        waves = torch.cat([angle.sin(), angle.cos()], -1).flatten(-2)
        return cast("Tensor", self.read(torch.cat([features.to(kind), waves.to(kind)], -1)))


class VLBERT(SingleStream):
    """VL-BERT-like: every word carries the whole picture's visual feature, every region its own.

    The whole picture is the mean of its regions with a box as large as the picture. All regions share one learned
    vector for word, segment and place.
    """

    paper = "VL-BERT, Su et al., ICLR 2020, section 3.2; DiMBERT, Table 6"
    separators = False

    def __init__(self, data_spec: vl.DataSpec, **options: Any) -> None:
        super().__init__(data_spec, partial(VLBERTRegions, data_spec), **options)
        self.text_look, self.image_look = nn.LayerNorm(self.dim, eps=1e-12), nn.LayerNorm(self.dim, eps=1e-12)
        self.initialise()
        if self.init_std > vl.PUBLISHED_STD:
            # The authors start both norms with weights of 0 (visual_scale_text_init, visual_scale_object_init): words
            # are not drowned by the whole picture's feature. Published widths keep the ones they have had here.
            nn.init.zeros_(self.text_look.weight)
            cast("VLBERTRegions", self.regions).calm()

    def region_tokens(self, regions: vl.Regions, segment: Tensor | None) -> Tensor:
        x: Tensor = self.image_look(self.regions(regions.features, regions.boxes))  # (M, R, D)
        return x if segment is None else x + segment  # the word that regions share lies in their segment's row

    def embed_image(self, images: vl.Images) -> vl.EncoderOutput:
        # ``extra["whole"]`` (M, 1, D) is added to the words.
        states = super().embed_image(images)
        states.extra["whole"] = self.text_look(self.regions(*whole_picture(images.regions_for("vl-bert"))))
        return states

    def fuse(
        self, text: vl.EncoderOutput, image: vl.EncoderOutput, record: vl.Recorder | None = None
    ) -> vl.FusionOutput:
        words = text.hidden + image.extra["whole"] if "whole" in image.extra else text.hidden
        return super().fuse(replace(text, hidden=words), image, record)
