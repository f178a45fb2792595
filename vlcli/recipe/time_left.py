"""How long a run will still take, from what its stages and similar ones have measured.

Nothing here is exact: whoever shows a number says "about", and says of how many stages nothing is known.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from vlcli.recipe import stage_record
from vlcli.recipe.run_state import RunState, StageState
from vlcli.recipe.stage_record import StageRecord

_MOST = 2000
"""Records of other runs that are read at most."""


class Measured:
    """Seconds that finished stages took, of this run and of the other runs under an output folder.

    Args:
        records: finished stages, the newest first.
    """

    def __init__(self, records: Iterable[StageRecord] = ()) -> None:
        self.records = list(records)

    @classmethod
    def under(cls, output: Path) -> Measured:
        """What all runs under ``output`` measured."""
        found = []
        for _, record in stage_record.finished_stages(output):
            found.append(record)
            if len(found) >= _MOST:
                break
        return cls(found)

    def add(self, record: StageRecord) -> None:
        """A stage of this run is done."""
        self.records.insert(0, record)

    def expect(
        self, recipe: str, name: str, kind: str, config: Mapping[str, Any], under_way: Iterable[StageRecord] = ()
    ) -> float | None:
        """Seconds that a stage will take.

        The first of these that was measured counts: the same stage of the same recipe; stages of the same kind on the
        same data; stages of the same kind in the same recipe. Where both have a number of steps or epochs, the time is
        scaled by it. None: nothing similar was measured.

        Args:
            recipe: name of the recipe.
            name: the stage.
            kind: its kind.
            config: its section, as its record will hold it.
            under_way: stages of the run that have not ended, with the seconds that they will have taken.
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
    """Seconds that a run will still take, and the number of stages of which nothing is known.

    Stages are thought to start as the runner starts them: in order, when what they need is done, ``jobs`` at a time.
    Stages of which nothing is known count as no time.
    """
    now = time.time() if now is None else now
    open_ones = [stage for stage in state.stages if not stage.ended]
    unknown = sum(stage.left(now) is None for stage in open_ones)
    running = {stage.name: stage.left(now) or 0.0 for stage in open_ones if stage.status == "running"}
    waiting = [stage for stage in open_ones if stage.status != "running"]
    clock = 0.0
    while running or waiting:
        _start(waiting, running, clock, state.jobs, now)
        if not running:
            break  # what the rest waits for is not part of this run
        name = min(running, key=lambda key: running[key])
        clock = max(clock, running[name])
        del running[name]
    return clock, unknown


def _start(
    waiting: list[StageState],
    running: dict[str, float],
    clock: float,
    jobs: int,
    now: float,
) -> None:
    open_ones = {stage.name for stage in waiting} | set(running)
    for stage in list(waiting):
        if len(running) >= max(1, jobs):
            return
        if not open_ones.intersection(stage.after):
            waiting.remove(stage)
            running[stage.name] = clock + (stage.left(now) or 0.0)
