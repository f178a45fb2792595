"""Examples of a group of evaluate stages with their pictures, regions, references, and what each model said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from vlcli.data.sample import Example
from vlcli.errors import VlcliError
from vlcli.metrics.rows import Row, kind_fields
from vlcli.pages.album import Thumbnail, Thumbnails
from vlcli.pages.scores import Column, Group
from vlcli.pages.sources import Source, boxes_of, shares
from vlcli.progress import Progress

RIGHT = 0.5
"""From here on an answer counts as right."""
WRONG_SHARE = 2 / 3
"""Part of the samples that are wrong answers, where there are enough."""
REFERENCES = ("label", "answer", "references", "captions", "raw_answers", "answers", "target", "words", "caption")
MOST_LETTERS, MOST_PICTURES, MOST_BOXES = 400, 6, 40
LEAST_SCORE = 0.3
"""Detected boxes with a lower score are not drawn."""
DIRECTIONS = ("image/", "text/")


@dataclass(frozen=True)
class Box:
    """A box on a picture.

    Attributes:
        place: x, y, width, height in [0, 1].
        label: what stands beside it.
        role: ``region`` of the store, ``said`` by the model, or ``true``.
    """

    place: list[float]
    label: str
    role: str


@dataclass
class Shown:
    """A picture of a sample.

    Attributes:
        name: the picture's id.
        thumbnail: None where it could not be read.
        boxes: drawn over it.
        caption: what it is, where it is not simply the example's.
    """

    name: str
    thumbnail: Thumbnail | None
    boxes: list[Box] = field(default_factory=list)
    caption: str = ""


@dataclass(frozen=True)
class Said:
    """What one column predicts.

    Attributes:
        text: the prediction.
        right: 1 for right, 0 for wrong, between them for partly right; None where nothing judges it.
        sure: probability or score as text.
    """

    text: str
    right: float | None
    sure: str = ""


@dataclass
class Sample:
    """One example.

    Attributes:
        key: in its data set.
        text: the sentence or question; empty where there is none.
        truth: the reference as text.
        kind: of which kind it is.
        said: one for each column; None where a column has no prediction.
        pictures: with boxes.
        example: key of the example that the row is about, where the data have it.
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
    """The examples of a group.

    Attributes:
        group: whose.
        rows: the examples, wrong answers of the first column first.
        kinds: kinds of the examples shown, in order.
        total: examples in the predictions.
        source: the first column's data; None where they cannot be opened.
        faults: why pictures are missing, one sentence each.
    """

    group: Group
    rows: list[Sample]
    kinds: list[str]
    total: int
    source: Source | None = None
    faults: list[str] = field(default_factory=list)

    @property
    def judged(self) -> bool:
        """Whether any prediction is right or wrong."""
        return any(said is not None and said.right is not None for row in self.rows for said in row.said)

    @property
    def regions(self) -> bool:
        """Whether any picture has regions."""
        return any(box.role == "region" for row in self.rows for shown in row.pictures for box in shown.boxes)


def samples_of(group: Group, count: int, album: Thumbnails, progress: Progress, device: str) -> Samples | None:
    """Up to ``count`` examples of a group; None where no column has predictions."""
    columns = [column for column in group.columns if column.rows]
    if not columns or not count:
        return None
    judge = columns[0]
    kind = next(iter(kind_fields(list(judge.rows.values()))), None)
    chosen = choose(list(judge.rows.values()), kind, count)
    made = Samples(group, [_sample(row, kind, group.columns) for row in chosen], [], len(judge.rows))
    made.kinds = list(dict.fromkeys(sample.kind for sample in made.rows if sample.kind))
    try:
        made.source = Source(judge.stage, progress, device)
        for sample, row in zip(made.rows, chosen, strict=True):
            _illustrate(sample, row, made.source, album)
    except VlcliError as error:
        made.faults.append(
            f"Pictures and sentences of {judge.stage.name} cannot be shown. {' '.join(str(error).split())}"
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        fault = f"{type(error).__name__}: {error}"
        made.faults.append(f"Pictures and sentences of {judge.stage.name} cannot be shown. {fault}")
    return made


def choose(rows: Sequence[Row], kind: str | None, count: int) -> list[Row]:
    """Wrong answers first, kinds in turn, the surest first; then right ones; unjudged rows as they come."""
    judged = [(right_of(row), row) for row in sorted(rows, key=_hardness)]
    wrong = [row for value, row in judged if value is not None and value < RIGHT]
    right = [row for value, row in judged if value is not None and value >= RIGHT]
    others = [row for value, row in judged if value is None]
    found = list(_in_turn(wrong, kind))[: max(count - len(right), round(count * WRONG_SHARE))]
    for rest in (right, others):
        found += list(_in_turn(rest, kind))[: count - len(found)]
    return found


def _hardness(row: Row) -> tuple[float, float]:
    """Sorts the worst first: by what judges the row, then by how sure the model was."""
    right = right_of(row)
    quality = row.get("cider_d") if right is None else right
    sure = row.get("score")
    chance = float(sure) if isinstance(sure, int | float) else 0.0
    return (float(quality) if isinstance(quality, int | float) else 0.0, -abs(chance - 0.5))


def _in_turn(rows: Sequence[Row], kind: str | None) -> Iterator[Row]:
    parts: dict[str, list[Row]] = {}
    for row in rows:
        parts.setdefault(str(row.get(kind, "")) if kind else "", []).append(row)
    for turn in zip_longest(*parts.values()):
        yield from (row for row in turn if row is not None)


def right_of(row: Row) -> float | None:
    """How right a prediction is, from 0 to 1; None where the row does not say."""
    for name in ("accuracy", "correct"):
        value = row.get(name)
        if isinstance(value, bool | int | float):
            return min(max(float(value), 0.0), 1.0)
    rank = row.get("rank")
    return float(rank <= 1) if isinstance(rank, int | float) else None


def _sample(row: Row, kind: str | None, columns: Sequence[Column]) -> Sample:
    key = str(row.get("key"))
    said = [_said(found) if (found := column.rows.get(key)) is not None else None for column in columns]
    named = "" if kind is None else str(row.get(kind, "") or "")
    return Sample(key, "", _truth(row), named or _direction(key), said)


def _direction(key: str) -> str:
    names = {"image/": "image for a sentence", "text/": "sentence for an image"}
    return next((name for start, name in names.items() if key.startswith(start)), "")


def _said(row: Row) -> Said:
    value = row.get("prediction", row.get("caption"))
    text = "" if _is_box(value) else as_text(value)
    rank = row.get("rank")
    if isinstance(rank, int | float):
        text = f"rank {rank:g}"
    if "boxes" in row and isinstance(row["boxes"], list):
        text = f"{len(_kept(row))} boxes"
    return Said(text, right_of(row), _sure(row))


def _sure(row: Row) -> str:
    """The score as a percentage where it is a probability; of a verdict, that of the verdict itself."""
    score = row.get("score")
    if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1 or "rank" in row:
        return ""
    return f"{100 * (1 - score if row.get('prediction') is False else score):.0f} %"


def _truth(row: Row, targets: Mapping[str, Any] | None = None) -> str:
    for place in (row, targets or {}):
        for name in REFERENCES:
            value = place.get(name)
            if value not in (None, "", [], {}) and not _is_box(value):
                return as_text(value)
    return ""


def as_text(value: Any) -> str:
    """A prediction or reference in words; of answers with scores, the best first."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        names = sorted(value, key=lambda name: -_number(value[name]))
        if [_number(score) for score in value.values()] == [1.0]:
            return cut(str(names[0]))
        return cut(", ".join(f"{name} ({_number(value[name]):.2g})" for name in names[:5]))
    if isinstance(value, list | tuple):
        return cut(" / ".join(dict.fromkeys(map(str, value[:20]))))
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else cut(str(value))


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def cut(text: str) -> str:
    """A text of at most :data:`MOST_LETTERS`."""
    return text if len(text) <= MOST_LETTERS else f"{text[:MOST_LETTERS]}…"


def _is_box(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 4 and all(isinstance(v, int | float) for v in value)


def _illustrate(sample: Sample, row: Row, source: Source, album: Thumbnails) -> None:
    """Give a sample its sentence, its reference and its pictures."""
    example = _example(row, source.examples)
    if example is None:
        _add_picture_alone(sample, row, source, album)
        return
    sample.example = example.key
    sample.text = cut(example.text or "")
    sample.truth = sample.truth or _truth({}, example.targets)
    for name in example.images[:MOST_PICTURES]:
        sample.pictures.append(_shown(name, source, album))
    if "rank" in row and str(row.get("key", "")).startswith("image/"):
        _add_found(sample, row, source, album)
    if sample.pictures:
        sample.pictures[0].boxes += _own_boxes(row, example, sample.pictures[0])


def _example(row: Row, examples: Mapping[str, Example]) -> Example | None:
    key = str(row.get("key"))
    bare = next((key.removeprefix(start) for start in DIRECTIONS if key.startswith(start)), key)
    names = (key, bare, str(row.get("image", "")))
    return next((examples[name] for name in names if name in examples), None)


def _add_picture_alone(sample: Sample, row: Row, source: Source, album: Thumbnails) -> None:
    """The picture for which sentences were ranked, and the sentence that is ranked first."""
    name = str(row.get("key")).removeprefix("text/")
    found = source.examples.get(str(row.get("prediction")))
    if name in source.files:
        sample.pictures.append(_shown(name, source, album))
    if found is not None and found.text:
        sample.text = cut(f"Ranked first: {found.text}")


def _add_found(sample: Sample, row: Row, source: Source, album: Thumbnails) -> None:
    """The picture that a ranking puts first, beside the true one."""
    sample.truth = sample.truth or ", ".join(shown.name for shown in sample.pictures)
    found = str(row.get("prediction"))
    if found in source.files and sample.pictures and found != sample.pictures[0].name:
        sample.pictures[0].caption = "true"
        sample.pictures.append(_shown(found, source, album))
        sample.pictures[-1].caption = "ranked first"


def _shown(name: str, source: Source, album: Thumbnails) -> Shown:
    path = source.files.get(name)
    boxes = [Box(place, label, "region") for place, label in source.regions(name)]
    return Shown(name, None if path is None else album.of(path), boxes)


def _own_boxes(row: Row, example: Example, shown: Shown) -> list[Box]:
    """Boxes that the model predicts and those of the references, in pixels of the picture itself."""
    if shown.thumbnail is None:
        return []
    size, found = shown.thumbnail.size, []
    truth = _true_box(example, size)
    if truth is not None:
        found.append(Box(truth, "reference", "true"))
    if _is_box(row.get("prediction")):
        found.append(Box(shares([row["prediction"]], size)[0], "predicted", "said"))
    for place in _kept(row):
        name = row["classes"][place] if place < len(row.get("classes", [])) else ""
        label = f"{name} {_number(row['scores'][place]):.2f}" if place < len(row.get("scores", [])) else str(name)
        found.append(Box(shares([row["boxes"][place]], size)[0], label, "said"))
    return found


def _true_box(example: Example, size: tuple[int, int]) -> list[float] | None:
    """The box that an expression speaks of: the data have it in shares of the picture (``box``) or in pixels."""
    for name, made in (("box", boxes_of), ("pixel_box", lambda boxes: shares(boxes, size))):
        truth = example.targets.get(name)
        if truth is not None and _is_box([float(value) for value in truth]):
            return made([list(truth)])[0]
    return None


def _kept(row: Row) -> list[int]:
    boxes, scores = row.get("boxes"), row.get("scores")
    if not isinstance(boxes, list):
        return []
    sure = scores if isinstance(scores, list) else [1.0] * len(boxes)
    return [n for n, box in enumerate(boxes) if _is_box(box) and n < len(sure) and _number(sure[n]) >= LEAST_SCORE][
        :MOST_BOXES
    ]
