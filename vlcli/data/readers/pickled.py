"""Pickled tables of plain rows, which are read without unpickling."""

from pathlib import Path
from typing import Any, ClassVar

from vlcli.data.plain_pickle import load_plain
from vlcli.data.readers.generic import Json


class Pickle(Json):
    """One's own data: a pickled file of plain rows, read as the same JSON document is; it is never unpickled (PathVQA).

    Args:
        file: the file under the root; None: ``{split}.pkl``.
    """

    usual: ClassVar[tuple[str, ...]] = ("{split}.pkl",)
    format: ClassVar[str] = "pickle"

    def content(self, file: Path) -> Any:
        return load_plain(file)
