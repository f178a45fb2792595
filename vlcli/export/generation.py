"""Turns incremental decoding into two graphs: the start, and one word further with a cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from vlcli.export.base import Trained
from vlcli.export.graph import Graph, Outputs, form_of
from vlcli.nn.forward_passes import ForwardPasses
from vlcli.nn.layout import Layout

# Words in the cache when the step is traced: a length of one would become a constant of the graph
STEPS = 2


def generation(trained: Trained, probabilities: bool = False) -> tuple[Graph, Step]:
    """Return the graphs ``start`` and ``step`` of a model that generates."""
    form = form_of(trained, alone="decode" not in trained.model.capabilities, probabilities=probabilities)

    def compute(passes: ForwardPasses) -> Outputs:
        logits, cache = first_state(passes)
        return {"logits": logits} | dict(flatten(cache))

    start = Graph(trained, "start", form, compute, "logits of the first word piece, and the cache")
    start.compared = ("logits",)
    return start, Step(trained, start)


def first_state(passes: ForwardPasses) -> tuple[Tensor, Any]:
    """Return the logits of the first word piece (B, V) and the model's cache."""
    model = passes.model
    seen = passes.fused().text if "decode" in model.capabilities else passes.pictures()
    return model.step(torch.full_like(passes.batch.seeds, model.data_spec.cls_id), model.start(seen))


class Step(Graph):
    """One word piece further: from its id and the cache to logits and the changed tensors of the cache.

    ``start`` is the graph of the first cache.
    """

    looks = False

    def __init__(self, trained: Trained, start: Graph) -> None:
        super().__init__(trained, "step", start.form, start.compute, "logits of the next word piece, and the cache")
        self.model = trained.model
        with torch.no_grad():
            self.template = self._cache(3, 7, 5, STEPS)
            others = [self._cache(4, 6, 6, STEPS), self._cache(3, 7, 5, STEPS + 1)]
        caches = [dict(flatten(cache)) for cache in (self.template, *others)]
        self.tensors = [*caches[0]]
        shapes = [zip(*(cache[name].shape for cache in caches), strict=True) for name in self.tensors]
        self.sizes = [[axis for axis, sizes in enumerate(each) if len({*sizes}) > 1] for each in shapes]

    def _cache(self, batch: int, words: int, regions: int, steps: int, seed: int = 0) -> Any:
        states = self._states(self.form.example(batch, words, regions, seed))
        return next(islice(states, steps, None))[1]

    def _states(self, inputs: tuple[Tensor, ...]) -> Iterator[tuple[Tensor, Any]]:
        """Yield logits and cache of the first word and of those after it, each the likeliest."""
        logits, cache = first_state(ForwardPasses(self.model, self.form.batch(inputs), training=False))
        while True:
            yield logits, cache
            logits, cache = self.model.step(logits.argmax(-1), cache)

    def names(self) -> list[str]:
        return ["ids", *self.tensors]

    def meaning(self, name: str) -> str:
        return "(batch,) int64: the word piece chosen last" if name == "ids" else "as start or the last step gave it"

    def axes(self) -> list[dict[int, str]]:
        return [{0: ""}, *(dict.fromkeys(sizes, "") for sizes in self.sizes)]

    def example(self, batch: int, words: int, regions: int, seed: int = 0) -> tuple[Tensor, ...]:
        with torch.no_grad():
            cache = self._cache(batch, words, regions, STEPS + seed, seed)
        ids = torch.arange(batch) % self.form.data_spec.vocab_size
        return ids, *(value for _, value in flatten(cache))

    def say(self, inputs: tuple[Tensor, ...], words: int) -> list[Tensor]:
        """Return the model's logits (B, V) of the first word and of ``words`` more, each the likeliest."""
        return [logits for logits, _ in islice(self._states(inputs), words + 1)]

    def outputs(self, *inputs: Tensor) -> Outputs:
        ids, *tensors = inputs
        before = rebuild(self.template, iter(tensors))
        logits, after = self.model.step(ids, before)
        old = {name: id(value) for name, value in flatten(before)}
        changed = {f"next.{name}": value for name, value in flatten(after) if id(value) != old[name]}
        values = {"logits": logits} | changed
        return values if self.kept is None else {name: values[name] for name in self.kept if name in values}


def flatten(value: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor of a cache with its name."""
    if isinstance(value, Tensor):
        yield name, value
        return
    for key, item in _parts(value):
        yield from flatten(item, f"{name}.{key}" if name and key else name or key)


def rebuild(value: Any, tensors: Iterator[Tensor]) -> Any:
    """Return a cache like ``value`` with other tensors, in the order of :func:`flatten`."""
    if isinstance(value, Tensor):
        return next(tensors)
    if isinstance(value, Mapping):
        return {key: rebuild(item, tensors) for key, item in value.items()}
    if isinstance(value, tuple) and value and isinstance(value[0], Tensor):
        return tuple(rebuild(item, tensors) for item in value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    rebuilt = {item.name: rebuild(getattr(value, item.name), tensors) for item in fields(value)}
    if isinstance(value, Layout):
        rebuilt["runs"] = None  # counts of the traced example
    return replace(value, **rebuilt)


def _parts(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        # A key is (layer, whether in cross-attention), or a name.
        names = [f"{'seen' if k[1] else 'past'}.{k[0]}" if isinstance(k, tuple) else str(k) for k in value]
        return list(zip(names, value.values(), strict=True))
    if isinstance(value, tuple) and value and isinstance(value[0], Tensor):
        return list(zip(("key", "value"), value, strict=True))
    if not is_dataclass(value) or isinstance(value, type):
        return []
    hidden = {"cache", "kept"}  # names that would tell nobody anything
    return [("" if item.name in hidden else item.name, getattr(value, item.name)) for item in fields(value)]
