"""Extracts regions with torchvision's detectors, or with a trained ``faster-rcnn``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import torch
import torchvision
from torch import Tensor
from torchvision.ops import nms

from vlcli import __version__
from vlcli.detection import Extractor, Preparation, Prepared, grid_boxes, to_record
from vlcli.errors import UsageError
from vlcli.features import Record
from vlcli.images import Labels
from vlcli_torchvision.load import load_detector
from vlcli_torchvision.pooling import DetectorMaps, box_features, look, scaled, watching


@dataclass
class Regions:
    """Boxes of one image.

    Attributes:
        labels: (N,) classes from 0; -1 for a cell of a grid or the whole picture.
        scores: (N,) confidence; 0 for those.
    """

    boxes: Tensor
    labels: Tensor
    scores: Tensor

    def rows(self, index: Tensor) -> Regions:
        return Regions(self.boxes[index], self.labels[index], self.scores[index])


@dataclass(frozen=True)
class Choice:
    """Rule by which regions are selected.

    Attributes:
        least: fewest boxes, where there are so many.
        most: most boxes.
        apart: overlap above which the less certain of two boxes goes whatever their classes; 1 for no such rule.
        weaker: fill up with the best of the others where there are fewer than ``least``.
        whole: the whole picture is one more region, after the others.
    """

    confidence: float
    least: int
    most: int
    apart: float = 1.0
    weaker: bool = True
    whole: bool = False


def select(regions: Regions, choice: Choice, cells: Tensor | None, size: tuple[int, int]) -> Regions:
    """Return the regions of an image: its best detections, best first, and what fills them up.

    Args:
        regions: after the detector's own suppression; boxes without a class are passed over.
        cells: of a grid (K, 4), added where there are fewer than ``least``; or None.
        size: height and width of the picture, the region of last resort.
    """
    regions = regions.rows((regions.labels >= 0).nonzero()[:, 0])
    regions = regions.rows(regions.scores.argsort(descending=True, stable=True))
    if choice.apart < 1:
        regions = regions.rows(nms(regions.boxes.float(), regions.scores.float(), choice.apart))
    strong = int((regions.scores >= choice.confidence).sum())
    wanted = max(strong, choice.least) if choice.weaker else strong
    kept = regions.rows(torch.arange(min(wanted, choice.most, len(regions.scores))))
    if strong < choice.least and cells is not None:
        kept = _with(kept, cells)
    if choice.whole or not len(kept.scores):
        kept = _with(kept, kept.boxes.new_tensor([[0.0, 0.0, size[1], size[0]]]))
    return kept


def _with(regions: Regions, boxes: Tensor) -> Regions:
    labels, scores = regions.labels.new_full((len(boxes),), -1), regions.scores.new_zeros(len(boxes))
    parts = (regions.boxes, boxes.to(regions.boxes)), (regions.labels, labels), (regions.scores, scores)
    return Regions(*(torch.cat(pair) for pair in parts))


# Parameters that change no feature: where the file lies (its hash is kept) and how many pictures go at a time
HIDDEN = ("weights", "batch_size")


class TorchvisionExtractor(Extractor):
    """Regions of a torchvision detector: boxes with classes and scores, and what its box head sees in them.

    A two-stage detector's features are its box head's output, a one-stage detector's the mean of RoIAlign's cells on
    its maps. With ``from``, a trained ``faster-rcnn`` (attributes too). Pictures are resized by the detector itself.

    Args:
        arch: a detector of torchvision; not looked at where ``weights`` are those of a training stage.
        weights: local safetensors file or tensors-only checkpoint; None for random weights from ``seed``.
        classes: of a one-stage detector, background included (COCO: 91).
        boxes: ``detected``; ``given`` ones; the cells of a ``grid``; ``given-or-grid``; or ``auto``: detected where the
            data's own boxes are of the classes that the detector was trained on, else ``given-or-grid``.
        confidence: least score of a detection.
        min_boxes: fewest boxes of an image, see ``fill``.
        max_boxes: most boxes of an image, by score.
        nms: overlap above which the less certain of two boxes of a class goes.
        apart: the same whatever their classes; 1 for no such rule.
        fill: what an image with fewer than ``min_boxes`` gets: ``weaker`` detections, the cells of a ``grid`` besides,
            or nothing (``none``). Where nothing at all is found, the whole picture is the region.
        grid: rows and columns.
        whole: the whole picture is one more region of detected ones, after them, with no class. Attention over regions
            is a mean: beside a region that is always there, a model sees how many others there are.
        class_probs: store the class probabilities of every box (two-stage detectors).
        short: pixels of the picture's shorter side; 0 for the detector's own.
        long: most pixels of its longer side; 0 for the detector's own.
        batch_size: images at a time where the stage does not say.
        seed: of random weights.
    """

    paper = "Ren et al. 2015, Faster R-CNN; Anderson et al. 2018, Bottom-Up and Top-Down Attention"

    def __init__(
        self,
        *,
        arch: str = "fasterrcnn_resnet50_fpn",
        weights: str | None = None,
        classes: int = 91,
        boxes: Literal["detected", "given", "grid", "given-or-grid", "auto"] = "detected",
        confidence: float = 0.2,
        min_boxes: int = 10,
        max_boxes: int = 36,
        nms: float = 0.5,
        apart: float = 1.0,
        fill: Literal["weaker", "grid", "none"] = "weaker",
        grid: tuple[int, int] = (6, 6),
        whole: bool = False,
        class_probs: bool = False,
        short: int = 0,
        long: int = 0,
        batch_size: int = 4,
        seed: int = 0,
    ) -> None:
        self._parameters = {key: value for key, value in locals().items() if key not in ("self", "__class__")}
        self.choice = Choice(confidence, min_boxes, max_boxes, apart, fill == "weaker", whole)
        self.fill, self.grid, self.class_probs, self.batch_size = fill, (grid[0], grid[1]), class_probs, batch_size
        self.loaded = load_detector(arch, weights, classes, seed)
        self.network = self.loaded.network
        if class_probs and not hasattr(self.network, "roi_heads"):
            raise UsageError("Only a two-stage detector says how probable every class is.", got=arch)
        floor = 0.01 if fill == "weaker" else confidence
        heads = getattr(self.network, "roi_heads", self.network)
        heads.score_thresh, heads.nms_thresh = min(floor, confidence), nms
        heads.detections_per_img = max(min_boxes, max_boxes)
        if short:
            self.network.transform.min_size, self.network.transform.max_size = (short,), long or 1_000_000
        self.dim, self.trained_on = self.loaded.dim, self.loaded.trained_on
        self._settle("detected" if boxes == "auto" else boxes)

    def _settle(self, boxes: str) -> None:
        self.boxes = boxes
        prepared = "none" if boxes == "detected" else boxes
        self.preparation = Preparation(0, 0, prepared, self.grid, self.choice.most or None)

    def attach(self, labels: Labels) -> None:
        if self._parameters["boxes"] == "auto":
            known = labels.classes and labels.classes == self.loaded.labels.classes
            self._settle("detected" if known else "given-or-grid")

    def to(self, device: str | torch.device) -> Self:
        super().to(device)
        self.loaded.move(self.device)
        return self

    def notes(self) -> list[str]:
        rows, columns = self.grid
        fills = {"weaker": "filled up by weaker ones", "grid": f"the {rows}x{columns} cells of a grid besides"}
        choice = self.choice
        detected = f"the detector's own, of score {choice.confidence:g} or more, {choice.most} at most"
        if choice.least and self.fill in fills:
            detected += f"; fewer than {choice.least}: {fills[self.fill]}"
        detected += "; the whole picture besides" if choice.whole else ""
        cells = f"the cells of a {rows}x{columns} grid"
        boxes = {
            "detected": detected,
            "given": "those given",
            "grid": cells,
            "given-or-grid": f"those given, else {cells}",
        }
        return [self.loaded.note, f"boxes: {boxes[self.boxes]}"]

    def provenance(self) -> dict[str, Any]:
        shown = {key: value for key, value in self._parameters.items() if key not in HIDDEN}
        labels = {} if self.boxes != "detected" else self.loaded.labels.provenance()
        return {
            "extractor": "torchvision",
            "parameters": {**shown, "arch": self.loaded.arch, "grid": list(self.grid)},
            "weights": Path(self._parameters["weights"] or "none").name,
            "weights_sha256": self.loaded.sha256,
            "trained_on": self.trained_on,
            "boxes": self.boxes,
            **labels,
            "versions": {"vlcli": __version__, "torch": torch.__version__, "torchvision": torchvision.__version__},
        }

    def extract(self, batch: list[Prepared]) -> list[Record]:
        pictures = [item.pixels.to(self.device, non_blocking=True).float() / 255 for item in batch]
        if self.boxes != "detected":
            parts = self._rows(batch, look(self.network, pictures), [i.scaled_boxes().to(self.device) for i in batch])
            pairs = zip(batch, parts, strict=True)
            return [to_record(item, rows.float().cpu().numpy(), **self._probs(rows)) for item, rows in pairs]
        with watching(self.network) as seen:
            detections = self.network(pictures)
        chosen = [self._chosen(one, item.size) for one, item in zip(detections, batch, strict=True)]
        rows = self._rows(batch, seen, [one.boxes for one in chosen])
        return [self._record(*one) for one in zip(batch, chosen, rows, strict=True)]

    def _rows(self, batch: list[Prepared], seen: DetectorMaps, boxes: list[Tensor]) -> list[Tensor]:
        parts = [scaled(part, i.size, size) for part, i, size in zip(boxes, batch, seen.sizes, strict=True)]
        return list(box_features(self.network, seen, parts).split([len(part) for part in parts]))

    def _chosen(self, detected: dict[str, Tensor], size: tuple[int, int]) -> Regions:
        regions = Regions(detected["boxes"], self.loaded.numbers(detected["labels"]), detected["scores"])
        cells = torch.from_numpy(grid_boxes(size, self.grid).boxes).to(self.device) if self.fill == "grid" else None
        return select(regions, self.choice, cells, size)

    def _record(self, item: Prepared, regions: Regions, rows: Tensor) -> Record:
        fields = {"scores": regions.scores, "classes": regions.labels, "class_scores": regions.scores}
        scores = self.loaded.attribute_scores(rows)
        if scores is not None and scores.shape[-1]:
            fields["attribute_scores"], fields["attributes"] = scores.max(-1)
        kept = {name: value.cpu().numpy() for name, value in fields.items()} | self._probs(rows)
        features, boxes = rows.float().cpu().numpy(), regions.boxes.float().cpu().numpy()
        return Record(item.id, features, boxes, item.size, **kept)

    def _probs(self, rows: Tensor) -> dict[str, Any]:
        if not self.class_probs:
            return {}
        scores = self.network.roi_heads.box_predictor(rows)[0].softmax(-1)  # (N, C + 1), background first
        return {"class_probs": scores[:, self.loaded.columns].float().cpu().numpy()}
