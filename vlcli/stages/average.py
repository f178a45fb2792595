"""Averages the last checkpoints of a training stage into one model."""

import shutil
from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from vlcli.builders.context import StageContext, StageResult
from vlcli.engine.bundle import CONFIG, WEIGHTS, find_bundle, record_weights
from vlcli.engine.checkpoint import Checkpoints, read_state, read_weights
from vlcli.engine.weights import refuse_not_finite, save_tensors
from vlcli.errors import DataError, UsageError
from vlcli.files import new_folder
from vlcli.recipe.schema import Average


def run(context: StageContext) -> StageResult:
    """Averages the last ``last`` checkpoints of the stage that ``from`` names into ``model/``."""
    config = context.section(Average)
    sources = context.sources()
    if len(sources) != 1:
        raise UsageError("`average` needs one source stage.", where=f"stages.{context.name}", expected="from: STAGE")
    chosen = Checkpoints(sources[0] / "checkpoints").lasting()[-config.last :]  # the last whole ones, oldest first
    if not chosen:
        hint = "name the stage that trained the model; it keeps `keep: N` checkpoints"
        raise DataError("There are no checkpoints to average.", where=str(sources[0]), hint=hint)
    for path in chosen:
        read_state(path)
    with context.progress.task("average", len(chosen), "checkpoint") as bar:
        state = average(chosen, bar.advance)
    _write(sources[0], context.folder / "model", state)
    count, steps = len(chosen), [int(path.name.split("-")[1]) for path in chosen]
    notes = [f"only {count} checkpoints were kept (keep: N in the stage)"] if count < config.last else []
    return StageResult(files={"model": "model"}, notes=notes, facts={"checkpoints": count, "steps": steps})


def average(files: list[Path], done: Callable[[], object] = lambda: None) -> dict[str, Tensor]:
    """Returns the mean of each floating-point tensor, summed in float64; integers, flags and queues of the last file.

    Tied tensors stay tied; tensors that are equal in all files stay equal to the bit.

    Raises:
        DataError: the files hold different tensors.
    """
    sums: dict[str, Tensor] = {}
    for path in files:
        last = read_weights(path)
        if sums and {n: v.shape for n, v in last.items()} != {n: v.shape for n, v in sums.items()}:
            raise DataError("Checkpoints of different models cannot be averaged.", where=str(path))
        for name, value in last.items():
            if not _is_averaged(name, value):
                sums[name] = value
            else:
                sums[name] = sums[name] + value.double() if name in sums else value.double()
        done()
    means = {
        name: (value / len(files)).to(last[name].dtype) if _is_averaged(name, last[name]) else value
        for name, value in sums.items()
    }
    first: dict[int, str] = {}  # names that shared a tensor share one again
    return {name: means[first.setdefault(id(value), name)] for name, value in last.items()}


def _is_averaged(name: str, value: Tensor) -> bool:
    # a queue holds vectors of the last batches, whose means belong to no example
    return value.is_floating_point() and "queue" not in name.rsplit(".", 1)[-1]


def _write(stage: Path, final: Path, state: dict[str, Tensor]) -> None:
    source = find_bundle(stage)
    if source is None:
        raise DataError("The stage left no model.", where=str(stage), expected=f"model/{CONFIG}")
    kept = {name: value for name, value in state.items() if not name.startswith("teacher.")}
    refuse_not_finite(kept, str(stage), kept)  # which of them are buffers is not known here: those may be infinite
    with new_folder(final) as folder:
        shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(WEIGHTS))
        save_tensors(folder / WEIGHTS, kept)
        record_weights(folder)
