"""Rows of Parquet and Arrow tables, with the class names that Hugging Face's ``datasets`` keeps beside them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vlcli.errors import DataError


def arrow_rows(file: Path, batch: int = 4096) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet file, or of an Arrow stream or file; labels that ``datasets`` numbers, by name.

    Args:
        batch: rows of a Parquet file that are read at once; Arrow files are read as they were written.

    Raises:
        DataError: it is none of these, or damaged.
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
                reader = pa.ipc.open_stream(source)
            except pa.ArrowInvalid:
                reader = pa.ipc.open_file(source)
                yield from (reader.get_batch(number) for number in range(reader.num_record_batches))
                return
            yield from reader
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
