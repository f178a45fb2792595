"""Opens again what an evaluate stage read: its examples, the files of its pictures, its regions, its model."""

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from vlcli.builders.context import StageContext
from vlcli.data.sample import Example
from vlcli.drawings.stored_boxes import known_names
from vlcli.engine.bundle import find_bundle, read_bundle
from vlcli.errors import DataError
from vlcli.features import FeatureStore, Record
from vlcli.images.boxes import BoxList
from vlcli.progress import Progress
from vlcli.recipe.load import from_mapping
from vlcli.stages.draw import StageScene
from vlcli.tools.run_folder import StageFacts

# Keys of an evaluate stage that decide what it reads
KEPT = ("data", "split", "task", "transform", "batch_size", "precision", "missing")
STAGE = "report"
MOST_REGIONS = 100


class Source:
    """The data and the model of an evaluate stage; DataError: the data are gone, or no record says where they lie."""

    def __init__(self, stage: StageFacts, progress: Progress, device: str = "auto") -> None:
        record, self.stage = stage.record, stage
        if record is None or not record.root:
            raise DataError("The stage's record does not say where its data lie.", where=str(stage.folder))
        root = Path(record.root)
        if not root.is_dir():
            what = "The data of this stage are gone."
            raise DataError(what, where=record.root, hint="name the folder of the run again")
        sources = [row["path"] for name in record.config.get("from", []) if (row := record.inputs.get(name))]
        section: dict[str, Any] = {"kind": "draw", "drawing": {"name": "predictions"}, "from": sources}
        section |= {key: record.config[key] for key in KEPT if record.config.get(key) not in (None, [], "")}
        section["features"] = [path for path in record.features if Path(path).exists()]
        resolved = from_mapping(STAGE, {"name": STAGE, "root": str(root), "stages": {STAGE: section}})
        context = StageContext(resolved.recipe, STAGE, resolved.stages[STAGE], stage.folder, {}, root, device=device)
        context.progress = progress
        self.scene = StageScene(context)

    @property
    def model_folder(self) -> Path | None:
        folders = (find_bundle(path) for path in self.scene.sources.values() if path.is_dir())
        return next(filter(None, folders), None)

    @cached_property
    def examples(self) -> dict[str, Example]:
        return {example.key: example for reader in self._readers for example in reader.examples()}

    @cached_property
    def sentences(self) -> dict[str, str]:
        pairs = [(image, one.text) for one in self.examples.values() if one.text for image in one.images]
        return dict(reversed(pairs))

    @cached_property
    def files(self) -> dict[str, Path]:
        return {name: path for reader in self._readers for name, path in reader.image_files().items()}

    @cached_property
    def _readers(self) -> list[Any]:
        bundle = None if self.model_folder is None else read_bundle(self.model_folder)  # without weights
        return list(self.scene.readers(bundle))

    def labelled(self, picture: str) -> list[tuple[list[float], str]]:
        """Return the labelled boxes of a picture (x1, y1, x2, y2 in pixels) with their classes; none without labels."""
        if picture not in self._labelled:
            return []
        boxes, names = self._labelled[picture]
        return list(zip(boxes.boxes.tolist(), _names(boxes, names), strict=True))

    @cached_property
    def _labelled(self) -> dict[str, tuple[BoxList, list[str]]]:
        return {name: (boxes, one.class_names()) for one in self._readers for name, boxes in one.boxes().items()}

    @cached_property
    def _store(self) -> tuple[FeatureStore | None, list[str]]:
        """The regions that the model read and the names of their classes; None where it read none."""
        store = self.scene.features()
        return store, [] if store is None else known_names(store, "classes")

    def regions(self, picture: str) -> list[tuple[list[float], str]]:
        """Return boxes of a picture (x, y, width, height in [0, 1]) with labels; none where the store has none."""
        store, known = self._store
        if store is None or picture not in store:
            return []
        record = store.read(picture, ("classes", "scores"))
        names = _names(record, known)
        if record.scores is not None:
            names = [f"{name} {score:.2f}" if name else "" for name, score in zip(names, record.scores, strict=True)]
        return list(zip(shares(record.boxes, record.size), names, strict=True))[:MOST_REGIONS]


def _names(boxes: BoxList | Record, known: list[str]) -> list[str]:
    numbers = [-1] * len(boxes.boxes) if boxes.classes is None else boxes.classes.tolist()
    return [known[number] if 0 <= number < len(known) else "" for number in numbers]


def shares(boxes: Any, size: tuple[int, int]) -> list[list[float]]:
    """Return corners in pixels (N, 4) as x, y, width, height in [0, 1] of a picture of ``size`` (height, width)."""
    height, width = size
    return boxes_of(np.asarray(boxes, np.float64).reshape(-1, 4) / np.array([width, height] * 2, np.float64))


def boxes_of(corners: Any) -> list[list[float]]:
    """Return corners in [0, 1] (N, 4) as x, y, width, height inside the picture; NaN becomes 0."""
    boxes = np.nan_to_num(np.asarray(corners, np.float64).reshape(-1, 4)).clip(0, 1)
    boxes[:, 2:] = np.maximum(boxes[:, 2:] - boxes[:, :2], 0)
    rows: list[list[float]] = boxes.round(4).tolist()
    return rows
