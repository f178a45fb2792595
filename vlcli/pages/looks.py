"""Records where a model looks in one pass: attention, Grad-CAM, and terms that position encodings add to scores."""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vlcli.drawings.base import recorded, token_boxes
from vlcli.engine import Bundle, TaskRunner, evaluating
from vlcli.errors import VlcliError
from vlcli.nn import Batch, Layout, Model, PairwisePosition
from vlcli.pages.samples import Box, Sample, Samples
from vlcli.pages.sources import Source, boxes_of
from vlcli.progress import Progress
from vlcli.tasks.heat import matching_maps

# Bytes of the maps of one page, before they are written as text
MOST_BYTES = 2_000_000
EXAMPLES, WRONG = 8, 5
"""Examples that are looked at for each model, and how many of them are wrong answers."""
# A region that covers more of the picture than this is called the whole image
WHOLE = 0.95
_MOST_QUERIES = 64  # more regions than these are not asked one by one: their mean and the class tokens are
Group = Literal["attention", "Grad-CAM", "position encoding"]
Array = NDArray[np.float32]
Logits = Callable[..., Tensor | None]


@dataclass
class Map:
    """Numbers from some queries to the regions of each picture.

    Attributes:
        asked: whether queries are ``words``, ``regions`` or ``tokens`` named in ``names``.
        values: one array (heads, queries, regions) for each picture.
        keys: tokens over which attention is spread, words and class tokens included; 0 for other groups.
    """

    name: str
    group: Group
    asked: Literal["words", "regions", "tokens"]
    values: list[Array]
    names: list[str] = field(default_factory=list)
    keys: int = 0

    @property
    def size(self) -> int:
        return sum(array.size for array in self.values)

    def as_dict(self) -> dict[str, Any]:
        """Return the document of the page: a byte for each number, 127 (or -127) for the one furthest from 0."""
        top = max(float(np.abs(array).max(initial=0)) for array in self.values)
        scale = 127 / top if top > 0 else 0.0
        whole = [np.rint(array * scale).astype(np.int8).tobytes() for array in self.values]
        return {key: value for key, value in vars(self).items() if key != "values"} | {
            "heads": len(self.values[0]),
            "top": top,
            "signed": any(float(array.min(initial=0)) < 0 for array in self.values),
            "data": [base64.b64encode(array).decode() for array in whole],
        }


@dataclass
class Look:
    """One example under one model.

    Attributes:
        column: index of the model's stage in the group.
        words: pieces of its sentence; empty where the model reads none.
        special: which pieces are class tokens and separators.
        boxes: x, y, width, height in [0, 1] of the regions or patches of each picture.
    """

    sample: Sample
    column: int
    words: list[str]
    special: list[bool]
    boxes: list[list[list[float]]]
    maps: list[Map]

    @property
    def size(self) -> int:
        return sum(part.size for part in self.maps)

    def as_dict(self) -> dict[str, Any]:
        sample, said = self.sample, self.sample.said[self.column]
        shown = sample.pictures[: len(self.boxes)]
        thumbnails = [(picture.name, picture.thumbnail) for picture in shown if picture.thumbnail is not None]
        facts = [f"“{sample.text}”" if sample.text else sample.key]
        facts += [f"predicted: {said.text} {said.sure}".rstrip()] if said is not None and said.text else []
        facts += [f"reference: {sample.truth}"] if sample.truth else []
        mark = "" if said is None or said.right is None else "✓ " if said.right >= 0.5 else "✗ "
        grids = [_is_grid(boxes) for boxes in self.boxes]
        labels = [
            [_cell(place) if grid else _label(place, picture.boxes) for place in boxes]
            for boxes, picture, grid in zip(self.boxes, shown, grids, strict=False)
        ]
        return {
            "title": mark + (sample.text or sample.key)[:80],
            "facts": " · ".join(facts),
            "words": self.words,
            "special": self.special,
            "pictures": [{"id": t.id, "name": name, "width": t.width, "height": t.height} for name, t in thumbnails],
            "boxes": self.boxes,
            "labels": labels,
            "grids": grids,
            "maps": [part.as_dict() for part in self.maps],
        }


def _is_grid(boxes: list[list[float]]) -> bool:
    sides = np.array([box[2:] for box in boxes])
    return len(boxes) >= 9 and bool(np.allclose(sides, sides[0], atol=0.01))


def _label(place: list[float], boxes: Sequence[Box]) -> str:
    """Return the store's label of the region at a place; empty where it has none there."""
    near = (box.label for box in boxes if box.role == "region" and np.allclose(box.place, place, atol=0.02))
    return next(filter(None, near), "whole image" if place[2] * place[3] > WHOLE else "")


def _cell(place: list[float]) -> str:
    return f"row {round(place[1] / place[3]) + 1}, column {round(place[0] / place[2]) + 1}"


def looks_of(
    samples: Samples, column: int, title: str, room: int, progress: Progress, device: str
) -> tuple[list[dict[str, Any]], list[str]]:
    """Look at some of a group's samples with the model of one of its stages.

    Args:
        column: index of the stage in the group.
        room: bytes that the maps may take.

    Returns:
        A document for each example, and notes about what could not be computed.
    """
    stage, source = samples.group.columns[column].stage, samples.source
    rows = [row for row in samples.rows if row.pictures and all(shown.thumbnail for shown in row.pictures)]
    wrong = [row for row in rows if (said := row.said[column]) is not None and (said.right or 0) < 0.5]
    right = [row for row in rows if row not in wrong]
    wrong = wrong[: max(WRONG, EXAMPLES - len(right))]
    chosen = wrong + right[: EXAMPLES - len(wrong)]
    looks: list[Look] = []
    notes = []
    try:
        source = source if source is not None and source.stage is stage else Source(stage, progress, device)
        if source.model_folder is None:
            gone = f"{title}: the trained model is gone, so attention cannot be computed."
            return [], [gone] if source.scene.sources else []  # a baseline has no model
        bundle = source.scene.bundle()
        runner = source.scene.runner(bundle)
        codes = {example.key: code for code, example in enumerate(runner.data.examples)}
        for sample in chosen:
            found = sample.example in codes
            look = _look(runner, bundle, sample, column, codes[sample.example]) if found else None
            if look is None or not look.maps:
                continue
            left = room - sum(other.size for other in looks)
            _fit(look, left / len(chosen))
            if look.size <= left:
                looks.append(look)
    except Exception as error:  # a stranger's model must not cost the page
        text = " ".join(str(error).split()) if isinstance(error, VlcliError) else f"{type(error).__name__}: {error}"
        notes.append(f"{title}: attention cannot be computed. {text}")
    return [look.as_dict() for look in looks], notes


def _fit(look: Look, share: float) -> None:
    """Leave out what would take more than an example's part: maps of single regions first, then single heads."""
    if look.size > share:
        look.maps = [part for part in look.maps if part.asked != "regions"] or look.maps
    if look.size > share:
        for part in look.maps:
            part.values = [array.mean(0, keepdims=True) for array in part.values]


def _look(runner: TaskRunner, bundle: Bundle, sample: Sample, column: int, code: int) -> Look | None:
    batch = runner.data.batch([code]).to(next(bundle.model.parameters()).device)
    if batch.clean.images is None:
        return None
    with evaluating(runner.module), torch.no_grad(), _listening(bundle.model) as terms:
        attention, image, words = recorded(runner, batch)
    tokens = _Tokens(batch, image.layout, words)
    maps = [part for name, weights in attention.items() for part in tokens.maps(name, "attention", weights)]
    maps += _grad_cam(runner, batch, tokens)
    maps += [part for name, term in terms.items() for part in tokens.maps(name, "position encoding", term)]
    look = Look(sample, column, [], [], [boxes_of(boxes) for boxes, _ in tokens.places], maps)
    if (text := batch.clean.text) is not None and words:
        look.words, look.special = bundle.tokenizer.tokens(text.ids[0].tolist()), text.special[0].bool().tolist()
    return look


class _Tokens:
    """The tokens of one example, ``layout`` with a row for each picture: sorts recorded numbers into maps."""

    def __init__(self, batch: Batch, layout: Layout, words: int) -> None:
        self.rows = [int(row) for row in batch.clean.image_rows[0] if row >= 0]
        self.words, self.count = words, len(layout)
        self.places = [token_boxes(layout, pair) for pair in range(len(self.rows))]
        self.special = layout.special[0].nonzero()[:, 0].tolist()

    def maps(self, name: str, group: Group, numbers: Tensor) -> list[Map]:
        """Return the parts of numbers (pictures, heads, queries, keys) whose keys are image tokens."""
        arrays, size = numbers.float().cpu().numpy(), tuple(numbers.shape[-2:])
        several = len(arrays) >= len(self.rows)
        by_picture = [arrays[n if several else min(row, len(arrays) - 1)] for n, row in enumerate(self.rows)]
        both = self.words + self.count
        joint = bool(self.words) and size == (both, both)
        crossed = bool(self.words) and size == (self.words, self.count)
        before = self.words if joint else 0  # in a joint sequence the words come first
        pairs = [(array, before + kept) for array, (_, kept) in zip(by_picture, self.places, strict=True)]
        maps: list[Map] = []
        if joint or crossed:
            maps.append(Map(name, group, "words", [array[:, : self.words][:, :, kept] for array, kept in pairs]))
        if size == (1, self.count) and self.count > 1 and not crossed:
            maps.append(Map(name, group, "tokens", [array[:, :, kept] for array, kept in pairs], ["whole sentence"]))
        elif joint or (size == (self.count, self.count) and not crossed):
            maps += self._of_regions(name, group, pairs, before)
        for part in maps:
            part.keys = int((by_picture[0].mean(0)[0] > 0).sum()) if group == "attention" else 0
        return maps

    def _of_regions(self, name: str, group: Group, pairs: list[tuple[Array, Any]], before: int) -> Iterator[Map]:
        """Yield numbers from each region, or from the class tokens and the mean where there are many."""
        squares = [array[:, kept][:, :, kept] for array, kept in pairs]
        many = any(len(kept) > _MOST_QUERIES for _, kept in pairs)
        if not many:
            yield Map(name, group, "regions", squares)
        special = [before + token for token in self.special]
        if special or many:
            named = [f"special token {number + 1}" if number else "class token" for number in range(len(special))]
            values = [
                np.concatenate([array[:, special][:, :, kept], square.mean(1, keepdims=True)], 1)
                for (array, kept), square in zip(pairs, squares, strict=True)
            ]
            yield Map(name, group, "tokens", values, [*named, "mean of all regions"])


def _grad_cam(runner: TaskRunner, batch: Batch, tokens: _Tokens) -> list[Map]:
    """Return Grad-CAM of the score for a match, where the model has an objective of matching and reads one picture."""
    objective = next((name for name in runner.module.objectives if "matching" in name), None)
    if objective is None or len(tokens.rows) != 1 or not tokens.words:
        return []
    try:
        with evaluating(runner.module):
            heat = matching_maps(runner, batch, objective, None, None, "report")
    except (VlcliError, RuntimeError, IndexError):
        return []
    values = heat.maps[0].detach().float().cpu().numpy()[None][:, :, tokens.places[0][1]]  # (1, words, regions)
    return [Map(f"score of {objective}, through {heat.name}", "Grad-CAM", "words", [values])]


@contextmanager
def _listening(model: Model) -> Iterator[Mapping[str, Tensor]]:
    """Record what every pairwise position encoding adds to attention scores, by module and layer."""
    terms: dict[str, Tensor] = {}
    modules = {name: module for name, module in model.named_modules() if isinstance(module, PairwisePosition)}
    for name, module in modules.items():
        object.__setattr__(module, "logits", _recording(module.logits, name, terms))
    try:
        yield terms
    finally:
        for module in modules.values():
            object.__delattr__(module, "logits")


def _recording(original: Logits, name: str, terms: dict[str, Tensor]) -> Logits:
    def logits(q: Tensor, k: Tensor, state: Any, layer: int) -> Tensor | None:
        term = original(q, k, state, layer)
        if term is not None:
            whole = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])  # (batch, heads, queries, keys)
            terms[f"{name}, layer {layer}"] = term.detach().expand(whole)
        return term

    return logits
