"""The answer strings of a classifier travel with its weights, so that rows can be moved by string."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from vlcli.data.answers import AnswerList
from vlcli.metrics.vqa import table_form

_END = b"\x00"
KEY = "table.utf8"


class AnswerTable(nn.Module):
    """Which answer each row of a classifier stands for, kept as a buffer of the objective that owns the classifier.

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
        """The row of an answer as it is written, else of the first string of ours whose normalised form it is."""
        return self.index.get(answer, self._forms.get(answer))

    def adapt(
        self,
        state: dict[str, Tensor],
        own: Mapping[str, Tensor],
        report: list[str],
        *,
        find: Callable[[AnswerList, str], int | None] = AnswerList.exact,
        blank: bool = False,
    ) -> dict[str, Tensor]:
        """Reorder the rows of ``state``, whose own table says what they are, into this table's order.

        A checkpoint without a table is left as it is.

        Args:
            state: this objective's part of the checkpoint.
            own: the fresh weights.
            report: is told how many rows were moved.
            find: the row of their table that an answer of ours takes.
            blank: rows of answers that the checkpoint lacks become zeros; else they keep what ``own`` holds.
        """
        theirs = decode(state[KEY]) if KEY in state and state[KEY].device.type != "meta" else ()
        if not theirs or not self.answers or theirs == self.answers:
            return state
        names = _rows(state, own, len(theirs), len(self.answers))
        if not names:  # another sort of head: its shapes will not fit either, and the load report says so
            return state
        old = AnswerList(theirs)
        pairs = [(row, place) for row, answer in enumerate(self.answers) if (place := find(old, answer)) is not None]
        moved = dict(state)
        for name in names:
            moved[name] = _move(state[name], own[name], pairs, blank)
        moved[KEY] = self.utf8.clone()
        report.append(_told(len(pairs), len(self.answers), len(theirs), blank))
        return moved


def _told(moved: int, wanted: int, known: int, blank: bool) -> str:
    rest = f", {wanted - moved} set to zero" if blank and moved < wanted else ""
    return f"answer rows moved by string: {moved} of {wanted} known (of {known}){rest}"


def encode(answers: tuple[str, ...]) -> Tensor:
    """(bytes,) uint8: each string in UTF-8 with a zero behind it."""
    raw = b"".join(answer.encode() + _END for answer in answers)
    return torch.tensor(list(raw), dtype=torch.uint8)


def decode(table: Tensor) -> tuple[str, ...]:
    """The strings of :func:`encode`."""
    return tuple(part.decode() for part in bytes(table.cpu().tolist()).split(_END)[:-1])


def _rows(state: Mapping[str, Tensor], own: Mapping[str, Tensor], old: int, new: int) -> list[str]:
    fitting = [name for name in own if name in state and _is_rows(state[name], own[name], old, new)]
    last = fitting[-1].rpartition(".")[0] if fitting else ""
    return [name for name in fitting if name.rpartition(".")[0] == last]


def _is_rows(theirs: Tensor, ours: Tensor, old: int, new: int) -> bool:
    shapes = theirs.dim() > 0 and theirs.shape[0] == old and ours.dim() > 0 and ours.shape[0] == new
    return shapes and theirs.shape[1:] == ours.shape[1:] and theirs.is_floating_point()


def _move(theirs: Tensor, ours: Tensor, pairs: list[tuple[int, int]], blank: bool) -> Tensor:
    made = torch.zeros_like(ours) if blank else ours.detach().clone()
    if pairs:
        new, old = (torch.tensor(column) for column in zip(*pairs, strict=True))
        made[new] = theirs[old].to(made)
    return made
