"""Expands the rules of a layout to tensors: names, shapes and types.

A rule maps a name to a layer. A name may have a range, ``layer.{0:layers}.``, and alternatives, ``{query,key}``. A
layer is a kind with its sizes (``linear OUT IN``, ``norm N``, ...), ``tensor`` with a shape (no sizes: a scalar), or
the name of a block of rules. A size is a number, a name, or sums, differences and products of them without spaces:
``3*hidden``.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import prod

from vlcli.errors import UsageError

Sizes = Mapping[str, int | str]
Shape = tuple[int, ...]
_BRACES = re.compile(r"\{([^{}]*)\}")
MOST_TENSORS = 100_000


@dataclass(frozen=True)
class Entry:
    """A tensor of a layout; ``dtype`` is torch's without the prefix ``torch.``."""

    shape: Shape
    dtype: str = "float32"

    @property
    def count(self) -> int:
        return prod(self.shape)


Tensors = dict[str, Entry]
# Kinds of layers: names of their tensors, with the indices of each one's sizes among those of the rule.
_KINDS: dict[str, dict[str, tuple[int, ...]]] = {
    "linear": {"weight": (0, 1), "bias": (0,)},
    "matrix": {"weight": (0, 1)},
    "norm": {"weight": (0,), "bias": (0,)},
    "old-norm": {"gamma": (0,), "beta": (0,)},
    "conv": {"weight": (0, 1, 2, 2), "bias": (0,)},
    "bare-conv": {"weight": (0, 1, 2, 2)},
    "frozen-norm": {"weight": (0,), "bias": (0,), "running_mean": (0,), "running_var": (0,)},
    "affine": {"weight": (0,), "bias": (0,)},
}


def expand(rules: Mapping[str, str], sizes: Sizes, blocks: Mapping[str, Mapping[str, str]]) -> Tensors:
    """Returns the tensors that rules describe; ``sizes`` are numbers, or sums and products of other sizes, by name.

    Raises:
        UsageError: a size or a kind of layer is unknown, or there are too many tensors.
    """
    tensors: Tensors = {}
    for pattern, what in rules.items():
        choices = [[part] if at % 2 == 0 else _choices(part, sizes) for at, part in enumerate(_BRACES.split(pattern))]
        for chosen in product(*choices):
            tensors |= _entries("".join(chosen), what, sizes, blocks)
        if len(tensors) > MOST_TENSORS:
            raise UsageError("A layout has too many tensors.", where=pattern, expected=f"at most {MOST_TENSORS:,}")
    return tensors


def _entries(name: str, what: str, sizes: Sizes, blocks: Mapping[str, Mapping[str, str]]) -> Tensors:
    kind, *rest = what.split()
    if kind in blocks:
        arguments = {key: size(value, sizes) for key, _, value in (word.partition("=") for word in rest)}
        inner = expand(blocks[kind], {**sizes, **arguments}, blocks)
        return {f"{name}.{below}" if name else below: entry for below, entry in inner.items()}
    dims = [size(word, sizes) for word in rest]
    if kind == "tensor" or kind in ("int64", "float16"):
        return {name: Entry(tuple(dims), "float32" if kind == "tensor" else kind)}
    if kind not in _KINDS:
        known = ", ".join((*_KINDS, "tensor", "int64", *blocks))
        raise UsageError("A rule of a layout names no kind of layer.", where=name, got=kind, expected=known)
    try:
        return {f"{name}.{below}": Entry(tuple(dims[at] for at in places)) for below, places in _KINDS[kind].items()}
    except IndexError:
        raise UsageError("A rule of a layout names too few sizes.", where=name, got=what) from None


def _choices(text: str, sizes: Sizes) -> list[str]:
    words = []
    for word in text.split(","):
        first, colon, end = word.partition(":")
        words += [str(n) for n in range(size(first, sizes), size(end, sizes))] if colon else [word]
    return words


def size(text: str | int, sizes: Sizes) -> int:
    """Returns the value of a size. Raises UsageError: a name is unknown."""
    if isinstance(text, int) or text.isdigit():
        return int(text)
    if "+" in text:
        return sum(size(part, sizes) for part in text.split("+"))
    if "-" in text:
        first, *rest = text.split("-")
        return size(first, sizes) - sum(size(part, sizes) for part in rest)
    if "*" in text:
        return prod(size(part, sizes) for part in text.split("*"))
    if text not in sizes:
        raise UsageError("A layout names an unknown size.", got=text, expected=", ".join(sizes))
    return size(sizes[text], sizes)
