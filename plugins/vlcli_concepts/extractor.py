"""Extracts the words that a trained concept model sees in pictures."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vlcli import __version__, load
from vlcli.data import ImageSample, Item, Sample, fitted
from vlcli.data import collate_samples as collate
from vlcli.detection import Extractor, Preparation, Prepared
from vlcli.errors import DataError, UsageError
from vlcli.features import CONCEPTS, WORDS, Record, concept_record
from vlcli.images import BoxList
from vlcli.nn import InputSpec, Layout, file_sha256


@dataclass
class AsTrained(Preparation):
    """Resizes pictures as in training; ``needs`` are the inputs of the model."""

    needs: InputSpec = field(default_factory=InputSpec)

    def input_size(self, size: tuple[int, int]) -> tuple[int, int]:
        if self.needs.size is not None:
            return self.needs.size
        return fitted(size, self.needs.short, self.needs.long) if self.needs.short else size

    def __call__(self, image: Image.Image, boxes: BoxList | None) -> Prepared:
        size = (image.height, image.width)
        height, width = self.input_size(size)
        if (height, width) != size:
            image = image.resize((width, height), Image.Resampling.BICUBIC)
        pixels = torch.from_numpy(np.array(image, dtype=np.uint8)).permute(2, 0, 1).contiguous()  # (3, h, w)
        return Prepared(pixels, size, (width / size[1], height / size[0]))


class ConceptExtractor(Extractor):
    """The best words of each picture with their probabilities, and where each is seen best.

    ``from`` names the stage that trained the model, and ``features`` the store of a model over regions.

    Args:
        weights: a trained concept model: its folder or its file, in place of ``from``.
        top: most words of a picture; 0 for all.
        min_score: less probable words are left out.
        batch_size: pictures at a time where the stage does not say.
    """

    paper = "Fang et al. 2015, From Captions to Visual Concepts and Back; DiMBERT (Liu et al. 2021), Table 8: M = 20"
    set = CONCEPTS

    def __init__(
        self, *, weights: str | None = None, top: int = 20, min_score: float = 0.0, batch_size: int = 16
    ) -> None:
        if weights is None:
            expected = "`from: STAGE` (one with task: concepts), or `weights: FOLDER`"
            raise UsageError("The extractor concepts needs a trained model.", expected=expected)
        path = Path(weights)
        self.loaded = load(path.parent if path.is_file() else path)
        able = [part for part in self.loaded.module.objectives.values() if hasattr(part, "words")]
        if not able:
            expected = "a model trained with task: concepts"
            raise DataError("This model has no objective that predicts concepts.", where=str(path), expected=expected)
        self.words: tuple[str, ...] = able[0].words  # type: ignore[assignment]
        self.top, self.min_score, self.batch_size = top or len(self.words), min_score, batch_size
        self.needs = self.loaded.model.input_spec()
        self.reads: Literal["pixels", "regions"] = "regions" if self.needs.regions else "pixels"
        self.preparation = AsTrained(boxes="none", needs=self.needs)
        self.dim = 0
        self.trained_on = self.loaded.folder.parent.name
        self._sha256 = file_sha256(self.loaded.folder / "model.safetensors")

    def to(self, device: str | torch.device) -> Self:
        self.loaded.to(device)
        return super().to(device)

    def provenance(self) -> dict[str, Any]:
        return {
            "extractor": "concepts",
            "parameters": {"top": self.top, "min_score": self.min_score},
            "weights_sha256": self._sha256,
            "trained_on": self.trained_on,
            "boxes": "the instance that speaks most for the word",
            WORDS: list(self.words),
            "versions": {"vlcli": __version__, "torch": torch.__version__},
        }

    def extract(self, batch: list[Prepared]) -> list[Record]:
        samples = [Sample(item.id, None, [self._sample(item, number)], {}) for number, item in enumerate(batch)]
        collated = collate([Item({"clean": sample}, 0) for sample in samples]).to(self.device)
        step = self.loaded.module.step(collated)
        outputs = next(out for out in self.loaded.module.predict(step).values() if "instance" in out)
        layout = step.image().layout.expand(len(batch))
        boxes = _boxes(layout)[collated.clean.image_rows[:, 0]].float().cpu().numpy()  # (B, J, 4)
        scores = outputs["logits"].float().sigmoid().cpu().numpy()  # (B, W)
        instances = outputs["instance"].cpu().numpy()  # (B, W)
        return [self._record(item, *each) for item, *each in zip(batch, scores, instances, boxes, strict=True)]

    def _sample(self, item: Prepared, number: int) -> ImageSample:
        height, width = item.size
        name = item.id or str(number)
        if item.record is None:
            pixels = (item.pixels.float() / 255).numpy()
            mean, std = (np.array(values, np.float32).reshape(3, 1, 1) for values in (self.needs.mean, self.needs.std))
            return ImageSample(name, item.size, pixels=(pixels - mean) / std)
        boxes = np.asarray(item.record.boxes, np.float32) / np.array([width, height, width, height], np.float32)
        return ImageSample(name, item.size, item.record.features, np.clip(boxes, 0, 1))

    def _record(self, item: Prepared, scores: np.ndarray, instances: np.ndarray, boxes: np.ndarray) -> Record:
        best = np.argsort(-scores, kind="stable")[: self.top]
        best = best[scores[best] >= self.min_score]
        height, width = item.size
        pixels = boxes[instances[best]] * np.array([width, height, width, height], np.float32)  # (K, 4)
        return concept_record(item.id, best, scores[best], item.size, pixels)


def _boxes(layout: Layout) -> Tensor:
    # (M, J, 4) as shares of the picture: the boxes, or the cells of a grid; tokens without a place see all of it.
    if layout.boxes is not None:
        return layout.boxes
    rows, columns = layout.grid or (1, 1)
    side = layout.centre.new_tensor([1 / columns, 1 / rows])
    corner = layout.centre.flip(-1) * side  # (M, J, 2): x, y
    boxes = torch.cat([corner, corner + side], -1)
    return torch.where(boxes.isnan(), boxes.new_tensor([0.0, 0.0, 1.0, 1.0]), boxes)
