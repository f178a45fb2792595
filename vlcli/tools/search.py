"""Searches a folder of pictures; each is embedded once into a store beside it, and again when its file has changed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from numpy.typing import NDArray
from torch import Tensor

from vlcli.data.files import IMAGE_SUFFIXES, is_picture_file, read_text
from vlcli.data.sample import ImageSample
from vlcli.errors import DataError, VlcliError
from vlcli.features.embeddings import EmbeddingStore, EmbeddingWriter
from vlcli.files import walk
from vlcli.metrics.search import search, search_faiss
from vlcli.progress import Progress, Silent

Backend = Literal["exact", "faiss"]


@dataclass
class Index:
    """A folder's pictures: their vectors (``store``, by path from the folder), how many were ``embedded`` now."""

    folder: Path
    store: EmbeddingStore
    embedded: int
    failures: dict[str, str]

    @property
    def counts(self) -> dict[str, int]:
        total, failures = len(self.store), len(self.failures)
        return {"pictures": total, "embedded": self.embedded, "kept": total - self.embedded, "unreadable": failures}

    def nearest(
        self, query: Tensor, top: int = 10, *, memory: int = 256, backend: Backend = "exact"
    ) -> list[tuple[Path, float]]:
        """Return the pictures with the largest product with a vector (D,), best first, each with that product."""
        look = partial(search, memory_mb=memory) if backend == "exact" else search_faiss
        scores, rows = look(query[None].cpu(), self.store.vectors, top)  # (1, top) each
        pairs = zip(rows[0].tolist(), scores[0].tolist(), strict=True)
        return [(self.folder / self.store.ids[row], score) for row, score in pairs]


def make_index(
    folder: Path,
    read: Callable[[Path], ImageSample],
    embed: Callable[[Sequence[ImageSample]], NDArray[Any]],
    key: Mapping[str, Any],
    *,
    store: Path | None = None,
    batch_size: int = 32,
    workers: int = 2,
    progress: Progress | None = None,
) -> Index:
    """Embed the pictures of a folder, subfolders included, that its store lacks.

    Args:
        embed: turns several into vectors (n, D).
        key: of the model and its settings; a store with another key is made anew.

    Raises:
        DataError: there is no folder, or no picture in it can be read.
        VlcliError: the store cannot be written.
    """
    progress = progress or Silent()
    marks = _pictures(folder)
    beside = folder.absolute().with_name(f"{folder.absolute().name}.embeddings")  # one file for each model
    path = store or beside / f"{str(key.get('weights', ''))[:12]}.h5"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what, hint = "The store of embeddings cannot be written here.", "name another place: --store FILE"
        raise VlcliError(what, where=str(path), got=str(error), hint=hint) from None
    writer = EmbeddingWriter(path, key, stale="replace")
    if writer.replaced:
        progress.info(f"{path}: made by another model or another version, and made anew")
    todo = writer.lacks(marks)
    if todo and store is None:
        progress.info(f"vectors of {len(todo)} pictures are kept in {path} (elsewhere: --store FILE)")
    failures: dict[str, str] = {}
    with ThreadPoolExecutor(workers) as pool:
        for names in _batches(todo, batch_size, progress):
            tried = dict(zip(names, pool.map(lambda name: _tried(read, folder / name), names), strict=True))
            failures |= {name: reason for name, reason in tried.items() if isinstance(reason, str)}
            samples = {name: sample for name, sample in tried.items() if not isinstance(sample, str)}
            if samples:
                writer.append(list(samples), embed(list(samples.values())), [marks[name] for name in samples])
    if len(failures) == len(marks):
        name, reason = next(iter(failures.items()))
        raise DataError("No picture can be read.", where=str(folder), got=f"{name}: {reason}")
    for name, reason in failures.items():
        progress.warn(f"left out {name}: {reason}")
    done = [name for name in marks if name not in failures]
    return Index(folder, writer.finish(done), len(todo) - len(failures), failures)


def _batches(names: list[str], size: int, progress: Progress) -> Iterator[list[str]]:
    if names:
        with progress.task("embed", len(names), "pictures") as bar:
            for batch in (names[start : start + size] for start in range(0, len(names), size)):
                yield batch
                bar.advance(len(batch))


def _tried(read: Callable[[Path], ImageSample], path: Path) -> ImageSample | str:
    try:
        return read(path)
    except DataError as error:
        return f"{error.what} {error.got}".strip()


def _pictures(folder: Path) -> dict[str, str]:
    if not folder.is_dir():
        raise DataError("There is no such folder of pictures.", got=str(folder))
    marks = {}
    for path in walk_pictures(folder):
        try:
            facts = path.stat()
            marks[path.relative_to(folder).as_posix()] = f"{facts.st_size}-{facts.st_mtime_ns}"
        except OSError:  # a link that leads nowhere
            marks[path.relative_to(folder).as_posix()] = "absent"
    if not marks:
        expected = f"files like {', '.join(sorted(IMAGE_SUFFIXES))}"
        raise DataError("There is no picture in the folder.", got=str(folder), expected=expected)
    return marks


def walk_pictures(folder: Path) -> Iterator[Path]:
    """Yield the pictures under a folder in sorted order; hidden files are left out."""
    for inner, names in walk(folder):
        for name in names:
            if is_picture_file(name) and not name.startswith("."):
                yield inner / name


def rank(query: Tensor, vectors: Tensor, names: Sequence[str], top: int) -> list[tuple[str, float]]:
    """Return the names whose vectors (N, D) have the largest product with a vector (D,), best first."""
    scores, rows = search(query[None], vectors, min(top, len(names)))  # (1, top) each
    return [(names[row], score) for row, score in zip(rows[0].tolist(), scores[0].tolist(), strict=True)]


def read_sentences(path: Path) -> list[str]:
    """Return the sentences of a file, one a line, each once. Raises DataError: it is missing or empty."""
    sentences = list(dict.fromkeys(line.strip() for line in read_text(path).splitlines() if line.strip()))
    if not sentences:
        raise DataError("There is no sentence in the file.", got=str(path))
    return sentences
