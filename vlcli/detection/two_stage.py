"""Extracts regions with a two-stage detector that was published for region features."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from vlcli.detection.detections import ClassProbs, detection_record
from vlcli.detection.extractor import Extractor, Prepared
from vlcli.detection.selection import MapGeometry, Rule, cell_record
from vlcli.features.schema import Record
from vlcli.nn.weights import WeightsReport
from vlcli.version import __version__


class TwoStageExtractor(Extractor):
    """Base of extractors with published two-stage detectors: boxes that a rule selects, given boxes, or cells.

    Subclasses set the attributes and define :meth:`pixels`.

    Attributes:
        detector: called with pixels, sizes, scales and given boxes, it returns Detections; ``cells`` returns a map.
        label: which of the detectors it is, in words.
        parameters: of the extractor, by name.
        boxes: ``detected``, ``given`` or ``cells``.
        report: how the weights were loaded; None for random ones.
    """

    name: ClassVar[str]
    detector: Any
    label: str
    parameters: dict[str, Any]
    boxes: str
    rule: Rule
    class_probs: ClassProbs
    attributes: bool = True
    report: WeightsReport | None

    def pixels(self, batch: list[Prepared]) -> Tensor | Sequence[Tensor]:
        """Return pictures as the detector takes them, on its device; called once per batch."""
        raise NotImplementedError(f"{type(self).__name__} does not say what its detector takes")

    def notes(self) -> list[str]:
        chosen = f"{self.name}: {self.label}, rule {self.rule.name}"
        if self.report is None:
            return [f"{chosen}; untrained, random weights from seed {self.parameters['seed']}"]
        return [chosen, str(self.report)]

    def provenance(self) -> dict[str, Any]:
        # neither where the file lies nor how many pictures go at a time changes a feature
        stored = {key: value for key, value in self.parameters.items() if key not in ("weights", "batch_size")}
        return {
            "extractor": self.name,
            "rule": self.rule.name if self.boxes == "detected" else self.boxes,
            "parameters": {key: list(v) if isinstance(v, tuple) else v for key, v in stored.items()},
            "weights": self.trained_on,
            "weights_sha256": self.report.sha256 if self.report else "",
            "trained_on": self.trained_on,
            "boxes": self.boxes,
            "versions": {"vlcli": __version__, "torch": torch.__version__},
        }

    def extract(self, batch: list[Prepared]) -> list[Record]:
        pixels = self.pixels(batch)
        if self.boxes == "cells":
            maps, stride = self.detector.cells(pixels)
            cells = zip(batch, maps.permute(0, 2, 3, 1), strict=True)
            return [cell_record(item, one, MapGeometry((stride, stride), item.scale)) for item, one in cells]
        given = [torch.zeros(0, 4) if i.boxes is None else torch.from_numpy(i.boxes.boxes).float() for i in batch]
        boxes = given if self.boxes == "given" else None
        detections = self.detector(pixels, [item.size for item in batch], [item.scale for item in batch], boxes)
        kept = [self.rule(one) if boxes is None else None for one in detections]
        rows = zip(batch, detections, kept, strict=True)
        return [detection_record(*row, self.class_probs, self.attributes) for row in rows]
