"""Runs a recipe: plans, validates what will run, then stage after stage (or several at a time)."""

from __future__ import annotations

from dataclasses import dataclass

from vlcli.files import write_text
from vlcli.progress import Progress, Silent
from vlcli.recipe import litter, run_state, stage_record
from vlcli.recipe import plan as planning
from vlcli.recipe.load import RUN_COPY
from vlcli.recipe.plan import PlannedStage, Planner, RunOptions
from vlcli.recipe.resolved import Resolved
from vlcli.runner import ranks
from vlcli.runner.execute import StageOutcome, execute, settle
from vlcli.runner.watch import Unwatched, Watch, watched


@dataclass(frozen=True)
class Prepared:
    """A run that may begin.

    Attributes:
        planner: of the run.
        steps: the stages that concern it, as planned.
    """

    planner: Planner
    steps: list[PlannedStage]

    @property
    def working(self) -> list[str]:
        """The stages that take computing."""
        return [step.name for step in self.steps if step.works]


def prepare(resolved: Resolved, options: RunOptions, progress: Progress) -> Prepared:
    """Plan a run and check what will run; nothing is run.

    Raises:
        RecipeError: deep validation found faults.
    """
    planner, steps = planning.make(resolved, options)
    if _tidy(planner, progress):
        planner, steps = planning.make(resolved, options)
    found = Prepared(planner, steps)
    held_up = [step.name for step in steps if step.action == "blocked"]
    if options.check and (found.working or held_up):
        from vlcli.runner.preflight import preflight

        preflight(planner, steps, found.working + held_up, progress)
    return found


def run_recipe(resolved: Resolved, options: RunOptions, progress: Progress | None = None) -> list[StageOutcome]:
    """Do what the plan says; a stage that fails stops those that build on it, the others go on.

    Args:
        resolved: a checked recipe.
        options: how to run.
        progress: where to report.

    Raises:
        RecipeError: deep validation found faults; nothing was run.
    """
    progress = progress or Silent()
    if ranks.several() and not ranks.is_first():
        ranks.follow(resolved, options)
        return []
    return run_prepared(prepare(resolved, options, progress), progress)


def run_prepared(prepared: Prepared, progress: Progress) -> list[StageOutcome]:
    """Run what :func:`prepare` planned."""
    planner, steps, working = prepared.planner, prepared.steps, prepared.working
    options = planner.options
    if working or any(step.action == "reuse" for step in steps):
        keep_recipe(planner)
    jobs = 1 if ranks.several() or len(working) <= 1 else options.jobs or planner.resolved.recipe.jobs
    names = [step.name for step in steps]
    if options.check and working:
        with watched(planner, steps, jobs, progress) as watch:
            return _run(planner, names, jobs, watch)
    if options.check and not run_state.is_alive(planner.folder):
        run_state.remove(planner.folder)  # of a run that was killed when all its stages had ended
    return _run(planner, names, jobs, Unwatched(progress))  # nothing to do, or a process whose parent keeps the state


def _run(planner: Planner, names: list[str], jobs: int, watch: Watch | Unwatched) -> list[StageOutcome]:
    if ranks.several():
        return _run_first_of_ranks(planner, names, watch)
    if jobs > 1:
        from vlcli.runner.parallel import run_parallel

        return run_parallel(planner, names, jobs, watch)
    return _run_sequential(planner, names, watch)


def _tidy(planner: Planner, progress: Progress) -> bool:
    """Mend damaged records and sweep what kills left; says whether the plan may have changed."""
    litter.sweep_run(planner.folder)
    told = []
    for name in planner.graph:
        folder = planner.folder / name
        if not stage_record.has_record(folder) or stage_record.is_held(folder):
            continue
        told.append(stage_record.heal(folder))
        litter.sweep_replaced(folder, stage_record.read(folder))
    for line in filter(None, told):
        progress.warn(line)
    return any(told)


def _run_sequential(planner: Planner, names: list[str], watch: Watch | Unwatched) -> list[StageOutcome]:
    states: dict[str, PlannedStage] = {}
    outcomes = []
    for name in planner.graph:
        states[name] = planner.decide(name, states)
        if name in names:
            watch.begins(states[name])
            outcomes.append(watch.ends(settle(planner, states, name, watch.of(name), execute)))
    return outcomes


def _run_first_of_ranks(planner: Planner, names: list[str], watch: Watch | Unwatched) -> list[StageOutcome]:
    """Rank 0's run: the other processes wait for its word before every training stage."""
    with ranks.joined(planner.options.device, planner.resolved.recipe.hang_timeout):
        outcomes = _run_sequential(planner, names, watch)
        ranks.announce(None)
    return outcomes


def keep_recipe(planner: Planner) -> None:
    """Write the resolved recipe into the run's folder, for people."""
    from vlcli.recipe.dump import to_yaml

    write_text(planner.folder / "recipe.yaml", RUN_COPY + to_yaml(planner.resolved.document.value))
