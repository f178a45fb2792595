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
from vlcli.registry.contract import blame


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
    """Base of every data set: annotation files in, examples out.

    A subclass defines :meth:`files` and :meth:`read`. ``read`` calls :meth:`picture` with the file name of each image
    that the annotations name; other images are looked up by id in the image folder. Files are opened by
    :meth:`examples`, not before.

    Args:
        root: the recipe's data root; relative paths in a recipe are under it.
        split: which part, or several that are read one after another.
        images: folder of the pictures, under ``root``.
        take: which images of the split, see :mod:`vlcli.data.take`: ``first:1161`` and ``after:1161`` hold out.
        limit: read only so many examples (None: all).

    Attributes:
        left_out: number of examples that :meth:`read` left out, by reason ("without a picture"); ``read`` counts them.
        splits: the splits its files come in, for messages; empty: any.
        held_out_splits: splits that are for validation and testing: pre-training refuses them.
        pictures_help: what to do where its pictures are not found.
        composition_titles: titles of the columns of :meth:`composition`; others have their key as title.
        weight: how often a training epoch passes over it: ``weight`` beside a reader's own keys in a recipe.
        augments: whether only those of its questions count whose answers are in the table of the other data sets.
    """

    paper: ClassVar[str] = ""
    splits: ClassVar[tuple[str, ...]] = ()
    held_out_splits: ClassVar[tuple[str, ...]] = ()
    pictures_help: ClassVar[str] = "point `images` at the folder that holds them: images=FOLDER"
    composition_titles: ClassVar[Mapping[str, str]] = MappingProxyType({})
    weight: float = 1.0
    augments: bool = False

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
        """Name of the data set in messages.

        Returns:
            The registered name with the split.
        """
        spec = getattr(self, "spec_in_recipe", None) or {}
        return f"{spec.get('name', type(self).__name__)} ({self.split})"

    def files(self) -> list[Path]:
        """Annotation files that will be read.

        Called before a run, which checks that they exist and hashes them into the key.

        Returns:
            Paths under the data root. Subclasses define it.

        Raises:
            NotImplementedError: the subclass does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} does not name its files")

    def read(self) -> list[Example]:
        """Read every example of the split; called once by :meth:`examples`, in every process. Subclasses define it.

        Returns:
            Examples in the order of the file: strings and ids, nothing loaded.

        Raises:
            DataError: a file is malformed.
            NotImplementedError: the subclass does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} has no examples")

    def first_examples(self, count: int) -> list[Example]:
        """Read a few examples without the rest; called by checks before a run. The base reads none.

        Args:
            count: how many at most.

        Returns:
            Examples; empty where the files cannot be read in part.
        """
        return []

    def examples(self) -> list[Example]:
        """The chosen examples (``take``, ``limit``); called by everything that reads data. They are read once and kept.

        Returns:
            Examples in the order of the file.

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
                hint=f"the reader stopped at {blame(error, type(self))}; -vv shows the traceback",
            ) from error

    def fit(self, tokenizer: Any, length: int) -> None:
        """Receive the tokenizer and the text length; called once before :meth:`examples`, for readers that pack texts.

        Args:
            tokenizer: cuts texts into word pieces.
            length: most word pieces of an example, special tokens included.
        """

    def notes(self) -> list[str]:
        """Lines about examples that were left out.

        Called after :meth:`examples` and shown beside the result of a stage.

        Returns:
            One line per reason.
        """
        return [f"{self.label}: left out {count} {reason}" for reason, count in self.left_out.items()]

    def composition(self) -> list[dict[str, Any]]:
        """Counts by split and part; called by ``vlcli data stats`` after :meth:`examples`. No rows by default.

        Returns:
            Rows of equal keys with strings and whole numbers.
        """
        return []

    def forget(self) -> None:
        """Drop the examples that :meth:`examples` keeps, to free memory; the next call reads the files again."""
        self._examples = None

    def restrict(self, examples: list[Example]) -> None:
        """Keep only some of the examples; called by tasks and by training that leaves out unanswerable questions.

        Args:
            examples: those to keep, of :meth:`examples`.

        Raises:
            DataError: there are none.
        """
        if not examples:
            raise self._empty(len(self.examples()))
        self._examples = examples

    def image_files(self) -> dict[str, Path]:
        """Path of every image that the examples use; called by extraction and by checks before a run.

        Returns:
            By image id, in the order of first use; the files need not exist.

        Raises:
            DataError: two files have one id.
        """
        names = dict.fromkeys(name for example in self.examples() for name in example.images)
        return {name: self.locate(name) for name in names}

    def locate(self, name: str) -> Path:
        """Path of an image; called by extraction and by loader workers that read pixels.

        Args:
            name: image id.

        Returns:
            The file, or where it was expected if there is none.

        Raises:
            DataError: two files have this id.
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
        """Note the file of an image; called by :meth:`read` of subclasses for every file name that they meet.

        Args:
            file: relative to the image folder, or absolute.
            folder: instead of the image folder.

        Returns:
            The image id.

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
        """Annotated boxes; called by extraction of given boxes and by detection. None by default.

        Returns:
            By image id boxes x1, y1, x2, y2 in pixels, with classes counted from 0.
        """
        return {}

    def label_maps(self) -> dict[str, Path]:
        """Files of segmentation labels; called by the pipeline where a model or task reads them. None by default.

        Returns:
            By image id a one-channel image of class ids.
        """
        return {}

    def class_names(self) -> list[str]:
        """Names of the classes of :meth:`boxes`; called before a detector is built. None by default.

        Returns:
            One name per class, in the order of their numbers.
        """
        return []

    def class_ids(self) -> list[int]:
        """Ids of the classes in the annotation file (COCO: 1 to 90 with gaps); called when detections are scored.

        Returns:
            One id per class; by default 0, 1, ...
        """
        return list(range(len(self.class_names())))

    def truth(self) -> Truth:
        """Annotations that detections are scored against.

        Called once by the task ``detection``. By default from :meth:`boxes`.

        Returns:
            The parts of a COCO instances file.
        """
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
        """Names of the attributes of :meth:`boxes`; called before a detector is built. None by default.

        Returns:
            One name per attribute, in the order of their numbers.
        """
        return []

    def label_names(self) -> list[str]:
        """Names that ``targets["label"]`` numbers; called before a model is built. None by default.

        Returns:
            One name per label, in the order of their numbers.
        """
        return []

    def require(self) -> None:
        """Check that the files exist; called before a run and by :meth:`examples`.

        Raises:
            DataError: one is missing; the message names the first.
        """
        for file in self.files():
            if not file.is_file():
                known = f"; splits are {', '.join(self.splits)}" if self.splits else ""
                raise DataError(
                    f"A file of the data set is missing (split {self.split!r}{known}).",
                    where=str(file),
                    hint="point the recipe's `root` at the folder that holds it, e.g. root=DATA",
                )

    def first_file(self, named: str | None, candidates: Sequence[str]) -> list[Path]:
        """Annotation file of each split; called by :meth:`files` of subclasses.

        Args:
            named: a path of the recipe, in which ``{split}`` is filled in; None: look for the usual ones.
            candidates: usual paths under the data root, the most usual first.

        Returns:
            One path per split; the first candidate where none exists, so that the message names the usual place.
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
