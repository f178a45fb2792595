"""From run folders to the results of a table: which runs are seeds of one row, and which are rows of their own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vlcli.errors import UsageError
from vlcli.metrics.baseline import without_baselines
from vlcli.recipe.schema import TableOptions
from vlcli.tables.results import (
    DONE,
    FAILED,
    FILE,
    STOPPED,
    UNFINISHED,
    RowResults,
    RunResults,
    TableResults,
    read_results,
)
from vlcli.tools.differences import WORDS, flat
from vlcli.tools.run_folder import RunFacts, StageFacts, find_run, is_run, read_run

_STATES = {"done": DONE, "failed": FAILED, "stopped": STOPPED}
_NOT_COMPUTED = WORDS | {"seed", "report", "jobs", "table"}
"""Keys of a recipe in which the seeds of one row may differ."""


def collect(names: Sequence[str], output: Path, reference: str | None = None) -> TableResults:
    """The table of some runs, or the one that a run of a recipe with rows has written.

    Args:
        names: folders of runs or of stages, names below ``output``, or files ``table.json``.
        output: the folder of all runs.
        reference: label of the row that the others are compared with; None: what the table says.

    Raises:
        DataError: there is no such run, or a table is damaged.
        UsageError: a table is named beside other runs; no run has an evaluate stage.
    """
    written = [found for name in names if (found := written_table(name, output)) is not None]
    if written and len(names) > 1:
        hint = "name the table alone, or the folders of its rows"
        raise UsageError("A table of rows is shown by itself.", got=", ".join(names), hint=hint)
    table = read_results(written[0]) if written else table_of([read_run(find_run(name, output)) for name in names])
    table.reference = table.reference if reference is None else reference
    return table


def written_table(name: str, output: Path) -> Path | None:
    """The file of a table that rows have made; None where the name means a run that can be read itself.

    Args:
        name: the file itself, a folder that holds it, or the name of such a folder below ``output``.
        output: the folder of all runs.
    """
    path = Path(name).expanduser()
    if path.suffix == ".json":
        return path
    for folder in (path, output / name):
        if (folder / FILE).is_file() and not is_run(folder):
            return folder / FILE
    return None


def table_of(runs: Sequence[RunFacts]) -> TableResults:
    """Rows are those of the recipes' ``table``; runs that differ in nothing but their seed are seeds of the same rows.

    Args:
        runs: at least one.

    Raises:
        UsageError: no run has an evaluate stage.
    """
    layouts = [layout_of(run) for run in runs]
    title = next((layout.title for layout in layouts if layout is not None and layout.title), "")
    patterns = next((list(layout.metrics) for layout in layouts if layout is not None and layout.metrics), [])
    table = TableResults(title, patterns)
    groups: dict[str, list[RunFacts]] = {}
    for run in runs:
        groups.setdefault(_settings(run), []).append(run)
    for members in groups.values():
        prefix = f"{members[0].label}: " if len(groups) > 1 else ""
        rows: dict[str, list[RunResults]] = {}
        for run in members:
            for label, stage in _stages(run).items():
                rows.setdefault(label, []).append(_run_results(run, stage))
        alone = len(rows) == 1 and prefix
        table.rows += [RowResults(prefix[:-2] if alone else prefix + label, found) for label, found in rows.items()]
    if not table.rows:
        folders = ", ".join(str(run.folder) for run in runs)
        raise UsageError(
            "These runs have no evaluate stage, so there is nothing to show in a table.",
            where=folders,
            got=", ".join(dict.fromkeys(stage.kind for run in runs for stage in run.stages.values())) or "no stage",
            hint="list runs with their numbers: vlcli runs",
        )
    return _labelled(table)


def _labelled(table: TableResults) -> TableResults:
    """Rows of different runs with one label get a number."""
    labels = [row.label for row in table.rows]
    for place, row in enumerate(table.rows):
        if labels.count(row.label) > 1:
            row.label = f"{row.label} ({labels[: place + 1].count(labels[place])})"
    return table


def layout_of(run: RunFacts) -> TableOptions | None:
    """The ``table`` of a run's recipe; None where it has none that can be read."""
    try:
        return TableOptions.model_validate(run.recipe.get("table"))
    except ValueError:
        return None


def _stages(run: RunFacts) -> dict[str, StageFacts]:
    """The stages of a table's rows by label: of the recipe's ``table``, else all evaluate stages that were begun."""
    layout = layout_of(run)
    if layout is not None:
        found = {label: run.stages[stage] for label, stage in layout.rows.items() if stage in run.stages}
        begun = {label: stage for label, stage in found.items() if stage.record is not None}
        return begun or found
    return {name: stage for name, stage in run.stages.items() if stage.kind == "evaluate" or _alone(run, stage)}


def _alone(run: RunFacts, stage: StageFacts) -> bool:
    """Whether a stage that is no evaluate stage was named itself, and has numbers."""
    return len(run.stages) == 1 and bool(stage.metrics)


def _run_results(run: RunFacts, stage: StageFacts) -> RunResults:
    state = _STATES.get(stage.state, UNFINISHED)
    error = stage.record.error if stage.record is not None else ""
    if state == DONE and not without_baselines(stage.metrics):
        return RunResults(_seed(run, stage), UNFINISHED, error="the stage has no metrics: its data have no labels")
    metrics = stage.metrics if state == DONE else {}
    said = " ".join((error or "; ".join(stage.faults) or stage.state).split()) if state != DONE else ""
    return RunResults(_seed(run, stage), state, metrics, stage.folder, said)


def _seed(run: RunFacts, stage: StageFacts) -> int | None:
    own = stage.record.seed if stage.record is not None else None
    seed = run.recipe.get("seed") if own is None else own
    return seed if isinstance(seed, int) else None


def _settings(run: RunFacts) -> str:
    """What a run computes, without its seed; runs without a readable recipe stand alone."""
    if not run.recipe:
        return str(run.folder.resolve())
    kept: dict[str, Any] = flat({key: value for key, value in run.recipe.items() if key not in _NOT_COMPUTED})
    stages = list(run.stages) if len(run.stages) == 1 else []
    return json.dumps([kept, stages], sort_keys=True, default=str)


def write_tables(folder: Path, stem: str = "table") -> list[Path]:
    """The files of a run's own table, beside the run.

    Args:
        folder: of the run.
        stem: name of the files.

    Returns:
        The files; none where the run has nothing to show yet.
    """
    from vlcli.tables.outputs import write_table

    try:
        table = table_of([read_run(folder)])
    except UsageError:
        return []
    return write_table(table, folder, stem) if any(row.done for row in table.rows) else []
