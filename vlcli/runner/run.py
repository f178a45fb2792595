"""Plans, validates and runs a recipe."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from vlcli.files import write_text
from vlcli.progress import Progress, Silent
from vlcli.recipe import leftovers, run_state, stage_record
from vlcli.recipe import plan as planning
from vlcli.recipe.locate import Resolved
from vlcli.recipe.overrides import uneven
from vlcli.recipe.plan import PlannedStage, Planner, RunOptions
from vlcli.runner import ranks
from vlcli.runner.execute import StageOutcome, execute, settle
from vlcli.runner.watch import Unwatched, Watch, watched


@dataclass(frozen=True)
class Prepared:
    """A run that may begin: planner and chosen stages."""

    planner: Planner
    steps: list[PlannedStage]

    @property
    def working(self) -> list[str]:
        return [step.name for step in self.steps if step.works]

    @property
    def writes(self) -> bool:
        """Whether the run writes into its folder."""
        return any(step.works or step.action == "reuse" for step in self.steps)


def prepare(resolved: Resolved, options: RunOptions, progress: Progress) -> Prepared:
    """Plans a run and checks what will run; nothing is run."""
    prepared = Prepared(*planning.make(resolved, options))
    for line in uneven(resolved.recipe, resolved.words) if options.check else ():
        progress.warn(line)
    pending = prepared.working + [step.name for step in prepared.steps if step.action == "blocked"]
    if options.check and pending:
        from vlcli.runner.preflight import preflight

        preflight(prepared.planner, prepared.steps, pending, progress)
    return prepared


def run_recipe(resolved: Resolved, options: RunOptions, progress: Progress | None = None) -> list[StageOutcome]:
    """Plans, checks and runs a recipe; a stage that fails blocks those that build on it, the others go on.

    Raises:
        RecipeError: the checks found faults; nothing was run.
        VlcliError: another process runs in the folder of this run.
    """
    progress = progress or Silent()
    if ranks.several() and not ranks.is_first():
        ranks.follow(resolved, options)
        return []
    return run_prepared(prepare(resolved, options, progress), progress)


def run_prepared(prepared: Prepared, progress: Progress) -> list[StageOutcome]:
    """Runs the stages that :func:`prepare` planned."""
    options, recipe = prepared.planner.options, prepared.planner.resolved.recipe
    with ExitStack() as stack:
        if ranks.several():
            # The other processes wait for this one from here on: where the folder is another's, they end with it.
            stack.enter_context(ranks.joined(options.device, recipe.hang_timeout))
        if not options.check:  # a process whose parent holds the folder and keeps the state
            return _in_order(prepared, Unwatched(progress))
        now = stack.enter_context(held(prepared, progress))
        if not now.working:
            return _in_order(now, Unwatched(progress))
        jobs = options.jobs or recipe.jobs if len(now.working) > 1 and not ranks.several() else 1
        watch = stack.enter_context(watched(now.planner, now.steps, jobs, progress))
        if jobs == 1:
            return _in_order(now, watch)
        from vlcli.runner.parallel import run_parallel

        return run_parallel(now.planner, [step.name for step in now.steps], jobs, watch)


def _in_order(prepared: Prepared, watch: Watch | Unwatched) -> list[StageOutcome]:
    planner = prepared.planner
    states: dict[str, PlannedStage] = {}
    outcomes = []
    for name in (step.name for step in prepared.steps):
        states[name] = planner.decide(name, states)
        watch.begins(states[name])
        outcomes.append(watch.ends(settle(planner, states, name, watch.of(name), execute)))
    if ranks.several():
        ranks.announce(None)
    return outcomes


@contextmanager
def held(prepared: Prepared, progress: Progress) -> Iterator[Prepared]:
    """Holds the folder of a run and plans again: another process may have made stages since :func:`prepare`.

    Yields:
        The new plan, perhaps of another folder; a run without work holds none.

    Raises:
        VlcliError: another process runs in this folder.
    """
    with ExitStack() as stack:
        while prepared.writes or os.access(prepared.planner.folder, os.W_OK):
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


def _tidy(planner: Planner, progress: Progress) -> None:
    leftovers.sweep_run(planner.folder)
    for name in planner.graph:
        folder = planner.folder / name
        if not stage_record.has_record(folder) or stage_record.is_held(folder):
            continue
        if mended := stage_record.heal(folder):
            progress.warn(mended)
        leftovers.sweep_replaced(folder, stage_record.read(folder))


def keep_recipe(planner: Planner) -> None:
    """Writes the resolved recipe into the run's folder, for people."""
    from vlcli.recipe.yaml import to_yaml

    text = "# The recipe of this run, resolved (2).\n" + to_yaml(planner.resolved.document.value)
    write_text(planner.folder / "recipe.yaml", text)
