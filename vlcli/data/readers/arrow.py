"""Tables of Parquet and Arrow, and folders of Hugging Face's datasets."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from vlcli.data.arrow_tables import arrow_rows
from vlcli.data.files import inside
from vlcli.data.readers.generic import JsonLines
from vlcli.errors import DataError


class Parquet(JsonLines):
    """One's own data: a Parquet table, columns named by parameters (needs pyarrow).

    Args:
        file: the file under the root; None: ``{split}.parquet``.
    """

    usual: ClassVar[tuple[str, ...]] = ("{split}.parquet",)
    format: ClassVar[str] = "parquet"
    packages: ClassVar[tuple[str, ...]] = ("pyarrow",)
    install: ClassVar[str] = "pip install 'vlcli[parquet]'"

    def objects(self, file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
        for number, row in enumerate(arrow_rows(file)):
            yield f"{file}[{number}]", {name: _plain(cell, f"{file}[{number}]") for name, cell in row.items()}


class HuggingFace(Parquet):
    """A folder of Hugging Face's ``datasets``, saved by ``save_to_disk`` or as Parquet shards (needs pyarrow).

    Pictures must be files that a column names: pictures inside the tables are refused, with the command that writes
    them out.

    Args:
        file: the folder under the root; None: the root.
    """

    def tables(self) -> list[Path]:
        folder = inside(self.root, self.file or ".")
        paths = [path for split in self.split_names for path in shards(folder, split)]
        return list(dict.fromkeys(paths)) or [folder / f"{self.split_names[0]}-00000-of-00001.parquet"]


def shards(folder: Path, split: str) -> list[Path]:
    """Return the files of one split in the first layout that has any."""
    layouts = [f"{split}/data-*.arrow", f"data/{split}-*.parquet", f"{split}-*.parquet", f"{split}/*.parquet"]
    layouts += [f"{split}.parquet", f"{split}/*.arrow", "data-*.arrow"]
    return next((paths for layout in layouts if (paths := sorted(folder.glob(layout)))), [])


def _plain(cell: Any, where: str) -> Any:
    if not isinstance(cell, dict) or set(cell) != {"bytes", "path"}:
        return cell
    if cell["bytes"] is not None:
        got, expected = f"{len(cell['bytes']):,} bytes", "the name of a file"
        hint = f"write the pictures to files: vlcli data unpack {where.rpartition('[')[0]} --out FOLDER"
        raise DataError("The picture is inside the table.", where=where, got=got, expected=expected, hint=hint)
    return cell["path"]
