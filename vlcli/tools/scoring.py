"""Score predictions that anybody made, without a model: a file of predictions against the data of a task."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vlcli import registry
from vlcli.builders.readers import open_readers
from vlcli.data.files import read_text
from vlcli.data.pipeline import Pipeline
from vlcli.engine.bundle import find_bundle, read_bundle
from vlcli.errors import DataError, UsageError, shown
from vlcli.nn.batch import Batch
from vlcli.nn.model import InputSpec
from vlcli.progress import Progress, Silent
from vlcli.recipe import stage_record
from vlcli.recipe.resolve import ResolvedStage
from vlcli.recipe.schema import Evaluate, TextOptions
from vlcli.recipe.stage_record import StageRecord
from vlcli.registry import Spec
from vlcli.tasks.base import Result, Task
from vlcli.tasks.captioning import coco_number
from vlcli.tasks.detection import Detection
from vlcli.tasks.outputs import target

KEYS = ("key", "question_id", "questionId", "pairID", "identifier", "image_id", "image")
"""Names that files give to the key of an example, vlcli's own first."""
SAID = ("prediction", "answer", "caption", "label")
"""Names that files give to a prediction."""
BATCH = 256


@dataclass(frozen=True)
class Source:
    """What predictions are scored against.

    Attributes:
        task: how.
        data: recipe entries of the data sets.
        root: the data root.
        missing: what the stage did with examples whose images were not there.
    """

    task: Task
    data: list[Spec]
    root: Path
    missing: str = "error"


def source_of_task(spec: Spec, root: Path, split: str | None, config: Mapping[str, Any] | None = None) -> Source:
    """A task with its usual data, or with those of the section of an evaluate stage.

    Args:
        spec: the task.
        root: the data root.
        split: in place of the usual one.
        config: the section.
    """
    given: dict[str, Any] = {"kind": "evaluate", **(config or {}), "task": spec}
    if split is not None:
        given["split"] = split
    stage = Evaluate(**given)
    resolved = ResolvedStage(stage, (), None, spec, TextOptions(), None)
    return Source(resolved.built_task, resolved.data, root, stage.missing)


def source_of_stage(folder: Path, record: StageRecord, split: str | None, root: Path | None) -> Source:
    """The task, data and split of a finished stage; of a fine-tuning, the task with its usual split.

    Args:
        folder: of the stage.
        record: its record.
        split: in place of the stage's.
        root: in place of the stage's.

    Raises:
        UsageError: the stage has no task.
    """
    spec = record.config.get("task") or _trained_task(folder, record)
    if spec is None or record.kind not in ("evaluate", "finetune"):
        expected = "an evaluate stage, or a finetune stage with a task"
        hint = "name the task: vlcli eval TASK --predictions FILE --root DATA"
        raise UsageError("This stage has no task.", where=str(folder), got=record.kind, expected=expected, hint=hint)
    config = record.config if record.kind == "evaluate" else None
    return source_of_task(spec, root or Path(record.root or "."), split, config)


def _trained_task(folder: Path, record: StageRecord) -> Spec | None:
    """The task of the model that an evaluate stage scored: where it lay, else beside the stage (a moved run folder)."""
    named = [record.facts.get("model"), *(row.get("path") for row in record.inputs.values())]
    beside = [folder.parent / str(name) for name in record.config.get("from") or []]
    for place in [*(Path(one) for one in named if isinstance(one, str)), *beside]:
        for stage in (place, place.parent):
            if find_bundle(place) is not None:
                return read_bundle(place).task_spec
            made = stage_record.read(stage)
            if made is not None and made.config.get("task"):
                spec: Spec = made.config["task"]
                return spec
    return None


def score(source: Source, file: Path, progress: Progress | None = None) -> Result:
    """The metrics of a file of predictions: those that the task's own evaluation would give.

    Args:
        source: task and data.
        file: JSON lines with ``key`` and ``prediction``, or an official file that the task writes.
        progress: where to report.

    Raises:
        DataError: the file cannot be read; an example has no prediction, or a prediction no example.
        UsageError: the task cannot be scored without a model.
    """
    task = source.task
    if type(task).judge is Task.judge and type(task).rescore is Task.rescore:
        what = f"The task {type(task).__name__} cannot be scored from a file of predictions."
        hint = "score a trained model: vlcli eval TASK --checkpoint FOLDER"
        raise UsageError(what, got=str(file), expected="a task that gives one prediction an example", hint=hint)
    found = Predictions(file, read_predictions(file, isinstance(task, Detection)))
    readers = task.arrange(open_readers(source.data, source.root, progress or Silent()))
    data = Pipeline(readers, needs=InputSpec(text=False), missing=source.missing)
    found.check([(example.key, example.targets) for example in data.examples])
    return task.rescore(found.of, Examples(data, progress or Silent()))


@dataclass
class Predictions:
    """The predictions of a file.

    Attributes:
        file: where they were read.
        rows: by key, as the file writes keys.
    """

    file: Path
    rows: dict[str, dict[str, Any]]
    _known: dict[int, str] = field(default_factory=dict)

    def check(self, examples: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Refuse a file that lacks an example, or predicts one that is not there.

        Raises:
            DataError: which.
        """
        found = [self._key(key, targets) for key, targets in examples]
        lacking = [key for (key, _), there in zip(examples, found, strict=True) if there is None]
        unknown = [key for key in self.rows if key not in set(found)]
        if lacking:
            raise self._fault(f"{len(lacking):,} of {len(examples):,} examples have no prediction.", lacking)
        if unknown:
            raise self._fault(f"{len(unknown):,} predictions belong to no example.", unknown)

    def _fault(self, what: str, keys: list[str]) -> DataError:
        return DataError(
            what,
            where=str(self.file),
            got=", ".join(shown(key, 60)[1:-1] for key in keys[:3]) + (", ..." if len(keys) > 3 else ""),
            expected="one prediction for each example of the split",
            hint="check --split; the keys are those of predictions.jsonl, or the ids of the data's files",
        )

    def of(self, batch: Batch) -> list[dict[str, Any]]:
        """The predictions of a batch."""
        names = ("question_id", "identifier")
        columns = {name: target(batch, name) for name in names}
        found = [self._key(key, {name: columns[name][place] for name in names}) for place, key in enumerate(batch.keys)]
        return [self.rows[key] for key in found if key is not None]

    def _key(self, key: str, targets: Mapping[str, Any]) -> str | None:
        """What the file calls an example."""
        names = (key, targets.get("identifier"), targets.get("question_id"), coco_number(key))
        return next((str(name) for name in names if name is not None and str(name) in self.rows), None)


@dataclass
class Examples:
    """Batches of keys and targets (``vlcli.tasks.base.Examples``).

    Attributes:
        data: the assembled data, without texts and images.
        progress: where to report.
    """

    data: Pipeline
    progress: Progress

    def batches(self, data: Any = None) -> Iterator[Batch]:
        """Every batch in order."""
        yield from (self.data if data is None else data).loader(BATCH)


def read_predictions(file: Path, boxes: bool = False) -> dict[str, dict[str, Any]]:
    """The rows of a file by key: JSON lines, a JSON list, or comma-separated ``key,prediction``.

    Args:
        file: where they lie.
        boxes: whether rows are detections: several of one picture, as COCO's results list them, are one prediction.

    Raises:
        DataError: it is none of these, a row lacks its key or its prediction, or two rows have one key.
    """
    rows = list(_rows(file))
    if boxes and rows and "bbox" in rows[0][1]:
        return _grouped(rows, file)
    found: dict[str, dict[str, Any]] = {}
    places: dict[str, str] = {}
    for place, row in rows:
        key = next((row[name] for name in KEYS if row.get(name) not in (None, "")), None)
        said = next((name for name in SAID if name in row), None)
        if key is None or (said is None and not (boxes and "boxes" in row)):
            got, expected = shown(row, 80), '{"key": ..., "prediction": ...}, or a file that the task writes'
            raise DataError("A row is no prediction.", where=f"{file}: {place}", got=got, expected=expected)
        if str(key) in found:
            got = f"{shown(str(key), 60)} in {places[str(key)]} and in {place}"
            raise DataError("Two predictions have one key.", where=str(file), got=got, hint="keep one of them")
        found[str(key)] = {**row, "prediction": row[said]} if said is not None else row
        places[str(key)] = place
    if not found:
        raise DataError("There is no prediction in the file.", where=str(file))
    return found


def _rows(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows with their places."""
    text = read_text(file)
    if file.suffix.lower() == ".csv":
        for number, cells in enumerate(csv.reader(io.StringIO(text)), 1):
            yield f"line {number}", dict(zip(("key", "prediction"), cells, strict=False))
        return
    if text.lstrip().startswith("["):
        for number, row in enumerate(_parsed(text, file, "the list"), 1):
            yield f"row {number}", _mapping(row, f"{file}: row {number}")
        return
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            yield f"line {number}", _mapping(_parsed(line, file, f"line {number}"), f"{file}: line {number}")


def _parsed(text: str, file: Path, place: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        expected = "JSON lines with key and prediction, a JSON list, or key,prediction in a .csv"
        raise DataError("This is no JSON.", where=f"{file}: {place}", got=str(error), expected=expected) from None


def _mapping(row: Any, where: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise DataError("A row is no mapping.", where=where, got=shown(row, 80), expected='{"key": ..., ...}')
    return row


def _grouped(rows: Sequence[tuple[str, dict[str, Any]]], file: Path) -> dict[str, dict[str, Any]]:
    """COCO's results, a row a box, as a row a picture."""
    found: dict[str, dict[str, Any]] = {}
    for place, row in rows:
        try:
            left, top, wide, high = row["bbox"]
            corners, key = [left, top, left + wide, top + high], str(row["image_id"])
            own = found.setdefault(key, {"key": key, "boxes": [], "categories": [], "classes": [], "scores": []})
            for name, value in (("boxes", corners), ("categories", row["category_id"]), ("scores", row["score"])):
                own[name].append(value)
        except (KeyError, TypeError, ValueError):
            expected = '{"image_id": ..., "category_id": ..., "bbox": [x, y, width, height], "score": ...}'
            raise DataError(
                "A row is no detection.", where=f"{file}: {place}", got=shown(row, 80), expected=expected
            ) from None
    return found


def built(name: str) -> Spec:
    """The recipe entry of a task, which is known.

    Raises:
        ComponentError: there is no such task.
    """
    return {"name": registry.find("tasks", name).name}
