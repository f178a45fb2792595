"""Several stages at a time: each in a process of its own, its progress relayed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from typing import Any

from vlcli.ahead import how_it_ended
from vlcli.errors import ComponentError, DataError, RecipeError, UsageError, VlcliError
from vlcli.progress import Progress
from vlcli.recipe import stage_record
from vlcli.recipe.plan import PlannedStage, Planner
from vlcli.recipe.stage_record import StageRecord
from vlcli.runner.execute import StageOutcome, settle
from vlcli.runner.watch import Unwatched, Watch

_PATIENCE = 30.0
_KINDS: dict[int, type[VlcliError]] = {2: UsageError, 4: ComponentError, 5: DataError}


def run_parallel(planner: Planner, names: list[str], jobs: int, watch: Watch | Unwatched) -> list[StageOutcome]:
    """As the sequential runner, but stages whose inputs are settled start together, ``jobs`` at most.

    Args:
        planner: of the run.
        names: the stages that concern it.
        jobs: processes at a time.
        watch: keeps the state of all of them.
    """
    states: dict[str, PlannedStage] = {}
    outcomes: dict[str, StageOutcome] = {}
    waiting = first_the_longest({name: node.stages for name, node in planner.graph.items()})
    children = Children()
    with ThreadPoolExecutor(jobs) as pool:
        running: dict[Future[StageOutcome], str] = {}
        try:
            while waiting or running:
                for name in startable(planner, waiting, running.values()):
                    if len(running) >= jobs:
                        break
                    waiting.remove(name)
                    states[name] = planner.decide(name, states)
                    if name in names:
                        watch.begins(states[name])
                        running[pool.submit(settle, planner, states, name, watch.of(name), children.execute)] = name
                done, _ = wait(running, return_when=FIRST_COMPLETED) if running else (set(), set())
                for future in done:
                    outcomes[running.pop(future)] = watch.ends(future.result())
        except BaseException:
            children.stop()
            raise
    return [outcomes[name] for name in planner.graph if name in outcomes]


def first_the_longest(inputs: Mapping[str, Collection[str]]) -> list[str]:
    """Stages by how many others wait for them in a row, the recipe's order among equals.

    A run lasts as long as its longest chain: an evaluation that nothing waits for must not delay the chain's next one.

    Args:
        inputs: the stages that each stage reads from, in an order in which a stage stands behind its inputs.
    """
    behind = dict.fromkeys(inputs, 0)
    for name in reversed(list(inputs)):
        for source in behind.keys() & set(inputs[name]):
            behind[source] = max(behind[source], behind[name] + 1)
    return sorted(inputs, key=lambda name: -behind[name])


def startable(planner: Planner, waiting: list[str], running: Iterable[str]) -> list[str]:
    """Stages whose every input is settled, those of the longest chain first."""
    open_ones = {*waiting, *running}
    return [name for name in waiting if not open_ones.intersection(planner.graph[name].stages)]


class Children:
    """The stage processes that are alive."""

    def __init__(self) -> None:
        self.alive: set[subprocess.Popen[str]] = set()
        self.stopping = False

    def execute(
        self, planner: Planner, step: PlannedStage, states: dict[str, PlannedStage], progress: Progress
    ) -> StageRecord:
        """Run one stage in a process; its ``stage.json`` says how it ended."""
        if self.stopping:
            raise VlcliError("The run was stopped.")
        environment = dict(os.environ)
        threads = planner.resolved.stages[step.name].threads
        if threads is not None:
            environment["OMP_NUM_THREADS"] = str(threads)
        child = subprocess.Popen(
            command(planner, step),
            env=environment,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            process_group=0,  # a terminal's Ctrl-C comes through this process alone, once
        )
        self.alive.add(child)
        try:
            told = relay(child, step.name, progress)
            code = child.wait()
        finally:
            self.alive.discard(child)
        record = stage_record.read(step.folder)
        if code != 0 or record is None or record.status != "done":
            raise _failure(step, code, record, told)
        return record

    def stop(self) -> None:
        """Ask every process to end; after a while end it."""
        self.stopping = True
        for child in list(self.alive):
            child.terminate()
        for child in list(self.alive):
            with suppress(subprocess.TimeoutExpired):
                child.wait(_PATIENCE)
                continue
            child.kill()


def command(planner: Planner, step: PlannedStage) -> list[str]:
    """The command line of one stage's process."""
    options, resolved = planner.options, planner.resolved
    words = [sys.executable, "-m", "vlcli", "run", resolved.reference, *resolved.words, "--only", step.name, "--worker"]
    words += ["--output", str(options.output), "--run-folder", str(planner.folder)]
    words += ["--force"] if options.force else []
    words += [] if options.resume else ["--no-resume"]
    words += ["--device", options.device] if options.device else []
    for file in (*options.plugins, *map(str, resolved.plugins)):  # those of the recipe are trusted by now
        words += ["--plugin", file]
    return words


def relay(child: subprocess.Popen[str], name: str, progress: Progress) -> str:
    """Pass a process's events on; returns its last plain words on stderr."""
    assert child.stderr is not None
    plain: deque[str] = deque(maxlen=20)
    with ExitStack() as open_tasks:
        tasks: dict[str, tuple[ExitStack, Any]] = {}
        for line in child.stderr:
            event = _event(line)
            if event is None:
                plain.append(line.rstrip())
            elif event["event"] in ("info", "warn", "debug"):
                getattr(progress, event["event"])(f"{name}: {event['text']}")
            elif event["event"] == "task":
                holder = open_tasks.enter_context(ExitStack())
                made = progress.task(f"{name}: {event['label']}", event["total"], event["unit"], event["done"])
                tasks[event["label"]] = holder, holder.enter_context(made)
            elif event["label"] in tasks and event["event"] == "advance":
                tasks[event["label"]][1].advance(event["count"], **event["facts"])
            elif event["label"] in tasks:
                tasks.pop(event["label"])[0].close()
    return "\n".join(plain)


def _event(line: str) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None


def _failure(step: PlannedStage, code: int, record: StageRecord | None, told: str) -> VlcliError:
    lines = [line for line in told.splitlines() if line.strip()]
    begun = next((i for i, line in enumerate(lines) if line.startswith("error: ")), None)
    what = "\n".join(lines[begun:]).removeprefix("error: ") if begun is not None else ""
    if not what:
        said = record.error if record is not None and record.error else ""
        killed = code < 0 and not said
        what = said or f"The process of this stage ended: {how_it_ended(code)}."
        hint = (
            "run the same command again: it goes on from what is kept"
            if killed
            else f"run it alone: --only {step.name}"
        )
        error = VlcliError(what, where=str(step.folder), got=lines[-1] if lines and not killed else "", hint=hint)
    else:
        error = _KINDS.get(code, VlcliError)(what)
    if code == RecipeError.exit_code:
        error.exit_code = code
    return error
