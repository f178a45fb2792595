"""DETR: a convolutional backbone, a transformer over its map, and object queries."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
import torchvision
from torch import Tensor, nn
from torchvision.ops import FrozenBatchNorm2d

from vlcli.errors import ComponentError
from vlcli.nn import (
    AttentionBlock,
    AttentionMask,
    AttentionShape,
    BlockStyle,
    Facts,
    FeedForward,
    Layout,
    Model,
    Needs,
    PairwisePosition,
    Recorder,
    Stack,
    States,
    build_positions,
)
from vlcli.nn.batch import Images
from vlcli.registry import AttentionSpec, PositionSpec, Spec
from vlcli_irpe.deit import MEAN, STD, pixels_of
from vlcli_irpe.names import fit_tables

CHANNELS = {"resnet50": 2048, "resnet101": 2048, "resnet18": 512, "resnet34": 512}


class Added(PairwisePosition):
    """Vectors added to what queries and keys are projected from, outside the residual; the state is the two of them."""

    def inputs(self, q_in: Tensor, k_in: Tensor, v_in: Tensor, state: Any, layer: int) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys shifted, values as they are."""
        return q_in + state[0], k_in + state[1], v_in


class DetrSine(Added):
    """Sines of rows and columns, as shares of the unpadded picture, added to queries and keys in every layer (DETR).

    Args:
        shape: of the stack it serves.
        temperature: the longest wavelength is 2 pi times this.
    """

    paper = "DETR, Carion et al., ECCV 2020, arXiv:2005.12872, appendix A.4"

    def __init__(self, shape: AttentionShape, *, temperature: float = 10000.0) -> None:
        super().__init__(shape)
        if shape.dim % 4:
            raise ComponentError("Sinusoids of two axes need a width that 4 divides.", got=str(shape.dim))
        self.temperature = temperature

    def prepare(self, x: Tensor, y: Tensor, x_layout: Layout, y_layout: Layout) -> tuple[Tensor, Tensor]:
        """What is added to queries (B or 1, Tq, dim) and keys."""
        here = self.waves(x_layout).to(x.dtype)
        return here, here if y_layout is x_layout else self.waves(y_layout).to(y.dtype)

    def waves(self, layout: Layout) -> Tensor:
        """(B or 1, T, dim) of a padded batch's map."""
        if layout.grid is None or layout.valid.shape[1] != layout.grid[0] * layout.grid[1]:
            raise ComponentError("DETR's sines need one full grid.", where="position detr-sine")
        valid = layout.valid.unflatten(1, layout.grid)
        parts = [self._axis(valid, axis) for axis in (1, 2)]
        return torch.cat(parts, -1).flatten(1, 2)

    def _axis(self, valid: Tensor, axis: int) -> Tensor:
        place = valid.cumsum(axis).float()
        last = place.narrow(axis, -1 % place.shape[axis], 1)
        place = place / (last + 1e-6) * (2 * math.pi)
        half = self.shape.dim // 2
        rate = self.temperature ** (torch.arange(0, half, 2, device=valid.device) / half)
        angle = place[..., None] / rate  # (B, h, w, dim / 4)
        return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)


class DecoderLayer(nn.Module):
    """Queries look at one another, then at the picture, then feed forward."""

    def __init__(self, shape: AttentionShape, hidden: int, style: BlockStyle, attention: Spec | str) -> None:
        super().__init__()
        self.self_attention = AttentionBlock(shape, style, attention)
        self.cross_attention = AttentionBlock(replace(shape, cross=True), style, attention)
        self.feed_forward = FeedForward(shape.dim, hidden, style)

    def forward(self, x: Tensor, memory: Tensor, own: dict[str, Any], cross: dict[str, Any]) -> Tensor:
        """Queries (B, Q, D) after looking at ``memory`` (B, T, D)."""
        return self.feed_forward(self.cross_attention(self.self_attention(x, **own), memory, **cross))


class BoxNetwork(nn.Sequential):
    """Three linear layers to a box: centre, width and height in [0, 1]."""

    def __init__(self, dim: int) -> None:
        super().__init__(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 4))

    def forward(self, x: Tensor) -> Tensor:
        """(..., 4) of (..., D)."""
        return super().forward(x).sigmoid()


@dataclass(frozen=True)
class Detections:
    """What DETR predicts.

    Attributes:
        logits: (L, B, Q, C + 1) class scores by decoder layer (the last one alone in evaluation), "no object" last.
        boxes: (L, B, Q, 4) centre x, centre y, width, height as shares of the picture.
    """

    logits: Tensor
    boxes: Tensor


class DETR(Model):
    """Detection with transformers (DETR-R50): encodings on the encoder's self-attention by choice.

    Args:
        facts: not used; the classes are those of ``classes``.
        backbone: a ResNet of torchvision, its norms frozen.
        dim: width.
        heads: attention heads.
        hidden: width inside the feed-forward.
        encoder_layers: of the encoder.
        decoder_layers: of the decoder.
        queries: object queries, the most objects a picture can have.
        classes: ids of classes (91 for COCO, whose ids have gaps); "no object" is one more.
        position: encodings of the encoder; DETR's own sines and whatever is added.
        attention: any registered attention.
        dropout: of blocks and attention probabilities.
        image_size: height and width to resize to; None keeps each picture's, padded to the batch.
        trained_from: the first stage of the backbone that is trained; DETR trains from 2 on.
    """

    paper = "DETR, Carion et al., ECCV 2020, arXiv:2005.12872"
    capabilities = frozenset({"image", "boxes"})

    def __init__(
        self,
        facts: Facts,
        *,
        backbone: Literal["resnet50", "resnet101", "resnet18", "resnet34"] = "resnet50",
        dim: int = 256,
        heads: int = 8,
        hidden: int = 2048,
        encoder_layers: int = 6,
        decoder_layers: int = 6,
        queries: int = 100,
        classes: int = 91,
        position: PositionSpec | list[PositionSpec] | None = "detr-sine",
        attention: AttentionSpec = "standard",
        dropout: float = 0.1,
        image_size: tuple[int, int] | None = None,
        trained_from: int = 2,
    ) -> None:
        super().__init__(facts)
        self.image_size, self.trained_from = image_size, trained_from
        shape = AttentionShape(dim, heads, encoder_layers, dropout=dropout)
        style = BlockStyle(norm="post", eps=1e-5, dropout=dropout, activation="relu")
        self.body = _body(backbone, trained_from)
        self.input_proj = nn.Conv2d(CHANNELS[backbone], dim, 1)
        self.sine = DetrSine(shape)
        self.encoder = Stack.of(encoder_layers, shape, hidden, style, attention, build_positions(position, shape)[1])
        deep = replace(shape, layers=decoder_layers)
        self.decoder = nn.ModuleList(DecoderLayer(deep, hidden, style, attention) for _ in range(decoder_layers))
        self.decoder_norm, self.added = nn.LayerNorm(dim), Added(deep)
        self.query_embed = nn.Embedding(queries, dim)
        self.class_embed, self.bbox_embed = nn.Linear(dim, classes + 1), BoxNetwork(dim)
        self._initialise()

    def _initialise(self) -> None:
        """Xavier in the transformer, encodings excepted: they have an option of their own."""
        skipped = set() if self.encoder.position is None else set(self.encoder.position.parameters())
        for parameter in [*self.encoder.parameters(), *self.decoder.parameters()]:
            if parameter.dim() > 1 and parameter not in skipped:
                nn.init.xavier_uniform_(parameter)

    @property
    def dim(self) -> int:
        """Width of the hidden states."""
        return self.class_embed.in_features

    def needs(self) -> Needs:
        """Pixels, normalised as ImageNet's."""
        return Needs(pixels=True, size=self.image_size, mean=MEAN, std=STD)

    def encode_image(self, images: Images, record: Recorder | None = None) -> States:
        """Object queries (M, Q, D); ``extra`` has class scores ``logits`` (M, Q, C + 1) and ``boxes`` (M, Q, 4)."""
        mask = None if images.pixels is None else images.pixels.mask
        hidden = self.decode(*self.encode(pixels_of(images, "detr"), mask, record), record)[-1]
        blank = torch.ones(hidden.shape[:2], dtype=torch.bool, device=hidden.device)
        layout = Layout.for_boxes(torch.zeros(*hidden.shape[:2], 4, device=hidden.device), blank)
        extra = {"logits": self.class_embed(hidden), "boxes": self.bbox_embed(hidden)}
        return States(hidden, layout, hidden.mean(1), extra=extra)

    def forward(self, pixels: Tensor, mask: Tensor | None = None) -> Detections:
        """Predictions for pixels (B, 3, H, W) with ``mask`` (B, H, W), True at real ones."""
        hidden = self.decode(*self.encode(pixels, mask))
        hidden = hidden if self.training else hidden[-1:]
        return Detections(self.class_embed(hidden), self.bbox_embed(hidden))

    def encode(
        self, pixels: Tensor, mask: Tensor | None = None, record: Recorder | None = None
    ) -> tuple[Tensor, Layout]:
        """The picture as tokens (B, T, D), and where they stand; padding is marked invalid."""
        cells = self.input_proj(self.body(pixels.to(self.input_proj.weight.dtype)))
        grid = (cells.shape[-2], cells.shape[-1])
        valid = torch.ones(len(cells), *grid, dtype=torch.bool, device=cells.device)
        if mask is not None:
            valid = F.interpolate(mask[:, None].float(), size=grid)[:, 0].bool()
        layout = Layout.for_grid(*grid, device=cells.device).expand(len(cells))
        layout = replace(layout, valid=valid.flatten(1))
        tokens = cells.flatten(2).transpose(1, 2)
        keys = AttentionMask(None if mask is None else layout.valid)
        return self.encoder(tokens, layout, keys, record=record, name="image")[0], layout

    def decode(self, memory: Tensor, layout: Layout, record: Recorder | None = None) -> Tensor:
        """Queries by layer, normalised: (L, B, Q, D)."""
        place, asked = self.query_embed.weight[None], self.sine.waves(layout).to(memory.dtype)
        keys = AttentionMask(layout.valid)
        x, found = torch.zeros_like(place).expand(len(memory), -1, -1), []
        for number, layer in enumerate(self.decoder):
            shared = {"position": self.added, "layer": number, "record": record}
            own = {**shared, "state": (place, place), "name": f"queries.{number}"}
            cross = {**shared, "state": (place, asked), "mask": keys, "y_layout": layout, "name": f"cross.{number}"}
            x = layer(x, memory, own, cross)
            found.append(self.decoder_norm(x))
        return torch.stack(found)

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        """Weights of DETR's release, or of iRPE's with its tables, under our names."""
        own = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        released = any(name.startswith("transformer.") for name in state)
        return fit_tables(from_released(state, own) if released else dict(state), own, report)

    def parameter_groups(self) -> list[tuple[str, dict[str, float]]]:
        """The backbone learns at a tenth of the rate (DETR appendix A.4)."""
        return [(r"^body\.", {"lr": 0.1})]


def _body(name: str, trained_from: int) -> nn.Module:
    """A ResNet up to its last map, norms frozen, early stages not trained."""
    network = torchvision.models.get_model(name, norm_layer=FrozenBatchNorm2d)
    body = nn.Sequential()
    for part, module in network.named_children():
        if part not in ("avgpool", "fc"):
            body.add_module(part, module)
            early = not part.startswith("layer") or int(part[5:]) < trained_from
            module.requires_grad_(not early)
    return body


_BLOCKS = {
    "self_attention.norm.": "norm1.",
    "cross_attention.norm.": "norm2.",
    "feed_forward.norm.": "norm{last}.",
    "feed_forward.inner.": "linear1.",
    "feed_forward.outer.": "linear2.",
    "self_attention.attention.dense.": "self_attn.out_proj.",
    "cross_attention.attention.dense.": "multihead_attn.out_proj.",
}
_PROJECTION = re.compile(r"^(self|cross)_attention\.attention\.(query|key|value)\.(weight|bias)$")
_TABLES = re.compile(r"^encoder\.position\.(?:parts\.\d+\.)?layers\.(\d+)\.(rpe_[qkv]\..+)$")


def released_name(name: str) -> tuple[str, int | None]:
    """The released name of one of our parameters, and which third of a joint projection is meant."""
    if found := re.match(r"^bbox_embed\.(\d)\.(.+)$", name):
        return f"bbox_embed.layers.{int(found[1]) // 2}.{found[2]}", None
    if found := _TABLES.match(name):
        return f"transformer.encoder.layers.{found[1]}.self_attn.{found[2]}", None
    if found := re.match(r"^(?:(encoder)\.layers|(decoder))\.(\d+)\.(.+)$", name):
        stack = found[1] or found[2]
        inside, third = _inside(found[4], stack)
        return f"transformer.{stack}.layers.{found[3]}.{inside}", third
    for ours, theirs in {"body.": "backbone.0.body.", "decoder_norm.": "transformer.decoder.norm."}.items():
        name = theirs + name.removeprefix(ours) if name.startswith(ours) else name
    return name, None


def _inside(name: str, stack: str) -> tuple[str, int | None]:
    """The same of a name inside a layer."""
    if part := _PROJECTION.match(name):
        where = "self_attn" if part[1] == "self" else "multihead_attn"
        return f"{where}.in_proj_{part[3]}", ("query", "key", "value").index(part[2])
    ours = next((prefix for prefix in _BLOCKS if name.startswith(prefix)), "")
    theirs = _BLOCKS.get(ours, "").format(last=2 if stack == "encoder" else 3)
    return theirs + name.removeprefix(ours), None


def from_released(state: dict[str, Tensor], own: dict[str, Tensor]) -> dict[str, Tensor]:
    """A released state under our names; what we have no name for keeps its own."""
    made, used = {}, set()
    for name in own:
        theirs, third = released_name(name)
        if theirs in state:
            used.add(theirs)
            made[name] = state[theirs] if third is None else state[theirs].chunk(3)[third]
    return {**made, **{name: value for name, value in state.items() if name not in used}}
