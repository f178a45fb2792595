"""Training logs of runs as charts: losses, validation, learning rate, share of time waiting for data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vlcli.pages.charts import Chart, Points, line_chart
from vlcli.report.curves import loss_series, score_series
from vlcli.tools.run_folder import RunFacts

OTHERS = {"lr": "learning rate", "data_wait": "share of time waiting for data"}
"""Fields of the log that get a chart of their own."""
MOST_PARTS = 6
"""Charts of loss parts where several runs are shown."""


@dataclass
class Curves:
    """The charts of one training stage, of every run that has it."""

    stage: str
    kind: str
    charts: list[Chart] = field(default_factory=list)


def curves_of(runs: Sequence[RunFacts]) -> list[Curves]:
    """Charts of every stage that left a log, in the order of the stages."""
    names = dict.fromkeys(name for run in runs for name in run.stages)
    found = []
    for name in names:
        logs = _logs([run for run in runs if name in run.stages], name)
        if logs:
            kind = next(run.stages[name].kind for run in runs if name in run.stages)
            found.append(Curves(name, kind, _charts(logs)))
    return [curves for curves in found if curves.charts]


def _logs(runs: Sequence[RunFacts], name: str) -> dict[str, list[dict[str, Any]]]:
    """The log of one stage by run; runs that share the stage stand together."""
    shared: dict[Any, list[RunFacts]] = {}
    for run in runs:
        shared.setdefault(run.stages[name].folder.resolve(), []).append(run)
    logs = {", ".join(run.label for run in some): _finite(some[0].stages[name].log) for some in shared.values()}
    return {label: rows for label, rows in logs.items() if rows}


def _finite(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Lines with numbers only."""
    return [{k: v for k, v in row.items() if isinstance(v, int | float) and not isinstance(v, bool)} for row in rows]


def _charts(logs: Mapping[str, list[dict[str, Any]]]) -> list[Chart]:
    made = _of_one(next(iter(logs.values()))) if len(logs) == 1 else _of_several(logs)
    for key, title in OTHERS.items():
        series = {label: _field(rows, key) for label, rows in logs.items()}
        series = {title: next(iter(series.values()))} if len(series) == 1 else series
        made.append(line_chart(title, series))
    return [chart for chart in made if chart is not None]


def _of_one(rows: list[dict[str, Any]]) -> list[Chart | None]:
    """Every part of the loss in one chart, scores of validation in another."""
    return [line_chart("loss", loss_series(rows), log=True), line_chart("validation", score_series(rows))]


def _of_several(logs: Mapping[str, list[dict[str, Any]]]) -> list[Chart | None]:
    """A chart for each part of the loss and each score, a line for each run."""
    losses = {label: loss_series(rows) for label, rows in logs.items()}
    scores = {label: score_series(rows) for label, rows in logs.items()}
    made = [_side_by_side(part, losses, log=True) for part in _parts(losses)[:MOST_PARTS]]
    return made + [_side_by_side(part, scores, log=False) for part in _parts(scores)]


def _parts(found: Mapping[str, Mapping[str, Points]]) -> list[str]:
    return list(dict.fromkeys(part for series in found.values() for part in series))


def _side_by_side(part: str, found: Mapping[str, Mapping[str, Points]], log: bool) -> Chart | None:
    return line_chart(part, {label: series.get(part, ()) for label, series in found.items()}, log=log)


def _field(rows: Sequence[Mapping[str, Any]], key: str) -> Points:
    return [(row["step"], row[key]) for row in rows if key in row]
