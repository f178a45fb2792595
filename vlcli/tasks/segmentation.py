"""Semantic segmentation: classifies every pixel by windows that slide over the picture."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from vlcli.data.images import load_labels
from vlcli.data.numbering import label_names
from vlcli.errors import DataError
from vlcli.metrics.baseline import NAME
from vlcli.metrics.classification import confusion, union_scores
from vlcli.nn import Batch, Images, InputSpec, Pixels, View
from vlcli.nn.segmentation import resized
from vlcli.objectives.segmentation import classes_of
from vlcli.registry import Spec
from vlcli.tasks.base import Result, Runner, Task
from vlcli.tasks.outputs import logits_of

FEW = 20  # So many classes are also scored one by one


@dataclass(kw_only=True, eq=False)
class Segmentation(Task):
    """Classify every pixel: mean intersection over union, at the picture's own size.

    Windows of the model's size slide over pictures in their own proportions; their scores are averaged.

    Args:
        head: of the objective ``segmentation``: ``light`` or ``upernet``.
        short: shorter side that pictures are scaled to; None: the model's.
        long: the longer side's limit.
        stride: pixels from window to window; None: two thirds of a window.
        window_batch: windows at a time.
        zero_is_void: 0 in a label map is no class, and 1 the first (ADE20K).
    """

    paper = "Zhou et al. 2019 (ADE20K); sliding windows: mmsegmentation, BEiT, Bao et al. 2022, section 3.2"
    requires = frozenset({"image"})
    metric = "miou"
    joint = True
    eval_split = "validation"
    usual_data = "ade20k"
    usual_answers = 150

    head: Literal["light", "upernet"] = "light"
    short: int | None = None
    long: int = 2048
    stride: int | None = None
    window_batch: int = 8
    zero_is_void: bool = True

    def __post_init__(self) -> None:
        self.names: list[str] = []

    def objectives(self) -> list[Spec]:
        return [{"name": "segmentation", "head": self.head, "zero_is_void": self.zero_is_void}]

    def labels(self, readers: list[Any]) -> tuple[str, ...]:
        return label_names(readers)

    def attach(self, data_spec: Any) -> None:
        self.names = list(data_spec.answers)

    def input_spec(self, spec: InputSpec, training: bool) -> InputSpec:
        # label maps to train on; pictures in their own proportions to be scored
        if training:
            return replace(spec, label_maps=True)
        short = self.short or (min(spec.size) if spec.size else 512)
        return replace(spec, size=None, short=short, long=self.long)

    def evaluate(self, runner: Runner) -> Result:
        # every picture by windows; one confusion table of all pixels
        self.attach(runner.data_spec)
        maps = {name: path for reader in runner.data.readers for name, path in reader.label_maps().items()}
        count = len(self.names)
        table = np.zeros((count, count), np.int64)

        def counted(batch: Batch) -> list[dict[str, Any]]:
            images, rows = batch.clean.images, []
            assert images is not None
            assert images.pixels is not None
            for key, row in zip(batch.keys, batch.clean.image_rows[:, 0].tolist(), strict=True):
                name, size = images.keys[row], images.pixels.sizes[row].tolist()
                if name not in maps:
                    raise DataError("A picture has no label map.", where=name, hint="is the split one with labels?")
                scores = self.scores(runner, unpadded(images.pixels, row))  # (classes, h, w)
                classes = resized(scores[None], size)[0].argmax(0).cpu().numpy()  # (H, W)
                labels = torch.from_numpy(np.array(load_labels(maps[name], classes.shape), np.int64))
                pixels = confusion(classes_of(labels, count, self.zero_is_void).numpy(), classes, count)
                table[:] += pixels
                rows.append({"key": key, **union_scores(pixels)})
            return rows

        rows = runner.rows(counted)
        total = np.sum(runner.share.gather(table), axis=0)
        scores = union_scores(total, self.names if count <= FEW else ())
        return Result({**scores, NAME: float(total.sum(1).max() / max(1, total.sum()))}, rows)

    def scores(self, runner: Runner, pixels: Tensor) -> Tensor:
        """Return scores (classes, H, W) of a picture (3, H, W): means over the windows that see a pixel."""
        size = runner.model.input_spec().size or pixels.shape[-2:]
        below, right = (max(0, wanted - side) for wanted, side in zip(size, pixels.shape[1:], strict=True))
        padded = torch.nn.functional.pad(pixels, (0, right, 0, below))
        corners = windows(padded.shape[-2:], size, self.stride)
        total, seen = padded.new_zeros(len(self.names), *padded.shape[-2:]), padded.new_zeros(padded.shape[-2:])
        for start in range(0, len(corners), self.window_batch):
            part = corners[start : start + self.window_batch]
            cut = torch.stack([padded[:, top : top + size[0], left : left + size[1]] for top, left in part])
            logits = logits_of(runner.predict(runner.step(one_batch(cut))), "segmentation")
            for (top, left), scores in zip(part, resized(logits, size), strict=True):
                total[:, top : top + size[0], left : left + size[1]] += scores
                seen[top : top + size[0], left : left + size[1]] += 1
        return (total / seen)[:, : pixels.shape[1], : pixels.shape[2]]

    def decode(self, outputs: dict[str, dict[str, Tensor]], batch: Batch) -> list[dict[str, Any]]:
        # of pictures of the model's size: the share of each class, the largest as ``prediction``
        rows = []
        for key, pixels in zip(batch.keys, logits_of(outputs, "segmentation").argmax(1).flatten(1), strict=True):
            values, counts = pixels.unique(return_counts=True)
            names = [self.names[value] if self.names else str(value) for value in values.tolist()]
            order = counts.argsort(descending=True).tolist()
            shares = {names[row]: counts[row].item() / pixels.numel() for row in order}
            rows.append({"key": key, "prediction": names[order[0]], "score": shares[names[order[0]]], "shares": shares})
        return rows


def windows(size: Any, window: Any, stride: int | None = None) -> list[tuple[int, int]]:
    """Return the upper left corners of windows that cover a picture, the last ones flush with its edges.

    >>> windows((512, 683), (512, 512))
    [(0, 0), (0, 171)]
    """
    starts = []
    for whole, side in zip(size, window, strict=True):
        step = stride or max(1, side * 2 // 3)
        count = max(whole - side + step - 1, 0) // step + 1
        starts.append([min(number * step, whole - side) for number in range(count)])
    return [(top, left) for top in starts[0] for left in starts[1]]


def unpadded(pixels: Pixels, row: int) -> Tensor:
    """Return a picture (3, H, W) without its batch's padding."""
    if pixels.mask is None:
        return pixels.images[row]
    height, width = (int(pixels.mask[row].any(axis).sum()) for axis in (1, 0))
    return pixels.images[row, :, :height, :width]


def one_batch(pixels: Tensor) -> Batch:
    """Return a batch of pictures (M, 3, H, W)."""
    rows = torch.arange(len(pixels), device=pixels.device)
    sizes = torch.tensor([list(pixels.shape[-2:])] * len(pixels))
    images = Images([str(row) for row in range(len(pixels))], pixels=Pixels(pixels, sizes))
    view = View(None, images, torch.full_like(rows, -1), rows[:, None])
    return Batch({"clean": view}, {}, list(images.keys), rows)
