"""Makes the results of a table from run folders: seeds of one row, and rows."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from vlcli.errors import UsageError
from vlcli.recipe import stage_record
from vlcli.recipe.yaml import to_yaml
from vlcli.registry import as_spec
from vlcli.tables.results import FILE, RowResults, RunResults, TableResults, read_results
from vlcli.tables.statistics import Estimate
from vlcli.tables.summary import Summary
from vlcli.tools.conclusions import conclusions
from vlcli.tools.run_folder import RunFacts, StageFacts, find_run, is_run, read_run
from vlcli.tools.run_rows import by_settings, layout_of, run_results


def collect(names: Sequence[str], output: Path, reference: str | None = None) -> TableResults:
    """Return the table of some runs, or the one that a run of a recipe with rows has written.

    Args:
        names: folders of runs or of stages, names below ``output``, or files ``table.json``.
        reference: label of the row that the others are compared with; None: the table's own.

    Raises:
        DataError: there is no such run, or a table is damaged.
        UsageError: a table is named beside other runs; no run has an evaluate stage.
    """
    written = [file for name in names if (file := written_table(name, output)) is not None]
    if written and len(names) > 1:
        hint = "name the table alone, or the folders of its rows"
        raise UsageError("A table with rows cannot be shown together with other runs.", got=", ".join(names), hint=hint)
    table = read_results(written[0]) if written else table_of([read_run(find_run(name, output)) for name in names])
    table.reference = table.reference if reference is None else reference
    return table


def written_table(name: str, output: Path) -> Path | None:
    """Return the file of a table that rows have made; None where the name means a run that can be read itself.

    ``name`` is the file itself, a folder that holds it, or the name of such a folder below ``output``.
    """
    path = Path(name).expanduser()
    if path.suffix == ".json":
        return path
    folders = (folder for folder in (path, output / name) if (folder / FILE).is_file() and not is_run(folder))
    return next((folder / FILE for folder in folders), None)


def table_of(runs: Sequence[RunFacts]) -> TableResults:
    """Return rows of the recipes' ``table``; runs that differ in nothing but their seed are seeds of the same rows.

    Raises UsageError: no run has an evaluate stage.
    """
    layouts = [layout for run in runs if (layout := layout_of(run)) is not None]
    title = next((layout.title for layout in layouts if layout.title), "")
    patterns = next((list(layout.metrics) for layout in layouts if layout.metrics), [])
    table = TableResults(title, patterns, conclusions=conclusions(runs))
    groups = by_settings(runs)
    for members in groups:
        start = members[0].label if len(groups) > 1 else ""
        rows: dict[str, list[RunResults]] = {}
        for run in members:
            for label, stage in _stages(run).items():
                rows.setdefault(label, []).append(run_results(run, stage))
        for label, results in rows.items():
            full = start if start and len(rows) == 1 else f"{start}: {label}" if start else label
            table.rows.append(RowResults(full, results))
    if not table.rows:
        what = "These runs have no evaluate stage, so there is nothing to show in a table."
        where = ", ".join(str(run.folder) for run in runs)
        got = ", ".join(dict.fromkeys(stage.kind for run in runs for stage in run.stages.values())) or "no stage"
        raise UsageError(what, where=where, got=got, hint="list runs with their numbers: vlcli runs")
    labels = [row.label for row in table.rows]
    numbers = {label: count(1) for label in labels if labels.count(label) > 1}
    for row in table.rows:
        row.label += f" ({next(numbers[row.label])})" if row.label in numbers else ""
    return table


def _stages(run: RunFacts) -> dict[str, StageFacts]:
    """Return stages by label: of the recipe's ``table``, else all evaluate stages, or the only stage with metrics."""
    layout = layout_of(run)
    if layout is not None:
        stages = {label: run.stages[stage] for label, stage in layout.rows.items() if stage in run.stages}
        return {label: stage for label, stage in stages.items() if stage.record is not None} or stages
    alone = len(run.stages) == 1
    return {n: stage for n, stage in run.stages.items() if stage.kind == "evaluate" or (alone and stage.metrics)}


def write_tables(folder: Path) -> None:
    """Write the files of a run's table into its folder, unless it has nothing to show yet."""
    from vlcli.tables.outputs import write_table

    with suppress(UsageError):
        table = table_of([read_run(folder)])
        if any(row.done for row in table.rows):
            write_table(table, folder)


def model_index(table: TableResults, summary: Summary) -> str:
    """Returns YAML for the front matter of a card: a model for each row, the mean of each metric with its interval."""
    from huggingface_hub.repocard_data import eval_results_to_model_index

    models = []
    for line in summary.rows:
        row = table.row(line.label)
        results = [_result(row, name, line.estimates[name]) for name in summary.metrics if name in line.estimates]
        models += eval_results_to_model_index(line.label, results) if results else []
    return to_yaml({"model-index": models})


def _result(row: RowResults, metric: str, estimate: Estimate) -> Any:
    from huggingface_hub import EvalResult

    _, name, folder = row.done[0].place(metric)
    record = None if folder is None else stage_record.read(folder)
    config = {} if record is None else record.config
    inputs = [] if record is None else [stage_record.read(Path(one["path"])) for one in record.inputs.values()]
    configs = [config, *(one.config for one in inputs if one is not None)]  # of what is evaluated, too
    task = next((one["task"] for one in configs if one.get("task")), "vision-language")
    data = [as_spec(one) for one in config.get("data") or []]
    spread = {"low": estimate.low, "high": estimate.high, "over": estimate.over, "seeds": estimate.seeds}
    return EvalResult(
        task_type=str(as_spec(task)["name"]),
        dataset_type="other",
        dataset_name=", ".join(dict.fromkeys(str(one["name"]) for one in data)) or "evaluation",
        dataset_split=config.get("split") or next((str(one["split"]) for one in data if "split" in one), None),
        metric_type=name,
        metric_value=estimate.mean,
        metric_name=metric,
        metric_args=None if estimate.low is None else spread,
    )
