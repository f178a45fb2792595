"""Everything that can be found out about a recipe before it costs time."""

from __future__ import annotations

from dataclasses import replace

from vlcli.errors import Problem, RecipeError
from vlcli.progress import Progress, Silent
from vlcli.recipe.components import dotted
from vlcli.recipe.plan import PlannedStage, Planner
from vlcli.recipe.schema import Make, Training
from vlcli.recipe.validate import faults
from vlcli.runner.execute import context_of
from vlcli.runner.extractions import unbuildable
from vlcli.runner.first_rows import Preview


def preflight(planner: Planner, steps: list[PlannedStage], names: list[str], progress: Progress) -> list[str]:
    """Validate the stages ``names`` deeply: names, every parameter, files, capabilities, one fake step each.

    Returns:
        Lines on what was decided of the data: types of columns, and what is left out.

    Raises:
        RecipeError: every fault found.
    """
    states = {step.name: step for step in steps}
    artifacts = {step.name: step.artifact for step in steps if step.artifact is not None}
    problems = [*_worlds(planner, names), *faults(planner.resolved, names, artifacts)]
    problems = problems or blocked(planner, steps)
    running = [name for name in names if states[name].action not in ("passed", "done")]
    problems = problems or [_placed(planner, one) for one in unbuildable(planner.resolved.stages, running)]
    preview = Preview(planner, artifacts)
    problems = problems or preview.problems(names)
    if not problems:
        problems = rehearse(planner, states, [name for name in names if states[name].action != "passed"], progress)
    if problems:
        raise RecipeError(problems, planner.resolved.reference)
    return preview.notes()


def blocked(planner: Planner, steps: list[PlannedStage]) -> list[Problem]:
    """The stages that could not run, those left out that only wait for one of them."""
    names = {step.name for step in steps if step.action == "blocked"}
    problems = []
    for step in steps:
        if step.name in names and not names.intersection(planner.graph[step.name].stages):
            hint = (
                "make what it needs (leave out --only or --from), point `root` at the data, or say `if_missing: skip`"
            )
            place = planner.resolved.document.place(("stages", step.name))
            problems.append(
                Problem(f"stages.{step.name}", f"this stage is blocked: {step.why}", place, hint=hint, code=5)
            )
    return problems


def rehearse(planner: Planner, steps: dict[str, PlannedStage], names: list[str], progress: Progress) -> list[Problem]:
    """Build the model of every training stage without memory for it, and try one fake step."""
    stages = planner.resolved.stages
    training = [name for name in names if isinstance(stages[name], Training)]
    if not training:
        return []
    from vlcli.runner.trial_step import trial_step

    problems: list[Problem] = []
    for name in training:
        progress.debug(f"rehearsing {name}: the model and one fake step")
        problems += trial_step(context_of(planner, name, steps, Silent()))
    return [_placed(planner, problem) for problem in problems]


def _placed(planner: Planner, problem: Problem) -> Problem:
    """A stage's own finding with the line of the key (or the stage) it is about."""
    document = planner.resolved.document
    path = max((p for p in document.places if problem.key.startswith(dotted(p))), key=len, default=())
    return problem if problem.where else replace(problem, where=document.place(path))


def _worlds(planner: Planner, names: list[str]) -> list[Problem]:
    from vlcli.stages.make import check

    problems: list[Problem] = []
    for name in names:
        stage = planner.resolved.stages[name]
        if isinstance(stage, Make):
            problems += [_placed(planner, fault) for fault in check(stage.world, f"stages.{name}.world")]
    return problems
