"""From run folders to the results of a table: which runs are seeds of one row, and which are rows of their own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vlcli.errors import UsageError
from vlcli.tables.results import FILE, RowResults, RunResults, TableResults, read_results
from vlcli.tools.conclusions import conclusions
from vlcli.tools.run_folder import RunFacts, StageFacts, find_run, is_run, read_run
from vlcli.tools.run_rows import layout_of, run_results, settings_of


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
    table = TableResults(title, patterns, conclusions=conclusions(runs))
    groups: dict[str, list[RunFacts]] = {}
    for run in runs:
        groups.setdefault(settings_of(run), []).append(run)
    for members in groups.values():
        prefix = f"{members[0].label}: " if len(groups) > 1 else ""
        rows: dict[str, list[RunResults]] = {}
        for run in members:
            for label, stage in _stages(run).items():
                rows.setdefault(label, []).append(run_results(run, stage))
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
