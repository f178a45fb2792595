"""Extracts regions with detectors of detectron2."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from vlcli import __version__
from vlcli.detection import (
    ClassProbs,
    DetectorPreparation,
    Extractor,
    MapGeometry,
    Prepared,
    RuleName,
    cell_record,
    detection_record,
    make_rule,
)
from vlcli.errors import ComponentError, DataError
from vlcli.features import Record
from vlcli_detectron2.model import TwoStages, class_labels, read_config, seeded

PACKAGE = "detectron2"
SOURCE = "'git+https://github.com/facebookresearch/detectron2.git'"
INSTALL = f"pip install 'setuptools>=77,<82' wheel && pip install --no-build-isolation {SOURCE}"
HELP = "docs/detectors.md says which files can be loaded and how to convert others"


class Detectron2Extractor(Extractor):
    """Regions of any two-stage detectron2 configuration, with an attribute head where its weights have one.

    Args:
        config: a YAML file, or a name of detectron2's model zoo.
        weights: local safetensors file or tensors-only checkpoint; None for random weights from ``seed``.
        overrides: keys and values of the configuration in turn, as detectron2's own programs take them; values may be
            numbers.
        attributes: outputs of the attribute head (400 in MILVLG's trainings); 0 for none.
        feature: ``last``: what the class scores see; ``first``: the first of a pyramid's two layers (fc6).
        rule: of selection.
        min_boxes: fewest boxes of an image.
        max_boxes: most boxes of an image.
        boxes: ``detected``; ``given`` ones, all of which stay; or ``cells``: each cell of the map that the last stage
            makes of the whole picture (Jiang et al. 2020's grid features; of a pyramid, its coarsest map of regions).
        nms: overlap above which the weaker of two boxes goes; None for the configuration's own with the rule
            ``detectron2``, else the rule's.
        confidence: a weaker box stays only to make up ``min_boxes``; None likewise.
        class_probs: stored class probabilities: ``none``, ``classes``, or ``all`` (with the background, last).
        resize: ``image`` as detectron2 does it, or ``float`` as MILVLG's extraction does.
        limit: most given boxes, by score; 0 for all.
        seed: of random weights.
        batch_size: images at a time where the stage does not say.
    """

    paper = "Wu et al. 2019, Detectron2"
    packages: ClassVar[tuple[str, ...]] = (PACKAGE,)
    install: ClassVar[str] = INSTALL
    weights_help: ClassVar[str] = HELP

    def __init__(
        self,
        *,
        config: str = "COCO-Detection/faster_rcnn_R_101_C4_3x.yaml",
        weights: str | None = None,
        overrides: tuple[str | int | float | bool, ...] = (),
        attributes: int = 0,
        feature: Literal["last", "first"] = "last",
        rule: RuleName = "detectron2",
        min_boxes: int = 36,
        max_boxes: int = 36,
        boxes: Literal["detected", "given", "cells"] = "detected",
        nms: float | None = None,
        confidence: float | None = None,
        class_probs: ClassProbs = "none",
        resize: Literal["image", "float"] = "image",
        limit: int = 0,
        seed: int = 0,
        batch_size: int = 1,
    ) -> None:
        self._parameters = {key: value for key, value in locals().items() if key not in ("self", "__class__")}
        if find_spec(PACKAGE) is None:
            raise ComponentError("the extractor detectron2 needs the package detectron2", hint=INSTALL)
        cfg = read_config(config, overrides, "cpu")
        if weights is not None and not Path(weights).is_file():
            raise DataError("the detector's weights do not exist", where=weights, hint=HELP)
        self.labels = class_labels(cfg)
        self.network: TwoStages = seeded(cfg, attributes, feature, seed)
        self.report = self.network.load(weights) if weights else None
        heads = cfg.MODEL.ROI_HEADS
        if rule == "detectron2":
            nms = heads.NMS_THRESH_TEST if nms is None else nms
            confidence = heads.SCORE_THRESH_TEST if confidence is None else confidence
        self.rule = make_rule(rule, min_boxes, max_boxes, nms, confidence)
        self.given, self.class_probs = boxes == "given", class_probs
        self.rgb = cfg.INPUT.FORMAT == "RGB"
        self.cells, self.batch_size = boxes == "cells", batch_size
        self.dim = self.network.cell_width if self.cells else self.network.dim
        self.trained_on = Path(weights).name if weights else "untrained"
        self.preparation = DetectorPreparation(
            short=cfg.INPUT.MIN_SIZE_TEST,
            long=cfg.INPUT.MAX_SIZE_TEST,
            boxes="none" if boxes == "detected" else boxes,
            limit=limit or None,
            resize=resize,
            mean=(0.0, 0.0, 0.0),  # the model takes its own off
        )

    def notes(self) -> list[str]:
        chosen = f"detectron2: {self._parameters['config']}, rule {self.rule.name}"
        if self.report is None:
            return [f"{chosen}; untrained, random weights from seed {self._parameters['seed']}"]
        return [chosen, str(self.report)]

    def provenance(self) -> dict[str, Any]:
        import detectron2

        hidden = ("weights", "batch_size")
        parameters = {key: value for key, value in self._parameters.items() if key not in hidden}
        return {
            "extractor": "detectron2",
            "rule": self.preparation.boxes if self.given or self.cells else self.rule.name,
            "parameters": {k: list(v) if isinstance(v, tuple) else v for k, v in parameters.items()},
            "weights": self.trained_on,
            "weights_sha256": self.report.sha256 if self.report else "",
            "trained_on": self.trained_on,
            "boxes": self.preparation.boxes if self.given or self.cells else "detected",
            **self.labels.provenance(),
            "versions": {"vlcli": __version__, "torch": torch.__version__, "detectron2": detectron2.__version__},
        }

    def extract(self, batch: list[Prepared]) -> list[Record]:
        if self.cells:
            maps, stride = self.network.cells([self._pixels(item) for item in batch])
            geometry = [MapGeometry((stride, stride), item.scale) for item in batch]
            return [cell_record(*each) for each in zip(batch, maps.permute(0, 2, 3, 1), geometry, strict=True)]
        boxes = [torch.zeros(0, 4) if i.boxes is None else torch.from_numpy(i.boxes.boxes).float() for i in batch]
        pixels, sizes, scales = zip(*((self._pixels(item), item.size, item.scale) for item in batch), strict=True)
        detections = self.network(pixels, sizes, scales, boxes if self.given else None)
        return [
            detection_record(item, one, None if self.given else self.rule(one), self.class_probs, True)
            for item, one in zip(batch, detections, strict=True)
        ]

    def _pixels(self, item: Prepared) -> Tensor:
        pixels = item.pixels.to(self.device, non_blocking=True)
        return pixels.flip(0) if self.rgb else pixels
