"""The data-set seam: annotation files in, examples out."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from vlcli.data.sample import Example
from vlcli.errors import DataError


class Reader:
    """Base of every data set. Nothing is read before :meth:`examples`; ``files`` tells what would be.

    Args:
        root: the recipe's data root; relative paths in a recipe are under it.
        split: which part.
        images: folder of the pictures, under ``root``.
        limit: read only so many examples (None: all).
    """

    paper: ClassVar[str] = ""
    splits: ClassVar[tuple[str, ...]] = ()
    """The splits its files come in, for messages; empty: any."""

    def __init__(self, root: Path, *, split: str = "train", images: str = "images", limit: int | None = None) -> None:
        self.root, self.split, self.limit = Path(root), split, limit
        self.image_folder = self.root / images

    def files(self) -> list[Path]:
        """The annotation files it will read: checked before a run starts, hashed into the stage's key."""
        raise AttributeError(f"{type(self).__name__} does not name its files")

    def examples(self) -> list[Example]:
        """Every example, in the file's order."""
        raise AttributeError(f"{type(self).__name__} has no examples")

    def image_files(self) -> dict[str, Path]:
        """Where each image lies, by image id, in the order of first use."""
        raise AttributeError(f"{type(self).__name__} has no images")

    def boxes(self) -> dict[str, Any]:
        """Given boxes by image id (``vlcli.features.BoxList``); none by default."""
        return {}

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
