"""Extracts the objects that DETR, RT-DETR, Grounding DINO and OWLv2 find in pictures."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torchvision.ops import batched_nms

from vlcli.detection import Prepared
from vlcli.features import Record
from vlcli.images import Labels
from vlcli_hf.detectors import ClosedDetector, GroundedDetector, OwlDetector, load_detector
from vlcli_hf.folder import FolderExtractor, autocast, chosen_words, image_processor, words_of_data
from vlcli_hf.pictures import ProcessorPreparation, stacked


class TransformersDetector(FolderExtractor):
    """Objects that a detector of transformers finds: DETR, RT-DETR, and by a text prompt Grounding DINO and OWLv2.

    A region is an object query: its feature, its box, its most probable class and the probability of that class. Class
    names come from the configuration; open-vocabulary detectors look for ``words``.

    Args:
        words: of open-vocabulary detectors: a list, a file with one word a line (or JSON), or None for the class names
            of the stage's data.
        confidence: regions with a lower score stay only to make up ``min_boxes``.
        min_boxes: fewest regions of an image.
        max_boxes: most regions of an image, by score.
        nms: overlap above which the less certain of two boxes of a class goes; 1 for no such rule (DETR needs none).
        class_probs: store the probabilities of all classes or words.
    """

    paper = "Carion et al. 2020, DETR; Zhao et al. 2024, RT-DETR; Liu et al. 2024, Grounding DINO; Minderer et al. 2023"
    name: ClassVar[str] = "transformers-detector"
    network: ClosedDetector | OwlDetector | GroundedDetector

    def __init__(
        self,
        *,
        weights: str | None = None,
        hub: str | None = None,
        words: tuple[str, ...] | str | None = None,
        confidence: Annotated[float, Field(ge=0, le=1)] = 0.2,
        min_boxes: Annotated[int, Field(ge=1)] = 10,
        max_boxes: Annotated[int, Field(ge=1)] = 36,
        nms: Annotated[float, Field(gt=0, le=1)] = 1.0,
        class_probs: bool = False,
        precision: Literal["float32", "bf16", "fp16"] = "float32",
        batch_size: int = 4,
    ) -> None:
        super().__init__(locals())
        asked = chosen_words(words, self.name)
        self.network = load_detector(self.folder)
        if asked is not None:
            self.network.ask(asked)
        self.confidence, self.least, self.most, self.nms = confidence, min_boxes, max(min_boxes, max_boxes), nms
        self.class_probs, self.precision = class_probs, precision
        self.dim = _width(self.network.model.config)
        self.preparation = ProcessorPreparation(0, 0, "none", processor=image_processor(self.folder))

    def attach(self, labels: Labels) -> None:
        if self.network.open_vocabulary and not self.network.names:
            self.network.ask(words_of_data(labels, self.name))

    def notes(self) -> list[str]:
        names = self.network.names
        some = ", ".join(names[:5]) + (" ..." if len(names) > 5 else "")
        return [f"{self.name}: {self.model_class} of {self.folder}, {len(names)} classes: {some}"]

    def provenance(self) -> dict[str, Any]:
        return {**super().provenance(), **Labels(self.network.names).provenance()}

    def regions(self) -> str:
        return "detected"

    def extract(self, batch: list[Prepared]) -> list[Record]:
        with autocast(self.device, self.precision):
            out = self.network(stacked(batch, self.device))
        rows = zip(batch, out.features.float(), out.boxes.float(), out.probs.float(), strict=True)
        return [self._record(*row) for row in rows]

    def _record(self, item: Prepared, features: Tensor, parts: Tensor, probs: Tensor) -> Record:
        boxes = original_boxes(item, parts)
        scores, classes = probs.max(-1)
        kept = self._choose(boxes, scores, classes)
        arrays = {
            "boxes": boxes[kept],
            "features": features[kept],
            "scores": scores[kept],
            "classes": classes[kept],
            "class_scores": scores[kept],
        }
        arrays |= {"class_probs": probs[kept]} if self.class_probs else {}
        plain: dict[str, np.ndarray] = {name: value.cpu().numpy() for name, value in arrays.items()}
        return Record(id=item.id, size=item.size, **plain)

    def _choose(self, boxes: Tensor, scores: Tensor, classes: Tensor) -> Tensor:
        order: Tensor
        if self.nms < 1:
            order = batched_nms(boxes, scores, classes, self.nms)
        else:
            order = scores.argsort(descending=True, stable=True)
        certain = int((scores[order] >= self.confidence).sum())
        return order[: min(max(certain, self.least), self.most)]


def original_boxes(item: Prepared, parts: Tensor) -> Tensor:
    """Boxes that are parts of a model's input as pixels of the original picture, cut at its borders (Q, 4)."""
    height, width = item.size
    shown = parts.new_tensor([item.pixels.shape[-1], item.pixels.shape[-2]] * 2)
    boxes = parts * shown / parts.new_tensor([*item.scale, *item.scale])
    limit = parts.new_tensor([width, height, width, height])
    boxes = boxes.clamp(min=0).minimum(limit)
    return torch.cat([boxes[:, :2], boxes[:, 2:].maximum(boxes[:, :2])], -1)


def _width(config: Any) -> int:
    vision = getattr(config, "vision_config", None)
    return int(vision.hidden_size if vision is not None else getattr(config, "d_model", None) or config.hidden_size)
