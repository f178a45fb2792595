"""The data-set seam: annotation files in, examples out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from vlcli.data.files import IMAGE_SUFFIXES, index_images, inside
from vlcli.data.sample import Example
from vlcli.data.take import select
from vlcli.data.texts import check_texts
from vlcli.errors import DataError
from vlcli.images.boxes import BoxList, image_id


@dataclass
class Truth:
    """What detections are scored against, in COCO's terms.

    Attributes:
        document: ``images``, ``annotations`` and ``categories`` of a COCO instances file, with its own ids.
        numbers: the file's id of an image, by image id.
    """

    document: dict[str, list[dict[str, Any]]]
    numbers: dict[str, Any] = field(default_factory=dict)


class Reader:
    """Base of every data set. Nothing is read before :meth:`examples`; ``files`` tells what would be.

    A data set of one's own overrides :meth:`files` and :meth:`read`; ``read`` may call :meth:`picture` with the file
    names it meets. Names it does not meet are looked for by image id under ``images``.

    Args:
        root: the recipe's data root; relative paths in a recipe are under it.
        split: which part, or several that are read one after another.
        images: folder of the pictures, under ``root``.
        take: which images of the split, see :mod:`vlcli.data.take`: ``first:1161`` and ``after:1161`` hold out.
        limit: read only so many examples (None: all).

    Attributes:
        left_out: what :meth:`read` passed over, by reason ("without a picture"): one that may do so counts it here.
    """

    paper: ClassVar[str] = ""
    splits: ClassVar[tuple[str, ...]] = ()
    """The splits its files come in, for messages; empty: any."""
    held_out_splits: ClassVar[tuple[str, ...]] = ()
    """Splits that are for validation and testing: pre-training refuses them."""
    pictures_help: ClassVar[str] = "point `images` at the folder that holds them: images=FOLDER"
    """What to do where its pictures are not found."""
    composition_titles: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """What the columns of :meth:`composition` are called in a table; a column that is not here has its key as title."""
    weight: float = 1.0
    """How often a training epoch passes over it: ``weight`` beside a reader's own keys in a recipe."""
    augments: bool = False
    """Whether it only adds to the others: of its questions, those whose answers are in the others' table count."""

    def __init__(
        self,
        root: Path,
        *,
        split: str | list[str] = "train",
        images: str = "images",
        take: str | None = None,
        limit: int | None = None,
    ) -> None:
        self.root, self.take, self.limit = Path(root), take, limit
        self.split_names = [split] if isinstance(split, str) else list(split)
        self.split = "+".join(self.split_names)
        self.image_folder = inside(self.root, images)
        self.left_out: Counter[str] = Counter()
        self._paths: dict[str, Path] = {}
        self._examples: list[Example] | None = None
        self._index: dict[str, list[Path]] | None = None

    @property
    def label(self) -> str:
        """How messages call it."""
        spec = getattr(self, "spec_in_recipe", None) or {}
        return f"{spec.get('name', type(self).__name__)} ({self.split})"

    def files(self) -> list[Path]:
        """The annotation files it will read: checked before a run starts, hashed into the stage's key."""
        raise NotImplementedError(f"{type(self).__name__} does not name its files")

    def read(self) -> list[Example]:
        """Every example of the split, in the file's order."""
        raise NotImplementedError(f"{type(self).__name__} has no examples")

    def first_examples(self, count: int) -> list[Example]:
        """The first few examples, read without the rest; none where its files do not allow that."""
        return []

    def examples(self) -> list[Example]:
        """The chosen examples (``take``, ``limit``), in the file's order; read once and kept.

        Raises:
            DataError: a file is missing or malformed, or nothing is left.
        """
        if self._examples is None:
            self.require()
            self.left_out.clear()
            found = self._read()
            chosen = found if self.take is None else select(found, self.take, self.root)
            chosen = chosen[: self.limit]
            if not chosen:
                raise self._empty(len(found))
            check_texts(chosen, " and ".join(map(str, self.files()[:2])) or str(self.root))
            self._examples = chosen
        return self._examples

    def _read(self) -> list[Example]:
        """What :meth:`read` makes; files that are not of its format are a fault of the data, however it is met."""
        try:
            return self.read()
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise DataError(
                f"The reader {self.label} makes no sense of its files.",
                where=", ".join(map(str, self.files()[:3])) or str(self.root),
                got=f"{type(error).__name__}: {str(error)[:200]}",
                expected="files of the format that it documents",
                hint="see where it stopped: -vv",
            ) from error

    def fit(self, tokenizer: Any, length: int) -> None:
        """Told what cuts its texts into pieces, and how many an example holds; one that packs texts does it here."""

    def notes(self) -> list[str]:
        """A line on each sort of thing that was left out."""
        return [f"{self.label}: left out {count} {reason}" for reason, count in self.left_out.items()]

    def composition(self) -> list[dict[str, Any]]:
        """Counts by split and part, for ``vlcli data stats``: rows of equal keys, strings and whole numbers.

        Called after :meth:`examples`. The default has no rows: the data set has no parts worth a table.
        """
        return []

    def forget(self) -> None:
        """Drop what :meth:`examples` keeps; it reads anew where it is asked again."""
        self._examples = None

    def restrict(self, examples: list[Example]) -> None:
        """Go on with these of its examples.

        Raises:
            DataError: there are none.
        """
        if not examples:
            raise self._empty(len(self.examples()))
        self._examples = examples

    def image_files(self) -> dict[str, Path]:
        """Where each image lies, by image id, in the order of first use (existence is not checked).

        Raises:
            DataError: two files answer to one id.
        """
        names = dict.fromkeys(name for example in self.examples() for name in example.images)
        return {name: self.locate(name) for name in names}

    def locate(self, name: str) -> Path:
        """Where the image with this id lies; where nothing is found, where it was expected.

        Raises:
            DataError: two files answer to the id.
        """
        noted = self._paths.get(name)
        if noted is not None and (noted.suffix.lower() in IMAGE_SUFFIXES or noted.is_file()):
            return noted  # else the annotations name it without its extension
        if self._index is None:
            self._index = index_images(self.image_folder)
        found = self._index.get(name, [])
        if len(found) > 1:
            raise _twice(name, found[0], found[1], self.label)
        return found[0] if found else self.image_folder / f"{name}.jpg"

    def picture(self, file: str, folder: Path | None = None) -> str:
        """Note a picture's file (relative to ``images``, or absolute) and return its id.

        Raises:
            DataError: another file has the same id, or the path leaves its folder.
        """
        path = inside(folder or self.image_folder, file)
        name = image_id(file)
        known = self._paths.setdefault(name, path)
        if known != path:
            raise _twice(name, known, path, self.label)
        return name

    def boxes(self) -> dict[str, BoxList]:
        """Given boxes by image id (pixels; classes counted from 0); none by default."""
        return {}

    def label_maps(self) -> dict[str, Path]:
        """Where the pictures of class ids (one channel) lie, by image id; none by default."""
        return {}

    def class_names(self) -> list[str]:
        """Names of the box classes that :meth:`boxes` numbers; none by default."""
        return []

    def class_ids(self) -> list[int]:
        """What the file itself calls these classes by number; their own numbers by default."""
        return list(range(len(self.class_names())))

    def truth(self) -> Truth:
        """What detections in the chosen images are scored against; made of :meth:`boxes` by default."""
        ids, given = self.class_ids(), self.boxes()
        names = dict.fromkeys(name for example in self.examples() for name in example.images)
        notes = [
            coco_annotation(name, None if found.classes is None else ids[int(found.classes[row])], box)
            for name in names
            if (found := given.get(name)) is not None
            for row, box in enumerate(found.boxes.tolist())
        ]
        kinds = [{"id": number, "name": name} for number, name in zip(ids, self.class_names(), strict=True)]
        images = [{"id": name, "file_name": self.locate(name).name} for name in names]
        return Truth({"images": images, "annotations": notes, "categories": kinds}, {name: name for name in names})

    def attribute_names(self) -> list[str]:
        """Names of the box attributes that :meth:`boxes` numbers; none by default."""
        return []

    def label_names(self) -> list[str]:
        """Names that ``targets["label"]`` numbers, where labels were words; none by default."""
        return []

    def require(self) -> None:
        """Raise a DataError that names the first file that is missing."""
        for file in self.files():
            if not file.is_file():
                known = f"; splits are {', '.join(self.splits)}" if self.splits else ""
                raise DataError(
                    f"A file of the data set is missing (split {self.split!r}{known}).",
                    where=str(file),
                    hint="point the recipe's `root` at the folder that holds it, e.g. root=DATA",
                )

    def first_file(self, named: str | None, candidates: Sequence[str]) -> list[Path]:
        """One annotation file per chosen split: ``named`` with ``{split}`` filled in, else the first candidate found.

        Where no candidate exists, the first is returned, so that the message names the usual place.
        """
        found = []
        for split in self.split_names:
            options = [inside(self.root, _fill(text, split)) for text in ([named] if named else candidates)]
            found.append(next((path for path in options if path.is_file()), options[0]))
        return found

    def _empty(self, total: int) -> DataError:
        files = ", ".join(map(str, self.files())) or str(self.image_folder)
        return DataError(
            f"The data set {self.label} is empty.",
            where=files,
            got=f"0 of {total} examples" + (f" after take={self.take!r}" if self.take and total else ""),
            expected="one example or more",
            hint="check `split`, `take` and `limit`",
        )


def coco_annotation(image: Any, category: int | None, box: Sequence[float]) -> dict[str, Any]:
    """A box x1 y1 x2 y2 as COCO annotates it."""
    left, top, right, bottom = box
    width, height = right - left, bottom - top
    found = {"image_id": image, "bbox": [left, top, width, height], "area": width * height, "iscrowd": 0}
    return found if category is None else {**found, "category_id": category}


def _fill(text: str, split: str) -> str:
    return text.replace("{split}", split)


def _twice(name: str, first: Path, second: Path, label: str) -> DataError:
    return DataError(
        f"Two files answer to the image id {name!r}.",
        where=label,
        got=f"{first} and {second}",
        expected="file names that differ by more than folder and extension",
        hint="rename one of them, or point `images` at one of the folders",
    )
