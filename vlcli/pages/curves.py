"""Draws training logs of runs: losses, validation, learning rate, share of time waiting for data."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from vlcli.metrics.baseline import NAME, ONE_ANSWER
from vlcli.pages.charts import Chart, Points, line_chart
from vlcli.report.curves import loss_series, score_series
from vlcli.tools.run_folder import RunFacts

# Fields of the log that get a chart of their own
OTHERS = {"lr": "learning rate", "data_wait": "share of time waiting for data"}
# Fields that get no chart side by side.
_BESIDE = (f"eval/{NAME}", f"eval/{ONE_ANSWER}")
_MOST_PARTS = 6  # charts of loss parts where several runs are shown


def curves_of(runs: Sequence[RunFacts]) -> list[dict[str, Any]]:
    """Return name, kind and charts of the stages that left a log; a model and its controls share their charts."""
    tasks: dict[Any, dict[str, str]] = {}
    for run in runs:
        for name, stage in run.stages.items():
            task = (stage.record.config if stage.record else {}).get("task")
            learnt = task.get("name") if isinstance(task, dict) else task
            tasks.setdefault((stage.kind, learnt) if learnt else name, {})[name] = stage.kind
    curves = []
    for names in tasks.values():
        logs = {name: _logs([run for run in runs if name in run.stages], name) for name in names}
        if charts := _charts(_joined(logs)):
            title = ", ".join(name for name, of in logs.items() if of)
            curves.append({"stage": title, "kind": next(iter(names.values())), "charts": charts})
    return curves


def _joined(logs: Mapping[str, Mapping[str, list[dict[str, Any]]]]) -> dict[str, list[dict[str, Any]]]:
    several = sum(map(bool, logs.values())) > 1
    return {
        f"{name}, {run}" if len(of) > 1 else name if several else run: rows
        for name, of in logs.items()
        for run, rows in of.items()
    }


def _logs(runs: Sequence[RunFacts], name: str) -> dict[str, list[dict[str, Any]]]:
    """Return the numbers of one stage's log by run; runs that share the stage stand together."""
    shared: dict[Any, list[RunFacts]] = {}
    for run in runs:
        shared.setdefault(run.stages[name].folder.resolve(), []).append(run)
    logs = {", ".join(run.label for run in members): members[0].stages[name].log for members in shared.values()}
    return {label: [_numbers(row) for row in rows] for label, rows in logs.items() if rows}


def _numbers(row: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in row.items() if isinstance(v, int | float) and not isinstance(v, bool)}


def _charts(logs: Mapping[str, list[dict[str, Any]]]) -> list[Chart]:
    charts: list[Chart | None] = []
    if len(logs) == 1:
        (rows,) = logs.values()
        charts += [line_chart("loss", loss_series(rows), log=True), line_chart("validation", score_series(rows))]
    else:
        losses = {label: loss_series(rows) for label, rows in logs.items()}
        scores = {
            label: score_series([{key: value for key, value in row.items() if key not in _BESIDE} for row in rows])
            for label, rows in logs.items()
        }
        charts += [*islice(_side_by_side(losses, log=True), _MOST_PARTS), *_side_by_side(scores, log=False)]
    for key, title in OTHERS.items():
        series = {label: [(row["step"], row[key]) for row in rows if key in row] for label, rows in logs.items()}
        charts.append(line_chart(title, {title: series.popitem()[1]} if len(series) == 1 else series))
    return [chart for chart in charts if chart is not None]


def _side_by_side(series: Mapping[str, Mapping[str, Points]], *, log: bool) -> Iterator[Chart | None]:
    for part in dict.fromkeys(part for by_part in series.values() for part in by_part):
        yield line_chart(part, {label: by[part] for label, by in series.items() if part in by}, log=log)
