"""Turns stages of a run into runs of a table's row: results, seeds, and which runs differ in their seed alone."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from vlcli.metrics.baseline import without_baselines
from vlcli.recipe.schema import TableOptions
from vlcli.tables.results import DONE, FAILED, STOPPED, UNFINISHED, RunResults
from vlcli.tools.differences import WORDS, flat
from vlcli.tools.run_folder import RunFacts, StageFacts
from vlcli.tools.table import choose

# Metrics that stand for a stage where its recipe has no table
HEADLINES = ("accuracy", "AP", "r_mean", "top1", "cider", "map", "mean_iou")
_STATES = {"done": DONE, "failed": FAILED, "stopped": STOPPED}
# Keys of a recipe in which the seeds of one row may differ.
_NOT_COMPUTED = WORDS | {"seed", "report", "jobs", "table"}


def layout_of(run: RunFacts) -> TableOptions | None:
    """Return the ``table`` of a run's recipe; None where it has none that can be read."""
    try:
        return TableOptions.model_validate(run.recipe.get("table"))
    except ValueError:
        return None


def main_metric(layout: TableOptions | None, metrics: Mapping[str, float]) -> str | None:
    """Return the first metric of the recipe's table, else a usual one; None where the stage has none."""
    patterns = None if layout is None else layout.metrics
    names = choose([metrics], patterns) or without_baselines(metrics)
    if not patterns:
        plain = [name for name in names if "/" not in name] or names
        names = [name for name in HEADLINES if name in plain] or plain
    return next(iter(names), None)


def run_results(run: RunFacts, stage: StageFacts) -> RunResults:
    """Return the results of one stage of a run."""
    state, record = _STATES.get(stage.state, UNFINISHED), stage.record
    seed = run.recipe.get("seed") if record is None or record.seed is None else record.seed
    seed = seed if isinstance(seed, int) else None
    if state == DONE and not without_baselines(stage.metrics):
        return RunResults(seed, UNFINISHED, error="the stage has no metrics: its data have no labels")
    if state == DONE:
        return RunResults(seed, state, stage.metrics, stage.folder)
    error = (record.error if record is not None else "") or "; ".join(stage.faults) or stage.state
    return RunResults(seed, state, {}, stage.folder, " ".join(error.split()))


def by_settings(runs: Iterable[RunFacts]) -> list[list[RunFacts]]:
    """Return runs in groups that differ in their seed alone; a run without a readable recipe stands alone."""
    groups: dict[str, list[RunFacts]] = {}
    for run in runs:
        groups.setdefault(_settings(run), []).append(run)
    return list(groups.values())


def _settings(run: RunFacts) -> str:
    if not run.recipe:
        return str(run.folder.resolve())
    kept: dict[str, Any] = flat({key: value for key, value in run.recipe.items() if key not in _NOT_COMPUTED})
    return json.dumps([kept, list(run.stages) if len(run.stages) == 1 else []], sort_keys=True, default=str)
