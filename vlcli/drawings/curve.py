"""Draws a metric of several stages over a number of each: accuracy over buckets, recall over pictures."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vlcli.drawings.base import PLOTS, Drawing, DrawingContext, new_figure, save_numbers, save_picture
from vlcli.errors import DataError, UsageError
from vlcli.recipe.stage_record import StageRecord

Points = list[tuple[float, float]]


@dataclass(kw_only=True)
class Curve(Drawing):
    """What stages scored, over a number of each: one line, or one for each series.

    Args:
        at: the number of each stage, by its name in ``from``: ``{buckets-9: 9, buckets-25: 25}``.
        metric: which of their numbers.
        series: labels and their stages, where there are several lines; all stages are one line by default.
        level: stages that are drawn as a level line, with their labels: a control.
        x: what the number is.
        y: what the metric is; its name by default.
        log: a logarithmic number axis.
        title: of the picture.
    """

    packages = ("matplotlib",)
    install = PLOTS

    at: dict[str, float]
    metric: str = "accuracy"
    series: dict[str, list[str]] | None = None
    level: dict[str, str] | None = None
    x: str = ""
    y: str = ""
    log: bool = False
    title: str = ""

    def draw(self, scene: DrawingContext) -> list[Path]:
        records = {Path(name).name: record for name, record in scene.records().items()}
        series = {"": list(self.at)} if self.series is None else self.series
        lines = {label: self._points(records, stages) for label, stages in series.items()}
        levels = {label: self._value(records, stage) for stage, label in (self.level or {}).items()}
        figure = new_figure(6.4, 4.2)
        axes = figure.add_subplot(xlabel=self.x, ylabel=self.y or self.metric, title=self.title)
        if self.log:
            axes.set_xscale("log")
        for label, points in lines.items():
            axes.plot([x for x, _ in points], [y for _, y in points], marker="o", label=label or self.metric)
        for number, (label, value) in enumerate(levels.items()):
            axes.axhline(value, linestyle=("--", ":", "-.")[number % 3], color="0.4", label=label)
        ticks = sorted({x for points in lines.values() for x, _ in points})
        if len(ticks) <= 12:
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axes.minorticks_off()
        axes.grid(alpha=0.3)
        if len(lines) + len(levels) > 1:
            axes.legend()
        numbers = {"metric": self.metric, "series": lines, "levels": levels}
        return [save_picture(figure, scene.folder / "curve.png"), save_numbers(numbers, scene.folder / "curve.json")]

    def _points(self, records: Mapping[str, StageRecord], stages: list[str]) -> Points:
        absent = [stage for stage in stages if stage not in self.at]
        if absent:
            raise UsageError("A stage has no number.", where="drawing curve, at", got=absent[0], hint="at.STAGE=NUMBER")
        return sorted((self.at[stage], self._value(records, stage)) for stage in stages)

    def _value(self, records: Mapping[str, StageRecord], stage: str) -> float:
        if stage not in records:
            expected = ", ".join(records) or "from: [STAGE, ...]"
            what = "This stage is not among those drawn."
            raise UsageError(what, where="drawing curve", got=stage, expected=expected)
        metrics = records[stage].metrics
        if self.metric not in metrics:
            expected = ", ".join(metrics) or "a stage with metrics"
            raise DataError("The stage has no such metric.", where=stage, got=self.metric, expected=expected)
        return metrics[self.metric]
