"""Everything that can be found out about a recipe before it costs time."""

from __future__ import annotations

from vlcli.errors import Problem, RecipeError
from vlcli.progress import Progress, Silent
from vlcli.recipe.plan import Planner, Step
from vlcli.recipe.schema import Make
from vlcli.recipe.validate import deep, shallow


def preflight(planner: Planner, steps: list[Step], names: list[str], progress: Progress) -> None:
    """Validate the stages ``names`` deeply: names, every parameter, files, capabilities, one fake step each.

    Raises:
        RecipeError: every fault found.
    """
    artifacts = {step.name: step.artifact for step in steps if step.artifact is not None}
    problems = shallow(planner.resolved) or [*_worlds(planner, names), *deep(planner.resolved, names, artifacts)]
    if not problems:
        problems = rehearse(planner, {step.name: step for step in steps}, names, progress)
    if problems:
        raise RecipeError(problems, planner.resolved.reference)


def rehearse(planner: Planner, steps: dict[str, Step], names: list[str], progress: Progress) -> list[Problem]:
    """Build the model of every training stage without memory for it, and try one fake step."""
    stages = planner.resolved.stages
    training = [name for name in names if stages[name].kind in ("pretrain", "finetune")]
    if not training:
        return []
    from vlcli.stages.runner import context_of
    from vlcli.stages.training import rehearse as rehearse_stage

    problems: list[Problem] = []
    for name in training:
        progress.debug(f"rehearsing {name}: the model and one fake step")
        problems += rehearse_stage(context_of(planner, name, steps, Silent()))
    return problems


def _worlds(planner: Planner, names: list[str]) -> list[Problem]:
    from vlcli.stages.make import check

    problems: list[Problem] = []
    for name in names:
        stage = planner.resolved.stages[name]
        if isinstance(stage, Make):
            problems += check(stage.world, f"stages.{name}.world")
    return problems
