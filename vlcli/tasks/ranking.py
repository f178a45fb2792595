"""Every text against every image: what retrieval ranks by.

Texts and images are encoded once each, in the chunks the loader gives them in; pairs are fused in blocks. Chunks keep
their own padding, so nothing is padded to the longest of all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vlcli.errors import DataError
from vlcli.nn.batch import Batch, Images, Text, View
from vlcli.nn.model import Model, States
from vlcli.nn.step import Rows, Step
from vlcli.tasks.base import Runner
from vlcli.tasks.outputs import logits_of


@dataclass
class Chunk:
    """Some unique texts or images, encoded.

    Attributes:
        start: place of the first in the whole list.
        rows: as fed.
        states: as encoded (or embedded, for models that fuse embeddings).
    """

    start: int
    rows: Text | Images
    states: States


@dataclass
class Library:
    """All unique texts and images of a data set, and which belong together.

    Attributes:
        texts: text keys, in order of first use.
        images: image keys, in order of first use.
        pairs: (text, image) places that belong together.
        text_chunks: the encoded texts.
        image_chunks: the encoded images.
        embeddings: by ``text`` and ``image``: a vector each (N, D), where a first stage gives them.
    """

    texts: dict[str, int] = field(default_factory=dict)
    images: dict[str, int] = field(default_factory=dict)
    pairs: set[tuple[int, int]] = field(default_factory=set)
    text_chunks: list[Chunk] = field(default_factory=list)
    image_chunks: list[Chunk] = field(default_factory=list)
    embeddings: dict[str, list[Tensor]] = field(default_factory=lambda: {"text": [], "image": []})

    def relevant(self) -> NDArray[np.bool_]:
        """(N, M) which belong together."""
        made = np.zeros((len(self.texts), len(self.images)), dtype=bool)
        for text, image in self.pairs:
            made[text, image] = True
        return made

    def similarity(self) -> NDArray[np.float32]:
        """(N, M) products of the first stage's vectors."""
        text, image = (torch.cat(self.embeddings[side]).float() for side in ("text", "image"))
        return (text @ image.T).cpu().numpy()


class EncodedStep(Step):
    """A step whose rows are encoded already: examples are any pairing of them."""

    def __init__(self, model: Model, texts: Chunk, images: Chunk, rows: Tensor, columns: Tensor) -> None:
        assert isinstance(texts.rows, Text)
        assert isinstance(images.rows, Images)
        view = View(texts.rows, images.rows, rows, columns[:, None])
        keys = [""] * len(rows)
        super().__init__(model, Batch({"clean": view}, {}, keys, torch.zeros_like(rows)), training=False)
        self.encoded = texts.states, images.states

    def text(self, view: str = "clean", rows: Rows = "all") -> States:
        """The encoded texts, whatever the view."""
        return self.encoded[0]

    def image(self, view: str = "clean", rows: Rows = "all") -> States:
        """The encoded images, whatever the view."""
        return self.encoded[1]

    def _fuse_inputs(self, text_view: str, image_view: str) -> tuple[States, States]:
        return self.encoded


def collect(runner: Runner, first: str | None = None, encode: bool = True) -> Library:
    """Go through the data once and encode every unique text and image.

    Args:
        runner: gives batches and passes.
        first: an objective whose ``predict`` gives ``text_embedding`` and ``image_embedding`` (B, D).
        encode: keep what :meth:`Model.fuse` takes; False where the first stage alone ranks.

    Raises:
        DataError: an example lacks its text or its image.
    """
    library = Library()
    for batch in runner.batches():
        view, step = batch.clean, runner.step(batch)
        if view.text is None or view.images is None or bool((view.text_rows < 0).any()):
            raise DataError(
                "Retrieval needs a sentence and a picture in every example.", got=f"example {batch.keys[0]!r}"
            )
        texts, images = _fresh(view.text.keys, library.texts), _fresh(view.images.keys, library.images)
        if first is not None:
            outputs = runner.predict(step, first)
            for side, fresh in (("text", texts), ("image", images)):
                library.embeddings[side] += _vectors(logits_of(outputs, first, f"{side}_embedding"), view, side, fresh)
        _match(library, view)
        if encode:
            _encode(library, step, texts, images)
    if not library.texts:
        raise DataError("There is nothing to rank: the data set is empty.")
    return library


def score_pairs(
    runner: Runner, library: Library, objective: str, wanted: NDArray[np.bool_] | None = None, block: int = 256
) -> NDArray[np.float32]:
    """(N, M) matching scores of every pair (of ``wanted`` pairs; -inf elsewhere)."""
    scores = np.full((len(library.texts), len(library.images)), -np.inf, dtype=np.float32)
    total = int(scores.size if wanted is None else wanted.sum())
    with runner.progress.task("rank", total, "pair") as bar, torch.no_grad():
        for texts, images, rows, columns in _blocks(library, wanted, block):
            step = EncodedStep(runner.model, texts, images, rows, columns)
            found = match_score(logits_of(runner.predict(step, objective), objective))
            scores[texts.start + rows.cpu().numpy(), images.start + columns.cpu().numpy()] = found.cpu().numpy()
            bar.advance(len(rows))
    return scores


def match_score(logits: Tensor) -> Tensor:
    """(P,) the log odds of "they belong together" of logits (P, 2), or the one logit there is."""
    logits = logits.float()
    return logits.reshape(len(logits), -1)[:, 0] if logits[0].numel() == 1 else logits[:, 1] - logits[:, 0]


def _fresh(keys: list[str], known: dict[str, int]) -> list[int]:
    """Rows of ``keys`` not seen before; they are given their places in ``known``."""
    fresh = []
    for row, key in enumerate(keys):
        if key not in known:
            known[key] = len(known)
            fresh.append(row)
    return fresh


def _match(library: Library, view: View) -> None:
    assert view.text is not None
    assert view.images is not None
    for text, pictures in zip(view.text_rows.tolist(), view.image_rows.tolist(), strict=True):
        for picture in pictures:
            library.pairs.add((library.texts[view.text.keys[text]], library.images[view.images.keys[picture]]))


def _encode(library: Library, step: Step, texts: list[int], images: list[int]) -> None:
    view = step.view()
    with torch.no_grad():
        states = step._fuse_inputs("clean", "clean")
        sides = ((library.text_chunks, view.text, texts), (library.image_chunks, view.images, images))
        for (chunks, rows, fresh), encoded in zip(sides, states, strict=True):
            if fresh and rows is not None:
                index = torch.tensor(fresh, device=encoded.hidden.device)
                start = sum(len(chunk.rows) for chunk in chunks)
                chunks.append(Chunk(start, rows.select(index), encoded.select(index)))


def _vectors(found: Tensor, view: View, side: str, fresh: list[int]) -> list[Tensor]:
    """The vectors (1, D) of unique rows, out of one vector an example (B, D)."""
    rows = (view.text_rows if side == "text" else view.image_rows[:, 0]).tolist()
    return [found[rows.index(row)][None] for row in fresh]


def _blocks(
    library: Library, wanted: NDArray[np.bool_] | None, block: int
) -> Iterator[tuple[Chunk, Chunk, Tensor, Tensor]]:
    for texts in library.text_chunks:
        device = texts.states.hidden.device
        for images in library.image_chunks:
            height, width = len(texts.rows), len(images.rows)
            part = np.ones((height, width), dtype=bool)
            if wanted is not None:
                part = wanted[texts.start : texts.start + height, images.start : images.start + width]
            rows, columns = (torch.from_numpy(axis).to(device) for axis in part.nonzero())
            for start in range(0, len(rows), block):
                yield texts, images, rows[start : start + block], columns[start : start + block]
