"""Maps the image ids of a data set to files."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from vlcli.data.checks import SameIdError, two_files
from vlcli.data.files import inside, prefix
from vlcli.data.picture_index import PictureFiles, path_id, picture_index, visible, written_path
from vlcli.data.sample import Example
from vlcli.errors import DataError
from vlcli.images.boxes import image_id
from vlcli.images.shards import is_there

if TYPE_CHECKING:
    from vlcli.data.columns.picture_paths import PicturePathsWriter

T = TypeVar("T")
_LONGER = {"name": "path", "path": "file"}


class NamedPictures:
    """Base of readers that maps the ids of pictures to their files.

    An id is the name of the file without folders and ending, so that annotations, boxes and features of other sources
    agree. It does not depend on which files exist: a copy of the data has the same ids. Two pictures of one name in the
    annotations make the ids of this data set paths below the data root. Where two data sets share a name, a recipe says
    ``ids: path`` beside both.

    Attributes:
        image_folder: of the pictures, under ``root``, the data root.
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
        return type(self).__name__

    def examples(self) -> Sequence[Example]:
        raise NotImplementedError

    def _with_ids(self, read: Callable[[], T]) -> T:
        """Call ``read``, and again with longer ids while two pictures have the same."""
        while True:
            try:
                return read()
            except SameIdError:
                if self.ids not in _LONGER:
                    raise
                self.ids, self._paths, self._finder = _LONGER[self.ids], {}, None

    def image_files(self) -> dict[str, Path]:
        """Return the path of every image by id, in the order of first use; called by extraction and before a run.

        Raises DataError: two files have one id.
        """
        names = dict.fromkeys(name for example in self.examples() for name in example.images)
        return {name: self.locate(name) for name in names}

    def locate(self, name: str) -> Path:
        """Return the path of an image by id, or its expected path if it is missing; called where pixels are read.

        Raises DataError: several files fit the name.
        """
        noted = self._paths.get(name)
        if noted is not None and is_there(noted):
            return noted
        if self._finder is None:
            self._finder = PictureFiles(self.image_folder, self.label)
        path = self._finder.find(self._written(name), self._paths, noted is None)
        return path or noted or self.image_folder / f"{name}.jpg"

    def near(self, name: str) -> str:
        """Return, in words, the pictures with nearly the name of a missing one; empty without any."""
        written = self._written(name)
        files = picture_index(self.image_folder).near(written)
        shown = ", ".join(visible(file, written) for file in files)
        return f"close to {visible(written, *files)}: {shown}" if files else ""

    def differs(self, name: str, other: NamedPictures) -> bool:
        """Whether an image id is one file here and another file in another data set."""
        noted = self._paths.get(name), other._paths.get(name)
        if None in noted or noted[0] == noted[1]:
            return False
        path, theirs = self.locate(name), other.locate(name)
        return path != theirs and is_there(path) and is_there(theirs)

    def _written(self, name: str) -> str:
        noted = self._paths.get(name)
        return name if noted is None else str(noted).removeprefix(prefix(str(self.image_folder)))

    def picture(self, file: str) -> str:
        """Note the file of an image and return its id; called by :meth:`read` of subclasses for every file name.

        Args:
            file: relative to the image folder, or absolute. DataError: another has the same id, or the path leaves its
                folder.
        """
        return self.note(image_id(file), written_path(self.root, self.image_folder, file, self._anywhere))

    def with_ids(self, example: Example) -> Example:
        """Return an example, with paths for those ids of which annotations name no file, unless ids are names."""
        if self.ids == "name" or all(name in self._paths for name in example.images):
            return example
        return replace(example, images=[name if name in self._paths else self.picture(name) for name in example.images])

    def note(self, name: str, path: str) -> str:
        """Note the path of an image and return its id; called by :meth:`read` of subclasses.

        ``name`` is the image id, where ids are names. Raises DataError: another file has the same id.
        """
        if self.ids != "name":
            name = path_id(self.root, self.image_folder, path, self.ids == "file")
        elif self._path_writer is not None:
            self._path_writer.note(name, path)
            return name
        known = self._paths.get(name)
        if known is None:
            self._paths[name] = Path(path)
        elif str(known) != path and known != Path(path):
            raise self._two_files(name, known, Path(path))
        return name

    def _two_files(self, name: str, first: Path, second: Path) -> DataError:
        """Make the error for an image id of two files; subclasses may add a hint."""
        return two_files(name, first, second, self.label)
