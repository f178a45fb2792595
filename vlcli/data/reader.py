"""Defines the base class of readers, which turn annotation files into examples."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from vlcli.data.checks import check_keys, check_texts, checked, empty, missing, senseless
from vlcli.data.files import inside
from vlcli.data.holdout import listed_files, select
from vlcli.data.miniature import Miniature
from vlcli.data.named_pictures import NamedPictures
from vlcli.data.recognition.folder import Folder
from vlcli.data.recognition.recognised import Recognised
from vlcli.data.sample import Example
from vlcli.data.truth import Truth, truth_of
from vlcli.images.boxes import BoxList
from vlcli.images.remote import is_remote, local_copy


class Reader(NamedPictures):
    """Base class of data sets: turns annotation files into examples.

    A subclass defines :meth:`files` and :meth:`read`. ``read`` calls :meth:`picture` with the file name of each image
    that the annotations name; other images are looked up by id in the image folder. Files are opened by
    :meth:`examples`, not before. :mod:`vlcli.data.picture_index` says how a name finds a file.

    Args:
        root: the recipe's data root; relative paths in a recipe are under it.
        split: which part, or several that are read one after another.
        images: folder of the pictures, under ``root``.
        take: images of the split, see :mod:`vlcli.data.holdout`: ``first:1161`` and ``after:1161`` hold out.
        limit: read only so many examples (None: all).

    Attributes:
        recognise_order: ``init`` asks readers of files of their own first (0), then those of any tables (1).
        left_out: number of examples left out, by reason ("without a picture"); :meth:`read` counts them.
        splits: names of the splits, for messages; empty: any.
        held_out_splits: splits for validation and testing, which pre-training refuses.
        pictures_help: hint where its pictures are not found.
        composition_titles: titles of the columns of :meth:`composition`; others have their key as title.
        weight: passes of a training epoch over it: ``weight`` beside a reader's own keys in a recipe.
        augments: whether only questions count whose answers are in the table of the other data sets.
        reads_folders: whether :meth:`read` reads more than :meth:`files` and :meth:`listed_folders` name: such examples
            are read anew by every process.
        cache: folder of the columns of large files' examples (:mod:`vlcli.data.columns`), set by the opener of the
            reader. None: examples are kept in memory.
    """

    paper: ClassVar[str] = ""
    splits: ClassVar[tuple[str, ...]] = ()
    held_out_splits: ClassVar[tuple[str, ...]] = ()
    pictures_help: ClassVar[str] = "point `images` at the folder that holds them: images=FOLDER"
    composition_titles: ClassVar[Mapping[str, str]] = MappingProxyType({})
    recognise_order: ClassVar[int] = 0
    weight: float = 1.0
    augments: bool = False
    reads_folders: bool = False
    cache: Path | None = None

    def __init__(
        self,
        root: Path,
        *,
        split: str | list[str] = "train",
        images: str = "images",
        take: str | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(Path(root), images)
        self.take, self.limit = take, limit
        self.split_names = [split] if isinstance(split, str) else list(split)
        self.split = "+".join(self.split_names)
        self.left_out: Counter[str] = Counter()
        self._examples: Sequence[Example] | None = None

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:  # noqa: ARG003
        """Look for data that this reader can read; called by ``vlcli init``. None by default.

        Args:
            folder: its files that no other reader has claimed, its tables, documents and pictures.

        Returns:
            A record for each data set, not for each part of one.
        """
        return []

    @property
    def label(self) -> str:
        spec = getattr(self, "spec_in_recipe", None) or {}
        return f"{spec.get('name', type(self).__name__)} ({self.split})"

    def files(self) -> list[Path]:
        """Return the annotation files. Subclasses define it.

        Called before a run, which checks that they exist and hashes them into the key.

        Returns:
            Paths under the data root.
        """
        raise NotImplementedError(f"{type(self).__name__} does not name its files")

    def read(self) -> list[Example]:
        """Read every example of the split; called once by :meth:`examples`, in every process. Subclasses define it.

        Returns:
            Examples in the order of the file: strings and ids, nothing loaded.

        Raises:
            DataError: a file is malformed.
        """
        raise NotImplementedError(f"{type(self).__name__} has no examples")

    def write_miniature(self, miniature: Miniature) -> None:
        """Write :meth:`files` of a few examples and their pictures; called by ``vlcli rehearse``.

        Args:
            miniature: writes files, draws pictures, and says which numbers a part's pictures have.

        Raises:
            NotImplementedError: the reader has no miniature; recipes that read it cannot be rehearsed.
        """
        raise NotImplementedError(f"{type(self).__name__} has no write_miniature")

    def picture_lists(self) -> list[Path]:
        """Return the lists of pictures that ``take`` names; called for the keys of stages and the digests of columns.

        Returns:
            Files under the root; empty where ``take`` names none.
        """
        return listed_files(self.take or "", self.root)

    def listed_folders(self) -> list[Path]:
        """Return the folders whose files, at any depth, decide on the examples.

        Called where examples become columns, and by plans: a file more or less makes a stage run again.

        Returns:
            None by default.
        """
        return []

    def stream(self) -> Iterator[Example]:
        """Read every example, one after another; called where examples become columns. By default :meth:`read` does.

        Returns:
            Examples, with the errors of :meth:`read`.
        """
        yield from self.read()

    def first_examples(self, count: int) -> list[Example]:
        """Read a few examples without the rest; called by checks before a run. The base reads none.

        Args:
            count: how many at most.

        Returns:
            Examples; empty where the files cannot be read in part.
        """
        return []

    def examples(self) -> Sequence[Example]:
        """Return the chosen examples (``take``, ``limit``); called by everything that reads data. They are kept.

        Returns:
            Examples in the order of the file: a list, or columns on the disk that make each example on demand (where
                ``cache`` is set and the files are large).

        Raises:
            DataError: a file is missing or malformed, or nothing is left.
        """
        if self._examples is None:
            from vlcli.data.columns import opened

            self.require()
            self.left_out.clear()
            self._examples = self._with_ids(lambda: opened(self) or self._in_memory())
        return self._examples

    def _in_memory(self) -> list[Example]:
        self.left_out.clear()
        with self._making_sense():
            examples = [self.with_ids(checked(one)) for one in self.read()]
        chosen = examples if self.take is None else select(examples, self.take, self.root)
        chosen = chosen[: self.limit]
        if not chosen:
            raise empty(self, len(examples))
        check_texts(chosen, self._where())
        check_keys(self, [hash(one.key) for one in examples], examples.__getitem__)
        return chosen

    @contextmanager
    def _making_sense(self) -> Iterator[None]:
        try:
            yield
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise senseless(self, error) from error

    def _where(self) -> str:
        return " and ".join(map(str, self.files()[:2])) or str(self.root)

    def fit(self, tokenizer: Any, length: int) -> None:
        """Receive the tokenizer and the text length; called once before :meth:`examples`, for readers that pack texts.

        Args:
            tokenizer: cuts texts into word pieces.
            length: most word pieces of an example, special tokens included.
        """

    def notes(self) -> list[str]:
        """Return lines about examples left out, and pictures whose names differ from their files'.

        Called after :meth:`examples` and shown beside the result of a stage.

        Returns:
            One line per reason.
        """
        lines = [f"{self.label}: left out {count} {reason}" for reason, count in self.left_out.items()]
        return lines if self._finder is None else lines + self._finder.notes()

    def composition(self) -> list[dict[str, Any]]:
        """Return counts by split and part; called by ``vlcli data stats`` after :meth:`examples`. No rows by default.

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
            examples: those to keep; DataError: there are none.
        """
        if not examples:
            raise empty(self, len(self.examples()))
        self._examples = examples

    def boxes(self) -> dict[str, BoxList]:
        """Return annotated boxes; called by extraction of given boxes and by detection. None by default.

        Returns:
            By image id boxes x1, y1, x2, y2 in pixels, with classes counted from 0.
        """
        return {}

    def label_maps(self) -> dict[str, Path]:
        """Return files of segmentation labels; called where a model or task reads them. None by default.

        Returns:
            By image id a one-channel image of class ids.
        """
        return {}

    def class_names(self) -> list[str]:
        """Return names of the classes of :meth:`boxes`; called before a detector is built. None by default.

        Returns:
            One name per class, in the order of their numbers.
        """
        return []

    def class_ids(self) -> list[int]:
        """Return the classes' ids in the annotation file (COCO: 1 to 90 with gaps); called when detections are scored.

        Returns:
            One id per class; by default 0, 1, ...
        """
        return list(range(len(self.class_names())))

    def truth(self) -> Truth:
        """Return annotations that detections are scored against, by default of :meth:`boxes`; called by ``detection``.

        Returns:
            The parts of a COCO instances file.
        """
        return truth_of(self)

    def attribute_names(self) -> list[str]:
        """Return names of the attributes of :meth:`boxes`; called before a detector is built. None by default.

        Returns:
            One name per attribute, in the order of their numbers.
        """
        return []

    def label_names(self) -> list[str]:
        """Return names of the labels ``targets["label"]``; called before a model is built. None by default.

        Returns:
            One name per label, in the order of their numbers.
        """
        return []

    def require(self) -> None:
        """Check that the files exist; called before a run and by :meth:`examples`. DataError: one is missing."""
        for file in self.files():
            if not file.is_file():
                raise missing(self, file)

    def first_file(self, named: str | None, candidates: Sequence[str]) -> list[Path]:
        """Return the annotation file of each split; called by :meth:`files` of subclasses.

        Args:
            named: a path of the recipe, or a remote address (:mod:`vlcli.images.remote`), in which ``{split}`` is
                filled in; None: look for the usual ones.
            candidates: usual paths under the data root, the most usual first.

        Returns:
            One path per split; the first candidate where none exists, so that the message names the usual place.
        """
        return [self._file_for(split, named, candidates) for split in self.split_names]

    def _file_for(self, split: str, named: str | None, candidates: Sequence[str]) -> Path:
        texts = [text.replace("{split}", split) for text in ([named] if named else candidates)]
        paths = [local_copy(text) if is_remote(text) else inside(self.root, text) for text in texts]
        return next((path for path in paths if path.is_file()), paths[0])
