"""Formats published checkpoints for lists and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vlcli.checkpoints.load import Checkpoint

if TYPE_CHECKING:
    from vlcli.checkpoints.trial import Trial

COLUMNS = ["file", "layout", "tensors", "numbers", "read", "excused", "new in the model"]


def as_row(one: Checkpoint) -> dict[str, Any]:
    """Returns the facts of a checkpoint: file, source, licence, layout, reader, sizes, scores."""
    tensors = one.tensors
    return {
        "file": one.name,
        "family": one.family.family,
        "about": one.file.about,
        "layout": one.file.layout,
        "written_by": one.layout.about or "",
        "code": one.layout.code or "",
        "source": one.file.url,
        "licence": one.file.licence,
        "tensors": len(tensors),
        "numbers": sum(entry.count for entry in tensors.values()),
        "reader": one.reader if one.file.loads else None,
        "objectives": one.objectives,
        "scores": [score.model_dump() for score in one.file.scores],
    }


def score(one: Checkpoint) -> str:
    """Returns the first published number."""
    return next((f"{s.task} {s.metric} {s.value:g}" for s in one.file.scores), "")


def trial_row(one: Checkpoint, trial: Trial) -> list[str]:
    """Returns a line of the table of trials, with faults behind the numbers."""
    if not one.file.loads:
        facts = as_row(one)
        return [one.name, one.file.layout, str(facts["tensors"]), f"{facts['numbers']:,}", "not read", "", ""]
    faults = {"lost": trial.lost, "missing": trial.missing, "of another shape": trial.mismatched}
    words = "".join(f"; {len(names)} {word}: {', '.join(names[:2])}" for word, names in faults.items() if names)
    counts = [str(len(trial.read)), str(len(trial.excused)), f"{len(trial.new)}{words}"]
    return [one.name, one.file.layout, str(trial.tensors), f"{trial.values:,}", *counts]


def reasons(trial: Trial) -> list[str]:
    """Returns a line for each rule with the number of names that it excuses."""
    lines = []
    for what, excused in (("not read", trial.excused), ("new", trial.new)):
        for reason in dict.fromkeys(excused.values()):
            names = [name for name, other in excused.items() if other == reason]
            lines.append(f"{len(names)} {what}: {reason} ({names[0]}{' ...' if len(names) > 1 else ''})")
    return lines
