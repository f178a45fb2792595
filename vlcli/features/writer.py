"""Writes a feature store so that a kill at any moment loses only the records of the last seconds.

HDF5 does not promise that a file survives whose writer dies inside a flush. So an unfinished store is a folder
``features.h5.part`` of small, complete stores (segments), each written beside, synced and renamed into place.
``finish`` copies the segments into one contiguous file and renames that to ``features.h5``.

Several processes may fill one store: each writes segments under its rank into the same folder, and the first of them
finishes it. A killed run may go on with another number of processes.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any

from vlcli.errors import DataError, VlcliError
from vlcli.features.assemble import copy_other_sets, create_file, write_records, write_sources
from vlcli.features.file import SetFile, set_names
from vlcli.features.schema import DEFAULT_SET, Record, check_record, join_provenance, layout, normalise, same_extraction
from vlcli.files import put

SEGMENTS = "[0-9]*-????????.h5"
# The first segment is written this early, so that stopping a run soon after its start loses little.
FIRST_RECORDS, FIRST_SECONDS = 16, 5.0


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a path to write to that becomes ``path`` only when the block ends well."""
    draft = path.with_name(path.name + ".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield draft
        put(draft, path)
    except (OSError, RuntimeError) as error:  # HDF5 reports a failed close as the latter
        raise _disk_error(error, path) from None
    finally:
        with suppress(OSError):  # a folder of its path is a file
            draft.unlink(missing_ok=True)


def free_bytes(folder: Path) -> int:
    """Return the free bytes of the disk that holds a folder, or will hold it once it is made."""
    path = folder.absolute()
    return shutil.disk_usage(next(one for one in (path, *path.parents) if one.exists())).free


def _disk_error(error: OSError | RuntimeError, path: Path) -> VlcliError:
    # HDF5 wraps the system's error in its own text, so the number alone does not tell.
    found = re.search(r"errno = (\d+)", str(error))
    number = int(found[1]) if found else getattr(error, "errno", None)
    full = number in (errno.ENOSPC, errno.EDQUOT) or "No space left" in str(error)
    what = "the disk is full" if full else "the feature store cannot be written"
    free = free_bytes(path.parent)
    hint = f"{'free some space' if full else 'mend it'} and run the same command again: it continues where it stopped"
    reason = os.strerror(number) if number else str(error)  # HDF5's text has lines of file descriptors
    return VlcliError(what, where=str(path), got=f"{reason} ({free / 1e9:.1f} GB free)", hint=hint)


def check_words(set: str, compression: str | None) -> None:
    """Raise DataError where a box set cannot have this name, or there is no such compression."""
    if compression not in (None, "gzip", "lzf"):
        raise DataError("unknown compression", got=compression, expected="gzip, lzf or none")
    if not set or "/" in set or "\0" in set or set.startswith("."):
        raise DataError("unusable name of a box set", got=repr(set), expected="a name without a slash")


class FeatureWriter:
    """Appends records to a store; after a kill it continues behind the last flushed one.

    Args:
        path: the finished file, e.g. ``features.h5``.
        provenance: of these records; continuing needs the same (``versions`` may differ).
        set: box set to write; other sets of an existing file are kept.
        dtype: of features and distributions, ``float16`` or ``float32``.
        flush_every: records of a segment; 16 of the first.
        flush_seconds: longest time between segments; 5 before the first.
        compression: ``gzip`` or ``lzf`` for smaller files that read more slowly; None for mapped reading.
        resume: continue an interrupted or finished store; False starts anew (the old file stays until ``finish``).
        rank: of this process among those that write together; only 0 clears up and finishes.
        background: write segments in a thread.

    Attributes:
        bytes: of the arrays that this process has appended.
    """

    def __init__(
        self,
        path: str | Path,
        provenance: dict[str, Any] | None = None,
        *,
        set: str = DEFAULT_SET,
        dtype: str = "float16",
        flush_every: int = 128,
        flush_seconds: float = 30.0,
        compression: str | None = None,
        resume: bool = True,
        rank: int = 0,
        background: bool = False,
    ) -> None:
        if dtype not in ("float16", "float32"):
            raise DataError("unknown type of features", got=dtype, expected="float16 or float32")
        check_words(set, compression)
        if flush_every < 1:
            raise DataError("flush_every must be positive", got=str(flush_every), expected="1 or more")
        self.path = Path(path)
        self.part = self.path.with_name(self.path.name + ".part")
        try:  # as it is read again
            self.provenance = json.loads(json.dumps(provenance or {}, ensure_ascii=False, allow_nan=False).encode())
        except (TypeError, ValueError) as error:
            raise DataError("the provenance of a store must be JSON", where=str(path), got=str(error)) from None
        self.set, self.dtype, self.compression = set, dtype, compression
        # Most records and seconds of the first segment, and of those after it.
        self._limits = min(flush_every, FIRST_RECORDS), min(flush_seconds, FIRST_SECONDS)
        self._later_limits = flush_every, flush_seconds
        self._pending: list[Record] = []
        self._since = monotonic()
        self._layout: dict[str, int] | None = None
        self.bytes = 0
        self.rank = rank
        self._pool = ThreadPoolExecutor(1, "features") if background else None
        self._writing: Future[None] | None = None
        if rank == 0:
            if not resume:
                shutil.rmtree(self.part, ignore_errors=True)
            for draft in self.part.glob("*.tmp"):
                draft.unlink()
        self._resume = resume
        self.done = {name for source in self._sources() for name in source.ids}

    def _sources(self) -> list[SetFile]:
        """Open the segments of all processes; return them behind the finished file, if there is one."""
        there = self._resume and self.path.exists() and self.set in set_names(self.path)
        kept = [self._opened(self.path)] if there else []
        held = {name for source in kept for name in source.ids}
        segments = [self._opened(path) for path in sorted(self.part.glob(SEGMENTS))]
        # Killed between the final rename and the clean-up: everything is in the file already.
        return kept + [segment for segment in segments if not held.issuperset(segment.ids)]

    def _opened(self, path: Path) -> SetFile:
        source = SetFile(path, self.set)
        stored = str(source.dtypes["features"])
        if stored != self.dtype or not same_extraction(source.provenance, self.provenance):
            what, hint = "the store there was made by another extraction", "use --force to start anew, or another file"
            got, expected = f"{stored} {_without_versions(source.provenance)}", _without_versions(self.provenance)
            raise DataError(what, where=str(source.path), got=got, expected=f"{self.dtype} {expected}", hint=hint)
        if len(source):
            self._layout = self._layout or source.widths
        return source

    def __enter__(self) -> FeatureWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.finish()
            return
        with suppress(VlcliError):  # the first error is the one to show
            self.flush()

    def __contains__(self, name: object) -> bool:
        return name in self.done

    def __len__(self) -> int:
        return len(self.done)

    def append(self, record: Record) -> None:
        """Add one image.

        Raises DataError: the record is faulty, has other fields, or is there already; VlcliError: the disk is full.
        """
        record = normalise(record, self.dtype)
        check_record(record, where=str(self.path))
        if record.id in self.done:
            raise DataError("the image is in the store already", where=str(self.path), got=repr(record.id))
        fields = layout(record)
        self._layout = self._layout or fields
        if fields != self._layout:
            what = f"the record of image {record.id!r} has other fields or widths than those before it"
            raise DataError(what, where=str(self.path), got=str(fields), expected=str(self._layout))
        self._pending.append(record)
        self.bytes += sum(array.nbytes for array in record.arrays().values())
        self.done.add(record.id)
        if len(self._pending) >= self._limits[0] or monotonic() - self._since > self._limits[1]:
            self._spill()

    def flush(self) -> None:
        """Write the records that are held in memory as one more segment; VlcliError: the disk is full."""
        self._spill()
        self._settle()

    def _spill(self) -> None:
        self._settle()
        if self._pending:
            self._limits = self._later_limits
            number = max((int(path.stem.split("-")[-1]) for path in self.part.glob(SEGMENTS)), default=-1) + 1
            path = self.part / f"{self.rank:04d}-{number:08d}.h5"
            if self._pool is None:
                self._write(path, self._pending)
            else:
                self._writing = self._pool.submit(self._write, path, self._pending)
            self._pending = []
        self._since = monotonic()

    def _write(self, path: Path, records: list[Record]) -> None:
        with written_whole(path) as draft, create_file(draft) as file:
            write_records(file, self.set, records, self.provenance)

    def _settle(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def finish(self, order: Sequence[str] | None = None, tick: Callable[[int], None] | None = None) -> Path:
        """Join the segments, those of other processes too, into the finished file, and return it.

        Args:
            order: ids in the order of the file (others follow); by default as appended.
            tick: called with the number of images copied since the last call.

        Raises:
            VlcliError: the disk is full; the segments stay.
        """
        self.flush()
        sources = self._sources()
        if [source.path for source in sources] != [self.path]:
            provenance = join_provenance([*(source.provenance for source in sources), self.provenance])
            draft = self.part / "finished"
            how: dict[str, Any] = {"order": order, "compression": self.compression, "dtype": self.dtype, "tick": tick}
            with written_whole(draft) as target, create_file(target) as file:
                if self.path.exists():
                    copy_other_sets(file, self.path, self.set)
                write_sources(file, self.set, [source for source in sources if len(source)], provenance, **how)
            put(draft, self.path)
        self._resume = True
        shutil.rmtree(self.part, ignore_errors=True)
        return self.path


def _without_versions(provenance: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in provenance.items() if key != "versions"}
