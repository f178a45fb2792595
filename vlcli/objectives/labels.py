"""Labels as readers give them, as class ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from vlcli.errors import DataError


def entropy(counts: Tensor, smoothing: float = 0.0) -> float:
    """Entropy of classes that occur so often (C,), with a share of each target spread over all classes."""
    shares = (1 - smoothing) * counts.double() / counts.sum() + smoothing / len(counts)
    return float(torch.special.entr(shares).sum())


def label_entropy(
    targets: Sequence[Mapping[str, Any]], index: Mapping[str, int], count: int, smoothing: float
) -> float | None:
    """Entropy of the labels of examples; None where they have none."""
    given = [one["label"] for one in targets if isinstance(one.get("label"), int | str)]
    labels = class_ids(given, len(given), index, count) if given else torch.zeros(0)
    known = labels[labels >= 0]
    return entropy(torch.bincount(known, minlength=count), smoothing) if len(known) else None


def class_ids(given: Any, rows: int, index: Mapping[str, int], count: int) -> Tensor:
    """(rows,) class ids, -1 where an example has no label.

    Args:
        given: the batch's target: numbers, strings, or None where no example has one.
        rows: examples.
        index: the number of each label string; empty where classes have numbers only.
        count: how many classes there are.

    Raises:
        DataError: a label that is none of the classes.
    """
    if given is None:
        return torch.full((rows,), -1, dtype=torch.long)
    if isinstance(given, Tensor) and not index:
        labels = given.long()
    else:
        values = given.tolist() if isinstance(given, Tensor) else given
        labels = torch.tensor([_number(value, index, count) for value in values])
    if len(labels) and (int(labels.max()) >= count or int(labels.min()) < -1):
        raise _none_of_them(int(labels.max()), index, count)
    return labels


def _number(value: Any, index: Mapping[str, int], count: int) -> int:
    if value is None or value == "":
        return -1
    found = index.get(str(value))
    if found is None and isinstance(value, int):
        return int(value)
    if found is None:
        raise _none_of_them(value, index, count)
    return found


def _none_of_them(value: Any, index: Mapping[str, int], count: int) -> DataError:
    known = ", ".join(list(index)[:8]) if index else f"0 to {count - 1}"
    return DataError("A label is none of the classes.", where="target label", got=repr(value), expected=known)
