"""Tables of Parquet and Arrow, and folders of Hugging Face's datasets."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

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

    A column must name the pictures' files; ``vlcli data unpack`` writes pictures inside the tables to files.

    Args:
        file: the folder under the root; None: the root.
    """

    def tables(self) -> list[Path]:
        folder = inside(self.root, self.file or ".")
        paths = [path for split in self.split_names for path in shards(folder, split)]
        return list(dict.fromkeys(paths)) or [folder / f"{self.split_names[0]}-00000-of-00001.parquet"]


def shards(folder: Path, split: str) -> list[Path]:
    """Return the files of a split in the first layout that has any."""
    layouts = [f"{split}/data-*.arrow", f"data/{split}-*.parquet", f"{split}-*.parquet", f"{split}/*.parquet"]
    layouts += [f"{split}.parquet", f"{split}/*.arrow", "data-*.arrow"]
    return next(filter(None, (sorted(folder.glob(layout)) for layout in layouts)), [])


def _plain(cell: Any, where: str) -> Any:
    if not isinstance(cell, dict) or set(cell) != {"bytes", "path"}:
        return cell
    if cell["bytes"] is not None:
        got, expected = f"{len(cell['bytes']):,} bytes", "the name of a file"
        hint = f"write the pictures to files: vlcli data unpack {where.rpartition('[')[0]} --out FOLDER"
        raise DataError("The picture is inside the table.", where=where, got=got, expected=expected, hint=hint)
    return cell["path"]


def arrow_rows(file: Path, batch: int = 4096) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet file, an Arrow stream or an Arrow file, with the names of ``datasets``' labels.

    Args:
        batch: rows of a Parquet file read at once.

    Raises:
        DataError: the file is none of these, or damaged.
    """
    for rows in _record_batches(file, batch):
        classes = _class_names(rows.schema)
        for row in rows.to_pylist():
            yield row | {column: _by_name(row[column], names) for column, names in classes.items() if column in row}


def _record_batches(file: Path, rows: int) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if file.suffix == ".parquet":
            yield from pq.ParquetFile(file).iter_batches(batch_size=rows)
            return
        with pa.memory_map(str(file)) as source:
            try:
                batches: Any = pa.ipc.open_stream(source)
            except pa.ArrowInvalid:
                reader = pa.ipc.open_file(source)
                batches = map(reader.get_batch, range(reader.num_record_batches))
            yield from batches
    except (pa.ArrowException, OSError) as error:
        got, hint = str(error)[:200], "is it complete?"
        raise DataError("The table cannot be read.", where=str(file), got=got, hint=hint) from None


def _class_names(schema: Any) -> dict[str, list[str]]:
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, TypeError, ValueError):
        return {}
    named = {}
    for column, feature in features.items() if isinstance(features, dict) else ():
        label = feature[0] if isinstance(feature, list) and feature else feature  # a list of labels
        label = label.get("feature", label) if isinstance(label, dict) else {}
        if isinstance(label, dict) and label.get("_type") == "ClassLabel" and label.get("names"):
            named[column] = [str(name) for name in label["names"]]
    return named


def _by_name(cell: Any, names: list[str]) -> Any:
    if isinstance(cell, list):
        return [_by_name(one, names) for one in cell]
    return names[cell] if isinstance(cell, int) and 0 <= cell < len(names) else None  # -1: a row without label
