"""Writes data sets of a few examples in their published layouts, for rehearsals of recipes (``vlcli rehearse``)."""

import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vlcli.errors import UsageError

# Pictures of each part of a data set
PICTURES = 8  # of a part: a baseline is fitted on no fewer
ANSWERS = ("red", "green", "blue", "yes", "no", "2")
# Width and height of a picture
SIZE = (64, 48)
# Annotated boxes of a picture: x, y, width, height
BOXES = ([4, 4, 24, 24], [30, 8, 20, 30], [8, 26, 44, 18])
_KINDS = ("circle", "square", "triangle", "star")
_PLACES = ("left of", "right of", "above", "below")


class Miniature:
    """A folder with small copies of data sets; readers write into it (:meth:`vlcli.data.Reader.write_miniature`)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._first: dict[str, int] = {}

    def numbers(self, part: str, count: int = PICTURES) -> range:
        """Return the numbers of a part's ``count`` pictures (``train2014``): its own, the same at each call."""
        first = self._first.setdefault(part, 100 * (1 + len(self._first)))
        return range(first, first + count)

    def sentence(self, number: int, again: int = 0) -> str:
        first, second = _KINDS[number % 4], _KINDS[(number + again + 1) % 4]
        return f"a {self.answer(number)} {first} is {_PLACES[again % 4]} a {self.answer(number + again + 1)} {second}"

    def question(self, number: int, again: int = 0) -> str:
        """Return a question whose answer is :meth:`answer` of the same number."""
        return f"what color is the {_KINDS[(number + again) % 4]}?"

    def answer(self, number: int) -> str:
        return ANSWERS[number % len(ANSWERS)]

    def picture(self, path: Path, mode: str = "RGB") -> str:
        """Draw a picture where none is yet and return its name; of mode ``L``, class ids from 0 to 3."""
        import numpy as np
        from PIL import Image

        target = self._target(path)
        if not target.exists():
            draw = np.random.default_rng(zlib.crc32(path.name.encode()))
            values = draw.integers(0, 4 if mode == "L" else 256, (6, 8, *([3] if mode == "RGB" else [])), np.uint8)
            Image.fromarray(values).resize(SIZE, Image.Resampling.NEAREST).save(target)
        return path.name

    def write(self, path: Path, content: Any) -> None:
        """Write text, bytes, lines of JSON (an iterator) or one JSON document."""
        target = self._target(path)
        if isinstance(content, Iterator):
            content = "".join(f"{json.dumps(row)}\n" for row in content)
        elif not isinstance(content, str | bytes):
            content = json.dumps(content)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())

    def pictures(self, part: str, folder: Path, form: str = "{}.jpg", count: int = PICTURES) -> dict[int, str]:
        """Draw the pictures of a part (:meth:`numbers`) and return their names by number, which ``form`` takes."""
        return {number: self.picture(folder / form.format(number)) for number in self.numbers(part, count)}

    def ready(self, path: Path) -> str:
        """Make the folder of a file that the caller writes, and return the file's name."""
        return self._target(path).name

    def instances(self, names: Mapping[int, str]) -> dict[str, Any]:
        """Return COCO's file of boxes of pictures, given their file names by number."""
        images = [{"id": n, "file_name": name, "width": SIZE[0], "height": SIZE[1]} for n, name in names.items()]
        kinds = {1: "person", 3: "car", 90: "toothbrush"}
        notes = [
            {"id": 10 * n + i, "image_id": n, "category_id": kind, "bbox": box, "area": 400, "iscrowd": 0}
            for n in names
            for i, (box, kind) in enumerate(zip(BOXES, kinds, strict=True))
        ]
        categories = [{"id": kind, "name": name} for kind, name in kinds.items()]
        return {"images": images, "annotations": notes, "categories": categories}

    def _target(self, path: Path) -> Path:
        target = path if path.is_absolute() else self.folder / path
        if not target.resolve().is_relative_to(self.folder.resolve()):
            what = "A rehearsal writes into its own folder alone."
            hint = "write the path in the recipe below `root`, or name a recipe that does"
            raise UsageError(what, got=str(path), expected=f"a path below {self.folder}", hint=hint)
        target.parent.mkdir(parents=True, exist_ok=True)
        return target
