"""Chooses examples of a group of evaluate stages, with their pictures, regions, references and predictions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat, zip_longest
from typing import Any, NamedTuple

import numpy as np

from vlcli.data.sample import Example
from vlcli.errors import VlcliError
from vlcli.metrics.clustered import Clusters, cluster_of
from vlcli.metrics.rows import Row, kind_fields
from vlcli.pages.album import Thumbnail, Thumbnails
from vlcli.pages.scores import Column, Group
from vlcli.pages.sources import Source, boxes_of, shares
from vlcli.progress import Progress
from vlcli.report.drawing import label_places
from vlcli.tables.cells import shorter

# From here on an answer counts as right
RIGHT = 0.5
_WRONG_SHARE = 2 / 3  # part of the samples that are wrong answers, where there are enough
REFERENCES = ("label", "answer", "references", "captions", "raw_answers", "answers", "target", "words", "caption")
MOST_LETTERS, MOST_PICTURES, MOST_BOXES = 400, 6, 40
_LEAST_SCORE = 0.3  # detected boxes with a lower score are not drawn
# Mean width of a bold letter, as a part of its size
LETTER = 0.7
# Kind of a ranking by the beginning of its key
DIRECTIONS = {"image/": "image for a sentence", "text/": "sentence for an image"}


class Box(NamedTuple):
    """A box on a picture (x, y, width, height in [0, 1]); its role is ``region`` of the store, ``said`` or ``true``."""

    place: list[float]
    label: str
    role: str


@dataclass
class Shown:
    """A picture of a sample; without a thumbnail where it could not be read."""

    name: str
    thumbnail: Thumbnail | None
    boxes: list[Box] = field(default_factory=list)
    caption: str = ""

    def labels(self, size: float) -> list[tuple[Box, float, float]]:
        """Return the boxes whose label has room, with left and base line of its letters of ``size`` pixels."""
        if self.thumbnail is None:
            return []
        across, high = self.thumbnail.width, self.thumbnail.height
        told = [box for box in self.boxes if box.role != "region" and box.label]
        corners = [(x * across, y * high, (x + w) * across, (y + h) * high) for (x, y, w, h), *_ in told]
        sizes = [(LETTER * size * len(box.label) + 4, 1.2 * size) for box in told]
        places = label_places(np.asarray(corners).reshape(-1, 4), sizes, across, high)
        return [(box, at[0] + 2, at[1] + size) for box, at in zip(told, places, strict=True) if at is not None]


class Said(NamedTuple):
    """A prediction: ``right`` from 0 to 1, None where nothing judges it; ``sure`` is the probability as text."""

    text: str
    right: float | None
    sure: str = ""


@dataclass
class Sample:
    """One example.

    Attributes:
        text: the sentence or question; empty where there is none.
        truth: the reference as text.
        said: predictions, one for each column; None where a column has none.
        example: its key, where the data have it.
    """

    key: str
    text: str
    truth: str
    kind: str
    said: list[Said | None]
    pictures: list[Shown] = field(default_factory=list)
    example: str = ""


@dataclass
class Samples:
    """The examples of a group, wrong answers of the first column first.

    Attributes:
        total: examples in the predictions.
        source: the first column's data; None where they cannot be opened.
    """

    group: Group
    rows: list[Sample]
    kinds: list[str]
    total: int
    source: Source | None = None
    faults: list[str] = field(default_factory=list)

    @property
    def judged(self) -> bool:
        return any(said is not None and said.right is not None for row in self.rows for said in row.said)

    @property
    def regions(self) -> bool:
        return any(box.role == "region" for row in self.rows for shown in row.pictures for box in shown.boxes)


def samples_of(group: Group, count: int, album: Thumbnails, progress: Progress, device: str) -> Samples | None:
    """Return up to ``count`` examples of a group; None where no column has predictions."""
    judge = next((column for column in group.columns if column.rows), None)
    if judge is None or not count:
        return None
    rows = list(judge.rows.values())
    kind = next(iter(kind_fields(rows)), None)
    chosen = choose(rows, kind, count, judge.stage.clusters)
    samples = Samples(group, [_sample(row, kind, group.columns) for row in chosen], [], len(rows))
    samples.kinds = list(dict.fromkeys(sample.kind for sample in samples.rows if sample.kind))
    try:
        samples.source = Source(judge.stage, progress, device)
        for sample, row in zip(samples.rows, chosen, strict=True):
            _illustrate(sample, row, samples.source, album)
    except (VlcliError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        fault = " ".join(str(error).split()) if isinstance(error, VlcliError) else f"{type(error).__name__}: {error}"
        samples.faults.append(f"Pictures and sentences of {judge.stage.name} cannot be shown. {fault}")
    return samples


def choose(rows: Sequence[Row], kind: str | None, count: int, clusters: Clusters | None = None) -> list[Row]:
    """Return wrong answers first, the surest first; then right ones; unjudged rows as they come.

    Pictures (``clusters``) take turns, and of one picture kinds, then predictions, then references.
    """
    judged = [(right_of(row), row) for row in sorted(rows, key=_hardness)]
    turns = [*([kind] if kind else []), "prediction", *REFERENCES[:2], "answers"]
    wrong = [row for value, row in judged if value is not None and value < RIGHT]
    right = [row for value, row in judged if value is not None and value >= RIGHT]
    others = [row for value, row in judged if value is None]
    chosen = list(_in_turn(wrong, turns, clusters))[: max(count - len(right), round(count * _WRONG_SHARE))]
    for rest in (right, others):
        chosen += list(_in_turn(rest, turns, clusters))[: count - len(chosen)]
    return chosen


def _hardness(row: Row) -> tuple[float, float]:
    """Return a key that sorts the worst first: by the row's score, then by how sure the model was."""
    right = right_of(row)
    return _number(row.get("cider_d") if right is None else right), -abs(_number(row.get("score")) - 0.5)


def _in_turn(rows: Sequence[Row], fields: Sequence[str], clusters: Clusters | None) -> Iterator[Row]:
    for name in reversed(fields):
        rows = list(_dealt(rows, [str(row.get(name, "")) for row in rows]))
    return _dealt(rows, [cluster_of(str(row.get("key")), clusters) if clusters else "" for row in rows])


def _dealt(rows: Sequence[Row], names: Sequence[str]) -> Iterator[Row]:
    parts: dict[str, list[Row]] = {}
    for row, name in zip(rows, names, strict=True):
        parts.setdefault(name, []).append(row)
    for turn in zip_longest(*parts.values()):
        yield from (row for row in turn if row is not None)


def right_of(row: Row) -> float | None:
    """Return how right a prediction is, from 0 to 1; None where the row does not say."""
    for name in ("accuracy", "correct"):
        if isinstance(value := row.get(name), int | float):
            return min(max(float(value), 0.0), 1.0)
    rank = row.get("rank")
    return float(rank <= 1) if isinstance(rank, int | float) else None


def _sample(row: Row, kind: str | None, columns: Sequence[Column]) -> Sample:
    key = str(row.get("key"))
    said = [_said(column.rows[key]) if key in column.rows else None for column in columns]
    direction = next((name for start, name in DIRECTIONS.items() if key.startswith(start)), "")
    return Sample(key, "", _truth(row), ("" if kind is None else str(row.get(kind) or "")) or direction, said)


def _said(row: Row) -> Said:
    value, rank, score = row.get("prediction", row.get("caption")), row.get("rank"), row.get("score")
    if isinstance(row.get("boxes"), list):
        text = _boxes_counted(len(_kept(row)))
    elif isinstance(rank, int | float):
        text = f"rank {rank:g}"
    else:
        text = "see the box" if _is_box(value) else as_text(value) or "(nothing)"
    sure = ""
    if isinstance(score, int | float) and not isinstance(score, bool) and 0 <= score <= 1 and "rank" not in row:
        sure = f"{100 * (1 - score if row.get('prediction') is False else score):.0f} %"  # of a verdict, its own
    return Said(text, right_of(row), sure)


def _boxes_counted(count: int) -> str:
    return "1 box" if count == 1 else f"{count} boxes"


def _truth(row: Mapping[str, Any]) -> str:
    for name in REFERENCES:
        value = row.get(name)
        if value not in (None, "", [], {}) and not _is_box(value):
            return as_text(value)
    return ""


def as_text(value: Any) -> str:
    """Return a prediction or reference in words; of answers with scores, the best first."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        value = " / ".join(dict.fromkeys(map(str, value[:20])))
    if isinstance(value, Mapping):
        pairs = sorted(((str(name), _number(score)) for name, score in value.items()), key=lambda pair: -pair[1])
        alone = [score for _, score in pairs] == [1.0]
        value = pairs[0][0] if alone else ", ".join(f"{name} ({score:.2g})" for name, score in pairs[:5])
    return "" if value is None else shorter(str(value), MOST_LETTERS)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _is_box(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 4 and all(isinstance(v, int | float) for v in value)


def _illustrate(sample: Sample, row: Row, source: Source, album: Thumbnails) -> None:
    key, best = str(row.get("key")), str(row.get("prediction"))
    bare = next((key.removeprefix(start) for start in DIRECTIONS if key.startswith(start)), key)
    names = (key, bare, str(row.get("image", "")))
    example = next((source.examples[name] for name in names if name in source.examples), None)
    if example is None:  # a picture for which sentences were ranked
        name, first = key.removeprefix("text/"), source.examples.get(best)
        sample.pictures += [_shown(name, source, album)] if name in source.files else []
        if first is not None and first.text:
            sample.text = as_text(f"Ranked first: {first.text}")
        sample.truth = sample.truth or as_text(source.sentences.get(name))
        return
    sample.example, sample.text = example.key, as_text(example.text)
    sample.truth = sample.truth or _truth(example.targets)
    if sample.text and sample.truth.startswith(sample.text):  # a caption is its own reference
        sample.text = ""
    sample.pictures += [_shown(name, source, album) for name in example.images[:MOST_PICTURES]]
    if "rank" in row and key.startswith("image/"):
        sample.truth = sample.truth or ", ".join(shown.name for shown in sample.pictures)
        if best in source.files and sample.pictures and best != sample.pictures[0].name:
            sample.pictures[0].caption = "true"
            sample.pictures.append(_shown(best, source, album, "ranked first"))
    if sample.pictures:
        true = source.labelled(example.images[0]) if isinstance(row.get("boxes"), list) else None
        sample.truth = sample.truth or ("" if true is None else _boxes_counted(len(true)))
        sample.pictures[0].boxes += _boxes(row, example, sample.pictures[0], (true or [])[:MOST_BOXES])


def _shown(name: str, source: Source, album: Thumbnails, caption: str = "") -> Shown:
    path = source.files.get(name)
    boxes = [Box(place, label, "region") for place, label in source.regions(name)]
    return Shown(name, None if path is None else album.of(path), boxes, caption)


def _boxes(row: Row, example: Example, shown: Shown, true: Sequence[tuple[list[float], str]]) -> list[Box]:
    """Return the boxes of the reference and those that the model predicts, in pixels of the picture itself."""
    if shown.thumbnail is None:
        return []
    size = shown.thumbnail.size
    boxes = [Box(shares([corners], size)[0], label, "true") for corners, label in true]
    for name in ("box", "pixel_box"):  # in shares of the picture, or in pixels
        truth = example.targets.get(name)
        if truth is not None and len(truth) == 4:
            (place,) = boxes_of([list(truth)]) if name == "box" else shares([list(truth)], size)
            boxes.append(Box(place, "reference", "true"))
            break
    if _is_box(row.get("prediction")):
        boxes.append(Box(shares([row["prediction"]], size)[0], "predicted", "said"))
    for n in _kept(row):
        name = row["classes"][n] if n < len(row.get("classes", [])) else ""
        label = f"{name} {_number(row['scores'][n]):.2f}" if n < len(row.get("scores", [])) else str(name)
        boxes.append(Box(shares([row["boxes"][n]], size)[0], label, "said"))
    return boxes


def _kept(row: Row) -> list[int]:
    boxes, scores = row.get("boxes"), row.get("scores")
    if not isinstance(boxes, list):
        return []
    pairs = enumerate(zip(boxes, scores if isinstance(scores, list) else repeat(1.0), strict=False))
    return [n for n, (box, score) in pairs if _is_box(box) and _number(score) >= _LEAST_SCORE][:MOST_BOXES]
