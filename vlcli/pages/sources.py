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
from vlcli.features import FeatureStore
from vlcli.progress import Progress
from vlcli.recipe.load import from_mapping
from vlcli.stages.draw import StageScene
from vlcli.tools.run_folder import StageFacts

KEPT = ("data", "split", "task", "transform", "batch_size", "precision", "missing")
"""Keys of an evaluate stage that decide what it reads."""
STAGE = "report"
MOST_REGIONS = 100


class Source:
    """The data and the model of an evaluate stage.

    Raises:
        DataError: the stage's data are gone, or its record does not say where they lie.
    """

    def __init__(self, stage: StageFacts, progress: Progress, device: str = "auto") -> None:
        record = stage.record
        if record is None or not record.root:
            raise DataError("The stage's record does not say where its data lie.", where=str(stage.folder))
        root = Path(record.root)
        if not root.is_dir():
            hint = "name the folder of the run again"
            raise DataError("The data of this stage are gone.", where=str(root), hint=hint)
        sources = [row["path"] for name in record.config.get("from", []) if (row := record.inputs.get(name))]
        section: dict[str, Any] = {"kind": "draw", "drawing": {"name": "predictions"}, "from": sources}
        section |= {key: record.config[key] for key in KEPT if record.config.get(key) not in (None, [], "")}
        section["features"] = [path for path in record.features if Path(path).exists()]
        resolved = from_mapping(STAGE, {"name": STAGE, "root": str(root), "stages": {STAGE: section}})
        context = StageContext(resolved.recipe, STAGE, resolved.stages[STAGE], stage.folder, {}, root)
        context.device, context.progress = device, progress
        self.scene = StageScene(context)

    @property
    def model_folder(self) -> Path | None:
        """The folder of the trained model; None where the stage has none or the folder is gone."""
        folders = [find_bundle(path) for path in self.scene.sources.values() if path.is_dir()]
        return next((folder for folder in folders if folder is not None), None)

    @cached_property
    def examples(self) -> dict[str, Example]:
        """Examples by key."""
        return {example.key: example for reader in self._readers for example in reader.examples()}

    @cached_property
    def files(self) -> dict[str, Path]:
        """Picture files by the pictures' ids."""
        return {name: path for reader in self._readers for name, path in reader.image_files().items()}

    @cached_property
    def _readers(self) -> list[Any]:
        bundle = None if self.model_folder is None else read_bundle(self.model_folder)  # without weights
        return list(self.scene.readers(bundle))

    @cached_property
    def store(self) -> FeatureStore | None:
        """Regions that the model read; None where it read none."""
        return self.scene.features()

    def labelled(self, picture: str) -> list[tuple[list[float], str]]:
        """Return the labelled boxes of a picture (x1, y1, x2, y2 in pixels) with their classes; none without labels."""
        found, names = self._labelled.get(picture, (None, []))
        if found is None:
            return []
        classes = found.classes if found.classes is not None else [-1] * len(found.boxes)
        pairs = zip(found.boxes.tolist(), classes, strict=True)
        return [(box, names[int(kind)] if 0 <= int(kind) < len(names) else "") for box, kind in pairs]

    @cached_property
    def _labelled(self) -> dict[str, tuple[Any, list[str]]]:
        return {name: (boxes, one.class_names()) for one in self._readers for name, boxes in one.boxes().items()}

    @cached_property
    def _class_names(self) -> list[str]:
        return [] if self.store is None else known_names(self.store, "classes")

    def regions(self, picture: str) -> list[tuple[list[float], str]]:
        """Return boxes of a picture (x, y, width, height in [0, 1]) with labels; none where the store has none."""
        if self.store is None or picture not in self.store:
            return []
        record = self.store.read(picture, ("classes", "scores"))
        regions = []
        for row, box in enumerate(shares(record.boxes, record.size)[:MOST_REGIONS]):
            number = -1 if record.classes is None else int(record.classes[row])
            label = self._class_names[number] if 0 <= number < len(self._class_names) else ""
            score = f" {float(record.scores[row]):.2f}" if label and record.scores is not None else ""
            regions.append((box, label + score))
        return regions


def shares(boxes: Any, size: tuple[int, int]) -> list[list[float]]:
    """Return corners in pixels (N, 4) as x, y, width, height in [0, 1] of a picture of ``size`` (height, width)."""
    height, width = size
    return boxes_of(np.asarray(boxes, np.float64).reshape(-1, 4) / np.array([width, height] * 2, np.float64))


def boxes_of(corners: Any) -> list[list[float]]:
    """Return corners in [0, 1] (N, 4) as x, y, width, height inside the picture; NaN becomes 0."""
    values = np.asarray(corners, np.float64).reshape(-1, 4)
    values = np.clip(np.nan_to_num(values, nan=0.0, posinf=1.0, neginf=0.0), 0, 1)
    boxes = np.concatenate([values[:, :2], np.maximum(values[:, 2:] - values[:, :2], 0)], 1)  # (N, 4)
    rows: list[list[float]] = boxes.round(4).tolist()
    return rows
