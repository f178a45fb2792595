"""Estimates how long a run will still take, from the times of its finished stages and of similar ones."""

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

from vlcli.recipe.run_state import RunState
from vlcli.recipe.stage_record import StageRecord


def expect(
    records: Sequence[StageRecord], recipe: str, name: str, kind: str, config: Mapping[str, Any]
) -> float | None:
    """Returns the seconds that a stage will take, by similar ``records``, newest first; None if none is similar.

    Similar is first the same stage of the same recipe, then a stage of the same kind on the same data, then one of the
    same kind in the same recipe; stages under way count with the seconds that they will have taken. The time is scaled
    by the steps or epochs if both have them.
    """
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
