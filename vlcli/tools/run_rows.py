"""From the stages of a run to the runs of a table's row: results, seeds, and which runs differ in their seed alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from vlcli.metrics.baseline import without_baselines
from vlcli.recipe.schema import TableOptions
from vlcli.tables.results import DONE, FAILED, STOPPED, UNFINISHED, RunResults
from vlcli.tools.differences import WORDS, flat
from vlcli.tools.run_folder import RunFacts, StageFacts
from vlcli.tools.table import choose

HEADLINES = ("accuracy", "AP", "r_mean", "top1", "cider", "map", "mean_iou")
"""Metrics that stand for a stage where its recipe has no table."""
_STATES = {"done": DONE, "failed": FAILED, "stopped": STOPPED}
_NOT_COMPUTED = WORDS | {"seed", "report", "jobs", "table"}
"""Keys of a recipe in which the seeds of one row may differ."""


def layout_of(run: RunFacts) -> TableOptions | None:
    """The ``table`` of a run's recipe; None where it has none that can be read."""
    try:
        return TableOptions.model_validate(run.recipe.get("table"))
    except ValueError:
        return None


def main_metric(layout: TableOptions | None, metrics: Mapping[str, float]) -> str | None:
    """The metric that stands for a stage: the first of the recipe's table, else a usual one; None where it has none."""
    patterns = None if layout is None else layout.metrics
    names = (choose([metrics], patterns) if patterns else []) or without_baselines(metrics)
    plain = [name for name in names if "/" not in name] or names
    usual = [] if patterns else [name for name in HEADLINES if name in plain]
    return next(iter(usual or (names if patterns else plain)), None)


def run_results(run: RunFacts, stage: StageFacts) -> RunResults:
    """What one stage of a run measured."""
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


def settings_of(run: RunFacts) -> str:
    """What a run computes, without its seed; runs without a readable recipe stand alone."""
    if not run.recipe:
        return str(run.folder.resolve())
    kept: dict[str, Any] = flat({key: value for key, value in run.recipe.items() if key not in _NOT_COMPUTED})
    stages = list(run.stages) if len(run.stages) == 1 else []
    return json.dumps([kept, stages], sort_keys=True, default=str)
