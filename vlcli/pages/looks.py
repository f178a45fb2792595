"""Where a model looks: attention by layer, head and query over the regions of some examples, Grad-CAM, and the terms
that position encodings add to attention scores. One pass of the model over each example gives all of them.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vlcli.drawings.pictures import token_boxes
from vlcli.engine.bundle import Bundle
from vlcli.engine.evaluation import TaskRunner, evaluating
from vlcli.errors import VlcliError
from vlcli.nn.batch import Batch
from vlcli.nn.layout import Layout
from vlcli.nn.model import Model, Recorder
from vlcli.nn.position import PairwisePosition
from vlcli.pages.samples import Box, Sample, Samples
from vlcli.pages.sources import boxes_of
from vlcli.tasks.heat import matching_maps

MOST_BYTES = 2_000_000
"""What the maps of one page may take, before they are written as text."""
EXAMPLES, WRONG = 8, 5
"""Examples that are looked at for each model, and how many of them are wrong answers."""
WHOLE = 0.95
"""A region that covers more of the picture than this is called the whole image."""
MOST_QUERIES = 64
"""More regions than these are not asked one by one: their mean and the class tokens are."""
Group = Literal["attention", "Grad-CAM", "position encoding"]
Array = NDArray[np.float32]


@dataclass
class Map:
    """Numbers from some queries to the regions of each picture.

    Attributes:
        name: of the layer.
        group: what the numbers are.
        asked: whether queries are ``words``, ``regions`` or ``tokens`` named in ``names``.
        values: one array (heads, queries, regions) for each picture.
        names: of the queries, where they are tokens.
        keys: tokens over which attention is spread, words and class tokens included; 0 where it is none.
    """

    name: str
    group: Group
    asked: Literal["words", "regions", "tokens"]
    values: list[Array]
    names: list[str] = field(default_factory=list)
    keys: int = 0

    @property
    def size(self) -> int:
        """Bytes in the page, before they are written as text."""
        return sum(array.size for array in self.values)

    def as_dict(self) -> dict[str, Any]:
        """For the page: a byte for each number, 127 (or -127) for the one furthest from 0."""
        top = max((float(np.abs(array).max(initial=0)) for array in self.values), default=0.0)
        scale = 127 / top if top > 0 else 0.0
        bytes_ = [np.rint(array * scale).astype(np.int8).tobytes() for array in self.values]
        heads = len(self.values[0]) if self.values else 0
        facts = {"name": self.name, "group": self.group, "asked": self.asked, "names": self.names, "heads": heads}
        facts["keys"] = self.keys
        signed = any(float(array.min(initial=0)) < 0 for array in self.values)
        return {**facts, "top": top, "signed": signed, "data": [base64.b64encode(b).decode() for b in bytes_]}


@dataclass
class Look:
    """One example under one model.

    Attributes:
        sample: the example.
        words: pieces of its sentence; empty where the model reads none.
        special: which pieces are class tokens and separators.
        boxes: of each picture, in [0, 1]: x, y, width, height of its regions or patches.
        maps: what was recorded.
    """

    sample: Sample
    words: list[str]
    special: list[bool]
    boxes: list[list[list[float]]]
    maps: list[Map]

    @property
    def size(self) -> int:
        """Bytes in the page."""
        return sum(part.size for part in self.maps)

    def as_dict(self) -> dict[str, Any]:
        """For the page."""
        shown = self.sample.pictures[: len(self.boxes)]
        pictures = [
            {"id": p.thumbnail.id, "name": p.name, "width": p.thumbnail.width, "height": p.thumbnail.height}
            for p in shown
            if p.thumbnail is not None
        ]
        said = self.sample.said[0]
        words = [f"“{self.sample.text}”" if self.sample.text else self.sample.key]
        words += [f"predicted: {said.text} {said.sure}".rstrip()] if said is not None and said.text else []
        words += [f"reference: {self.sample.truth}"] if self.sample.truth else []
        right = None if said is None else said.right
        mark = "" if right is None else "✓ " if right >= 0.5 else "✗ "
        grids = [_is_grid(boxes) for boxes in self.boxes]
        labels = [
            [_cell(place) if grid else _label(place, picture.boxes) for place in boxes]
            for boxes, picture, grid in zip(self.boxes, shown, grids, strict=False)
        ]
        return {
            "title": mark + (self.sample.text or self.sample.key)[:80],
            "facts": " · ".join(words),
            "words": self.words,
            "special": self.special,
            "pictures": pictures,
            "boxes": self.boxes,
            "labels": labels,
            "grids": grids,
            "maps": [part.as_dict() for part in self.maps],
        }


@dataclass
class Looks:
    """Some examples under one model.

    Attributes:
        title: run and stage of the model.
        examples: those that were looked at.
        notes: what could not be computed.
    """

    title: str
    examples: list[Look] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def _is_grid(boxes: list[list[float]]) -> bool:
    """Whether regions are the cells of a grid: many, and all of one size."""
    sides = np.array([box[2:] for box in boxes])
    return len(boxes) >= 9 and bool(np.allclose(sides, sides[0], atol=0.01))


def _label(place: list[float], boxes: Sequence[Box]) -> str:
    """What the store calls the region at a place; empty where it has none there."""
    near = (box.label for box in boxes if box.role == "region" and np.allclose(box.place, place, atol=0.02))
    return next(filter(None, near), "whole image" if place[2] * place[3] > WHOLE else "")


def _cell(place: list[float]) -> str:
    """The name of a cell of a grid."""
    return f"row {round(place[1] / place[3]) + 1}, column {round(place[0] / place[2]) + 1}"


def looks_of(samples: Samples, title: str, room: int) -> Looks:
    """Look at some of a group's samples with its first model; a fault becomes a note.

    Args:
        samples: chosen, with pictures.
        title: what the model is called.
        room: bytes that the maps may take.
    """
    made = Looks(title)
    source = samples.source
    if source is None or source.model_folder is None:
        made.notes.append(f"{title}: the trained model is gone, so attention cannot be computed.")
        return made
    chosen = _some([row for row in samples.rows if row.pictures and all(shown.thumbnail for shown in row.pictures)])
    try:
        bundle = source.scene.bundle()
        runner = source.scene.runner(bundle)
        codes = {example.key: code for code, example in enumerate(runner.data.examples)}
        for sample in chosen:
            look = _look(runner, bundle, sample, codes.get(sample.example))
            if look is None or not look.maps:
                continue
            _fit(look, room - sum(other.size for other in made.examples), len(chosen))
            if sum(other.size for other in made.examples) + look.size <= room:
                made.examples.append(look)
    except VlcliError as error:
        made.notes.append(f"{title}: attention cannot be computed. {' '.join(str(error).split())}")
    except Exception as error:  # a stranger's model must not cost the page
        made.notes.append(f"{title}: attention cannot be computed. {type(error).__name__}: {error}")
    return made


def _some(rows: Sequence[Sample]) -> list[Sample]:
    """Wrong answers, then right ones."""
    wrong = [row for row in rows if row.said[0] is not None and (row.said[0].right or 0) < 0.5]
    right = [row for row in rows if row not in wrong]
    chosen = wrong[: max(WRONG, EXAMPLES - len(right))]
    return chosen + right[: EXAMPLES - len(chosen)]


def _fit(look: Look, room: int, examples: int) -> None:
    """Leave out what would take more than an example's part: maps of single regions first, then single heads."""
    share = room / max(examples, 1)
    if look.size > share:
        look.maps = [part for part in look.maps if part.asked != "regions"] or look.maps
    if look.size > share:
        for part in look.maps:
            part.values = [array.mean(0, keepdims=True) for array in part.values]


def _look(runner: TaskRunner, bundle: Bundle, sample: Sample, code: int | None) -> Look | None:
    if code is None:
        return None
    batch = runner.data.batch([code]).to(next(bundle.model.parameters()).device)
    text = batch.clean.text
    if batch.clean.images is None:
        return None
    record = Recorder()
    with evaluating(runner.module), torch.no_grad(), ExitStack() as stack:
        terms = stack.enter_context(_listening(bundle.model))
        layout, words = _passed(runner, batch, record)
    seen = Seen(batch, layout, words)
    maps = [part for name, found in record.attention.items() for part in seen.maps(name, "attention", found)]
    maps += _grad_cam(runner, batch, seen)
    maps += [part for name, found in terms.items() for part in seen.maps(name, "position encoding", found)]
    pieces, special = ([], []) if text is None or not words else _pieces(bundle, text)
    return Look(sample, pieces, special, [boxes_of(boxes) for boxes, _ in seen.places], maps)


def _passed(runner: TaskRunner, batch: Batch, record: Recorder) -> tuple[Layout, int]:
    """Where the image tokens lie after one pass, and how many text tokens there are; 0 without text."""
    step = runner.step(batch, record=record)
    if "fuse" in runner.model.capabilities and batch.clean.text is not None:
        fused = step.fused()
        return fused.image.layout, len(fused.text.layout)
    return step.image().layout, 0


def _pieces(bundle: Bundle, text: Any) -> tuple[list[str], list[bool]]:
    return bundle.tokenizer.tokens(text.ids[0].tolist()), [bool(one) for one in text.special[0].tolist()]


class Seen:
    """The tokens of one example: sorts recorded numbers into maps.

    Args:
        batch: of this example alone.
        layout: of its image tokens, a row for each picture.
        words: text tokens.
    """

    def __init__(self, batch: Batch, layout: Layout, words: int) -> None:
        rows = batch.clean.image_rows[0]
        self.rows = [int(row) for row in rows if row >= 0]
        self.words, self.tokens = words, len(layout)
        self.places = [token_boxes(layout, pair) for pair in range(len(self.rows))]
        self.special = layout.special[0].nonzero()[:, 0].tolist()

    def maps(self, name: str, group: Group, found: Tensor) -> Iterator[Map]:
        """The parts of recorded numbers (pictures, heads, queries, keys) whose keys are image tokens."""
        queries, keys = found.shape[-2:]
        per_picture = self._per_picture(found)
        spread = int((per_picture[0].mean(0)[0] > 0).sum()) if group == "attention" else 0
        for part in self._sorted(name, group, per_picture, queries, keys):
            part.keys = spread
            yield part

    def _sorted(self, name: str, group: Group, per_picture: list[Array], queries: int, keys: int) -> Iterator[Map]:
        both = self.words + self.tokens
        if keys == self.tokens and queries == self.words and self.words:
            yield self._map(name, group, "words", per_picture, slice(None), 0)
        elif keys == self.tokens and queries == self.tokens:
            yield from self._of_regions(name, group, per_picture, 0)
        elif keys == both and queries == both and self.words:
            yield self._map(name, group, "words", per_picture, slice(0, self.words), self.words)
            yield from self._of_regions(name, group, per_picture, self.words)

    def _per_picture(self, found: Tensor) -> list[Array]:
        arrays = found.float().cpu().numpy()
        several = len(arrays) >= len(self.rows)
        return [arrays[pair if several else min(row, len(arrays) - 1)] for pair, row in enumerate(self.rows)]

    def _map(self, name: str, group: Group, asked: Any, arrays: list[Array], queries: slice, before: int) -> Map:
        places = [before + kept for _, kept in self.places]
        values = [array[:, queries][:, :, kept] for array, kept in zip(arrays, places, strict=True)]
        return Map(name, group, asked, values)

    def _of_regions(self, name: str, group: Group, arrays: list[Array], before: int) -> Iterator[Map]:
        """Among image tokens: from each region, or from the class tokens and the mean where there are many."""
        places = [before + kept for _, kept in self.places]
        squares = [array[:, kept][:, :, kept] for array, kept in zip(arrays, places, strict=True)]
        if all(len(kept) <= MOST_QUERIES for kept in places):
            yield Map(name, group, "regions", squares)
        special = [before + token for token in self.special]
        if special or any(len(kept) > MOST_QUERIES for kept in places):
            named = [f"special token {number + 1}" if number else "class token" for number in range(len(special))]
            values = [
                np.concatenate([array[:, special][:, :, kept], square.mean(1, keepdims=True)], 1)
                for array, square, kept in zip(arrays, squares, places, strict=True)
            ]
            yield Map(name, group, "tokens", values, [*named, "mean of all regions"])


def _grad_cam(runner: TaskRunner, batch: Batch, seen: Seen) -> list[Map]:
    """Grad-CAM of the score for a match, where the model has an objective of matching and reads one picture."""
    objective = next((name for name in runner.module.objectives if "matching" in name), None)
    if objective is None or len(seen.rows) != 1 or not seen.words:
        return []
    try:
        with evaluating(runner.module):
            found = matching_maps(runner, batch, objective, None, None, "report")
    except (VlcliError, RuntimeError, IndexError):
        return []
    kept = seen.places[0][1]
    values = found.maps[0].detach().float().cpu().numpy()[None][:, :, kept]
    return [Map(f"score of {objective}, through {found.name}", "Grad-CAM", "words", [values])]


@contextmanager
def _listening(model: Model) -> Iterator[Mapping[str, Tensor]]:
    """What every pairwise position encoding adds to attention scores, by module and layer, while the context lasts."""
    found: dict[str, Tensor] = {}
    modules = {name: module for name, module in model.named_modules() if isinstance(module, PairwisePosition)}
    originals: dict[str, Callable[..., Tensor | None]] = {name: module.logits for name, module in modules.items()}
    for name, module in modules.items():
        object.__setattr__(module, "logits", _noting(originals[name], name, found))
    try:
        yield found
    finally:
        for module in modules.values():
            object.__delattr__(module, "logits")


def _noting(
    original: Callable[..., Tensor | None], name: str, found: dict[str, Tensor]
) -> Callable[..., Tensor | None]:
    def logits(q: Tensor, k: Tensor, state: Any, layer: int) -> Tensor | None:
        term = original(q, k, state, layer)
        if term is not None:
            whole = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
            found[f"{name}, layer {layer}"] = term.detach().expand(whole)
        return term

    return logits
