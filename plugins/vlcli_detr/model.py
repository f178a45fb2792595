"""Defines DETR: a convolutional backbone, a transformer over its map, and object queries."""

import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, cast

import torch
import torch.nn.functional as F
import torchvision
from torch import Tensor, nn
from torchvision.ops import FrozenBatchNorm2d, box_convert

import vlcli.nn as vl
from vlcli.detection import TINY, TINY_WIDTHS, tiny_conv
from vlcli.errors import ComponentError, DataError
from vlcli.registry import AttentionSpec, PositionSpec, Spec
from vlcli_detr.names import from_released, from_transformers, to_released
from vlcli_detr.set_loss import Objects, SetWeights, Sums, corners, set_loss

CHANNELS = {"resnet50": 2048, "resnet101": 2048, "resnet18": 512, "resnet34": 512, TINY: TINY_WIDTHS[-1]}
COCO_ROWS, COCO_CLASSES = 91, 80
"""COCO's category ids go to 90, ten of them mean nothing; published classifiers have a row for each id and for 0."""


class Added(vl.PairwisePosition):
    """Adds vectors to the inputs of queries and keys, outside the residual; the state is the two vectors."""

    def inputs(self, q_in: Tensor, k_in: Tensor, v_in: Tensor, state: Any, layer: int) -> tuple[Tensor, Tensor, Tensor]:
        return q_in + state[0], k_in + state[1], v_in


class DetrSine(Added):
    """Sines of rows and columns, as shares of the unpadded picture, added to queries and keys in every layer (DETR).

    Args:
        temperature: the longest wavelength is 2 pi times this.
    """

    paper = "DETR, Carion et al., ECCV 2020, arXiv:2005.12872, appendix A.4"

    def __init__(self, shape: vl.AttentionShape, *, temperature: float = 10000.0) -> None:
        super().__init__(shape)
        self.encodes = vl.within("cell")
        if shape.dim % 4:
            raise ComponentError("Sinusoids of two axes need a width that 4 divides.", got=str(shape.dim))
        self.temperature = temperature

    def objection(self, slot: vl.Slot) -> str:
        if slot.holds | slot.keys <= {"cell"}:
            return ""
        return "it encodes the cells of one full grid, without any other token beside them"

    def prepare(self, x: Tensor, y: Tensor, x_layout: vl.Layout, y_layout: vl.Layout) -> tuple[Tensor, Tensor]:
        here = self.waves(x_layout).to(x.dtype)
        return here, here if y_layout is x_layout else self.waves(y_layout).to(y.dtype)

    def waves(self, layout: vl.Layout) -> Tensor:
        """Returns the sines (B or 1, T, dim) of a padded batch's map."""
        if layout.grid is None or layout.valid.shape[1] != layout.grid[0] * layout.grid[1]:
            raise ComponentError("DETR's sine encoding needs tokens that fill one grid.", where="position detr-sine")
        valid = layout.valid.unflatten(1, layout.grid)  # (B or 1, h, w)
        half = self.shape.dim // 2
        rate = self.temperature ** (torch.arange(0, half, 2, device=valid.device) / half)  # (dim / 4,)
        waves = []
        for axis in (1, 2):
            position = valid.cumsum(axis).float()  # (B, h, w): 1, 2, ...
            last = position.narrow(axis, -1 % position.shape[axis], 1)
            angle = (position / (last + 1e-6) * (2 * math.pi))[..., None] / rate  # (B, h, w, dim / 4)
            waves.append(torch.stack([angle.sin(), angle.cos()], -1).flatten(-2))  # (B, h, w, dim / 2)
        return torch.cat(waves, -1).flatten(1, 2)


class DecoderLayer(nn.Module):
    """Self-attention of the object queries, cross-attention to the picture, feed-forward."""

    def __init__(self, shape: vl.AttentionShape, hidden: int, style: vl.BlockStyle, attention: Spec | str) -> None:
        super().__init__()
        self.self_attention = vl.AttentionBlock(shape, style, attention)
        self.cross_attention = vl.AttentionBlock(replace(shape, cross=True), style, attention)
        self.feed_forward = vl.FeedForward(shape.dim, hidden, style)

    def forward(self, x: Tensor, memory: Tensor, itself: vl.AttentionContext, cross: vl.AttentionContext) -> Tensor:
        x = self.cross_attention(self.self_attention(x, None, itself), memory, cross)
        return cast("Tensor", self.feed_forward(x))


class BoxNetwork(nn.Sequential):
    """Three linear layers to boxes (..., 4): centre, width and height in [0, 1]."""

    def __init__(self, dim: int) -> None:
        super().__init__(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 4))

    def forward(self, x: Tensor) -> Tensor:
        box: Tensor = super().forward(x)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return box.sigmoid()  # (..., 4)


@dataclass(frozen=True)
class Predictions:
    """Class scores (L, B, Q, C + 1), "no object" last, and boxes (L, B, Q, 4) as centre, width and height in [0, 1].

    L counts decoder layers; in evaluation only the last is there.
    """

    logits: Tensor
    boxes: Tensor


class DETR(vl.Model):
    """Detection with transformers (DETR-R50): encodings on the encoder's self-attention by choice.

    Trained by the task ``detection`` with DETR's set loss, which matches by scipy.

    Args:
        backbone: a ResNet of torchvision, or ``tiny-conv``, five small convolutions for small pictures.
        hidden: width.
        heads: attention heads.
        intermediate: width inside the feed-forward.
        encoder_layers: of the encoder.
        decoder_layers: of the decoder.
        queries: object queries, the most objects a picture can have.
        classes: rows of the classifier without "no object"; 91: COCO's category ids, which have gaps, as released;
            None: one for each class of the data.
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
    slots: ClassVar[Mapping[str, vl.Slot]] = {"position": vl.Slot.of("position", ["pairs"], ["cell"])}

    def __init__(
        self,
        data_spec: vl.DataSpec,
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
        shape = vl.AttentionShape(hidden, heads, encoder_layers, dropout=dropout)
        style = vl.BlockStyle(norm="post", eps=1e-5, dropout=dropout, activation="relu")
        self.body = tiny_conv() if backbone == TINY else _resnet(backbone, norm, trained_from)
        self.input_proj = nn.Conv2d(CHANNELS[backbone], hidden, 1)
        self.sine = DetrSine(shape) if decoder_position == "sine" else None
        encoding = vl.build_positions(position, shape, self.slots["position"])[1]
        self.encoder = vl.Stack.of(encoder_layers, shape, intermediate, style, attention, encoding)
        deep = replace(shape, layers=decoder_layers)
        self.decoder = nn.ModuleList(DecoderLayer(deep, intermediate, style, attention) for _ in range(decoder_layers))
        self.decoder_norm, self.added = nn.LayerNorm(hidden), Added(deep)
        self.query_embed = nn.Embedding(queries, hidden)
        self.class_embed = nn.Linear(hidden, (classes or data_spec.region_classes) + 1)
        self.bbox_embed = BoxNetwork(hidden)
        skipped = set() if self.encoder.position is None else set(self.encoder.position.parameters())
        for parameter in [*self.encoder.parameters(), *self.decoder.parameters()]:
            if parameter.dim() > 1 and parameter not in skipped:  # encodings have an option of their own
                nn.init.xavier_uniform_(parameter)

    @property
    def dim(self) -> int:
        return self.class_embed.in_features

    def input_spec(self) -> vl.InputSpec:
        return vl.InputSpec(pixels=True, boxes=True, size=self.image_size, mean=vl.IMAGENET_MEAN, std=vl.IMAGENET_STD)

    def encode_image(self, images: vl.Images, record: vl.Recorder | None = None) -> vl.EncoderOutput:
        mask = None if images.pixels is None else images.pixels.mask
        hidden = self.decode_queries(*self.encode(images.pixels_for("detr"), mask, record), record)[-1]  # (M, Q, D)
        valid = torch.ones(hidden.shape[:2], dtype=torch.bool, device=hidden.device)
        layout = vl.Layout.for_boxes(torch.zeros(*hidden.shape[:2], 4, device=hidden.device), valid)
        extra = {"logits": self.class_embed(hidden), "boxes": self.bbox_embed(hidden)}
        return vl.EncoderOutput(hidden, layout, hidden.mean(1), extra=extra)

    def forward(self, pixels: Tensor, mask: Tensor | None = None) -> Predictions:
        """Returns predictions for pixels (B, 3, H, W) with ``mask`` (B, H, W), True at real ones."""
        hidden = self.decode_queries(*self.encode(pixels, mask))
        hidden = hidden if self.training else hidden[-1:]
        return Predictions(self.class_embed(hidden), self.bbox_embed(hidden))

    def detect(self, images: vl.Images) -> vl.DetectionOutput:
        states = self.encode_image(images)
        scores, labels = states.extra["logits"].float().softmax(-1)[..., self.rows].max(-1)  # (M, Q)
        return vl.DetectionOutput(corners(states.extra["boxes"].float()).clamp(0, 1), labels, scores)

    def detection_losses(self, images: vl.Images) -> Sums:
        pixels = images.pixels
        if pixels is None or pixels.boxes is None or pixels.box_mask is None or pixels.classes is None:
            expected = "a data set with labelled boxes, e.g. coco-instances"
            raise DataError("The pictures come without labelled boxes.", where="model detr", expected=expected)
        hidden = self.decode_queries(*self.encode(pixels.images, pixels.mask))
        hidden = hidden if self.auxiliary else hidden[-1:]
        rows, objects = torch.tensor(self.rows, device=pixels.classes.device), []
        for boxes, real, classes in zip(pixels.boxes, pixels.box_mask, pixels.classes, strict=True):
            kept = real & (classes >= 0)  # (N,)
            objects.append(Objects(rows[classes[kept]], box_convert(boxes[kept], "xyxy", "cxcywh")))
        return set_loss(self.class_embed(hidden), self.bbox_embed(hidden), objects, self.weights)

    def encode(
        self, pixels: Tensor, mask: Tensor | None = None, record: vl.Recorder | None = None
    ) -> tuple[Tensor, vl.Layout]:
        """Returns the picture as tokens (B, T, D) with their layout; padding is marked invalid."""
        cells = self.input_proj(self.body(pixels.to(self.input_proj.weight.dtype)))  # (B, D, h, w)
        grid = (cells.shape[-2], cells.shape[-1])
        layout, keys = vl.Layout.for_grid(*grid, device=cells.device).expand(cells.shape[0]), None
        if mask is not None:
            keys = F.interpolate(mask[:, None].float(), size=grid).bool().flatten(1)  # (B, h w)
            layout = replace(layout, valid=keys)
        tokens = cells.flatten(2).transpose(1, 2)  # (B, h w, D)
        return self.encoder(tokens, layout, vl.AttentionMask(keys), record=record, name="image")[0], layout

    def decode_queries(self, memory: Tensor, layout: vl.Layout, record: vl.Recorder | None = None) -> Tensor:
        """Returns the normalised object queries by layer: (L, B, Q, D)."""
        queries = self.query_embed.weight[None]  # (1, Q, D)
        sines = 0.0 if self.sine is None else self.sine.waves(layout).to(memory.dtype)  # (B, T, D)
        keys = vl.AttentionMask(layout.valid)
        x, layers = torch.zeros_like(queries).expand(memory.shape[0], -1, -1), []  # (B, Q, D)
        for number, layer in enumerate(self.decoder):
            shared = vl.AttentionContext(position=self.added, layer=number, record=record)
            itself = replace(shared, state=(queries, queries), name=f"queries.{number}")
            cross = replace(shared, state=(queries, sines), mask=keys, y_layout=layout, name=f"cross.{number}")
            x = layer(x, memory, itself, cross)
            layers.append(self.decoder_norm(x))
        return torch.stack(layers)

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        if any(name.startswith("transformer.") for name in state):
            state = from_released(state, self.state_dict())
        elif any(name.startswith("class_labels_classifier.") for name in state):
            state = from_transformers(state, self.state_dict())
        elif "conv1.weight" in state:  # a ResNet alone, by torchvision's names
            state = {f"body.{name}": value for name, value in state.items() if not name.startswith("fc.")}
        state = vl.fit_weights(self, state, report)
        for name in ("class_embed.weight", "class_embed.bias"):
            value, fresh = state.get(name), self.get_parameter(name)
            if value is None or value.shape == fresh.shape:
                continue
            if len(value) == COCO_ROWS + 1 and len(fresh) == COCO_CLASSES + 1 and is_coco(self.data_spec):
                state[name] = value[[*self.data_spec.class_ids, COCO_ROWS]]
                report.append(f"{name}: the rows of COCO's {COCO_CLASSES} categories kept")
            else:
                state[name] = fresh.detach().clone()
                report.append(f"{name}: new, {len(value) - 1} classes and not {len(fresh) - 1}")
        return state

    def released_state(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return to_released(state)

    def parameter_groups(self) -> list[tuple[str, dict[str, float]]]:
        return [(r"^body\.", {"lr": 0.1})]


def is_coco(data_spec: vl.DataSpec) -> bool:
    """True if the data's classes are the 80 categories of COCO, by their ids."""
    return len(data_spec.class_ids) == COCO_CLASSES and max(data_spec.class_ids) == COCO_ROWS - 1


def class_rows(data_spec: vl.DataSpec, classes: int | None) -> list[int]:
    """Returns the classifier's row of each class of the data. Raises ComponentError: it has too few rows."""
    if classes == COCO_ROWS and is_coco(data_spec):
        return list(data_spec.class_ids)
    count = len(data_spec.class_ids) or len(data_spec.class_names) or classes or data_spec.region_classes
    if classes is not None and count > classes:
        hint = "say `classes: null`: one row for each class of the data"
        got, expected = f"{classes} rows", f"{count}, the classes of the data"
        raise ComponentError("The classifier is too small.", where="model detr", got=got, expected=expected, hint=hint)
    return list(range(count))


def _resnet(name: str, norm: str, trained_from: int) -> nn.Module:
    network = torchvision.models.get_model(name, norm_layer=FrozenBatchNorm2d if norm == "frozen" else nn.BatchNorm2d)
    body = nn.Sequential(OrderedDict(list(network.named_children())[:-2]))  # without pooling and classifier
    for part, module in body.named_children():
        module.requires_grad_(int(part.removeprefix("layer") if part.startswith("layer") else 0) >= trained_from)
    return body
