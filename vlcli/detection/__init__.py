"""Detection: from pictures (and given boxes) to region records; backbones, extractors, selection of proposals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vlcli.lazy import lazily

if TYPE_CHECKING:
    from vlcli.detection.backbone import (
        CAFFE_MEAN,
        CLASSIFIERS,
        IMAGENET_MEAN_255,
        IMAGENET_STD_255,
        TINY,
        TINY_WIDTHS,
        Head,
        RegionBackbone,
        tiny_conv,
    )
    from vlcli.detection.detections import (
        AttributeHead,
        ClassProbs,
        Detections,
        Selection,
        apply_deltas,
        clip_boxes,
        detection_record,
    )
    from vlcli.detection.detector_input import DETECTRON_MEAN, DetectorPreparation, Resize
    from vlcli.detection.extractor import Extractor, Network, Preparation, Prepared, grid_boxes, to_record
    from vlcli.detection.map_regions import MapGeometry, cell_boxes, cell_record
    from vlcli.detection.selection import Rule, RuleName, make_rule, nms

_HOMES = {
    "AttributeHead": "detections",
    "CAFFE_MEAN": "backbone",
    "CLASSIFIERS": "backbone",
    "ClassProbs": "detections",
    "DETECTRON_MEAN": "detector_input",
    "Detections": "detections",
    "DetectorPreparation": "detector_input",
    "Extractor": "extractor",
    "Network": "extractor",
    "Head": "backbone",
    "IMAGENET_MEAN_255": "backbone",
    "IMAGENET_STD_255": "backbone",
    "MapGeometry": "map_regions",
    "Preparation": "extractor",
    "Prepared": "extractor",
    "RegionBackbone": "backbone",
    "Resize": "detector_input",
    "Rule": "selection",
    "RuleName": "selection",
    "Selection": "detections",
    "TINY": "backbone",
    "TINY_WIDTHS": "backbone",
    "apply_deltas": "detections",
    "cell_boxes": "map_regions",
    "cell_record": "map_regions",
    "clip_boxes": "detections",
    "detection_record": "detections",
    "grid_boxes": "extractor",
    "make_rule": "selection",
    "nms": "selection",
    "tiny_conv": "backbone",
    "to_record": "extractor",
}

__all__ = [
    "CAFFE_MEAN",
    "CLASSIFIERS",
    "DETECTRON_MEAN",
    "IMAGENET_MEAN_255",
    "IMAGENET_STD_255",
    "TINY",
    "TINY_WIDTHS",
    "AttributeHead",
    "ClassProbs",
    "Detections",
    "DetectorPreparation",
    "Extractor",
    "Head",
    "MapGeometry",
    "Network",
    "Preparation",
    "Prepared",
    "RegionBackbone",
    "Resize",
    "Rule",
    "RuleName",
    "Selection",
    "apply_deltas",
    "cell_boxes",
    "cell_record",
    "clip_boxes",
    "detection_record",
    "grid_boxes",
    "make_rule",
    "nms",
    "tiny_conv",
    "to_record",
]

__getattr__ = lazily(__name__, _HOMES)
