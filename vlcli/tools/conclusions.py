"""Says the result of runs in words: baselines that a model does not reach, what pictures add, what to try next.

Differences have the interval of ``vlcli.tables.statistics.contrast``: over seeds, or over examples clustered by image.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vlcli.metrics.baseline import CHANCE, beside
from vlcli.plain import as_list
from vlcli.tables.results import RowResults
from vlcli.tables.statistics import Contrast, contrast
from vlcli.tools.differences import differing, flat
from vlcli.tools.run_folder import RunFacts, StageFacts
from vlcli.tools.run_rows import by_settings, layout_of, main_metric, run_results

_MOST_MODELS = 3  # models that get sentences
# Smallest difference of training and validation scores that is reported
GAP = 0.2
# Keys of a training stage in which a control may differ from its model (of the task: in ``only``)
UNSHARED = ("about", "task", "objectives", "threads", "device", "trackers", "workers", "hang_timeout")
_LEAST_AP = 0.01  # a detector below this average precision has found next to nothing
# Scores that differ by less are equal: sums in another order
SAME = 1e-9
CHANCE_NAME, COMMON_NAME = "chance", "the most frequent answer"
# Metrics written in percent and in points, by the first part of their names
SCALED = ("accuracy", "top1", "top5", "map", "AP", "mean_iou", "r_mean", "image", "text", "aacc")


@dataclass(frozen=True)
class _Scored:
    """An evaluate stage of one run or of several seeds; ``trained`` is the stage whose model it judged."""

    label: str
    stage: StageFacts
    trained: StageFacts | None
    row: RowResults

    @property
    def config(self) -> Mapping[str, Any]:
        return self.stage.config

    @property
    def training(self) -> Mapping[str, Any]:
        return {} if self.trained is None else self.trained.config

    @property
    def only(self) -> str:
        """The modality that a control sees; empty where it is no control."""
        tasks = (self.config.get("task"), self.training.get("task"))
        sides = (task.get("only") for task in tasks if isinstance(task, Mapping))
        return next((str(side) for side in sides if side not in (None, "both")), "")

    @property
    def task(self) -> str:
        task = self.training.get("task") or self.config.get("task")
        return str(task.get("name") if isinstance(task, Mapping) else task)

    @property
    def collapse(self) -> str:
        """The sign of collapse that training recorded, with its likely cause; empty if there was none."""
        record = None if self.trained is None else self.trained.record
        return "" if record is None else str(record.facts.get("collapsed") or "")

    def value(self, metric: str) -> float | None:
        values = self.row.values(metric).values()
        return sum(values) / len(values) if values else None


def conclusions(runs: Sequence[RunFacts]) -> list[str]:
    """Return sentences about the models of some runs; runs that differ in their seed alone are taken together."""
    lines = []
    groups = by_settings(runs)
    for members in groups:
        scored = _scored(members)
        models = [one for one in scored if one.trained is not None and not one.only]
        for model in models[:_MOST_MODELS]:
            metric = main_metric(layout_of(members[0]), model.stage.metrics)
            alike = [one for one in scored if all(one.config.get(k) == model.config.get(k) for k in ("data", "split"))]
            others = [one for one in alike if one is not model]
            if metric is not None and model.value(metric) is not None:
                start = f"{members[0].label}: " if len(groups) > 1 else ""
                start += f"{model.label}: " if len(models) > 1 else ""
                lines += [start + line for line in _of_model(model, metric, others)]
    return lines


def _scored(runs: Sequence[RunFacts]) -> list[_Scored]:
    first, layout = runs[0], layout_of(runs[0])
    labels = {stage: label for label, stage in (layout.rows if layout is not None else {}).items()}
    names = [name for name in first.stages if first.stages[name].kind == "evaluate" and first.stages[name].metrics]
    scored = []
    for name in sorted(names, key=lambda name: list(labels).index(name) if name in labels else len(labels)):
        stage, label = first.stages[name], labels.get(name, name)
        results = [run_results(run, run.stages[name]) for run in runs if name in run.stages]
        sources = map(str, as_list(stage.config.get("from")))
        trained = next((first.stages[name] for name in sources if name in first.stages), None)
        scored.append(_Scored(label, stage, trained, RowResults(label, results)))
    return scored


def _of_model(model: _Scored, metric: str, others: Sequence[_Scored]) -> list[str]:
    control, lines = _control(model, metric, others)
    line, below = _beside_baselines(model, metric, [one for one in others if one.config.get("fit")])
    signs = {one.label: one.collapse for one in (model, control) if one is not None and one.collapse}
    collapsed = [f"{label} collapsed: {how}." for label, how in signs.items()]
    lines = [line, *collapsed, *lines] if below else [*collapsed, *lines, line]
    lines = [line for line in lines if line]
    if model.label in signs:  # its line names the likely cause and what to do
        return lines
    fair = None if control is None or control.label in signs else control
    tried = _next(model, metric, fair, below=below) if lines else ""
    return lines + ([f"Try next: {tried}."] if tried else [])


def _beside_baselines(model: _Scored, metric: str, baselines: Sequence[_Scored]) -> tuple[str, str]:
    """Return a sentence about the best baseline, and its name if the model has no more."""
    values = {one.label: value for one in baselines if (value := one.value(metric)) is not None}
    name, score = beside(metric, model.stage.metrics), model.value(metric)
    if name is not None:
        values.setdefault(_who(name), model.stage.metrics[name])
    if not values or score is None:
        if metric == "AP" and score is not None and score < _LEAST_AP:
            return f"{model.label} finds next to nothing: it has {_in_words(metric, score)}.", ""
        return "", ""
    best = max(values, key=lambda label: values[label])
    row = next((one.row for one in baselines if one.label == best), None)
    sure = None if row is None else contrast(model.row, row, metric)
    gap = score - values[best]
    gap = 0.0 if abs(gap) <= SAME else gap
    text = f"{_in_words(metric, values[best])}, {model.label} {_in_words(metric, score)}"
    text += f" ({_difference(metric, sure, gap)})"
    ends = _ends(sure)
    doubt = " The interval of the difference contains 0." if ends and ends[0] <= 0 <= ends[1] else ""
    if gap <= 0:
        how = "is below" if gap else "has no more than"
        return f"The trained model {how} a baseline: {best} has {text}.{doubt}", best
    if len(values) == 1 and row is None:
        return "", ""  # the most frequent answer is named beside what pictures add
    return f"The best baseline is {best}: it has {text}.{doubt}", ""


def _control(model: _Scored, metric: str, others: Sequence[_Scored]) -> tuple[_Scored | None, list[str]]:
    controls = [one for one in others if one.only and one.trained is not None and one.value(metric) is not None]
    unlike = [(one, _unlike(model, one)) for one in controls if one.task == model.task]
    if not unlike:
        return None, []
    control, differences = min(unlike, key=lambda pair: len(pair[1]))
    if differences:
        what = "; ".join(differences[:3])
        return None, [f"The control {control.label} was trained otherwise than {model.label} ({what}): not compared."]
    common, value = beside(metric, model.stage.metrics), control.value(metric) or 0.0
    beyond = ""
    if common is not None:
        level = model.stage.metrics[common]
        beyond = f"; {_who(common)} has {_in_words(metric, level)}"
        if value <= level + 1e-9 and (model.value(metric) or 0) > level:
            why = "where a model multiplies words with an absent picture, nothing is left to learn from"
            return None, [f"The control {control.label} has no more than {_who(common)}: it is no control ({why})."]
    alone = f"{'the question' if model.task in ('vqa', 'gqa') else 'the sentence'} alone"
    side, alone = ("Pictures", alone) if control.only == "text" else ("Words", "the picture alone")
    pair = contrast(model.row, control.row, metric)
    if pair is None:
        return control, []
    if (ends := _ends(pair)) and ends[0] <= 0:
        what = "It is not sure that anything" if pair.difference > SAME else "Nothing"
        verb = f"{what} was learnt from" if ends[1] >= 0 else "Harm is done by"
        text = _difference(metric, pair, pair.difference)
        return control, [f"{verb} {side.lower()}: {text} against {alone}{beyond}."]
    return control, [f"{side} add {_difference(metric, pair, pair.difference, sign='')} over {alone}{beyond}."]


def _unlike(model: _Scored, control: _Scored) -> list[str]:
    configs = [one.training for one in (model, control)]
    tasks = [flat(config.get("task") or {}) for config in configs]
    rows = differing([flat({k: v for k, v in config.items() if k not in UNSHARED}) for config in configs])
    rows += differing([{k: v for k, v in task.items() if k != "only"} for task in tasks])
    return [f"{row.key} {row.values[1]}, not {row.values[0]}" for row in rows]


def _next(model: _Scored, metric: str, control: _Scored | None, *, below: str) -> str:
    stage = model.trained
    assert stage is not None
    scores = [row[f"eval/{metric}"] for row in stage.log if isinstance(row.get(f"eval/{metric}"), int | float)]
    if len(scores) > 2 and scores[-1] > max(scores[:-1]):
        return f"more epochs (stages.{stage.name}.epochs): validation was still rising at the end"
    names = [n for n in stage.metrics if n.startswith("train/") and n.endswith(("/score", "/accuracy"))]
    fitted, known = max((stage.metrics[name] for name in names), default=0.0), stage.metrics.get(metric)
    if names and known is not None and fitted > known + GAP:
        gap = f"the training score ({fitted:.2f}) is far above validation ({known:.2f})"
        return f"more pictures, or more dropout and weight decay: {gap}"
    if below in (CHANCE_NAME, COMMON_NAME):
        return f"more epochs (stages.{stage.name}.epochs) or more examples: {below} needs no model"
    if below:
        return f"a lower rate (stages.{stage.name}.optimizer.lr) or fewer layers: a page of code reaches more"
    pair = None if control is None else contrast(model.row, control.row, metric)
    if (ends := _ends(pair)) and ends[0] <= 0:
        more, sure = ("more examples to test on, or ", " that is sure") if pair and pair.difference > SAME else ("", "")
        return f"{more}other features, of more regions or of a stronger backbone: pictures as read add nothing{sure}"
    return ""


def _ends(pair: Contrast | None) -> tuple[float, float] | None:
    return None if pair is None or pair.low is None or pair.high is None else (pair.low, pair.high)


def _who(name: str) -> str:
    return CHANCE_NAME if name.startswith(CHANCE) else COMMON_NAME


def _in_words(metric: str, value: float) -> str:
    return f"{100 * value:.1f} %" if metric.partition("/")[0] in SCALED else f"{value:.3f}"


def _difference(metric: str, pair: Contrast | None, value: float, sign: str = "+") -> str:
    """Return ``+3.8 points (1.1 to 6.5)``."""
    scale, form, unit = (100, ".1f", " points") if metric.partition("/")[0] in SCALED else (1, ".3f", "")
    text = f"{scale * value:{sign}{form}}{unit}"
    if ends := _ends(pair):
        text += f" ({scale * ends[0]:{form}} to {scale * ends[1]:{form}})"
    return text + (f" over {pair.count} seeds" if pair is not None and pair.over == "seeds" else "")
