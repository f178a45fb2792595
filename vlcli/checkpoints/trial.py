"""Loads the layout of a published file, as meta tensors, into the model that reads it.

Models and objectives ``adapt`` the tensors as in training. Each tensor carries the names of the file's tensors that it
was made from, so that names that do not reach the model are known.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from vlcli import registry
from vlcli.checkpoints.identify import plain
from vlcli.checkpoints.layout import Tensors
from vlcli.checkpoints.load import Checkpoint
from vlcli.detection.extractor import Extractor
from vlcli.engine.training_module import TrainingModule, build_training_module
from vlcli.engine.weights import WeightLoader
from vlcli.errors import VlcliError
from vlcli.nn.model import DataSpec

COLUMNS = ["file", "layout", "tensors", "numbers", "read", "excused", "new in the model"]


def as_row(one: Checkpoint) -> dict[str, Any]:
    """Returns the facts of a checkpoint for ``vlcli show``."""
    tensors = one.tensors
    return {
        "file": one.name,
        "family": one.family.family,
        "about": one.file.about,
        "layout": one.file.layout,
        "written_by": one.layout.about or "",
        "code": one.layout.code or "",
        "source": one.file.url,
        "licence": one.file.licence,
        "tensors": len(tensors),
        "numbers": sum(entry.count for entry in tensors.values()),
        "reader": one.reader if one.file.loads else None,
        "objectives": one.objectives,
        "scores": [score.model_dump() for score in one.file.scores],
    }


def score(one: Checkpoint) -> str:
    """Returns task, metric and value of the first published score, or ""."""
    return next((f"{s.task} {s.metric} {s.value:g}" for s in one.file.scores), "")


def trial_row(one: Checkpoint, trial: Trial) -> list[str]:
    """Returns a row of the table with the columns :data:`COLUMNS`, with faults in the last."""
    if not one.file.loads:
        facts = as_row(one)
        return [one.name, one.file.layout, str(facts["tensors"]), f"{facts['numbers']:,}", "not read", "", ""]
    faults = {"lost": trial.lost, "missing": trial.missing, "of another shape": trial.mismatched}
    words = "".join(f"; {len(names)} {word}: {', '.join(names[:2])}" for word, names in faults.items() if names)
    counts = [str(len(trial.read)), str(len(trial.excused)), f"{len(trial.new)}{words}"]
    return [one.name, one.file.layout, str(trial.tensors), f"{trial.values:,}", *counts]


def reasons(trial: Trial) -> Iterator[str]:
    """Yields a line for each reason, with the number of excused names."""
    for what, excused in (("not read", trial.excused), ("new", trial.new)):
        for reason in dict.fromkeys(excused.values()):
            names = [name for name, other in excused.items() if other == reason]
            yield f"{len(names)} {what}: {reason} ({names[0]}{' ...' if len(names) > 1 else ''})"


class Traced(Tensor):
    """A tensor with the names of the file's tensors that it was made from."""

    names: frozenset[str] = frozenset()

    @classmethod
    def of(cls, value: Tensor, name: str) -> Traced:
        traced = value.as_subclass(cls)
        traced.names = frozenset([name])
        return traced

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]
        names = frozenset().union(*(_names_of(one) for one in (*args, *(kwargs or {}).values())))
        for one in result if isinstance(result, tuple | list) else [result]:
            if isinstance(one, Traced):
                one.names = one.names | names
        return result


def _names_of(value: Any) -> frozenset[str]:
    if isinstance(value, Traced):
        return value.names
    if isinstance(value, list | tuple):
        return frozenset().union(*map(_names_of, value))
    return frozenset()


@dataclass
class Trial:
    """Result of loading a file's tensors.

    Attributes:
        tensors: number of tensors in the file; ``values``: of numbers in them.
        read: names of the file that reach the model.
        excused: reasons of names that do not; ``lost``: names without a reason.
        parameters: numbers in the model and its heads, without momentum copies.
        new: reasons of weights of the model that the file lacks; ``missing``: weights without a reason.
        idle: patterns of ``excused`` and ``new`` that match nothing.
        mismatched: names with both shapes.
        notes: of ``adapt``.
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
        """Whether everything is read or excused, and every pattern is used."""
        return not (self.lost or self.missing or self.mismatched or self.idle)


class _Loader(WeightLoader):
    def __init__(self, module: TrainingModule) -> None:
        super().__init__(module, ["."])
        self.placed: set[str] = set()

    def _put(self, name: str, value: Tensor) -> None:
        refused = len(self.report.left_over) + len(self.report.mismatched)
        super()._put(name, value.as_subclass(Tensor))
        if len(self.report.left_over) + len(self.report.mismatched) == refused:
            self.placed |= _names_of(value)


def attempt(checkpoint: Checkpoint, tensors: Tensors | None = None) -> Trial:
    """Loads the layout of a checkpoint (or the ``tensors`` of an unknown file) as a training stage would."""
    tensors = checkpoint.tensors if tensors is None else tensors
    trial = Trial(checkpoint.name, len(tensors), sum(one.count for one in tensors.values()))
    traced = on_meta(tensors)
    with torch.device("meta"), torch.no_grad():
        load = _by_extractor if checkpoint.reader["kind"] == "extractor" else _by_model
        placed = load(checkpoint, traced, trial)
    trial.read = [name for name in tensors if name in placed]
    trial.excused, trial.lost, idle = excuse([name for name in tensors if name not in placed], checkpoint.excused)
    trial.new, trial.missing, unused = excuse(trial.missing, checkpoint.new)
    trial.idle = idle + unused
    return trial


def on_meta(tensors: Tensors) -> dict[str, Tensor]:
    """Returns :class:`Traced` meta tensors; a ``module.`` before all names is removed."""
    values = [torch.empty(one.shape, dtype=getattr(torch, one.dtype), device="meta") for one in tensors.values()]
    return dict(zip(plain(tensors), map(Traced.of, values, tensors), strict=True))


def build(checkpoint: Checkpoint, **changed: Any) -> TrainingModule:
    """Builds the model and the heads that read a checkpoint, with the options ``changed`` of the model."""
    spec = {key: value for key, value in checkpoint.reader.items() if key != "kind"}
    return build_training_module({**spec, **changed}, checkpoint.objectives, data_spec(checkpoint.data))


def data_spec(sizes: Mapping[str, int | str]) -> DataSpec:
    """Returns ``sizes`` as a data spec; ``answers`` is a number."""
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
    copied = re.compile(r"teacher\.|.*_copy\.")
    trial.parameters = sum(p.numel() for n, p in module.named_parameters() if not copied.match(n))
    trial.mismatched, trial.notes, trial.missing = report.mismatched, report.reshaped, report.new
    return loader.placed.union(*[names for name, names in copies.items() if name not in report.left_over])


def _by_extractor(checkpoint: Checkpoint, traced: dict[str, Tensor], trial: Trial) -> set[str]:
    spec = {key: value for key, value in checkpoint.reader.items() if key != "kind"}
    network = registry.of(Extractor).load(spec.pop("name")).network_of(traced, **spec)
    state = network.module.state_dict()
    trial.parameters = sum(value.numel() for value in state.values())
    placed: set[str] = set()
    for name, value in network.tensors.items():
        if name in state and state[name].shape == value.shape:
            placed |= _names_of(value)
        elif name in state:
            trial.mismatched.append(f"{name} {tuple(value.shape)} for {tuple(state[name].shape)}")
        elif not any(fnmatch.fnmatch(name, one) for one in network.unneeded):
            trial.notes.append(f"without a place: {name}")
    trial.missing = [n for n in state if n not in network.tensors and not n.endswith("num_batches_tracked")]
    return placed


def excuse(names: Iterable[str], reasons: Mapping[str, str]) -> tuple[dict[str, str], list[str], list[str]]:
    """Returns names with the reason of the first pattern (searched) that matches, other names, and unused patterns."""
    patterns = {name: next((one for one in reasons if re.search(one, name)), "") for name in names}
    excused = {name: reasons[pattern] for name, pattern in patterns.items() if pattern}
    unused = [pattern for pattern in reasons if pattern not in patterns.values()]
    return excused, [name for name in patterns if name not in excused], unused


def checked(checkpoint: Checkpoint) -> Trial:
    """Calls :func:`attempt`; if the model cannot be built, the trial's ``lost`` has the error."""
    try:
        return attempt(checkpoint)
    except VlcliError as error:
        return Trial(checkpoint.name, 0, 0, lost=[f"{error.what} {error.got}".strip()])
