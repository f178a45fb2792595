"""Estimates how long a run will still take, from the times of its finished stages and of similar ones."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from vlcli.recipe import stage_record
from vlcli.recipe.run_state import RunState
from vlcli.recipe.stage_record import StageRecord

_MOST = 2000
"""The most records of other runs that are read."""


class Measured:
    """Times of finished stages, the newest first, of this run and of the other runs under an output folder."""

    def __init__(self, records: Iterable[StageRecord] = ()) -> None:
        self.records = list(records)

    @classmethod
    def under(cls, output: Path) -> Measured:
        """Reads the records of all runs under ``output``."""
        return cls(record for _, record in itertools.islice(stage_record.finished_stages(output), _MOST))

    def add(self, record: StageRecord) -> None:
        """Adds a finished stage of this run."""
        self.records.insert(0, record)

    def expect(
        self, recipe: str, name: str, kind: str, config: Mapping[str, Any], under_way: Iterable[StageRecord] = ()
    ) -> float | None:
        """Returns the seconds that a stage will take; None if nothing similar was measured.

        Similar is first the same stage of the same recipe, then a stage of the same kind on the same data, then one of
        the same kind in the same recipe. The time is scaled by the number of steps or epochs if both have it.
        ``under_way`` are stages of the run that have not ended, with the seconds that they will have taken.
        """
        records = [*self.records, *under_way]
        alike = [record for record in records if record.kind == kind and record.recipe == recipe]
        same = [record for record in alike if record.stage == name][:3]
        data = [record for record in alike if _data(record.config) == _data(config)]
        for near in (same, data, alike):
            times = [record.seconds * _scale(record.config, config) for record in near if record.seconds > 0]
            if times:
                return float(statistics.median(times))
        return None


def _data(config: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(repr(config.get(key)) for key in ("data", "task", "split", "repeats"))


def _scale(measured: Mapping[str, Any], wanted: Mapping[str, Any]) -> float:
    for unit in ("steps", "epochs"):
        pair = measured.get(unit), wanted.get(unit)
        if all(isinstance(value, (int, float)) and value > 0 for value in pair):
            return float(pair[1]) / float(pair[0])  # type: ignore[arg-type]
    return 1.0


def of_run(state: RunState, now: float | None = None) -> tuple[float, int]:
    """Returns the seconds that a run will still take, and the number of stages without an estimate, which count as 0.

    Stages start as the runner starts them: in order, when their inputs are done, ``jobs`` at a time.
    """
    now = time.time() if now is None else now
    open_ones = [stage for stage in state.stages if not stage.ended]
    unknown = sum(stage.left(now) is None for stage in open_ones)
    running = {stage.name: stage.left(now) or 0.0 for stage in open_ones if stage.status == "running"}
    waiting = [stage for stage in open_ones if stage.status != "running"]
    clock = 0.0
    while running or waiting:
        unfinished = {stage.name for stage in waiting} | set(running)
        for stage in list(waiting):
            if len(running) < max(1, state.jobs) and not unfinished.intersection(stage.after):
                waiting.remove(stage)
                running[stage.name] = clock + (stage.left(now) or 0.0)
        if not running:
            break  # what the rest waits for is not part of this run
        name = min(running, key=lambda key: running[key])
        clock = max(clock, running[name])
        del running[name]
    return clock, unknown
