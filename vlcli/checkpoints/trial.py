"""A published file tried without its weights: tensors of its layout on the meta device, read by the model of its entry.

The same functions as in training read them (``adapt`` of model and objectives); only the values are missing. Each
tensor carries the names that it was made from: so it is known of every name in the file whether it reached the model.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from vlcli import registry
from vlcli.checkpoints.layout import Tensors
from vlcli.checkpoints.load import Checkpoint
from vlcli.detection.extractor import Extractor
from vlcli.engine.training_module import TrainingModule, build_training_module
from vlcli.engine.weights import WeightLoader
from vlcli.errors import VlcliError
from vlcli.nn.model import DataSpec


class Traced(Tensor):
    """A tensor that remembers which tensors of a file it was made from."""

    names: frozenset[str] = frozenset()

    @classmethod
    def of(cls, value: Tensor, name: str) -> Traced:
        """``value`` under the name of the file's tensor."""
        made = value.as_subclass(cls)
        made.names = frozenset([name])
        return made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]
        names = frozenset().union(*(_names_of(one) for one in (*args, *(kwargs or {}).values())))
        for one in made if isinstance(made, tuple | list) else [made]:
            if isinstance(one, Traced):
                one.names = one.names | names
        return made


def _names_of(value: Any) -> frozenset[str]:
    if isinstance(value, Traced):
        return value.names
    if isinstance(value, list | tuple):
        return frozenset().union(*map(_names_of, value))
    return frozenset()


@dataclass
class Trial:
    """What becomes of a file's tensors.

    Attributes:
        name: the checkpoint's.
        tensors: how many the file holds.
        values: how many numbers they hold.
        read: names of the file that reach the model.
        excused: names that do not, with the written reason.
        lost: names that do not, without a reason.
        parameters: numbers in the model and its heads, momentum copies and their buffers left out.
        new: weights of the model that the file does not hold, with the written reason.
        missing: those without a reason.
        idle: patterns of ``excused`` and ``new`` that excuse nothing.
        mismatched: names with both shapes.
        notes: what ``adapt`` reported.
    """

    name: str
    tensors: int
    values: int
    read: list[str] = field(default_factory=list)
    excused: dict[str, str] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    parameters: int = 0
    new: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    idle: list[str] = field(default_factory=list)
    mismatched: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Whether everything is read or excused by a written rule."""
        return not (self.lost or self.missing or self.mismatched or self.idle)


class _Loader(WeightLoader):
    def __init__(self, module: TrainingModule) -> None:
        super().__init__(module, ["."])
        self.placed: set[str] = set()

    def _put(self, name: str, value: Tensor) -> None:
        before = len(self.report.left_over) + len(self.report.mismatched)
        super()._put(name, value.as_subclass(Tensor))
        if len(self.report.left_over) + len(self.report.mismatched) == before:
            self.placed |= _names_of(value)


def attempt(checkpoint: Checkpoint, tensors: Tensors | None = None) -> Trial:
    """Read the layout of a checkpoint as the training of its model would.

    Args:
        checkpoint: with the model that reads it.
        tensors: other than its layout's (those of an unknown file).
    """
    tensors = checkpoint.tensors if tensors is None else tensors
    trial = Trial(checkpoint.name, len(tensors), sum(one.count for one in tensors.values()))
    traced = on_meta(tensors)
    with torch.device("meta"), torch.no_grad():
        placed = _by_extractor(checkpoint, traced, trial) if checkpoint.reader["kind"] == "extractor" else None
        placed = _by_model(checkpoint, traced, trial) if placed is None else placed
    trial.read = [name for name in tensors if name in placed]
    rest = [name for name in tensors if name not in placed]
    trial.excused, trial.lost, idle = excuse(rest, checkpoint.excused)
    trial.new, trial.missing, unused = excuse(trial.missing, checkpoint.new)
    trial.idle = idle + unused
    return trial


def on_meta(tensors: Tensors) -> dict[str, Tensor]:
    """Tensors without values, as ``vlcli.nn.read_weights`` hands them on: a ``module.`` before all names is gone."""
    made = {
        n: Traced.of(torch.empty(one.shape, dtype=getattr(torch, one.dtype), device="meta"), n)
        for n, one in tensors.items()
    }
    wrapped = bool(made) and all(name.startswith("module.") for name in made)
    return {name.removeprefix("module.") if wrapped else name: value for name, value in made.items()}


def build(checkpoint: Checkpoint, **changed: Any) -> TrainingModule:
    """The model and the heads that read a checkpoint.

    Args:
        checkpoint: what is read.
        **changed: other options of the model.
    """
    spec = {key: value for key, value in checkpoint.reader.items() if key != "kind"}
    return build_training_module({**spec, **changed}, checkpoint.objectives, data_spec(checkpoint.data))


def data_spec(sizes: Mapping[str, int | str]) -> DataSpec:
    """The sizes that usually come from data; ``answers`` is their number."""
    known = {name: int(value) for name, value in sizes.items() if name != "answers"}
    rows = int(sizes.get("answers", 0))
    return replace(DataSpec(), **known, answers=tuple(f"answer {row}" for row in range(rows)))  # type: ignore[arg-type]


def _by_model(checkpoint: Checkpoint, traced: dict[str, Tensor], trial: Trial) -> set[str]:
    module = build(checkpoint)
    loader = _Loader(module)
    loader.add(traced, checkpoint.name, ours=False)
    copies = {name: _names_of(value) for name, value in loader.copies.items()}
    loader.copies = {name: value.as_subclass(Tensor) for name, value in loader.copies.items()}
    report = loader.finish()
    trial.parameters = sum(p.numel() for n, p in module.named_parameters() if not _copied(n))
    trial.mismatched, trial.notes, trial.missing = report.mismatched, report.reshaped, report.new
    kept = [names for name, names in copies.items() if name not in report.left_over]
    return loader.placed.union(*kept)


def _copied(name: str) -> bool:
    return name.startswith("teacher.") or "_copy." in name


def _by_extractor(checkpoint: Checkpoint, traced: dict[str, Tensor], trial: Trial) -> set[str]:
    spec = {key: value for key, value in checkpoint.reader.items() if key != "kind"}
    found = registry.of(Extractor).load(spec.pop("name")).network_of(traced, **spec)
    own = found.module.state_dict()
    trial.parameters = sum(value.numel() for name, value in own.items())
    placed: set[str] = set()
    for name, value in found.tensors.items():
        if name in own and own[name].shape == value.shape:
            placed |= _names_of(value)
        elif name in own:
            trial.mismatched.append(f"{name} {tuple(value.shape)} for {tuple(own[name].shape)}")
    trial.missing = [name for name in own if name not in found.tensors and not name.endswith("num_batches_tracked")]
    spare = [name for name in found.tensors if not any(fnmatch.fnmatch(name, one) for one in found.unneeded)]
    trial.notes = [f"without a place: {name}" for name in spare if name not in own]
    return placed


def excuse(names: Iterable[str], reasons: Mapping[str, str]) -> tuple[dict[str, str], list[str], list[str]]:
    """Names with the reason of the first pattern that finds them, names without one, and patterns that find none.

    Args:
        names: of tensors.
        reasons: by pattern (a regular expression, searched).
    """
    found: dict[str, str] = {}
    rest, used = [], set()
    for name in names:
        pattern = next((one for one in reasons if re.search(one, name)), None)
        used.add(pattern)
        if pattern is None:
            rest.append(name)
        else:
            found[name] = reasons[pattern]
    return found, rest, [one for one in reasons if one not in used]


def checked(checkpoint: Checkpoint) -> Trial:
    """The same as :func:`attempt`; what cannot be built is one line of ``lost``."""
    try:
        return attempt(checkpoint)
    except VlcliError as error:
        return Trial(checkpoint.name, 0, 0, lost=[f"{error.what} {error.got}".strip()])
