"""What tasks share: finding an objective's output, reading targets, writing files whole."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from vlcli.errors import ComponentError
from vlcli.files import write_text
from vlcli.nn.batch import Batch


def logits_of(
    outputs: Mapping[str, Mapping[str, Tensor]], objective: str, key: str = "logits", classes: int | None = None
) -> Tensor:
    """The output ``key`` of the objective named, else of the only one that has it.

    Args:
        outputs: of every objective, by name.
        objective: the one the task expects.
        key: which output.
        classes: how many scores it must have.

    Raises:
        ComponentError: none, or more than one, gives it.
    """
    able = {name: found[key] for name, found in outputs.items() if key in found}
    if classes is not None:
        able = {name: found for name, found in able.items() if found.shape[-1] == classes}
    if objective in able:
        return able[objective]
    if len(able) == 1:
        return next(iter(able.values()))
    size = "" if classes is None else f" over {classes} classes"
    raise ComponentError(
        f"The model has nothing to predict with: no objective {objective!r}{size}.",
        got=", ".join(outputs) or "no objective that predicts",
        hint="finetune it on this task first: vlcli finetune --recipe RECIPE",
    )


def likeliest(names: Sequence[str], chances: Tensor, most: int = 10_000) -> list[list[tuple[str, float]]]:
    """The ``most`` likeliest names of every example with their probabilities.

    Args:
        names: one a column.
        chances: probabilities (B, C).
        most: names of an example.
    """
    scores, places = chances.topk(min(most, chances.shape[-1]))
    rows = zip(places.tolist(), scores.tolist(), strict=True)
    return [[(names[place], score) for place, score in zip(*row, strict=True)] for row in rows]


def target(batch: Batch, name: str) -> list[Any]:
    """A target of every example as plain values; None where there is none."""
    values = batch.targets.get(name)
    if values is None:
        return [None] * len(batch)
    return values.tolist() if isinstance(values, Tensor) else list(values)


def write_json_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """One JSON object a line."""
    return write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def write_csv(path: Path, rows: Iterable[Sequence[Any]]) -> Path:
    """Comma-separated rows without a header."""
    page = io.StringIO()
    csv.writer(page, lineterminator="\n").writerows(rows)
    return write_text(path, page.getvalue())
