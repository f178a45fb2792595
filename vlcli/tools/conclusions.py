"""The result of runs in words: baselines that a model does not reach, what pictures add, what to try next.

Differences have the interval of tables (``vlcli.tables.statistics.contrast``): over seeds, or over examples clustered
by image. A control is compared with the model whose settings it shares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vlcli.metrics.baseline import CHANCE, beside
from vlcli.tables.results import RowResults
from vlcli.tables.statistics import Contrast, contrast
from vlcli.tools.differences import differing, flat
from vlcli.tools.run_folder import RunFacts, StageFacts
from vlcli.tools.run_rows import layout_of, main_metric, run_results, settings_of

MOST_MODELS = 3
"""Models of which is spoken."""
GAP = 0.2
"""A training score that is so far above validation's is told."""
UNSHARED = ("about", "task", "objectives", "threads", "device", "trackers", "workers", "hang_timeout")
"""Keys of a training stage in which a control may differ from its model (of the task: in ``only``)."""
SCALED = ("accuracy", "top1", "top5", "map", "AP", "mean_iou", "r_mean", "image", "text", "aacc")
"""Metrics that are told in percent and in points, by the first part of their names."""


@dataclass(frozen=True)
class _Scored:
    """An evaluate stage of one run or of several seeds.

    Attributes:
        label: of the table's row, else the stage's name.
        stage: of the first run.
        trained: the stage whose model it judged; None where it judged none.
        row: what the runs measured.
    """

    label: str
    stage: StageFacts
    trained: StageFacts | None
    row: RowResults

    @property
    def config(self) -> Mapping[str, Any]:
        """The section of the evaluate stage."""
        return self.stage.record.config if self.stage.record is not None else {}

    @property
    def only(self) -> str:
        """The modality that a control sees; empty where it is no control."""
        tasks = [self.config.get("task"), _config(self.trained).get("task")]
        found = [task.get("only") for task in tasks if isinstance(task, Mapping)]
        return next((str(only) for only in found if only not in (None, "both")), "")

    def value(self, metric: str) -> float | None:
        """The mean over the runs; None where none has the metric."""
        values = list(self.row.values(metric).values())
        return sum(values) / len(values) if values else None


def conclusions(runs: Sequence[RunFacts]) -> list[str]:
    """Say in sentences what the models of some runs learnt; runs that differ in their seed alone are taken together."""
    groups: dict[str, list[RunFacts]] = {}
    for run in runs:
        groups.setdefault(settings_of(run), []).append(run)
    return [
        f"{members[0].label}: {line}" if len(groups) > 1 else line
        for members in groups.values()
        for line in _of_group(members)
    ]


def _of_group(runs: Sequence[RunFacts]) -> list[str]:
    scored = _scored(runs)
    models = [one for one in scored if one.trained is not None and not one.only]
    lines: list[str] = []
    for model in models[:MOST_MODELS]:
        metric = main_metric(layout_of(runs[0]), model.stage.metrics)
        others = [one for one in scored if one is not model and _alike(one, model)]
        if metric is not None and model.value(metric) is not None:
            lines += _of_model(model, metric, others, several=len(models) > 1)
    return lines


def _scored(runs: Sequence[RunFacts]) -> list[_Scored]:
    """The finished evaluate stages, those of the recipe's table first."""
    first, layout = runs[0], layout_of(runs[0])
    labels = {stage: label for label, stage in (layout.rows if layout is not None else {}).items()}
    names = [name for name in first.stages if first.stages[name].kind == "evaluate" and first.stages[name].metrics]
    found = []
    for name in sorted(names, key=lambda name: list(labels).index(name) if name in labels else len(labels)):
        stage = first.stages[name]
        results = [run_results(run, run.stages[name]) for run in runs if name in run.stages]
        source = (stage.record.config.get("from") if stage.record is not None else None) or []
        sources = [source] if isinstance(source, str) else list(source)
        trained = next((first.stages[one] for one in sources if one in first.stages), None)
        label = labels.get(name, name)
        found.append(_Scored(label, stage, trained, RowResults(label, results)))
    return found


def _alike(one: _Scored, model: _Scored) -> bool:
    """Whether a stage judged the same examples as that of a model."""
    return all(one.config.get(key) == model.config.get(key) for key in ("data", "split"))


def _of_model(model: _Scored, metric: str, others: Sequence[_Scored], *, several: bool) -> list[str]:
    named = f"{model.label}: " if several else ""
    control, lines = _control(model, metric, others)
    below, above = _beside_baselines(model, metric, [one for one in others if one.config.get("fit")])
    collapsed = [text for one in (model, control) if one is not None and (text := _collapsed(one))]
    if not (below or above or lines or collapsed):
        return []
    tried = _next(model, metric, control, below=bool(below))
    return [named + line for line in [*below, *collapsed, *lines, *above, *([f"Try next: {tried}."] if tried else [])]]


def _beside_baselines(model: _Scored, metric: str, baselines: Sequence[_Scored]) -> tuple[list[str], list[str]]:
    """A sentence where the model is below the best baseline, and one where it is not."""
    values = {one.label: value for one in baselines if (value := one.value(metric)) is not None}
    name = beside(metric, model.stage.metrics)
    common = "" if name is None else "chance" if name.startswith(CHANCE) else "the most frequent answer"
    if name is not None:
        values.setdefault(common, model.stage.metrics[name])
    own = model.value(metric)
    if not values or own is None:
        return [], []
    best = max(values, key=lambda label: values[label])
    row = next((one.row for one in baselines if one.label == best), None)
    sure = None if row is None else contrast(model.row, row, metric)
    told = f"{_told(metric, values[best])}, {model.label} {_told(metric, own)}"
    told += f" ({_difference(metric, sure, own - values[best])})"
    if own < values[best]:
        return [f"The trained model is below a baseline: {best} has {told}."], []
    if len(values) == 1 and row is None:
        return [], []  # the most frequent answer is told beside what pictures add
    doubt = "" if sure is None or sure.low is None or sure.low > 0 else " The difference is within its interval of 0."
    return [], [f"The best baseline is {best}: it has {told}.{doubt}"]


def _control(model: _Scored, metric: str, others: Sequence[_Scored]) -> tuple[_Scored | None, list[str]]:
    """The control that shares the model's settings, and what it says."""
    controls = [one for one in others if one.only and one.trained is not None and one.value(metric) is not None]
    controls = [one for one in controls if _kind(one) == _kind(model)]
    unlike = {one.label: _unlike(model, one) for one in controls}
    control = next(iter(sorted(controls, key=lambda one: len(unlike[one.label]))), None)
    if control is None:
        return None, []
    if unlike[control.label]:
        what = "; ".join(unlike[control.label][:3])
        return None, [f"The control {control.label} was trained otherwise than {model.label} ({what}): not compared."]
    common = beside(metric, model.stage.metrics)
    level = None if common is None else model.stage.metrics[common]
    said = "" if level is None or common is None else f"; {_who(common)} has {_told(metric, level)}"
    found, value = contrast(model.row, control.row, metric), control.value(metric)
    assert value is not None
    if level is not None and value <= level + 1e-9 and (model.value(metric) or 0) > level:
        why = "where a model multiplies words with an absent picture, nothing is left to learn from"
        return None, [f"The control {control.label} has no more than {_who(str(common))}: it is no control ({why})."]
    alone = f"{'the question' if _kind(model) in ('vqa', 'gqa') else 'the sentence'} alone"
    side, alone = ("Pictures", alone) if control.only == "text" else ("Words", "the picture alone")
    if found is None:
        return control, []
    if found.low is not None and found.low <= 0:
        told = _difference(metric, found, found.difference)
        word = "nothing was learnt from" if found.high is not None and found.high >= 0 else "harm is done by"
        return control, [f"{word.capitalize()} {side.lower()}: {told} against {alone}{said}."]
    return control, [f"{side} add {_difference(metric, found, found.difference, sign='')} over {alone}{said}."]


def _kind(one: _Scored) -> str:
    """The name of the task that a stage's model was trained on."""
    task = _config(one.trained).get("task") or one.config.get("task")
    return str(task.get("name") if isinstance(task, Mapping) else task)


def _unlike(model: _Scored, control: _Scored) -> list[str]:
    """Settings of training in which a control differs from its model."""
    sides = [flat({k: v for k, v in _config(one.trained).items() if k not in UNSHARED}) for one in (model, control)]
    tasks = [
        {k: v for k, v in flat(_config(one.trained).get("task") or {}).items() if k != "only"}
        for one in (model, control)
    ]
    rows = differing(sides) + differing(tasks)
    return [f"{row.key} {row.values[1]}, not {row.values[0]}" for row in rows]


def _collapsed(one: _Scored) -> str:
    """What the engine recorded of a training that gives one answer to everything."""
    found = (one.trained.record.facts if one.trained is not None and one.trained.record is not None else {}).get(
        "collapsed"
    )
    if not found:
        return ""
    return (
        f"{one.label} collapsed"
        + (f": {found}" if isinstance(found, str) else ": one answer to nearly everything")
        + "."
    )


def _next(model: _Scored, metric: str, control: _Scored | None, *, below: bool) -> str:
    """What to try next, from what was seen in training."""
    stage = model.trained
    assert stage is not None
    scores = [row[f"eval/{metric}"] for row in stage.log if isinstance(row.get(f"eval/{metric}"), int | float)]
    if len(scores) > 2 and scores[-1] > max(scores[:-1]):
        return f"more epochs (stages.{stage.name}.epochs): validation was still rising at the end"
    fitted = [
        v for name, v in stage.metrics.items() if name.startswith("train/") and name.endswith(("/score", "/accuracy"))
    ]
    known = stage.metrics.get(metric)
    if fitted and known is not None and max(fitted) > known + GAP:
        seen = f"the training score ({max(fitted):.2f}) is far above validation ({known:.2f})"
        return f"more pictures, or more dropout and weight decay: {seen}"
    if below:
        return f"a lower rate (stages.{stage.name}.optimizer.lr) or fewer layers: a page of code reaches more"
    pair = None if control is None else contrast(model.row, control.row, metric)
    if pair is not None and pair.low is not None and pair.low <= 0:
        return "other features, of more regions or of a stronger backbone: pictures as they are read add nothing"
    return ""


def _config(stage: StageFacts | None) -> Mapping[str, Any]:
    return stage.record.config if stage is not None and stage.record is not None else {}


def _who(name: str) -> str:
    return "chance" if name.startswith(CHANCE) else "the most frequent answer"


def _scaled(metric: str) -> bool:
    return metric.partition("/")[0] in SCALED


def _told(metric: str, value: float) -> str:
    return f"{100 * value:.1f} %" if _scaled(metric) else f"{value:.3f}"


def _difference(metric: str, found: Contrast | None, value: float, sign: str = "+") -> str:
    """``+3.8 points (1.1 to 6.5)``."""
    scale, form, unit = (100, ".1f", " points") if _scaled(metric) else (1, ".3f", "")
    ends = (
        ""
        if found is None or found.low is None or found.high is None
        else (f" ({scale * found.low:{form}} to {scale * found.high:{form}})")
    )
    over = f" over {found.count} seeds" if found is not None and found.over == "seeds" else ""
    return f"{scale * value:{sign}{form}}{unit}{ends}{over}"
