"""Base class of readers of annotation files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from vlcli.data.files import inside, read_json, read_lines, read_text
from vlcli.data.reader import Reader
from vlcli.data.sample import Example
from vlcli.images.boxes import image_id

FOLDER_MISSING = "The folder of pictures is missing."


class SplitFileReader(Reader):
    """Base of readers of annotation files, one or more a split; subclasses define :meth:`read_file`.

    Args:
        root: data root.
        split: which part, or several that are read one after another; fills ``{split}`` in the file's name.
        file: annotation file under the root; None: the usual places.

    Attributes:
        usual: paths of the file under the root, the most usual first; ``{split}`` is filled in.
    """

    usual: ClassVar[tuple[str, ...]] = ()

    def __init__(self, root: Path, *, file: str | None = None, **options: Any) -> None:
        super().__init__(root, **options)
        self.file = file

    def files(self) -> list[Path]:
        return list(dict.fromkeys(self.first_file(self.file, self.usual)))

    def read(self) -> list[Example]:
        return [example for file in self.files() for example in self.read_file(file)]

    def read_file(self, file: Path) -> Iterable[Example]:
        """Read the examples of one of :meth:`files`; called by :meth:`read`."""
        raise NotImplementedError(f"{type(self).__name__} does not read {file}")


class FolderReader(Reader):
    """Base of readers of a folder in the layout in which a data set is published.

    Args:
        root: data root.
        folder: the data set's folder under the root; empty: the usual places.

    Attributes:
        usual: paths of the folder under the root, the most usual first.
    """

    usual: ClassVar[tuple[str, ...]] = ("",)

    def __init__(
        self,
        root: Path,
        *,
        split: str | list[str] = "train",
        folder: str = "",
        take: str | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(root, split=split, images=".", take=take, limit=limit)
        self.places = [inside(self.root, name) for name in ([folder] if folder else self.usual)]

    def labelled(self, path: Path, label: int | None) -> Example:
        """Return the example of a picture; None: the split has no labels."""
        name = self.note(image_id(path), str(path.absolute()))
        return Example(name, None, [name], targets={} if label is None else {"label": label})


def json_rows(file: Path) -> Iterator[tuple[str, Any]]:
    """Yield the rows of a JSON list or of JSON lines, each with its place (``FILE[row]``, ``FILE:line``)."""
    if read_text(file).lstrip()[:1] == "[":
        yield from list_rows(file)
    else:
        yield from read_lines(file)


def list_rows(file: Path) -> Iterator[tuple[str, Any]]:
    """Yield the rows of a JSON list, each with its place."""
    yield from ((f"{file}[{number}]", row) for number, row in enumerate(read_json(file, list)))
