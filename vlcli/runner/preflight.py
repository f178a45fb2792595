"""Finds every fault of a recipe that can be known before its first stage runs."""

from dataclasses import replace
from functools import partial

from vlcli.errors import Problem, RecipeError
from vlcli.progress import Progress, Silent
from vlcli.recipe.plan import PlannedStage, Planner
from vlcli.recipe.schema import Evaluate, Make, Training
from vlcli.recipe.validate import faults
from vlcli.recipe.yaml import dotted
from vlcli.runner.execute import context_of
from vlcli.runner.first_rows import Preview
from vlcli.runner.upstream import unbuildable


def preflight(planner: Planner, steps: list[PlannedStage], names: list[str], progress: Progress) -> list[str]:
    """Validates names, every parameter, files and capabilities of the stages ``names``, with a trial step each.

    Returns:
        Lines on the data: types of columns, and what is left out.

    Raises:
        RecipeError: every fault found.
    """
    from vlcli.stages.make import check

    stages = planner.resolved.stages
    states = {step.name: step for step in steps}
    artifacts = {step.name: step.artifact for step in steps if step.artifact is not None}
    placed = partial(_placed, planner)
    worlds = {name: stage.world for name in names if isinstance(stage := stages[name], Make)}
    problems = [placed(fault) for name, world in worlds.items() for fault in check(world, f"stages.{name}.world")]
    problems += faults(planner.resolved, names, artifacts)
    problems = problems or [placed(fault) for fault in blocked(planner, steps)]
    running = [name for name in names if states[name].action not in ("passed", "done")]
    problems = problems or [placed(fault) for fault in unbuildable(stages, running)]
    preview = Preview(planner, artifacts)
    problems = problems or preview.problems(names)
    if not problems:
        from vlcli.runner.weight_files import unreadable

        for name in running:
            problems += map(placed, unreadable(context_of(planner, name, states, Silent())))
    training = [name for name in names if states[name].action != "passed" and isinstance(stages[name], Training)]
    if training and not problems:
        from vlcli.runner.trial_step import trial_step

        for name in training:
            progress.debug(f"rehearsing {name}: the model and one fake step")
            tests = [one for one in running if isinstance(stages[one], Evaluate) and name in stages[one].source]
            problems += map(placed, trial_step(context_of(planner, name, states, Silent()), [name, *tests]))
    if problems:
        raise RecipeError(problems, planner.resolved.reference)
    return preview.notes()


def blocked(planner: Planner, steps: list[PlannedStage]) -> list[Problem]:
    """Returns a fault for each blocked stage, except those that only wait for another one."""
    names = {step.name for step in steps if step.action == "blocked"}
    hint = "make what it needs (leave out --only or --from), point `root` at the data, or say `if_missing: skip`"
    return [
        Problem(f"stages.{step.name}", f"this stage is blocked: {step.why}", hint=hint, code=5)
        for step in steps
        if step.name in names and not names.intersection(planner.graph[step.name].stages)
    ]


def _placed(planner: Planner, problem: Problem) -> Problem:
    document = planner.resolved.document
    path = max((p for p in document.places if problem.key.startswith(dotted(p))), key=len, default=())
    return problem if problem.where else replace(problem, where=document.place(path))
