"""Detection: from pictures (and given boxes) to region records; backbones, extractors, selection of proposals."""

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
    from vlcli.detection.extractor import (
        DETECTRON_MEAN,
        DetectorPreparation,
        Extractor,
        Network,
        Preparation,
        Prepared,
        Resize,
        grid_boxes,
        to_record,
    )
    from vlcli.detection.selection import MapGeometry, Rule, RuleName, cell_boxes, cell_record, make_rule, nms
    from vlcli.detection.two_stage import TwoStageExtractor


__getattr__ = lazily(__name__, __file__)
