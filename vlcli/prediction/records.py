"""Records of requests to a trained model and of its predictions; reads requests from a command line."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from vlcli.data.files import IMAGE_SUFFIXES
from vlcli.errors import DataError, UsageError, VlcliError, shown
from vlcli.files import walk
from vlcli.plain import to_plain

SHOWN = 200  # characters of a text that a failure repeats
Kind = Literal["answer", "verdict", "label", "match", "caption", "box", "boxes", "other"]


@dataclass(frozen=True)
class RegionFeatures:
    """A picture as features (R, D) and boxes (R, 4) x1, y1, x2, y2, divided by its width and height."""

    features: ArrayLike
    boxes: ArrayLike


Picture = str | Path | Image.Image | RegionFeatures
"""A picture: its file or its id in a feature store, an open image, or its regions."""


@dataclass(frozen=True)
class Use:
    """One thing that a model can be asked.

    Attributes:
        name: of the task, or of the objective whose head answers.
        kind: of the answer: an ``answer`` of a table, a ``verdict`` (true or false), a ``label``, how well picture and
            text ``match``, a ``caption``, one ``box``, several ``boxes``, or something ``other``.
        images: pictures of a request; 0: any number.
        text: whether a request has one.
        about: the inputs and the answer in one line.
    """

    name: str
    kind: Kind
    images: int
    text: Literal["needed", "none"]
    about: str


@dataclass(frozen=True)
class Request:
    """Input of one prediction.

    Attributes:
        text: a question, a sentence or an expression; None where the use takes none.
        key: of the prediction; empty: the name of the first image.
    """

    images: Sequence[Picture]
    text: str | None = None
    key: str = ""

    def names(self) -> list[str]:
        return [name_of(image, number) for number, image in enumerate(self.images)]


@dataclass(frozen=True)
class Choice:
    """An answer or a label with its probability."""

    label: str
    probability: float


@dataclass(frozen=True)
class Box:
    """A box, x1 y1 x2 y2 in pixels of the request's picture number ``image``, with its class or the expression."""

    box: tuple[float, float, float, float]
    label: str
    score: float
    image: int = 0


@dataclass(eq=False, repr=False)
class Prediction(Mapping[str, Any]):
    """Prediction for one request; as a mapping, the row that the task writes into ``predictions.jsonl``.

    Attributes:
        prediction: the answer, the verdict (bool), the label, the probability of a match, the caption, the box in
            pixels, or the number of boxes.
        choices: the best answers or labels, likeliest first.
        boxes: the highest score first.
        regions: for each picture the boxes (R, 4) that the model read, in pixels; none for models that read pixels.
        sizes: height and width of each picture in pixels.
        notes: for a reader of the answer, such as that the text was cut.
        row: the task's own row.
        shown: draws pictures, answer and attention as PNG, for notebooks; returns None where no picture is a file.
    """

    use: Use
    key: str
    images: list[str]
    text: str | None
    prediction: Any
    choices: list[Choice] = field(default_factory=list)
    boxes: list[Box] = field(default_factory=list)
    regions: list[NDArray[np.float32]] = field(default_factory=list)
    sizes: list[tuple[int, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    row: dict[str, Any] = field(default_factory=dict)
    shown: Callable[[], bytes | None] = lambda: None

    def __repr__(self) -> str:
        asked = f"{self.text!r} of {', '.join(self.images)}" if self.text else ", ".join(self.images)
        return f"<{self.use.name}: {asked}: {self.words()}>"

    def _repr_png_(self) -> bytes | None:
        return self.shown()

    def __getitem__(self, key: str) -> Any:
        return self.row[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.row)

    def __len__(self) -> int:
        return len(self.row)

    def words(self) -> str:
        """Return the answer in one line for a person."""
        kind, answer = self.use.kind, self.prediction
        if kind == "box":
            return "no box" if answer is None else "box " + ", ".join(f"{value:.0f}" for value in answer)
        if kind == "boxes":
            return f"{len(self.boxes)} {'box' if len(self.boxes) == 1 else 'boxes'}"
        if kind == "match":
            return f"{float(answer):.3f}"
        return (", ".join(map(str, answer)) or "none") if isinstance(answer, list) else str(answer)

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, as ``vlcli predict --json`` prints it."""
        boxes = [{**vars(box), "box": list(box.box)} for box in self.boxes]
        fields = {
            "key": self.key,
            "task": self.use.name,
            "images": self.images,
            **({} if self.text is None else {"text": self.text}),
            "prediction": self.prediction,
            **({"score": self.row["score"]} if "score" in self.row else {}),
            **({"choices": [vars(choice) for choice in self.choices]} if self.choices else {}),
            **({"boxes": boxes} if self.use.kind in ("box", "boxes") else {}),
            **({"point": self.row["point"]} if "point" in self.row else {}),
            **({"notes": self.notes} if self.notes else {}),
        }
        return {name: to_plain(value) for name, value in fields.items()}


@dataclass(frozen=True)
class Failure:
    """A request that could not be answered."""

    request: Request
    error: VlcliError

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, as ``vlcli predict --json`` prints it."""
        names, text = self.request.names(), self.request.text
        key = self.request.key or next(iter(names), "")
        cut = text if text is None or len(text) <= SHOWN else f"{text[:SHOWN]}..."
        return {"key": key, "images": names, "text": cut, "error": self.error.as_dict()}


def name_of(picture: Picture, number: int) -> str:
    """Return a picture's name: its path as the caller wrote it, else its number in the request."""
    if isinstance(picture, str | Path):
        return str(picture)
    return f"regions-{number}" if isinstance(picture, RegionFeatures) else f"image-{number}"


MAX_LINE = 1 << 24  # characters of a JSON line
LINE = '{"image": "photo.jpg", "text": "..."}, or "images": [...]; "key" names the request'


def split_words(words: Sequence[str], text: str | None) -> tuple[list[str], str | None]:
    """Split words into pictures and a text: that of ``--text``, else the last word if it names no file or folder."""
    if text is not None or len(words) < 2 or _exists(words[-1]):
        return list(words), text
    if " " not in words[-1] and Path(words[-1]).suffix.lower() in IMAGE_SUFFIXES:  # a file that is not there
        return list(words), text
    return list(words[:-1]), words[-1]


def _exists(word: str) -> bool:
    try:
        return bool(word) and Path(word).exists()
    except OSError:  # longer than a name can be
        return False


def requests_of(words: Sequence[str], text: str | None, use: Use) -> list[Request]:
    """Return a request for each of the words' pictures (files, folders, ids in a store), or one where it takes several.

    Raises:
        DataError: a folder has no pictures.
        UsageError: a request takes another number of pictures.
    """
    pictures = [picture for word in words for picture in _pictures(word)]
    if use.images == 1:
        return [Request([picture], text) for picture in pictures]
    if use.images not in (0, len(pictures)):
        what = f"{use.name} takes {use.images} pictures in one request."
        hint = f"give {use.images} pictures, or JSON lines: vlcli predict MODEL - < requests.jsonl"
        raise UsageError(what, got=str(len(pictures)), expected=use.about, hint=hint)
    return [Request(pictures, text)]


def _pictures(word: str) -> list[str]:
    if not (_exists(word) and Path(word).is_dir()):
        return [word]
    files = [folder / name for folder, names in walk(Path(word)) for name in names if not name.startswith(".")]
    pictures = sorted(str(path) for path in files if path.suffix.lower() in IMAGE_SUFFIXES)
    if not pictures:
        expected = f"files like {', '.join(sorted(IMAGE_SUFFIXES))}"
        raise DataError("There is no picture in the folder.", where=word, expected=expected)
    return pictures


def read_lines(lines: Iterable[str]) -> Iterator[Request | Failure]:
    """Yield the request of each JSON line that is not empty, or a failure."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield _request(line)
            except (ValueError, TypeError, RecursionError) as error:
                fault = DataError("A line is no request.", where=f"line {number}", got=str(error), expected=LINE)
                yield Failure(Request([], key=f"line {number}"), fault)


def _request(line: str) -> Request:
    if len(line) > MAX_LINE:
        raise ValueError(f"{len(line):,} characters")
    value: Any = json.loads(line.lstrip("\ufeff"))
    if not isinstance(value, dict):
        raise TypeError(shown(value, 60))
    images = value.get("images", value.get("image"))
    images = [images] if isinstance(images, str) else images
    if not isinstance(images, list) or not images or not all(isinstance(one, str) and one for one in images):
        raise ValueError("no image" if images is None else f"image: {shown(images, 60)}")
    text = value.get("text")
    if text is not None and not isinstance(text, str):
        raise TypeError(f"text: {shown(text, 60)}")
    return Request(images, text, "" if value.get("key") is None else str(value["key"]))


def failed(failures: Sequence[Failure], total: int) -> VlcliError:
    """Return the error that ends a command after some of its requests failed, each with its own message."""
    first = failures[0].error
    what, hint = f"{len(failures)} of {total} requests could not be answered.", first.hint
    got = f"the first: {first.what} {first.where or first.got}".strip()
    error = DataError(what, got=got, expected=first.expected, hint=hint or "the messages above say why")
    error.exit_code = first.exit_code
    return error
