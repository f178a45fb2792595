"""Runs a recipe: plans, validates what will run, then stage after stage (or several at a time)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from vlcli.files import write_text
from vlcli.progress import Progress, Silent
from vlcli.recipe import litter, run_state, stage_record
from vlcli.recipe import plan as planning
from vlcli.recipe.overrides import uneven
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

    @property
    def writes(self) -> bool:
        """Whether anything is written into the run's folder."""
        return any(step.works or step.action == "reuse" for step in self.steps)


def prepare(resolved: Resolved, options: RunOptions, progress: Progress) -> Prepared:
    """Plan a run and check what will run; nothing is run.

    Raises:
        RecipeError: deep validation found faults.
    """
    planner, steps = planning.make(resolved, options)
    found = Prepared(planner, steps)
    for line in uneven(resolved.recipe, resolved.words) if options.check else ():
        progress.warn(line)
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
        VlcliError: another process runs in the folder of this run.
    """
    progress = progress or Silent()
    if ranks.several() and not ranks.is_first():
        ranks.follow(resolved, options)
        return []
    return run_prepared(prepare(resolved, options, progress), progress)


def run_prepared(prepared: Prepared, progress: Progress) -> list[StageOutcome]:
    """Run what :func:`prepare` planned.

    Raises:
        VlcliError: another process runs in the folder of this run.
    """
    if not prepared.planner.options.check:  # a process whose parent holds the folder and keeps the state
        return _run(prepared, 1, Unwatched(progress))
    with held(prepared, progress) as now:
        planner, several_stages = now.planner, len(now.working) > 1 and not ranks.several()
        jobs = planner.options.jobs or planner.resolved.recipe.jobs if several_stages else 1
        if not now.working:
            return _run(now, 1, Unwatched(progress))
        with watched(planner, now.steps, jobs, progress) as watch:
            return _run(now, jobs, watch)


@contextmanager
def held(prepared: Prepared, progress: Progress) -> Iterator[Prepared]:
    """Hold the folder of a run and plan again: another process may have made stages since :func:`prepare` looked.

    Yields:
        What is to be done now, perhaps in another folder. A run that has nothing to do holds nothing.

    Raises:
        VlcliError: another process runs in this folder.
    """
    with ExitStack() as stack:
        while prepared.writes or prepared.planner.folder.is_dir():
            planner, patience = prepared.planner, stage_record.LOCK_PATIENCE if prepared.writes else 0.0
            alone = stack.enter_context(run_state.held(planner.folder, patience))
            if alone:
                _tidy(planner, progress)
            prepared = Prepared(*planning.make(planner.resolved, planner.options))
            if prepared.planner.folder != planner.folder:
                stack.close()
                continue
            if not alone and prepared.writes:
                lock = planner.folder / run_state.LOCK
                raise stage_record.taken("Another vlcli is running in this folder.", planner.folder, lock)
            if alone and not prepared.working:
                run_state.remove(planner.folder)  # of a run that was killed when all its stages had ended
            break
        if prepared.writes:
            keep_recipe(prepared.planner)
        yield prepared


def _run(prepared: Prepared, jobs: int, watch: Watch | Unwatched) -> list[StageOutcome]:
    planner, names = prepared.planner, [step.name for step in prepared.steps]
    if ranks.several():
        return _run_first_of_ranks(planner, names, watch)
    if jobs > 1:
        from vlcli.runner.parallel import run_parallel

        return run_parallel(planner, names, jobs, watch)
    return _run_sequential(planner, names, watch)


def _tidy(planner: Planner, progress: Progress) -> None:
    """Mend damaged records and sweep what kills left."""
    litter.sweep_run(planner.folder)
    for name in planner.graph:
        folder = planner.folder / name
        if not stage_record.has_record(folder) or stage_record.is_held(folder):
            continue
        if told := stage_record.heal(folder):
            progress.warn(told)
        litter.sweep_replaced(folder, stage_record.read(folder))


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

    text = "# The recipe of this run, resolved (2).\n" + to_yaml(planner.resolved.document.value)
    write_text(planner.folder / "recipe.yaml", text)
