"""The answer strings of a classifier travel with its weights, so that rows can be moved by string."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

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
        self.register_buffer("utf8", encode(answers))

    def adapt(self, state: dict[str, Tensor], own: Mapping[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        """Reorder the rows of ``state``, whose own table says what they are, into this table's order.

        Answers that the checkpoint lacks keep the fresh rows of ``own``. A checkpoint without a table is left as it is.
        """
        theirs = decode(state[KEY]) if KEY in state and state[KEY].device.type != "meta" else ()
        if not theirs or not self.answers or theirs == self.answers:
            return state
        old = {answer: row for row, answer in enumerate(theirs)}
        pairs = [(row, old[answer]) for row, answer in enumerate(self.answers) if answer in old]
        moved = dict(state)
        for name, value in state.items():
            if name in own and _is_rows(value, own[name], len(theirs), len(self.answers)):
                moved[name] = _move(value, own[name], pairs)
        moved[KEY] = self.utf8.clone()
        report.append(f"answer rows moved by string: {len(pairs)} of {len(self.answers)} known (of {len(theirs)})")
        return moved


def encode(answers: tuple[str, ...]) -> Tensor:
    """(bytes,) uint8: each string in UTF-8 with a zero behind it."""
    raw = b"".join(answer.encode() + _END for answer in answers)
    return torch.tensor(list(raw), dtype=torch.uint8)


def decode(table: Tensor) -> tuple[str, ...]:
    """The strings of :func:`encode`."""
    return tuple(part.decode() for part in bytes(table.cpu().tolist()).split(_END)[:-1])


def _is_rows(theirs: Tensor, ours: Tensor, old: int, new: int) -> bool:
    shapes = theirs.dim() > 0 and theirs.shape[0] == old and ours.dim() > 0 and ours.shape[0] == new
    return shapes and theirs.shape[1:] == ours.shape[1:] and theirs.is_floating_point()


def _move(theirs: Tensor, ours: Tensor, pairs: list[tuple[int, int]]) -> Tensor:
    made = ours.detach().clone()
    if pairs:
        new, old = (torch.tensor(column) for column in zip(*pairs, strict=True))
        made[new] = theirs[old].to(made)
    return made
