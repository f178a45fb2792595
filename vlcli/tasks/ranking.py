"""Encodes every sentence and picture once, and scores pairs of them.

Pairs are fused in blocks of the loader's chunks, so that nothing is padded to the longest of all. Encoded rows stay in
memory up to a bound; the rest waits on disk.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vlcli.features.embeddings import EmbeddingStore, EmbeddingWriter
from vlcli.nn.batch import Batch, Images, Text, View
from vlcli.nn.forward_passes import ForwardPasses, Rows
from vlcli.nn.model import EncoderOutput, Model, device_of
from vlcli.tasks.base import Runner
from vlcli.tasks.outputs import logits_of

Side = Literal["text", "image"]
Scoring = Literal["odds", "logit", "sum"]
Vectors = NDArray[np.float32]
Codes = NDArray[np.int64]


@dataclass
class Chunk:
    """Some sentences or pictures, encoded (or embedded, for models that fuse embeddings)."""

    start: int  # index of the first in the whole list
    rows: Any  # Text or Images as fed; of pictures the names alone
    states: EncoderOutput  # what the model fuses


Chunks = list[Chunk]


class Shelf:
    """Keeps encoded rows: in memory up to ``memory_mb`` (MiB), then in memory-mapped files of ``folder``."""

    def __init__(self, memory_mb: int, folder: str) -> None:
        self.left, self.folder, self._files = memory_mb * 2**20, folder, 0

    def put(self, states: EncoderOutput) -> EncoderOutput:
        kept = EncoderOutput(states.hidden, states.layout, extra=states.extra)
        self.left -= kept.hidden.nbytes
        return kept if self.left >= 0 else kept.map(self._mapped)

    def _mapped(self, tensor: Tensor) -> Tensor:
        if tensor.nbytes < 1 << 16:  # no file for every small thing
            return tensor.cpu()
        self._files += 1
        path = f"{self.folder}/{self._files}"
        mapped = torch.from_file(path, shared=True, size=tensor.numel(), dtype=tensor.dtype).view(tensor.shape)
        return mapped.copy_(tensor)


class EncodedStep(ForwardPasses):
    """A step whose examples are pairs of rows that are encoded already, row by row."""

    def __init__(self, model: Model, text: Text, images: Images, states: tuple[EncoderOutput, EncoderOutput]) -> None:
        rows = torch.arange(len(states[0].hidden), device=states[0].hidden.device)
        view = View(text, images, rows, rows[:, None], aligned=True)
        super().__init__(model, Batch({"clean": view}, {}, [""] * len(rows), rows), training=False)
        self.encoded = states

    def text(self, view: str = "clean", rows: Rows = "all") -> EncoderOutput:
        return self.encoded[0]

    def image(self, view: str = "clean", rows: Rows = "all") -> EncoderOutput:
        return self.encoded[1]

    def _fuse_inputs(self, text_view: str, image_view: str) -> tuple[EncoderOutput, EncoderOutput]:
        return self.encoded


def embed(runner: Runner, data: Any, side: Side, names: list[str], objective: str) -> tuple[Vectors, list[str]]:
    """Return vectors (N, D) of the sentences or pictures of ``data``, and the names of those that could be read.

    The vectors are mapped from a store where the runner has a folder. Processes share the batches of a single one.
    """
    if runner.folder is None:
        parts = list(_vectors(runner, data, side, objective))
        return np.concatenate([rows for _, rows in parts]), [name for keys, _ in parts for name in keys]
    share, path = runner.share, runner.folder / "embeddings" / f"{side}s.h5"
    key = {**runner.identity(objective), "side": side}
    writer = EmbeddingWriter(path, key, stale="replace", rank=share.rank)
    missing = [index for index, name in enumerate(names) if name not in writer]
    share.wait()  # all of them must deal out the same before one writes
    batches = [missing[start : start + runner.batch_size] for start in range(0, len(missing), runner.batch_size)]
    examples = [data.examples[index] for batch in batches[share.rank :: share.count] for index in batch]
    for keys, rows in _vectors(runner, data.only(examples), side, objective) if examples else ():
        writer.append(keys, rows)
    writer.flush()
    share.wait()
    written = EmbeddingWriter(path, key, stale="replace", rank=share.rank)
    order = [name for name in names if name in written]
    share.wait()
    if share.rank == 0:
        written.finish(order)
    share.wait()
    return EmbeddingStore(path, key).vectors, order


def _vectors(runner: Runner, data: Any, side: Side, objective: str) -> Iterator[tuple[list[str], Vectors]]:
    for batch in runner.batches(data):
        vectors = runner.embed(runner.step(batch), objective, side)
        yield batch.keys, vectors[_rows_of(batch.clean, side)].cpu().numpy()


def _rows_of(view: View, side: Side) -> Tensor:
    return view.text_rows if side == "text" else view.image_rows[:, 0]


def encode(runner: Runner, data: Any, side: Side, shelf: Shelf) -> tuple[list[Chunk], list[str]]:
    """Return the sentences or pictures of ``data`` as the model fuses them, and the names of the readable ones."""
    chunks: list[Chunk] = []
    names: list[str] = []
    embedded = runner.model.fuse_takes == "embeddings"
    with torch.no_grad():
        for batch in runner.batches(data):
            view, step = batch.clean, runner.step(batch)
            source: Any = getattr(view, "text" if side == "text" else "images")
            states = getattr(runner.model, f"embed_{side}")(source) if embedded else getattr(step, side)()
            rows = _rows_of(view, side)
            kept = source if side == "text" else Images(source.keys)
            chunks.append(Chunk(len(names), kept.select(rows), shelf.put(states.select(rows))))
            names += batch.keys
    return chunks, names


@dataclass
class Exact:
    """Scores of some pairs."""

    codes: Codes | None  # (P,) sorted: sentence times the number of pictures, plus picture; None: all pairs
    scores: NDArray[np.float32]  # (P,)

    def of(self, codes: Codes) -> NDArray[np.float32]:
        return np.asarray(self.scores[codes if self.codes is None else np.searchsorted(self.codes, codes)])


def score_pairs(
    runner: Runner, chunks: tuple[Chunks, Chunks], objective: str, codes: Codes | None, block: int, scoring: Scoring
) -> Exact:
    """Return matching scores of the pairs in ``codes`` (sorted), or of all; processes share the blocks."""
    texts, images = chunks
    count, many = (side[-1].start + len(side[-1].rows) for side in chunks)
    wanted = np.arange(count * many) if codes is None else codes
    share, device = runner.share, device_of(runner.model)
    parts = [(np.zeros(0, np.int64), np.zeros(0, np.float32))]
    with runner.progress.task("rank", len(wanted), "pair") as bar, torch.no_grad():
        for number, (text, image, here) in enumerate(_blocks(texts, images, wanted, many, block)):
            if number % share.count == share.rank:
                rows = torch.from_numpy(wanted[here] // many - text.start)
                columns = torch.from_numpy(wanted[here] % many - image.start)
                states = text.states.select(rows).to(device), image.states.select(columns).to(device)
                step = EncodedStep(runner.model, text.rows.select(rows).to(device), image.rows.select(columns), states)
                logits = logits_of(runner.predict(step, objective), objective)
                parts.append((here, match_score(logits, scoring).cpu().numpy()))
            bar.advance(len(here))
    scores = np.empty(len(wanted), np.float32)
    for where, values in share.gather(tuple(np.concatenate(column) for column in zip(*parts, strict=True))):
        scores[where] = values
    return Exact(codes, scores)


def match_score(logits: Tensor, how: Scoring = "odds") -> Tensor:
    """Return the log odds (P,) of a match of logits (P, 2), or its logit alone; of logits (P, 1) the logit."""
    logits = logits.float().reshape(len(logits), -1)
    return logits[:, 1] - logits[:, 0] if how == "odds" and logits.shape[1] == 2 else logits[:, -1]


def _blocks(texts: Chunks, images: Chunks, codes: Codes, many: int, block: int) -> Iterator[tuple[Chunk, Chunk, Codes]]:
    # A chunk of sentences, one of pictures, and places in ``codes`` of pairs between them
    starts = np.array([image.start for image in images])
    for text in texts:
        first, last = np.searchsorted(codes, [text.start * many, (text.start + len(text.rows)) * many])
        chunk = np.searchsorted(starts, codes[first:last] % many, side="right") - 1
        order = chunk.argsort(kind="stable")
        ends = np.searchsorted(chunk[order], np.arange(len(images) + 1))
        for number, image in enumerate(images):
            here = order[ends[number] : ends[number + 1]] + first
            for start in range(0, len(here), block):
                yield text, image, here[start : start + block]
