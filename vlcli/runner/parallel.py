"""Runs several stages at a time: each in a process of its own, its progress relayed.

The process of a stage starts while the stage before it runs: importing torch takes seconds.
"""

import importlib
import json
import os
import select
import subprocess
import sys
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlcli import registry
from vlcli.ahead import how_it_ended
from vlcli.errors import ComponentError, DataError, RecipeError, UsageError, VlcliError
from vlcli.progress import Progress
from vlcli.recipe import stage_record
from vlcli.recipe.components import of_recipe, of_stage
from vlcli.recipe.locate import Resolved
from vlcli.recipe.plan import PlannedStage, Planner
from vlcli.recipe.stage_record import StageRecord
from vlcli.runner.execute import StageOutcome, States, settle
from vlcli.runner.watch import Unwatched, Watch

_PATIENCE = 30.0
# Seconds that a process which is ready lets pass: a stage counts the idle cores as it begins, and imports would be busy
_PAUSE = 10.0
_KINDS: dict[int, type[VlcliError]] = {2: UsageError, 4: ComponentError, 5: DataError}


def run_parallel(planner: Planner, names: list[str], jobs: int, watch: Watch | Unwatched) -> list[StageOutcome]:
    """Runs the stages ``names`` in up to ``jobs`` processes; a stage starts when its inputs are settled."""
    lane = Lane(planner, names, watch)
    run_lanes([lane], jobs)
    return lane.ended


@dataclass
class Lane:
    """The stages ``names`` of one recipe; :func:`run_lanes` runs several lanes at the same time."""

    planner: Planner
    names: list[str]
    watch: Watch | Unwatched

    def __post_init__(self) -> None:
        self.waiting = first_the_longest({name: node.stages for name, node in self.planner.graph.items()})
        self.open = set[str]()
        self.states: States = {}
        self.outcomes: dict[str, StageOutcome] = {}

    def begin(self) -> None:
        """Called by :func:`run_lanes` before the first stage begins."""

    def end(self) -> None:
        """Called by :func:`run_lanes` when the last stage has ended."""

    @property
    def ended(self) -> list[StageOutcome]:
        return [self.outcomes[name] for name in self.planner.graph if name in self.outcomes]

    def following(self) -> str | None:
        """Returns the first stage that waits for one of those that run."""
        graph, waiting = self.planner.graph, filter(self.names.__contains__, self.waiting)
        return next((name for name in waiting if self.open.intersection(graph[name].stages)), None)

    def next(self, making: Collection[str]) -> str | None:
        """Takes the next chosen stage that can be settled; not one that another lane makes now (keys ``making``)."""
        unsettled = {*self.waiting, *self.open}
        for name in list(self.waiting):
            if unsettled.intersection(self.planner.graph[name].stages):
                continue
            step = self.planner.decide(name, self.states)
            if step.works and step.key in making:
                continue
            self.states[name] = step
            self.waiting.remove(name)
            unsettled.discard(name)
            if name in self.names:
                return name
        return None


def run_lanes(lanes: Sequence[Lane], jobs: int) -> None:
    """Runs stages of several recipes in up to ``jobs`` processes; a stage that two recipes share runs once."""
    children = Children()
    running: dict[Future[StageOutcome], tuple[Lane, str]] = {}
    making: set[str] = set()
    with ThreadPoolExecutor(jobs) as pool:
        try:
            while True:
                for lane in lanes:
                    while len(running) < jobs and (name := lane.next(making)) is not None:
                        if not lane.outcomes and not lane.open:
                            lane.begin()
                        step, progress = lane.states[name], lane.watch.of(name)
                        lane.watch.begins(step)
                        making |= {step.key} if step.works and step.key and len(lanes) > 1 else set()
                        lane.open.add(name)
                        work = pool.submit(settle, lane.planner, lane.states, name, progress, children.execute)
                        running[work] = lane, name
                    if (following := lane.following()) is not None:
                        children.prepare(lane.planner, following)
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    lane, name = running.pop(future)
                    step, outcome = lane.states[name], future.result()
                    lane.open.discard(name)
                    lane.outcomes[name] = lane.watch.ends(outcome)
                    children.dismiss(step.folder)
                    if step.key in making:
                        making.discard(step.key)
                        if step.works and step.record is not None and step.artifact is not None:
                            finished = lane.planner.elsewhere.setdefault(step.record.key, [])
                            finished.insert(0, (step.artifact, step.record))
                    if not lane.open and not set(lane.names).intersection(lane.waiting):
                        lane.end()
        except BaseException:
            children.stop()
            raise


def first_the_longest(inputs: Mapping[str, Collection[str]]) -> list[str]:
    """Sorts stages by the length of the chain of stages behind them; equals stay in the recipe's order.

    A run lasts as long as its longest chain.

    Args:
        inputs: the stages that each stage reads from; a stage comes after its inputs.
    """
    behind = dict.fromkeys(inputs, 0)
    for name in reversed(list(inputs)):
        for source in behind.keys() & set(inputs[name]):
            behind[source] = max(behind[source], behind[name] + 1)
    return sorted(inputs, key=lambda name: -behind[name])


class Children:
    """The stage processes that are alive, and those that are ``ready``, by the folder of their stage."""

    def __init__(self) -> None:
        self.alive: set[subprocess.Popen[str]] = set()
        self.ready: dict[Path, subprocess.Popen[str]] = {}
        self.stopping = False

    def prepare(self, planner: Planner, name: str) -> None:
        """Starts the process of a stage whose inputs are being made."""
        if (folder := planner.folder / name) not in self.ready:
            self.ready[folder] = _start(planner, name)

    def dismiss(self, folder: Path) -> None:
        """Ends the process that is ready for a stage that needed none."""
        if (child := self.ready.pop(folder, None)) is not None:
            child.kill()
            child.communicate()

    def execute(self, planner: Planner, step: PlannedStage, states: States, progress: Progress) -> StageRecord:
        """Runs one stage in a process, which writes ``stage.json``."""
        if self.stopping:
            raise VlcliError("The run was stopped.")
        child = self.ready.pop(step.folder, None) or _start(planner, step.name)
        assert child.stdin is not None
        with suppress(BrokenPipeError), child.stdin as words:  # a process that has ended says why on stderr
            words.write(f"{step.key}\n")
        self.alive.add(child)
        try:
            plain = relay(child, step.name, progress)
            code = child.wait()
        finally:
            self.alive.discard(child)
        record = stage_record.read(step.folder)
        if code != 0 or record is None or record.status != "done":
            raise _failure(step, code, record, [line for line in plain if line.strip()])
        return record

    def stop(self) -> None:
        """Sends SIGTERM to every process, and SIGKILL after a while."""
        self.stopping = True
        for folder in list(self.ready):
            self.dismiss(folder)
        for child in list(self.alive):
            child.terminate()
        for child in list(self.alive):
            try:
                child.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                child.kill()


def _start(planner: Planner, name: str) -> subprocess.Popen[str]:
    threads = planner.resolved.stages[name].threads
    return subprocess.Popen(
        command(planner, name),
        env=os.environ | {"VLCLI_SET": ""} | ({} if threads is None else {"OMP_NUM_THREADS": str(threads)}),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        process_group=0,  # a terminal's Ctrl-C comes through this process alone, once
    )


def command(planner: Planner, name: str) -> list[str]:
    """Returns the command line of a stage's process, which reads the stage's key from stdin."""
    options, resolved = planner.options, planner.resolved
    words = [sys.executable, "-m", "vlcli", "run", resolved.reference, *resolved.words, "--only", name, "--worker"]
    words += ["--output", str(options.output), "--run-folder", str(planner.folder)]
    words += ["--force"] if options.force else []
    words += [] if options.resume else ["--no-resume"]
    words += ["--device", options.device] if options.device else []
    for file in (*options.plugins, *map(str, resolved.plugins)):  # the recipe's are trusted by now
        words += ["--plugin", file]
    return words


def wait_for_key(resolved: Resolved, name: str) -> str:
    """Imports what the stage of this process needs; returns its key, a line on stdin, or "" where the run has ended."""
    select.select([sys.stdin], [], [], _PAUSE)
    importlib.import_module(f"vlcli.stages.{(stage := resolved.stages[name]).kind}")
    for use in [*(of_recipe(resolved.recipe) if stage.kind != "make" else ()), *of_stage(name, stage)]:
        with suppress(Exception):  # told where the component is built
            for package in getattr(registry.load(use.kind, use.spec["name"]), "packages", ()):
                importlib.import_module(package)
    return sys.stdin.readline().strip()


def relay(child: subprocess.Popen[str], name: str, progress: Progress) -> deque[str]:
    """Passes the events of a process to ``progress``; returns its last plain lines on stderr."""
    assert child.stderr is not None
    plain: deque[str] = deque(maxlen=20)
    with ExitStack() as open_tasks:
        tasks: dict[str, tuple[ExitStack, Any]] = {}
        for line in child.stderr:
            event: Any = None
            with suppress(ValueError):
                event = json.loads(line)
            said, label = (event.get("event"), event.get("label", "")) if isinstance(event, dict) else ("", "")
            if said in ("info", "warn", "debug") and "text" in event:
                getattr(progress, said)(f"{name}: {event['text']}")
            elif said == "task" and "total" in event:
                holder = open_tasks.enter_context(ExitStack())
                task = progress.task(f"{name}: {label}", event["total"], event["unit"], event["done"])
                tasks[label] = holder, holder.enter_context(task)
            elif said == "advance" and label in tasks:
                tasks[label][1].advance(event["count"], **event["facts"])
            elif said == "end" and label in tasks:
                tasks.pop(label)[0].close()
            else:
                plain.append(line.rstrip())
    return plain


def _failure(step: PlannedStage, code: int, record: StageRecord | None, lines: list[str]) -> VlcliError:
    what = "\n".join(["", *lines]).partition("\nerror: ")[2]
    if what:
        error = _KINDS.get(code, VlcliError)(what)
    else:
        said = record.error if record is not None else ""
        killed = code < 0 and not said
        again = "run the same command again: it goes on from what is kept"
        error = VlcliError(
            said or f"The process of this stage ended: {how_it_ended(code)}.",
            where=str(step.folder),
            got=lines[-1] if lines and not killed else "",
            hint=again if killed else f"run it alone: --only {step.name}",
        )
    if code == RecipeError.exit_code:
        error.exit_code = code
    return error
