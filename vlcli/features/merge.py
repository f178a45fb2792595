"""Join shards into one store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vlcli.errors import DataError
from vlcli.features.assemble import Source, create_file, write_sources
from vlcli.features.file import open_hdf5
from vlcli.features.reader import FeatureStore
from vlcli.features.schema import same_extraction
from vlcli.features.writer import written_whole
from vlcli.progress import Progress, Silent


def merge(
    paths: Sequence[str | Path],
    out: str | Path,
    *,
    order: Sequence[str] | None = None,
    compression: str | None = None,
    progress: Progress | None = None,
) -> Path:
    """Copy every box set of several stores into one file.

    Args:
        paths: the shards; each image may be in one of them only.
        out: the new file; appears only when it is whole.
        order: image ids in the order wanted; others follow.
        compression: ``gzip``, ``lzf`` or None.
        progress: where to report.

    Returns:
        The new file.

    Raises:
        DataError: a shard is missing or damaged, shards overlap, or they were made differently.
        VlcliError: the disk is full.
    """
    out = Path(out)
    names = _set_names([Path(path) for path in paths])
    with written_whole(out) as draft, create_file(draft) as file:
        for name, holders in names.items():
            store = FeatureStore(holders, name)
            parts = store.parts()
            for part in parts[1:]:
                if not same_extraction(part.provenance, store.provenance):
                    raise _differ(name, parts[0].path, part.path)
            with (progress or Silent()).task(f"merging {name}", len(store), "image") as task:
                sources = [Source.whole(part) for part in parts]
                write_sources(
                    file, name, sources, store.provenance, order=order, compression=compression, tick=task.advance
                )
    return out


def _set_names(paths: list[Path]) -> dict[str, list[Path]]:
    names: dict[str, list[Path]] = {}
    for path in paths:
        for file in FeatureStore(path).paths:
            with open_hdf5(file) as opened:
                for name in opened["sets"]:
                    names.setdefault(name, []).append(file)
    if not names:
        raise DataError("there is nothing to merge", expected="one feature store or more")
    return names


def _differ(name: str, first: Path, second: Path) -> DataError:
    return DataError(
        f"the shards' box sets {name!r} were made by different extractions",
        where=f"{first}, {second}",
        hint="compare them with: vlcli features info",
    )
