"""Image ids of a data set and the files behind them: the part of a reader that names pictures."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from vlcli.data.files import inside, prefix
from vlcli.data.picture_index import PictureFiles, path_id, picture_index, visible, written_path
from vlcli.data.reader_errors import SameIdError, two_files
from vlcli.data.sample import Example
from vlcli.errors import DataError
from vlcli.images.boxes import image_id
from vlcli.images.shards import is_there

if TYPE_CHECKING:
    from vlcli.data.columns.picture_paths import PicturePathsWriter

T = TypeVar("T")
_LONGER = {"name": "path", "path": "file"}


class NamedPictures:
    """What readers know of their pictures: an id of each, and its file.

    An id is the name of the file without folders and ending, so that annotations, boxes and features of other sources
    agree. It does not hang on which files there are: a copy of the data has the same ids. Two pictures of one name in
    the annotations make the ids of this data set paths below the data root. Two data sets do not see each other, and
    stages read different ones; so a recipe says ``ids: path`` beside both where they share a name.

    Args:
        root: the data root.
        images: folder of the pictures, under ``root``.

    Attributes:
        image_folder: that folder.
        ids: ``name``; or ``path``, without ending; or ``file``, the path with its ending.
    """

    ids: str = "name"

    def __init__(self, root: Path, images: str) -> None:
        self.root, self.image_folder = root, inside(root, images)
        self._anywhere = Path(images).is_absolute()
        self._paths: MutableMapping[str, Path] = {}
        self._finder: PictureFiles | None = None
        self._path_writer: PicturePathsWriter | None = None

    @property
    def label(self) -> str:
        """Name of the data set in messages."""
        return type(self).__name__

    def examples(self) -> Sequence[Example]:
        """The examples that name the pictures."""
        raise NotImplementedError

    def name_notes(self) -> list[str]:
        """Return a line for each way in which names of pictures differed from their files'."""
        return [] if self._finder is None else self._finder.notes()

    def _with_ids(self, read: Callable[[], T]) -> T:
        """Read, and again with longer ids while two pictures have one."""
        while True:
            try:
                return read()
            except SameIdError:
                if self.ids not in _LONGER:
                    raise
                self.ids, self._paths, self._finder = _LONGER[self.ids], {}, None

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
            DataError: several files fit the name.
        """
        noted = self._paths.get(name)
        if noted is not None and is_there(noted):
            return noted
        if self._finder is None:
            self._finder = PictureFiles(self.image_folder, self.label)
        found = self._finder.find(self._written(name), self._paths, noted is None)
        return found or noted or self.image_folder / f"{name}.jpg"

    def near(self, name: str) -> str:
        """Say which pictures have nearly the name of one that is not there; empty without any."""
        written = self._written(name)
        found = picture_index(self.image_folder).near(written)
        shown = ", ".join(visible(file, written) for file in found)
        return f"close to {visible(written, *found)}: {shown}" if found else ""

    def differs(self, name: str, other: NamedPictures) -> bool:
        """Whether annotations say that an image id is one file here and another one in another data set."""
        path, theirs = self._paths.get(name), other._paths.get(name)
        if path is None or theirs is None or path == theirs:
            return False
        path, theirs = self.locate(name), other.locate(name)
        return path != theirs and is_there(path) and is_there(theirs)

    def _written(self, name: str) -> str:
        noted = self._paths.get(name)
        return name if noted is None else str(noted).removeprefix(prefix(str(self.image_folder)))

    def picture(self, file: str) -> str:
        """Note the file of an image; called by :meth:`read` of subclasses for every file name that they meet.

        Args:
            file: relative to the image folder, or absolute.

        Returns:
            The image id.

        Raises:
            DataError: another file has the same id, or the path leaves its folder.
        """
        return self.note(image_id(file), written_path(self.root, self.image_folder, file, self._anywhere))

    def with_ids(self, example: Example) -> Example:
        """Return an example as its reader made it, or with paths for those ids of which annotations name no file."""
        if self.ids == "name" or all(name in self._paths for name in example.images):
            return example
        return replace(example, images=[name if name in self._paths else self.picture(name) for name in example.images])

    def note(self, name: str, path: str) -> str:
        """Note the file of an image that is there, whatever it is called; called by :meth:`read` of subclasses.

        Args:
            name: image id, where ids are names.
            path: where it lies.

        Returns:
            The image id.

        Raises:
            DataError: another file has the same id.
        """
        if self.ids != "name":
            name = path_id(self.root, self.image_folder, path, self.ids == "file")
        if self._path_writer is not None and self.ids == "name":
            self._path_writer.note(name, path)
            return name
        known = self._paths.get(name)
        if known is None:
            self._paths[name] = Path(path)
        elif str(known) != path and known != Path(path):
            raise self._two_files(name, known, Path(path))
        return name

    def _two_files(self, name: str, first: Path, second: Path) -> DataError:
        """The error, not raised, for an image id that two files answer to; subclasses may say what to do about it."""
        return two_files(name, first, second, self.label)
