"""Answers the page's requests to one model: its uses, search in a folder, samples; as plain data."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from PIL import Image

from vlcli.api import Loaded
from vlcli.demo.samples import Sample
from vlcli.demo.turns import Turns
from vlcli.demo.uploads import Remembered, Upload, Uploads, preview
from vlcli.errors import DataError, UsageError
from vlcli.images.files import BadImageError, open_image, read_content
from vlcli.prediction import MAX_TEXT, Prediction
from vlcli.prediction.looking import look
from vlcli.prediction.sources import SMALL_FOLDER
from vlcli.tools.search import Index

TOP = 8
THUMBNAIL = 240
TRIED = "is this a picture"
# Pictures of one request where the task takes any number
PICTURES = 5


SMALL_ABOUT = (
    "A small model that comes with vlcli. It answers questions about drawn circles, squares and triangles in red, "
    "green and blue: what there is, colours, places, and numbers up to 4. It knows neither photographs nor other words."
)


@dataclass(frozen=True)
class Limits:
    """Limits of a picture's file (bytes) and pixels, of a text (characters), and of requests that wait."""

    upload: int = 20 * 2**20
    pixels: int = 50_000_000
    text: int = MAX_TEXT
    waiting: int = 32


@dataclass
class Demo:
    """One model behind the page; its methods may be called from several threads.

    ``samples`` are examples to begin with, ``index`` is the folder that can be searched.
    """

    model: Loaded
    limits: Limits = field(default_factory=Limits)
    samples: Sequence[Sample] = ()
    index: Index | None = None

    def __post_init__(self) -> None:
        if not self.model.uses and self.index is None:
            heads = ", ".join(self.model.module.objectives)
            what = "The page has nothing to show of this model: it cannot be asked anything."
            where, got = str(self.model.folder), f"objectives: {heads}" if heads else "no objective"
            expected = "a task, a head that answers, or --pictures with a model that has learnt contrast"
            hint = "fine-tune it on a task (vlcli ls tasks), or name another stage of its run"
            raise UsageError(what, where=where, got=got, expected=expected, hint=hint)
        self.uploads, self.turns = Uploads(self.limits.pixels), Turns(self.limits.waiting)
        self.model.reader = Remembered(self.model.reader, self.uploads)  # type: ignore[assignment]

    def warm_up(self) -> None:
        """Ask once, so that the extractor is built before the page is shown; VlcliError: the model cannot answer."""
        if not self.model.uses:
            return
        use = self.model.use
        uploads, text = self._first(max(1, use.images))
        for _ in range(3):  # the last pass is as fast as those that follow
            self.turns.forget()
            for upload in uploads:
                upload.sample = None
            self.ask(use.name, [upload.key for upload in uploads], "" if use.text == "none" else text)

    def _first(self, count: int) -> tuple[list[Upload], str]:
        """Return pictures and a text to try the model on: the first sample, or grey pictures where there is none."""
        sample = next((one for one in self.samples if len(one.pictures) == count), None)
        if sample is not None:
            with suppress(DataError):
                return [self._upload(path) for path in sample.pictures], sample.text or TRIED
        grey = preview(Image.new("RGB", (320, 240), (128, 128, 128)), 320)
        return [self.uploads.add(grey) for _ in range(count)], TRIED

    def page(self) -> dict[str, Any]:
        folder = self.model.folder
        parts = [part for part in folder.absolute().parts if part != "model"]
        return {
            "model": "/".join(parts[-2:]),  # run and stage
            "about": SMALL_ABOUT if folder == SMALL_FOLDER / "questions" / "model" else type(self.model.model).__name__,
            "uses": [asdict(use) for use in self.model.uses.values()],
            "samples": [{**one._asdict(), "pictures": len(one.pictures)} for one in self.samples],
            "folder": self.index and {"name": self.index.folder.name, "pictures": len(self.index.store)},
            "limits": {**vars(self.limits), "pictures": PICTURES},
            "within": self.within(),
        }

    def within(self) -> int:
        """Return the seconds in which an answer is expected: twice the slowest of the last, for each that waits."""
        return max(1, math.ceil(2 * self.turns.usual * (1 + self.turns.waiting)))

    def ask(self, task: str, keys: Sequence[str], text: str) -> dict[str, Any]:
        """Ask the model; Busy: too many requests wait, other VlcliError: the request is faulty."""
        self.check(text)
        uploads = self.uploads.get(keys)
        tokens = [one.token for one in uploads]
        with self.turns.turn() as times:
            prediction = self.model.predict(text or None, tokens, task=task, top=TOP)
            attention = look(self.model, text, tokens) if text else None
        return {**_plain(prediction, uploads), "attention": attention, **times, "within": self.within()}

    def check(self, text: str) -> None:
        """Raise UsageError for a text that is too long."""
        most, pieces = self.limits.text, self.model.data_spec.text_length
        if len(text) > most:
            what, hint = "The text is too long.", f"shorten it: this model reads {pieces} word pieces at most"
            raise UsageError(what, got=f"{len(text):,} characters", expected=f"at most {most:,} characters", hint=hint)

    def search(self, text: str, keys: Sequence[str], top: int = 12) -> dict[str, Any]:
        """Return the pictures of the folder that are nearest to a sentence or to a picture.

        Raises VlcliError: there is no folder, or nothing to look for; Busy: too many requests wait.
        """
        index = self.index
        if index is None:
            raise UsageError("There is no folder to search.", hint="start the page with --pictures FOLDER")
        self.check(text)
        uploads = self.uploads.get(keys[:1])
        if not text.strip() and not uploads:
            raise UsageError("Say what to look for.", expected="a sentence, or a picture")
        with self.turns.turn() as times:
            query = self.model.embed_text(text) if text.strip() else self.model.embed_image([uploads[0].token])
            nearest = index.nearest(query[0], min(top, len(index.store)))
        numbers = index.store.rows()
        found = [
            {"name": path.name, "score": round(score, 4), "number": numbers[path.relative_to(index.folder).as_posix()]}
            for path, score in nearest
        ]
        return {"found": found, **times, "within": self.within()}

    def take(self, kind: str, number: int) -> dict[str, Any]:
        """Return pictures of the ``samples`` or of the ``folder`` as uploads, and their text; DataError: none there."""
        sample = self._sample(kind, number)
        return {**sample._asdict(), "pictures": [described(self._upload(path)) for path in sample.pictures]}

    def thumbnail(self, kind: str, number: int, picture: int = 0) -> bytes:
        """Return a small JPEG of a sample's or of the folder's picture; DataError: there is no such picture."""
        pictures = self._sample(kind, number).pictures
        if picture >= len(pictures):
            raise DataError("There is no such picture.")
        with _usable(pictures[picture]), self.uploads.decoding:
            return preview(open_image(pictures[picture], self.limits.pixels), THUMBNAIL)

    def _sample(self, kind: str, number: int) -> Sample:
        if kind == "samples":
            if number >= len(self.samples):
                raise DataError("There is no such sample.")
            return self.samples[number]
        if self.index is None or number >= len(self.index.store):
            raise DataError("There is no such picture in the folder.")
        return Sample((self.index.folder / self.index.store.ids[number],))

    def _upload(self, path: Path) -> Upload:
        with _usable(path):
            return self.uploads.add(read_content(path), path.name)


@contextmanager
def _usable(path: Path) -> Iterator[None]:
    try:
        yield
    except BadImageError as error:
        raise DataError("The picture cannot be used.", where=path.name, got=str(error)) from None


def described(upload: Upload) -> dict[str, Any]:
    """Return an upload's key and size."""
    width, height = upload.size
    return {"key": upload.key, "width": width, "height": height}


def _plain(prediction: Prediction, uploads: Sequence[Upload]) -> dict[str, Any]:
    """Return a prediction for the page; boxes are divided by width and height."""
    pictures = []
    for number, upload in enumerate(uploads):
        boxes = [
            {"box": _share(one.box, upload), "label": one.label, "score": round(float(one.score), 4)}
            for one in prediction.boxes
            if one.image == number
        ]
        regions = [_share(box, upload) for part in prediction.regions[number : number + 1] for box in part]
        pictures.append({"boxes": boxes[:100], "regions": regions})
    return {
        "task": prediction.use.name,
        "kind": prediction.use.kind,
        "words": prediction.words(),
        "choices": [
            {"label": str(one.label), "probability": round(float(one.probability), 4)} for one in prediction.choices
        ],
        "pictures": pictures,
        "notes": prediction.notes,
    }


def _share(box: ArrayLike, upload: Upload) -> list[float]:
    shares: list[float] = (np.asarray(box, np.float64) / [*upload.size, *upload.size]).clip(0, 1).round(4).tolist()
    return shares
