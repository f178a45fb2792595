"""Label strings and class ids of classifiers; a classifier's rows move to another table by string."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vlcli.data.answers import AnswerList
from vlcli.errors import DataError
from vlcli.metrics.vqa import table_form

_END = b"\x00"
KEY = "table.utf8"


class AnswerTable(nn.Module):
    """Answer strings of a classifier's rows, kept as a buffer of the objective that has the classifier.

    Args:
        answers: the strings, in the order of the rows; empty where rows have numbers only.
    """

    utf8: Tensor

    def __init__(self, answers: tuple[str, ...]) -> None:
        super().__init__()
        self.answers = answers
        self.index = {answer: row for row, answer in enumerate(answers)}
        self._forms = {table_form(answer): row for row, answer in reversed(tuple(enumerate(answers)))}
        self.register_buffer("utf8", encode(answers))

    def find(self, answer: str) -> int | None:
        """Return the row of an answer as written, else of the first string whose normalised form it is."""
        return self.index.get(answer, self._forms.get(answer))

    def adapt(
        self,
        state: dict[str, Tensor],
        fresh: Mapping[str, Tensor],
        report: list[str],
        *,
        find: Callable[[AnswerList, str], int | None] = AnswerList.exact,
        blank: bool = False,
    ) -> dict[str, Tensor]:
        """Reorder the rows of ``state`` from its own table's order into this table's.

        A checkpoint without a table is left as it is.

        Args:
            state: this objective's part of the checkpoint.
            fresh: the objective's weights before loading.
            report: receives a line with the number of moved rows.
            find: row of the checkpoint's table for an answer of this one.
            blank: rows of answers that the checkpoint lacks become zeros; else they stay as in ``fresh``.
        """
        theirs = decode(state[KEY]) if KEY in state and state[KEY].device.type != "meta" else ()
        if not theirs or not self.answers or theirs == self.answers:
            return state
        # the classifier's last layer: inner layers may happen to be as wide as the table is long
        fitting = [name for name in fresh if name in state and self._is_rows(state[name], fresh[name], len(theirs))]
        if not fitting:  # another sort of head: its shapes will not fit either, and the load report says so
            return state
        last, old = fitting[-1].rpartition(".")[0], AnswerList(theirs)
        pairs = [(row, there) for row, answer in enumerate(self.answers) if (there := find(old, answer)) is not None]
        moved = dict(state)
        for name in fitting:
            if name.rpartition(".")[0] == last:
                moved[name] = torch.zeros_like(fresh[name]) if blank else fresh[name].detach().clone()
                if pairs:
                    new_rows, old_rows = (torch.tensor(column) for column in zip(*pairs, strict=True))
                    moved[name][new_rows] = state[name][old_rows].to(moved[name])
        moved[KEY] = self.utf8.clone()
        wanted = len(self.answers)
        rest = f", {wanted - len(pairs)} set to zero" if blank and len(pairs) < wanted else ""
        report.append(f"answer rows moved by string: {len(pairs)} of {wanted} known (of {len(theirs)}){rest}")
        return moved

    def _is_rows(self, theirs: Tensor, ours: Tensor, old: int) -> bool:
        shapes = theirs.dim() > 0 and theirs.shape[0] == old and ours.dim() > 0 and ours.shape[0] == len(self.answers)
        return shapes and theirs.shape[1:] == ours.shape[1:] and theirs.is_floating_point()


def encode(answers: tuple[str, ...]) -> Tensor:
    """Return each string in UTF-8 with a zero behind it, uint8 (bytes,)."""
    raw = b"".join(answer.encode() + _END for answer in answers)
    return torch.tensor(list(raw), dtype=torch.uint8)


def decode(table: Tensor) -> tuple[str, ...]:
    """Return the strings of :func:`encode`."""
    return tuple(part.decode() for part in bytes(table.cpu().tolist()).split(_END)[:-1])


def entropy(counts: Tensor, smoothing: float = 0.0) -> float:
    """Return the entropy of class counts (C,), with a share of each target spread over all classes."""
    shares = (1 - smoothing) * counts.double() / counts.sum() + smoothing / len(counts)
    return float(torch.special.entr(shares).sum())


def label_entropy(
    targets: Sequence[Mapping[str, Any]], index: Mapping[str, int], count: int, smoothing: float, named: bool
) -> float | None:
    """Return the entropy of the labels of examples; None where they have none."""
    values = [one["label"] for one in targets if isinstance(one.get("label"), int | str)]
    labels = class_ids(values, len(values), index, count, named) if values else torch.zeros(0)
    known = labels[labels >= 0]
    return entropy(torch.bincount(known, minlength=count), smoothing) if len(known) else None


def class_ids(values: Any, rows: int, index: Mapping[str, int], count: int, named: bool) -> Tensor:
    """Return class ids (rows,), -1 where an example has no label.

    Args:
        values: the batch's target: class numbers, label strings, or None where no example has one.
        index: the number of each label string; empty where the data's numbers are those of the classes.
        named: whether the data name their labels: then numbers are those of the classes, also where names are digits.
    """
    if values is None:
        return torch.full((rows,), -1, dtype=torch.long)
    if isinstance(values, Tensor) and (named or not index):
        labels = values.long()
    else:
        numbers = []
        for value in values.tolist() if isinstance(values, Tensor) else values:
            number = value if named and isinstance(value, int) else index.get(str(value), value)
            number = -1 if value is None or value == "" else number
            if not isinstance(number, int):
                raise _unknown(value, index, count)
            numbers.append(int(number))
        labels = torch.tensor(numbers)
    if len(labels) and (int(labels.max()) >= count or int(labels.min()) < -1):
        raise _unknown(int(labels.max()), index, count)
    return labels


def _unknown(value: Any, index: Mapping[str, int], count: int) -> DataError:
    known = ", ".join(list(index)[:8]) if index else f"0 to {count - 1}"
    return DataError("A label is none of the classes.", where="target label", got=repr(value), expected=known)
