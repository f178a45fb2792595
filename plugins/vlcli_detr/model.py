"""DETR: a convolutional backbone, a transformer over its map, and object queries."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
import torchvision
from torch import Tensor, nn
from torchvision.ops import FrozenBatchNorm2d, box_convert

from vlcli.detection import TINY, TINY_WIDTHS, tiny_conv
from vlcli.errors import ComponentError, DataError
from vlcli.nn import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    AttentionBlock,
    AttentionContext,
    AttentionMask,
    AttentionShape,
    BlockStyle,
    DataSpec,
    DetectionOutput,
    EncoderOutput,
    FeedForward,
    Images,
    InputSpec,
    Layout,
    Model,
    PairwisePosition,
    Recorder,
    Slot,
    Stack,
    build_positions,
    fit_weights,
    within,
)
from vlcli.registry import AttentionSpec, PositionSpec, Spec
from vlcli_detr.names import from_released, from_transformers, to_released
from vlcli_detr.set_loss import Objects, SetWeights, Sums, corners, set_loss

CHANNELS = {"resnet50": 2048, "resnet101": 2048, "resnet18": 512, "resnet34": 512, TINY: TINY_WIDTHS[-1]}
COCO_ROWS, COCO_CLASSES = 91, 80
"""COCO's category ids go to 90, ten of them mean nothing; published classifiers have a row for each id and for 0."""


class Added(PairwisePosition):
    """Vectors added to what queries and keys are projected from, outside the residual; the state is the two of them."""

    def inputs(self, q_in: Tensor, k_in: Tensor, v_in: Tensor, state: Any, layer: int) -> tuple[Tensor, Tensor, Tensor]:
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
        self.encodes = within("cell")
        if shape.dim % 4:
            raise ComponentError("Sinusoids of two axes need a width that 4 divides.", got=str(shape.dim))
        self.temperature = temperature

    def objection(self, slot: Slot) -> str:
        if slot.holds | slot.keys <= {"cell"}:
            return ""
        return "it encodes the cells of one full grid, without any other token beside them"

    def prepare(self, x: Tensor, y: Tensor, x_layout: Layout, y_layout: Layout) -> tuple[Tensor, Tensor]:
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

    def forward(self, x: Tensor, memory: Tensor, own: AttentionContext, cross: AttentionContext) -> Tensor:
        """Object queries (B, Q, D) after self-attention and cross-attention to ``memory`` (B, T, D)."""
        out: Tensor = self.feed_forward(self.cross_attention(self.self_attention(x, None, own), memory, cross))
        return out


class BoxNetwork(nn.Sequential):
    """Three linear layers to a box: centre, width and height in [0, 1]."""

    def __init__(self, dim: int) -> None:
        super().__init__(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 4))

    def forward(self, x: Tensor) -> Tensor:
        """(..., 4) of (..., D)."""
        box: Tensor = super().forward(x)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return box.sigmoid()


@dataclass(frozen=True)
class Predictions:
    """What DETR's queries say.

    Attributes:
        logits: (L, B, Q, C + 1) class scores by decoder layer (the last one alone in evaluation), "no object" last.
        boxes: (L, B, Q, 4) centre x, centre y, width, height as shares of the picture.
    """

    logits: Tensor
    boxes: Tensor


class DETR(Model):
    """Detection with transformers (DETR-R50): encodings on the encoder's self-attention by choice.

    Trained by the task ``detection`` with DETR's set loss, which matches by scipy.

    Args:
        data_spec: the data's classes.
        backbone: a ResNet of torchvision, or ``tiny-conv``, five small convolutions for small pictures.
        hidden: width.
        heads: attention heads.
        intermediate: width inside the feed-forward.
        encoder_layers: of the encoder.
        decoder_layers: of the decoder.
        queries: object queries, the most objects a picture can have.
        classes: rows of the classifier; "no object" is one more. 91 are COCO's category ids, which have gaps, as
            released: a class has the row of its id. None: one for each class of the data.
        position: encodings of the encoder; DETR's own sines and whatever is added.
        decoder_position: what tells the decoder where the encoder's tokens lie.
        attention: any registered attention.
        dropout: of blocks and attention probabilities.
        image_size: height and width to resize to; None keeps each picture's, padded to the batch.
        trained_from: the first stage of the backbone that is trained: 2 as in DETR, 0 for the stem too.
        norm: of the backbone: ``frozen`` statistics, as published weights need, or ``batch`` from scratch.
        label_weight: of the class, in matching and loss.
        box_weight: of the boxes' L1 distance.
        overlap_weight: of their generalised IoU.
        nothing_weight: of queries that belong to no object, in the class loss.
        auxiliary: every decoder layer is held to the objects, not the last one alone.
    """

    paper = "DETR, Carion et al., ECCV 2020, arXiv:2005.12872"
    capabilities = frozenset({"image", "boxes", "detect"})
    describes_boxes = False
    slots: ClassVar[Mapping[str, Slot]] = {"position": Slot.of("position", ["pairs"], ["cell"])}

    def __init__(
        self,
        data_spec: DataSpec,
        *,
        backbone: Literal["resnet50", "resnet101", "resnet18", "resnet34", "tiny-conv"] = "resnet50",
        hidden: int = 256,
        heads: int = 8,
        intermediate: int = 2048,
        encoder_layers: int = 6,
        decoder_layers: int = 6,
        queries: int = 100,
        classes: int | None = COCO_ROWS,
        position: PositionSpec | list[PositionSpec] | None = "detr-sine",
        attention: AttentionSpec = "standard",
        dropout: float = 0.1,
        image_size: tuple[int, int] | None = None,
        trained_from: int = 2,
        decoder_position: Literal["sine", "none"] = "sine",
        norm: Literal["frozen", "batch"] = "frozen",
        label_weight: float = 1.0,
        box_weight: float = 5.0,
        overlap_weight: float = 2.0,
        nothing_weight: float = 0.1,
        auxiliary: bool = True,
    ) -> None:
        super().__init__(data_spec)
        self.image_size, self.trained_from, self.auxiliary = image_size, trained_from, auxiliary
        self.weights = SetWeights(label_weight, box_weight, overlap_weight, nothing_weight)
        self.rows = class_rows(data_spec, classes)
        shape = AttentionShape(hidden, heads, encoder_layers, dropout=dropout)
        style = BlockStyle(norm="post", eps=1e-5, dropout=dropout, activation="relu")
        self.body = _body(backbone, norm, trained_from)
        self.input_proj = nn.Conv2d(CHANNELS[backbone], hidden, 1)
        self.sine = DetrSine(shape) if decoder_position == "sine" else None
        encoding = build_positions(position, shape, self.slots["position"])[1]
        self.encoder = Stack.of(encoder_layers, shape, intermediate, style, attention, encoding)
        deep = replace(shape, layers=decoder_layers)
        self.decoder = nn.ModuleList(DecoderLayer(deep, intermediate, style, attention) for _ in range(decoder_layers))
        self.decoder_norm, self.added = nn.LayerNorm(hidden), Added(deep)
        self.query_embed = nn.Embedding(queries, hidden)
        self.class_embed, self.bbox_embed = (
            nn.Linear(hidden, (classes or data_spec.region_classes) + 1),
            BoxNetwork(hidden),
        )
        self._initialise()

    def _initialise(self) -> None:
        skipped = set() if self.encoder.position is None else set(self.encoder.position.parameters())
        for parameter in [*self.encoder.parameters(), *self.decoder.parameters()]:
            if parameter.dim() > 1 and parameter not in skipped:
                nn.init.xavier_uniform_(parameter)

    @property
    def dim(self) -> int:
        return self.class_embed.in_features

    def input_spec(self) -> InputSpec:
        return InputSpec(pixels=True, boxes=True, size=self.image_size, mean=IMAGENET_MEAN, std=IMAGENET_STD)

    def encode_image(self, images: Images, record: Recorder | None = None) -> EncoderOutput:
        mask = None if images.pixels is None else images.pixels.mask
        hidden = self.decode_queries(*self.encode(images.pixels_for("detr"), mask, record), record)[-1]
        blank = torch.ones(hidden.shape[:2], dtype=torch.bool, device=hidden.device)
        layout = Layout.for_boxes(torch.zeros(*hidden.shape[:2], 4, device=hidden.device), blank)
        extra = {"logits": self.class_embed(hidden), "boxes": self.bbox_embed(hidden)}
        return EncoderOutput(hidden, layout, hidden.mean(1), extra=extra)

    def forward(self, pixels: Tensor, mask: Tensor | None = None) -> Predictions:
        """Predictions for pixels (B, 3, H, W) with ``mask`` (B, H, W), True at real ones."""
        hidden = self.decode_queries(*self.encode(pixels, mask))
        hidden = hidden if self.training else hidden[-1:]
        return Predictions(self.class_embed(hidden), self.bbox_embed(hidden))

    def detect(self, images: Images) -> DetectionOutput:
        states = self.encode_image(images)
        chances = states.extra["logits"].float().softmax(-1)[..., self.rows]  # (M, Q, C)
        scores, labels = chances.max(-1)
        return DetectionOutput(corners(states.extra["boxes"].float()).clamp(0, 1), labels, scores)

    def detection_losses(self, images: Images) -> Sums:
        mask = None if images.pixels is None else images.pixels.mask
        hidden = self.decode_queries(*self.encode(images.pixels_for("detr"), mask))
        hidden = hidden if self.auxiliary else hidden[-1:]
        return set_loss(self.class_embed(hidden), self.bbox_embed(hidden), self._objects(images), self.weights)

    def _objects(self, images: Images) -> list[Objects]:
        pixels = images.pixels
        if pixels is None or pixels.boxes is None or pixels.box_mask is None or pixels.classes is None:
            expected = "a data set with labelled boxes, e.g. coco-instances"
            raise DataError("The pictures come without labelled boxes.", where="model detr", expected=expected)
        rows = torch.tensor(self.rows, device=pixels.classes.device)
        found = []
        for boxes, real, classes in zip(pixels.boxes, pixels.box_mask, pixels.classes, strict=True):
            kept = real & (classes >= 0)
            found.append(Objects(rows[classes[kept]], box_convert(boxes[kept], "xyxy", "cxcywh")))
        return found

    def encode(
        self, pixels: Tensor, mask: Tensor | None = None, record: Recorder | None = None
    ) -> tuple[Tensor, Layout]:
        """The picture as tokens (B, T, D), and where they stand; padding is marked invalid."""
        cells = self.input_proj(self.body(pixels.to(self.input_proj.weight.dtype)))
        grid = (cells.shape[-2], cells.shape[-1])
        valid = torch.ones(cells.shape[0], *grid, dtype=torch.bool, device=cells.device)
        if mask is not None:
            valid = F.interpolate(mask[:, None].float(), size=grid)[:, 0].bool()
        layout = Layout.for_grid(*grid, device=cells.device).expand(cells.shape[0])
        layout = replace(layout, valid=valid.flatten(1))
        tokens = cells.flatten(2).transpose(1, 2)
        keys = AttentionMask(None if mask is None else layout.valid)
        return self.encoder(tokens, layout, keys, record=record, name="image")[0], layout

    def decode_queries(self, memory: Tensor, layout: Layout, record: Recorder | None = None) -> Tensor:
        """Queries by layer, normalised: (L, B, Q, D)."""
        place = self.query_embed.weight[None]
        asked = 0.0 if self.sine is None else self.sine.waves(layout).to(memory.dtype)
        keys = AttentionMask(layout.valid)
        x, found = torch.zeros_like(place).expand(memory.shape[0], -1, -1), []
        for number, layer in enumerate(self.decoder):
            shared = AttentionContext(position=self.added, layer=number, record=record)
            own = replace(shared, state=(place, place), name=f"queries.{number}")
            cross = replace(shared, state=(place, asked), mask=keys, y_layout=layout, name=f"cross.{number}")
            x = layer(x, memory, own, cross)
            found.append(self.decoder_norm(x))
        return torch.stack(found)

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        own = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        if any(name.startswith("transformer.") for name in state):
            state = from_released(state, own)
        elif any(name.startswith("class_labels_classifier.") for name in state):
            state = from_transformers(state, own)
        elif "conv1.weight" in state:  # a ResNet alone, by torchvision's names
            state = {f"body.{name}": value for name, value in state.items() if not name.startswith("fc.")}
        return self._fit_classes(fit_weights(self, state, report), report)

    def released_state(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return to_released(state)

    def _fit_classes(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        fresh = {"class_embed.weight": self.class_embed.weight, "class_embed.bias": self.class_embed.bias}
        for name, own in fresh.items():
            value = state.get(name)
            if value is None or value.shape == own.shape:
                continue
            if len(value) == COCO_ROWS + 1 and len(own) == COCO_CLASSES + 1 and is_coco(self.data_spec):
                state[name] = value[[*self.data_spec.class_ids, COCO_ROWS]]
                report.append(f"{name}: the rows of COCO's {COCO_CLASSES} categories kept")
            else:
                state[name] = own.detach().clone()
                report.append(f"{name}: new, {len(value) - 1} classes and not {len(own) - 1}")
        return state

    def parameter_groups(self) -> list[tuple[str, dict[str, float]]]:
        return [(r"^body\.", {"lr": 0.1})]


def is_coco(data_spec: DataSpec) -> bool:
    """Whether the data's classes are the 80 categories of COCO, by their ids."""
    return len(data_spec.class_ids) == COCO_CLASSES and max(data_spec.class_ids) == COCO_ROWS - 1


def class_rows(data_spec: DataSpec, classes: int | None) -> list[int]:
    """The classifier's row of each class of the data.

    Raises:
        ComponentError: there are more classes than rows.
    """
    if classes == COCO_ROWS and is_coco(data_spec):
        return list(data_spec.class_ids)
    count = len(data_spec.class_ids) or len(data_spec.class_names) or classes or data_spec.region_classes
    if classes is not None and count > classes:
        hint = "say `classes: null`: one row for each class of the data"
        got, expected = f"{classes} rows", f"{count}, the classes of the data"
        raise ComponentError("The classifier is too small.", where="model detr", got=got, expected=expected, hint=hint)
    return list(range(count))


def _body(name: str, norm: str, trained_from: int) -> nn.Module:
    if name == TINY:
        return tiny_conv()
    network = torchvision.models.get_model(name, norm_layer=FrozenBatchNorm2d if norm == "frozen" else nn.BatchNorm2d)
    body = nn.Sequential()
    for part, module in network.named_children():
        if part not in ("avgpool", "fc"):
            body.add_module(part, module)
            stage = int(part[5:]) if part.startswith("layer") else 0
            module.requires_grad_(stage >= trained_from)
    return body
