"""Extracts regions with the two stages of a detectron2 model."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import torch
from torch import Tensor, nn

from vlcli import __version__, detection
from vlcli.errors import ComponentError, DataError, UsageError
from vlcli.images import Labels
from vlcli.nn import WeightsReport, load_tensors, read_weights

IDS = "thing_dataset_id_to_contiguous_id"
PUBLISHED = {
    "roi_heads.attribute_predictor.obj_embed.": "embedding.",
    "roi_heads.attribute_predictor.fc.0.": "hidden.",
    "roi_heads.attribute_predictor.attr_score.": "score.",
}
# Constants that some releases store and others compute
UNNEEDED = ("pixel_mean", "pixel_std", "*cell_anchors*")


# detectron2's own classes under those that MILVLG and grid-feats-vqa register with an attribute head
WITHOUT_ATTRIBUTES = {
    "AttributeRes5ROIHeads": "Res5ROIHeads",
    "AttributeStandardROIHeads": "StandardROIHeads",
    "AttributeFastRCNNConvFCHead": "FastRCNNConvFCHead",
}


def read_config(name: str, overrides: Sequence[str | float], device: str) -> Any:
    """Read a detectron2 configuration: a YAML file, else a name of its model zoo.

    ``overrides`` are keys and values in turn; a value is a number, a truth value, or text as detectron2 reads it.
    Raises DataError: neither; or a key or value that detectron2 refuses.
    """
    odd = [key for key in overrides[::2] if not isinstance(key, str)]
    if odd or len(overrides) % 2:
        got = f"{odd[0]!r} where a key should stand" if odd else f"{len(overrides)} items"
        expected = "[INPUT.MIN_SIZE_TEST, 800, INPUT.MAX_SIZE_TEST, 1333]"
        raise UsageError("the overrides are not keys and values in turn", got=got, expected=expected)
    from detectron2 import model_zoo
    from detectron2.config import get_cfg

    config = get_cfg()
    config.set_new_allowed(True)  # configurations of other projects bring keys of their own
    try:
        config.merge_from_file(name if Path(name).is_file() else model_zoo.get_config_file(name))
        config.merge_from_list(list(overrides))
    except (RuntimeError, KeyError, ValueError, AssertionError, OSError) as error:
        what, got = "detectron2 does not take this configuration", str(error) or type(error).__name__
        expected = "a YAML file, or a name such as COCO-Detection/faster_rcnn_R_101_C4_3x.yaml"
        raise DataError(what, where=name, got=got.splitlines()[0], expected=expected) from None
    for node in (config.MODEL.ROI_HEADS, config.MODEL.ROI_BOX_HEAD):  # the attribute head is ours
        node.NAME = WITHOUT_ATTRIBUTES.get(node.NAME, node.NAME)
    config.MODEL.DEVICE = device
    config.MODEL.WEIGHTS = ""
    return config


def class_labels(config: Any) -> Labels:
    """Return names and published ids of the classes, where detectron2 knows the configuration's training data."""
    from detectron2.data import MetadataCatalog

    count = int(config.MODEL.ROI_HEADS.NUM_CLASSES)
    for name in (*config.DATASETS.TRAIN, *config.DATASETS.TEST):
        known = MetadataCatalog.get(name) if name in MetadataCatalog.list() else None
        names = tuple(getattr(known, "thing_classes", ()))
        if len(names) == count:
            ids = {index: number for number, index in getattr(known, IDS, {}).items()}
            return Labels(names, tuple(ids[index] for index in range(count)) if len(ids) == count else ())
    return Labels()


class TwoStages(nn.Module):
    """A GeneralizedRCNN split at the proposals.

    Args:
        config: of detectron2.
        attributes: outputs of an attribute head; 0 for none.
        feature: what is stored of a region: ``last``, what the class scores see, or ``first``, the first of a pyramid's
            two layers (fc6).
    """

    def __init__(self, config: Any, attributes: int, feature: Literal["last", "first"]) -> None:
        from detectron2.modeling import build_model

        super().__init__()
        try:
            self.model = build_model(config).eval()
        except KeyError as error:
            got = str(error.args[0]).splitlines()[0]
            hint = "a component of another project; only detectron2's own are known"
            raise DataError("detectron2 cannot build this configuration", got=got, hint=hint) from None
        heads: Any = getattr(self.model, "roi_heads", None)
        if not hasattr(self.model, "proposal_generator") or not hasattr(heads, "box_predictor"):
            got = config.MODEL.META_ARCHITECTURE
            raise UsageError("this detector has no second stage", got=got, expected="a GeneralizedRCNN with a box head")
        self.c4 = hasattr(heads, "_shared_roi_transform")
        self.feature = feature
        self.classes = int(heads.num_classes)
        self.dim = int(heads.box_predictor.cls_score.in_features)
        self.attributes = detection.AttributeHead(self.dim, self.classes + 1, attributes) if attributes else None

    def load(self, path: str) -> WeightsReport:
        """Load a checkpoint completely, the attribute head under the names of MILVLG's trainings."""
        tensors = {_module_name(name): value for name, value in read_weights(path).items()}
        constants = {n: v for n, v in self.state_dict().items() if n not in tensors and n.endswith(CONSTANTS)}
        report = load_tensors(self, tensors | constants, path, [f"model.{pattern}" for pattern in UNNEEDED])
        return WeightsReport(report.path, report.sha256, report.matched - len(constants), report.left_over)

    def forward(
        self,
        pixels: Sequence[Tensor],
        originals: Sequence[tuple[int, int]],
        scales: Sequence[tuple[float, float]],
        boxes: Sequence[Tensor] | None = None,
    ) -> list[detection.Detections]:
        """Return the detections of images.

        Args:
            pixels: in the configuration's order of colours, 0..255 (3, h, w).
            originals: height and width of each original.
            scales: x and y factors from original to resized pixels.
            boxes: in original pixels (N_i, 4); None to propose some.
        """
        from detectron2.structures import Boxes, Instances

        images = self.model.preprocess_image([{"image": image} for image in pixels])
        maps = self.model.backbone(images.tensor)
        factors = [images.tensor.new_tensor([*scale, *scale]) for scale in scales]
        if boxes is None:
            proposals, _ = self.model.proposal_generator(images, maps, None)
        else:
            parts = zip(images.image_sizes, boxes, factors, strict=True)
            proposals = [Instances(size, proposal_boxes=Boxes(part.to(by) * by)) for size, part, by in parts]
        stored, seen = self._regions(maps, [one.proposal_boxes for one in proposals])
        counts = [len(one) for one in proposals]
        rows = zip(proposals, stored.split(counts), seen.split(counts), factors, strict=True)
        return [self._describe(*row, proposed=boxes is None) for row in rows]

    @property
    def _maps(self) -> list[str]:
        # names of the maps that regions are cut from, the coarsest last
        heads = self.model.roi_heads
        return list(heads.in_features if self.c4 else heads.box_in_features)

    @property
    def cell_width(self) -> int:
        return self.dim if self.c4 else int(self.model.backbone.output_shape()[self._maps[-1]].channels)

    def cells(self, pixels: Sequence[Tensor]) -> tuple[Tensor, float]:
        """Return the map of whole pictures, and the side of its cells in pixels (Jiang et al. 2020, grid features).

        Args:
            pixels: in the configuration's order of colours, 0..255 (3, h, w).

        Returns:
            Of a C4 detector the last stage on the map that regions are cut from, of others the coarsest of those maps
            (B, D, h, w).
        """
        images = self.model.preprocess_image([{"image": image} for image in pixels])
        backbone, name = self.model.backbone, self._maps[-1]
        single, stride = backbone(images.tensor)[name], float(backbone.output_shape()[name].stride)
        return (self.model.roi_heads.res5(single), 2 * stride) if self.c4 else (single, stride)

    def _regions(self, maps: dict[str, Tensor], boxes: list[Any]) -> tuple[Tensor, Tensor]:
        # what is stored of every region, and what the heads see
        heads, chosen = self.model.roi_heads, [maps[name] for name in self._maps]
        if self.c4:
            pooled = heads._shared_roi_transform(chosen, boxes).mean((2, 3))
            return pooled, pooled
        regions = heads.box_pooler(chosen, boxes)
        seen = heads.box_head(regions)
        if self.feature == "last":
            return seen, seen
        if not hasattr(heads.box_head, "fc1"):
            raise UsageError("this detector's box head has no first layer", expected="feature: last")
        return heads.box_head.fc1(regions.flatten(1)).relu(), seen

    def _describe(self, one: Any, stored: Tensor, seen: Tensor, factor: Tensor, proposed: bool) -> detection.Detections:
        from detectron2.structures import Boxes

        predictor = self.model.roi_heads.box_predictor
        logits, deltas = predictor(seen)
        probs = logits.softmax(1)
        boxes = one.proposal_boxes.tensor

        def regress() -> Tensor:
            limited = Boxes(predictor.box2box_transform.apply_deltas(deltas, boxes).reshape(-1, 4))
            limited.clip(one.image_size)
            return cast(Tensor, limited.tensor.view(len(boxes), -1, 4).expand(-1, self.classes, -1) / factor)

        return detection.Detections(
            boxes=boxes / factor,
            features=stored,
            probs=probs[:, :-1],
            background=probs[:, -1],
            regress=regress if proposed else None,
            attributes=self.attributes(seen, logits.argmax(1)).softmax(1) if self.attributes else None,
        )


CONSTANTS = ("pixel_mean", "pixel_std")


def _module_name(name: str) -> str:
    known = (f"attributes.{ours}{name.removeprefix(old)}" for old, ours in PUBLISHED.items() if name.startswith(old))
    return next(known, f"model.{name}")


PACKAGE = "detectron2"
SOURCE = "'git+https://github.com/facebookresearch/detectron2.git'"
INSTALL = f"pip install 'setuptools>=77,<82' wheel && pip install --no-build-isolation {SOURCE}"
HELP = "docs/detectors.md says which files can be loaded and how to convert others"


class Detectron2Extractor(detection.TwoStageExtractor):
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
    name: ClassVar[str] = PACKAGE
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
        rule: detection.RuleName = "detectron2",
        min_boxes: int = 36,
        max_boxes: int = 36,
        boxes: Literal["detected", "given", "cells"] = "detected",
        nms: float | None = None,
        confidence: float | None = None,
        class_probs: detection.ClassProbs = "none",
        resize: Literal["image", "float"] = "image",
        limit: int = 0,
        seed: int = 0,
        batch_size: int = 1,
    ) -> None:
        self.parameters = {key: value for key, value in locals().items() if key not in ("self", "__class__")}
        if find_spec(PACKAGE) is None:
            raise ComponentError("the extractor detectron2 needs the package detectron2", hint=INSTALL)
        cfg = read_config(config, overrides, "cpu")
        if weights is not None and not Path(weights).is_file():
            raise DataError("the detector's weights do not exist", where=weights, hint=HELP)
        heads = cfg.MODEL.ROI_HEADS
        if rule == "detectron2":
            nms = heads.NMS_THRESH_TEST if nms is None else nms
            confidence = heads.SCORE_THRESH_TEST if confidence is None else confidence
        self.rule = detection.make_rule(rule, min_boxes, max_boxes, nms, confidence)
        self.labels = class_labels(cfg)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.detector: TwoStages = TwoStages(cfg, attributes, feature).eval().requires_grad_(False)
        self.report = self.detector.load(weights) if weights else None
        self.boxes, self.class_probs, self.batch_size = boxes, class_probs, batch_size
        self.rgb = cfg.INPUT.FORMAT == "RGB"
        self.dim = self.detector.cell_width if boxes == "cells" else self.detector.dim
        self.trained_on, self.label = Path(weights).name if weights else "untrained", config
        self.preparation = detection.DetectorPreparation(
            short=cfg.INPUT.MIN_SIZE_TEST,
            long=cfg.INPUT.MAX_SIZE_TEST,
            boxes="none" if boxes == "detected" else boxes,
            limit=limit or None,
            resize=resize,
            mean=(0.0, 0.0, 0.0),  # the model takes its own off
        )

    def provenance(self) -> dict[str, Any]:
        import detectron2

        versions = {"vlcli": __version__, "torch": torch.__version__, "detectron2": detectron2.__version__}
        return super().provenance() | self.labels.provenance() | {"versions": versions}

    def pixels(self, batch: list[detection.Prepared]) -> list[Tensor]:
        pictures = [item.pixels.to(self.device, non_blocking=True) for item in batch]
        return [pixels.flip(0) for pixels in pictures] if self.rgb else pictures
