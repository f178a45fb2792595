"""Label strings and class ids of classifiers; a classifier's rows move to another table by string."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vlcli.data.answers import AnswerList
from vlcli.errors import DataError
from vlcli.metrics.vqa import table_form

_END = "\x00"
KEY = "table.utf8"


class AnswerTable(nn.Module):
    """Answer strings of a classifier's rows, kept as a buffer; none where rows have numbers only."""

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
        """Reorder the rows of a checkpoint's ``state`` into this table's order; without a table it is left as it is.

        Args:
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
        places = {row: there for row, answer in enumerate(self.answers) if (there := find(old, answer)) is not None}
        moved = {**state, KEY: self.utf8.clone()}
        for name in fitting:
            if name.rpartition(".")[0] == last:
                moved[name] = torch.zeros_like(fresh[name]) if blank else fresh[name].detach().clone()
                moved[name][list(places)] = state[name][list(places.values())].to(moved[name])
        wanted, known = len(self.answers), len(places)
        rest = f", {wanted - known} set to zero" if blank and known < wanted else ""
        report.append(f"answer rows moved by string: {known} of {wanted} known (of {len(theirs)}){rest}")
        return moved

    def _is_rows(self, theirs: Tensor, ours: Tensor, old: int) -> bool:
        shapes = theirs.dim() > 0 and theirs.shape[0] == old and ours.dim() > 0 and ours.shape[0] == len(self.answers)
        return shapes and theirs.shape[1:] == ours.shape[1:] and theirs.is_floating_point()


def encode(answers: tuple[str, ...]) -> Tensor:
    """Return each string in UTF-8 with a zero behind it, uint8 (bytes,)."""
    return torch.tensor(list("".join(answer + _END for answer in answers).encode()), dtype=torch.uint8)


def decode(table: Tensor) -> tuple[str, ...]:
    """Return the strings of :func:`encode`."""
    return tuple(bytes(table.cpu().tolist()).decode().split(_END)[:-1])


def entropy(counts: Tensor, smoothing: float = 0.0) -> float:
    """Return the entropy of class counts (C,), with a share of each target spread over all classes."""
    shares = (1 - smoothing) * counts.double() / counts.sum() + smoothing / len(counts)
    return float(torch.special.entr(shares).sum())


class LabelTable(AnswerTable):
    """Labels of ``count`` classes by string or by number; without ``answers`` the data's numbers are the classes'."""

    named = False  # whether the data name their labels: then numbers are those of the classes, also of names of digits

    def __init__(self, answers: tuple[str, ...], count: int) -> None:
        super().__init__(answers)
        self.count = count

    def entropy(self, targets: Sequence[Mapping[str, Any]], smoothing: float) -> float | None:
        values = [one["label"] for one in targets if isinstance(one.get("label"), int | str)]
        labels = self.ids(values, len(values))
        known = labels[labels >= 0]
        return entropy(torch.bincount(known, minlength=self.count), smoothing) if len(known) else None

    def ids(self, values: Any, rows: int) -> Tensor:
        """Return class ids (rows,) of a batch's target, -1 without a label. Raises DataError: a class is unknown."""
        if values is None:
            return torch.full((rows,), -1, dtype=torch.long)
        if isinstance(values, Tensor) and (self.named or not self.index):
            labels = values.long()
        else:
            values = values.tolist() if isinstance(values, Tensor) else values
            labels = torch.tensor([self._number(value) for value in values], dtype=torch.long)
        if len(labels) and (int(labels.max()) >= self.count or int(labels.min()) < -1):
            raise self._unknown(int(labels.max()))
        return labels

    def _number(self, value: Any) -> int:
        if value is None or value == "":
            return -1
        number = value if self.named and isinstance(value, int) else self.index.get(str(value), value)
        if not isinstance(number, int):
            raise self._unknown(value)
        return number

    def _unknown(self, value: Any) -> DataError:
        known = ", ".join(self.answers[:8]) or f"0 to {self.count - 1}"
        return DataError("A label is none of the classes.", where="target label", got=repr(value), expected=known)
