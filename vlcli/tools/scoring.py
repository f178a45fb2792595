"""Scores a file of predictions against the data of a task, without a model."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from vlcli.builders.readers import open_readers
from vlcli.data.files import numbered_lines, parsed, read_json, read_lines, read_text, records_of, refuse_twins
from vlcli.data.pipeline import Pipeline
from vlcli.engine.bundle import find_bundle, read_bundle
from vlcli.errors import DataError, UsageError, shown
from vlcli.nn.batch import Batch
from vlcli.nn.model import InputSpec
from vlcli.plain import comma_list
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

# Names of the key of an example in files of predictions, vlcli's first
KEYS = ("key", "question_id", "questionId", "qid", "pairID", "identifier", "image_id", "image", "id")
_GUESSED = ("prediction", "predicted_answer", "pred_answer", "predicted_label", "pred_label", "predicted", "pred")
# Names of a prediction: those behind ``response`` may be the truth where an earlier one is there too
SAID = (*_GUESSED, "output", "response", "answer", "caption", "label", "text")
BATCH = 256


@dataclass(frozen=True)
class Source:
    """Task and data that predictions are scored against; ``missing`` as in the stage (examples without images)."""

    task: Task
    data: list[Spec]
    root: Path
    missing: str = "error"


def source_of_task(spec: Spec, root: Path, split: str | None, config: Mapping[str, Any] | None = None) -> Source:
    """Return a task with its usual data, or with those of the section of an evaluate stage."""
    section: dict[str, Any] = {"kind": "evaluate", **(config or {}), "task": spec}
    stage = Evaluate(**section | ({} if split is None else {"split": split}))
    resolved = ResolvedStage(stage, (), None, spec, TextOptions(), None)
    return Source(resolved.built_task, resolved.data, root, stage.missing)


def source_of_stage(folder: Path, record: StageRecord, split: str | None, root: Path | None) -> Source:
    """Return the task, data and split of a finished stage; of a fine-tuning, the task with its usual split.

    Raises UsageError: the stage has no task.
    """
    spec = record.config.get("task") or _trained_task(folder, record)
    if spec is None or record.kind not in ("evaluate", "finetune"):
        expected = "an evaluate stage, or a finetune stage with a task"
        hint = "name the task: vlcli eval TASK --predictions FILE --root DATA"
        raise UsageError("This stage has no task.", where=str(folder), got=record.kind, expected=expected, hint=hint)
    config = record.config if record.kind == "evaluate" else None
    return source_of_task(spec, root or Path(record.root), split, config)


def _trained_task(folder: Path, record: StageRecord) -> Spec | None:
    """Return the task of the model that was scored: from its recorded folder, else beside the stage (a moved run)."""
    named = [record.facts.get("model"), *(row.get("path") for row in record.inputs.values())]
    beside = [folder.parent / str(name) for name in record.config.get("from") or []]
    for model in [*(Path(one) for one in named if isinstance(one, str)), *beside]:
        if find_bundle(model) is not None:
            return read_bundle(model).task_spec
        for stage in (model, model.parent):
            trained = stage_record.read(stage)
            if trained is not None and trained.config.get("task"):
                return dict(trained.config["task"])
    return None


def score(source: Source, file: Path, progress: Progress | None = None) -> Result:
    """Return the metrics of a file of predictions: those that the task's evaluation would give.

    Args:
        file: JSON lines with ``key`` and ``prediction``, or an official file that the task writes.

    Raises:
        DataError: the file cannot be read; an example has no prediction, or a prediction no example.
        UsageError: the task cannot be scored without a model.
    """
    task, progress = source.task, progress or Silent()
    if type(task).judge is Task.judge and type(task).rescore is Task.rescore:
        what = f"The task {type(task).__name__} cannot be scored from a file of predictions."
        hint = "score a trained model: vlcli eval TASK --stage FOLDER"
        raise UsageError(what, got=str(file), expected="a task that gives one prediction an example", hint=hint)
    predictions = Predictions(file, read_predictions(file, isinstance(task, Detection)))
    readers = task.arrange(open_readers(source.data, source.root, progress))
    data = Pipeline(readers, needs=InputSpec(text=False), missing=source.missing)
    predictions.check([(example.key, example.targets) for example in data.examples])
    return task.rescore(predictions.of, Examples(data, progress))


NO_BOX: Mapping[str, Any] = {"boxes": [], "categories": [], "classes": [], "scores": []}


class ByPicture(dict[str, dict[str, Any]]):
    """Detections by picture, of a file with a row a box; a picture that the file does not name has no box."""


@dataclass
class Predictions:
    """The rows of a file by key, as the file writes keys."""

    file: Path
    rows: dict[str, dict[str, Any]]

    def check(self, examples: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Raises DataError: an example has no prediction, or a prediction no example; it names up to three keys."""
        keys = [self._key(key, targets) for key, targets in examples]
        lacking = [key for (key, _), known in zip(examples, keys, strict=True) if known is None]
        lacking = [] if isinstance(self.rows, ByPicture) else lacking
        known_keys = set(keys)
        unknown = [key for key in self.rows if key not in known_keys]
        if not lacking and not unknown:
            return
        what = f"{len(unknown):,} predictions belong to no example."
        if lacking:
            what = f"{len(lacking):,} of {len(examples):,} examples have no prediction."
        groups = {"no prediction for": lacking, "no example for": unknown}
        some = {name: comma_list([shown(key, 60)[1:-1] for key in keys], 3) for name, keys in groups.items() if keys}
        where, got = str(self.file), "; ".join(f"{name} {keys}" for name, keys in some.items())
        hint = "check --split; the keys are those of predictions.jsonl, or the ids of the data's files"
        raise DataError(what, where=where, got=got, expected="one prediction for each example of the split", hint=hint)

    def of(self, batch: Batch) -> list[dict[str, Any]]:
        columns = {name: target(batch, name) for name in ("question_id", "identifier")}
        targets = [{name: values[row] for name, values in columns.items()} for row in range(len(batch.keys))]
        keys = [self._key(key, of_row) for key, of_row in zip(batch.keys, targets, strict=True)]
        return [{**NO_BOX} if key is None else self.rows[key] for key in keys]

    def _key(self, key: str, targets: Mapping[str, Any]) -> str | None:
        names = (key, targets.get("identifier"), targets.get("question_id"), coco_number(key))
        words = (word for name in names if name is not None for word in (str(name), f"{name}.0"))  # 7.0, as of pandas
        return next((word for word in words if word in self.rows), None)


@dataclass
class Examples:
    """Batches of keys and targets (``vlcli.tasks.base.Examples``) of data without texts and images."""

    data: Pipeline
    progress: Progress

    def batches(self, data: Any = None) -> Iterator[Batch]:
        yield from (self.data if data is None else data).loader(BATCH)


def read_predictions(file: Path, boxes: bool = False) -> dict[str, dict[str, Any]]:
    """Return the rows of a file by key: JSON lines, a JSON document, or a CSV, ``key,prediction`` without a header.

    A document is a table (:func:`vlcli.data.files.records_of`), or an object key -> prediction.

    Args:
        boxes: whether rows are detections: several of one picture, as COCO's results list them, are one prediction.

    Raises:
        DataError: it is none of these, a row lacks its key or its prediction, or two rows have one key.
    """
    rows = list(_rows(file))
    if boxes and rows and "bbox" in rows[0][1]:
        return _grouped(rows)
    predictions: dict[str, dict[str, Any]] = {}
    lines: dict[str, str] = {}
    for line, row in rows:
        key = next((str(row[name]) for name in KEYS if row.get(name) not in (None, "")), None)
        name = next((name for name in SAID if name in row), None)
        if key is None or (row.get(name or "") is None and not (boxes and "boxes" in row)):
            expected = f"a key ({', '.join(KEYS)}) and a prediction ({', '.join(SAID)})"
            raise _bad_row("A row is no prediction.", line, row, expected)
        if key in predictions:
            got = f"{shown(key, 60)} in {lines[key]} and in {line}"
            raise DataError("Two predictions have one key.", where=str(file), got=got, hint="keep one of them")
        predictions[key] = {**row, "key": key} | ({"prediction": row[name]} if name is not None else {})
        lines[key] = line
    if not predictions:
        raise DataError("There is no prediction in the file.", where=str(file))
    return predictions


def _rows(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    if file.suffix.lower() in (".csv", ".tsv"):
        yield from _cells(file)
        return
    lines = list(islice(numbered_lines(file), 2))
    first = parsed(lines[0][1]) if lines else {}
    if isinstance(first, dict) and (len(lines) != 1 or set(KEYS) & first.keys()):
        yield from read_lines(file)
        return
    content = read_json(file, (dict, list))
    if isinstance(content, dict) and all(isinstance(one, str | int | float) for one in content.values()):
        content = [{"key": key, "prediction": one} for key, one in content.items()]
    for number, row in enumerate(records_of(content, str(file)), 1):
        if not isinstance(row, dict):
            raise _bad_row("A row is no mapping.", f"{file}: row {number}", row, '{"key": ..., ...}')
        yield f"{file}: row {number}", row


def _cells(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    text, names = read_text(file), ["key", "prediction"]
    heads = {sign: text.split("\n", 1)[0].strip().replace('"', "").split(sign) for sign in ",;\t"}
    sign = next((sign for sign, head in heads.items() if set(KEYS) & set(head) and set(SAID) & set(head)), "")
    try:
        for number, cells in enumerate(csv.reader(io.StringIO(text), delimiter=sign or ","), 1):
            if number == 1 and sign:
                refuse_twins(names := cells, str(file))
            elif cells and len(cells) != len(names):
                raise _bad_row("A row is no prediction.", f"{file}: line {number}", cells, ",".join(names))
            elif cells:
                yield f"{file}: line {number}", dict(zip(names, cells, strict=True))
    except csv.Error as error:
        expected = "rows key,prediction; texts with commas in quotes"
        raise DataError("This is no CSV.", where=str(file), got=str(error), expected=expected) from None


def _bad_row(what: str, where: str, row: Any, expected: str) -> DataError:
    return DataError(what, where=where, got=shown(row, 80), expected=expected)


def _grouped(rows: Sequence[tuple[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    pictures = ByPicture()
    for line, row in rows:
        try:
            left, top, wide, high = row["bbox"]
            key, values = str(row["image_id"]), ([left, top, left + wide, top + high], row["category_id"], row["score"])
        except (KeyError, TypeError, ValueError):
            expected = '{"image_id": ..., "category_id": ..., "bbox": [x, y, width, height], "score": ...}'
            raise _bad_row("A row is no detection.", line, row, expected) from None
        picture = pictures.setdefault(key, {"key": key, **{name: [] for name in NO_BOX}})
        for name, value in zip(("boxes", "categories", "scores"), values, strict=True):
            picture[name].append(value)
    return pictures
