"""Estimates how long a recipe takes on this machine, from a trial of one step of every training stage."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from vlcli.builders.context import StageContext
from vlcli.builders.readers import open_readers
from vlcli.engine.schedule import StepPlan
from vlcli.nn.model import DataSpec
from vlcli.recipe.schema import Recipe, Training
from vlcli.recipe.wiring import root_folder
from vlcli.runner.trial_step import rehearse
from vlcli.starter.machine import seconds_a_picture, usual_seconds
from vlcli.starter.plan import Plan

# Speed that the cores beyond the first add where a control trains beside its model. A training that runs alone gains as
# little from threads as it loses to the thread that loads its batches.
_SECOND_CORE = 0.5
_ROW = 4e-3  # seconds a training example costs in all rows beside the model
_WRITTEN = 12  # forward passes that a caption costs in beam search
_STAGE = 3.0  # seconds until a stage's process has started, two at a time
# Seconds of processor time in which the program starts and looks at the data, and writes its tables at the end.
_START = 7.0


@dataclass(frozen=True)
class Times:
    """Seconds of all stages of a kind; ``stops``: validation may end a training before its bound."""

    extraction: float
    training: float
    evaluation: float
    stops: bool = False

    @property
    def total(self) -> float:
        return _START + self.extraction + self.training + self.evaluation

    @property
    def text(self) -> str:
        seconds = {"extraction": self.extraction, "training": self.training, "evaluation": self.evaluation}
        seconds = {name: value for name, value in seconds.items() if value >= 20}
        most = "at most " if self.stops and "training" in seconds else ""
        named = ", ".join(f"{name} {most * (name == 'training')}{span(value)}" for name, value in seconds.items())
        return f"{most or 'about '}{span(self.total)}" + (f" ({named})" if named else "")


def span(seconds: float) -> str:
    """Return seconds, minutes or hours, rounded as an estimate."""
    if seconds < 90:
        return f"{max(10, round(seconds / 10) * 10)} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def times_of(plan: Plan, recipe: Recipe) -> Times:
    """Estimate the times of a plan's recipe on an idle machine, by a step of each training (see docs/init.md)."""
    with TemporaryDirectory() as folder:
        trained, forward = _trained(recipe, plan, Path(folder))
    test = plan.parts["test"]
    evaluated = 2 * test.examples * forward + (test.pictures * forward * _WRITTEN if plan.goal == "captioning" else 0)
    evaluated += plan.parts["train"].examples * _ROW
    pictures = sum(part.pictures for part in plan.parts.values())
    extracted = 0.0
    if plan.features != "pixels" and plan.goal != "detection":
        extracted = pictures * seconds_a_picture(plan.weights.arch if plan.weights else "tiny-conv", plan.machine.cores)
    trainings = {name: stage for name, stage in recipe.stages.items() if isinstance(stage, Training)}
    first = [name for name, stage in trainings.items() if not set(stage.source) & set(trainings)]
    together = 1 + _SECOND_CORE * (plan.machine.cores > 1 and len(first) > 1)
    stops = any(stage.stop is not None for stage in trainings.values())
    return Times(extracted, trained / together, evaluated / together + _STAGE * len(recipe.stages), stops)


def _trained(recipe: Recipe, plan: Plan, folder: Path) -> tuple[float, float]:
    # seconds of all trainings, and of a forward pass of one example in the last one
    kinds = {name: section.kind for name, section in recipe.stages.items()}
    counts: dict[str, int] = {}
    trained = forward = 0.0
    for name, stage in recipe.stages.items():
        if not isinstance(stage, Training):
            continue
        root = root_folder(recipe, stage, {})
        context = StageContext(recipe, name, stage, folder / name, {}, root, kinds=kinds)
        if str(stage.data) not in counts:
            readers = open_readers(stage.data, root, cache=context.cache)  # the trial reads what is cached here
            counts[str(stage.data)] = sum(len(reader.examples()) for reader in readers)
        size = counts[str(stage.data)]
        step = _step(context, min(size, stage.batch_size), plan)
        forward = step / min(size, stage.batch_size) / 3
        validated = plan.parts["validation"].examples * (stage.epochs or 0) if stage.validation else 0
        trained += StepPlan.of(size, stage, 1).steps * step + validated * forward
    return trained, forward


def _step(context: StageContext, count: int, plan: Plan) -> float:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    regions = max(1, round(plan.candidates)) if plan.goal == "referring" else 36
    like = DataSpec(regions=regions, region_dim=2048 if plan.weights else 256)
    with rehearse(context, count, like, real=True) as rehearsal:
        rehearsal.module.to(device)
        optimizer = torch.optim.AdamW(rehearsal.module.parameters())

        def step() -> None:
            rehearsal.loss(rehearsal.batch().to(device)).total.backward()
            optimizer.step()
            rehearsal.module.close_step()

        return usual_seconds(step)
