"""Reads outputs of objectives and targets of a batch; writes submission files."""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from vlcli.errors import ComponentError, DataError, shown
from vlcli.files import write_text
from vlcli.nn import Batch


def logits_of(
    outputs: Mapping[str, Mapping[str, Tensor]], objective: str, key: str = "logits", classes: int | None = None
) -> Tensor:
    """Return the objective's output ``key``, else the only one of ``classes`` columns. Raises ComponentError: none."""
    able = {name: tensors[key] for name, tensors in outputs.items() if key in tensors}
    able = {name: tensor for name, tensor in able.items() if classes in (None, tensor.shape[-1])}
    if objective in able or len(able) == 1:
        return able.get(objective, next(iter(able.values())))
    size = "" if classes is None else f" over {classes} classes"
    what = f"The model has nothing to predict with: no objective {objective!r}{size}."
    got = ", ".join(outputs) or "no objective that predicts"
    raise ComponentError(what, got=got, hint="finetune it on this task first: vlcli finetune --recipe RECIPE")


def likeliest(names: Sequence[str], probabilities: Tensor, most: int = 10_000) -> list[list[tuple[str, float]]]:
    """Return the ``most`` likeliest of C names, with their probabilities (B, C), for each example."""
    scores, columns = probabilities.topk(min(most, probabilities.shape[-1]))
    rows = zip(columns.tolist(), scores.tolist(), strict=True)
    return [[(names[column], score) for column, score in zip(*row, strict=True)] for row in rows]


def said(row: Mapping[str, Any]) -> str:
    """Return a prediction that was made elsewhere as text. Raises DataError: it is a list, a mapping or nothing."""
    value = row["prediction"]
    if not isinstance(value, str | int | float) or str(value) == "nan":
        where = str(row.get("key", ""))
        raise DataError("A prediction is no text.", where=where, got=shown(value, 60), expected="one text")
    return str(value).lower() if isinstance(value, bool) else str(value)  # as cells that are true or false are spelt


def target(batch: Batch, name: str) -> list[Any]:
    """Return a target of every example as plain values, or None."""
    values = batch.targets.get(name)
    if values is None:
        return [None] * len(batch.keys)
    return values.tolist() if isinstance(values, Tensor) else list(values)


def with_target(rows: list[dict[str, Any]], batch: Batch, name: str) -> list[dict[str, Any]]:
    """Add a target to the rows of the examples that have one."""
    for row, value in zip(rows, target(batch, name), strict=True):
        if value not in (None, ""):
            row[name] = value
    return rows


def changed_options(task: Any, *names: str) -> dict[str, Any]:
    """Return those of a task's options that are not as by default."""
    values = {name: getattr(task, name) for name in names}
    return {name: value for name, value in values.items() if value not in (None, 0.0, "both")}


def mean(rows: Sequence[Mapping[str, Any]], key: str) -> float:
    """Return the mean of a field; 0 of no rows."""
    return sum(float(row[key]) for row in rows) / len(rows) if rows else 0.0


def write_json_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Write one JSON object a line."""
    return write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def write_csv(path: Path, rows: Iterable[Sequence[Any]]) -> Path:
    """Write comma-separated rows without a header."""
    page = io.StringIO()
    csv.writer(page, lineterminator="\n").writerows(rows)
    return write_text(path, page.getvalue())
