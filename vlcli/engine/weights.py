"""Weights on disk as safetensors (tied tensors once), and loading that says what went where."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from vlcli.engine.sharding import local
from vlcli.engine.training_module import TrainingModule
from vlcli.errors import DataError, VlcliError, shown
from vlcli.files import usual_mode
from vlcli.nn.attention import Attention
from vlcli.nn.weights import choose_state, cut, read_states, without_prefix
from vlcli.recipe.patterns import Searcher

TIED = "tied"
"""Key of the file's metadata: JSON, name of each tied tensor -> name it is stored under."""


def save_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write ``tensors``; those that are one and the same are stored once. Equal tensors give equal bytes."""
    stored: dict[str, Tensor] = {}
    tied: dict[str, str] = {}
    seen: dict[tuple[Any, ...], str] = {}
    for name, tensor in tensors.items():
        value = tensor.detach()
        place = (value.data_ptr(), value.dtype, value.shape, value.stride(), value.device)
        if value.numel() and place in seen:
            tied[name] = seen[place]
            continue
        seen[place] = name
        stored[name] = value.cpu().contiguous()
    # Views of one storage that are not the same tensor must be told apart before safetensors takes them.
    mode = usual_mode(path.parent)
    save_file(_unshared(stored), path, {TIED: json.dumps(tied)})  # one key: their order is not fixed
    path.chmod(mode)  # safetensors writes for the owner alone


def _unshared(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    storages = [value.untyped_storage().data_ptr() for value in tensors.values()]
    twice = {place for place in storages if storages.count(place) > 1} if len(set(storages)) < len(storages) else set()
    return {n: v.clone() if v.untyped_storage().data_ptr() in twice else v for n, v in tensors.items()}


def refuse_not_finite(tensors: Mapping[str, Tensor], where: str, buffers: Container[str] = (), hint: str = "") -> None:
    """Weights that are not numbers must never lie on a disk as if they were good.

    Args:
        tensors: weights by name.
        where: the step or file concerned, for the message.
        buffers: names that may be infinite (masks are), not NaN.
        hint: what to do.

    Raises:
        VlcliError: one holds NaN or infinity; the first is named.
    """
    name = first_not_finite(tensors, buffers)
    if name is not None:
        value = tensors[name]
        bad = int((~torch.isfinite(value)).sum())
        raise VlcliError(
            "The weights are not finite, so they are not written.",
            where=where,
            got=f"{name}: {bad} of {value.numel()} values are NaN or infinite",
            expected="finite numbers",
            hint=hint or "lower optimizer.lr, lengthen schedule.warmup or set clip",
        )


def first_not_finite(tensors: Mapping[str, Tensor], buffers: Container[str] = ()) -> str | None:
    """The first tensor that holds NaN, or infinity where it is no buffer; None where all are well."""
    for name, value in tensors.items():
        if not value.is_floating_point() or not value.numel():
            continue
        # A sum is not finite where any part is not (and rarely otherwise): one pass, no mask, for the usual case.
        if torch.isfinite(value.detach().sum(dtype=torch.float64 if value.device.type != "mps" else None)):
            continue
        bad = value.isnan() if name in buffers else ~torch.isfinite(value)
        if bool(bad.any()):
            return name
    return None


def read_tensors(path: Path, device: str = "cpu") -> dict[str, Tensor]:
    """What :func:`save_tensors` wrote, tied names included.

    Raises:
        DataError: missing, truncated or not safetensors.
    """
    try:
        with safe_open(path, framework="pt", device=device) as file:
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
            tied = json.loads((file.metadata() or {}).get(TIED, "{}"))
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        got, hint = (
            str(error).split("\n")[0],
            "fetch it again; a stage's: delete it, and vlcli run makes it again",
        )
        raise DataError("These weights cannot be read.", where=str(path), got=got, hint=hint) from error
    if not isinstance(tied, dict) or any(source not in found for source in map(str, tied.values())):
        raise DataError("These weights cannot be read.", where=str(path), got=f"{TIED}: {shown(tied)}")
    return found | {name: found[source] for name, source in tied.items()}


@dataclass
class LoadReport:
    """What a load did; names are the training module's.

    Attributes:
        sources: where the weights came from.
        matched: names loaded.
        new: names that no source holds: freshly drawn.
        reshaped: what ``adapt`` said it did.
        mismatched: names whose shape differs, with both shapes: freshly drawn.
        left_over: names a source holds that have no place.
        allowed: backbone names left unloaded because ``allow_unmatched`` says so.
        choices: which state dict of a file was read, and what was taken off its names.
    """

    sources: list[str] = field(default_factory=list)
    matched: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    reshaped: list[str] = field(default_factory=list)
    mismatched: list[str] = field(default_factory=list)
    left_over: list[str] = field(default_factory=list)
    allowed: list[str] = field(default_factory=list)
    choices: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """For a person: counts, and the first names of each kind."""
        told = [*self.choices, f"weights from {', '.join(self.sources)}: {len(self.matched)} tensors matched"]
        words = {"new": "new, freshly drawn", "mismatched": "of another shape, freshly drawn"}
        words |= {"left_over": "left over, not used", "reshaped": "adapted"}
        for key, text in words.items():
            names: list[str] = getattr(self, key)
            if names:
                rest = f" and {len(names) - 4} more" if len(names) > 4 else ""
                told.append(f"{len(names)} {text}: {', '.join(names[:4])}{rest}")
        return told

    def as_dict(self) -> dict[str, Any]:
        """For ``load_report.json``."""
        return asdict(self)

    def summary(self) -> dict[str, Any]:
        """For ``stage.json``: counts instead of the matched names."""
        return {**self.as_dict(), "matched": len(self.matched)}


class WeightLoader:
    """Fills a training module from one or more sources and keeps the report.

    Args:
        module: to be filled.
        allow_unmatched: patterns (searched) of backbone names that may stay new.
    """

    def __init__(self, module: TrainingModule, allow_unmatched: Iterable[str] = ()) -> None:
        self.module, self.allow = module, list(allow_unmatched)
        self.report = LoadReport()
        self.copies: dict[str, Tensor] = {}
        self.own = {n: v for n, v in module.state_dict(keep_vars=True).items() if not n.startswith("teacher.")}

    def add(self, state: dict[str, Tensor], source: str, *, ours: bool) -> None:
        """Take what fits of ``state``; later sources win where two hold one name.

        Args:
            state: tensors by name.
            source: where they came from, for the report.
            ours: names are a bundle's (``model.*``, ``objectives.*``), else whatever the model's ``adapt`` knows.
        """
        self.report.sources.append(source)
        for name, value in self._adapted(state, ours).items():
            self._put(name, value)

    def add_file(self, path: Path, key: str | None = None, rename: Mapping[str, str] = MappingProxyType({})) -> None:
        """Take what fits of another tool's checkpoint, whatever wraps its names.

        Args:
            path: the file.
            key: of its state dict; None: the averaged one, else the first.
            rename: prefixes of its names, and what stands for them.

        Raises:
            DataError: it cannot be read, has no such key, or no name that begins so.
        """
        states = read_states(path)
        chosen, state = choose_state(states, path, key)
        if wrong := [old for old in rename if not any(name.startswith(old) for name in state)]:
            got, expected = shown(wrong[0]), f"the beginning of a name such as {next(iter(state), 'none')}"
            raise DataError(
                "No weight has a name that begins so.", where=f"rename ({path})", got=got, expected=expected
            )
        state, prefix = without_prefix(cut(state, rename), self._fitting, sum(n.startswith("model.") for n in self.own))
        if others := [name for name in states if name != chosen]:
            self.report.choices.append(f"{path}: {chosen} is read, not {', '.join(others)} (state_dict=KEY chooses)")
        if prefix:
            self.report.choices.append(f"{path}: {prefix!r} is taken off the names")
        self.add(state, str(path), ours=False)

    def _fitting(self, state: dict[str, Tensor]) -> int:
        try:
            adapted = self.module.model.adapt(dict(state), [])
        except (DataError, LookupError, RuntimeError, ValueError):  # names of another layout
            return 0
        return sum(f"model.{n}" in self.own and self.own[f"model.{n}"].shape == v.shape for n, v in adapted.items())

    def finish(self) -> LoadReport:
        """Check that the backbone is complete, start the momentum copy from it, and hand over the report.

        Raises:
            DataError: backbone weights are unmatched and not allowed to be.
        """
        self._inherited()
        filled = {id(self.own[name]) for name in self.report.matched}
        shapes = {text.split(" ")[0]: text for text in self.report.mismatched}
        self.report.new = [n for n, v in self.own.items() if id(v) not in filled and n not in shapes]
        self._check_backbone({n: shapes.get(n, n) for n in [*shapes, *self.report.new] if n.startswith("model.")})
        if self.module.teacher is not None:
            self.module.teacher.load_state_dict(self.module.model.state_dict())
            self._fill_teacher(self.module.teacher)
        return self.report

    def _fill_teacher(self, teacher: nn.Module) -> None:
        # A momentum copy that the sources hold (released weights) goes on as it was.
        own = teacher.state_dict(keep_vars=True)
        placed = 0
        for name, value in self.copies.items():
            plain = name.removeprefix("teacher.")
            if plain not in own:
                self.report.left_over.append(name)
            elif own[plain].shape != value.shape:
                self.report.mismatched.append(f"{name} {tuple(value.shape)} for {tuple(own[plain].shape)}")
            else:
                with torch.no_grad():
                    own[plain].copy_(value)
                placed += 1
        if placed:
            self.report.reshaped.append(f"momentum copy: {placed} weights of its own")

    def _inherited(self) -> None:
        # Attentions with several sets of projections may copy those that no source holds from another set.
        for place, part in self.module.named_modules():
            if isinstance(part, Attention) and not place.startswith("teacher."):
                own = {n.removeprefix(f"{place}.") for n in self.report.matched if n.startswith(f"{place}.")}
                made = part.inherit(own)
                self.report.matched += [f"{place}.{name}" for name in made]
                self.report.reshaped += [f"{place}: {len(made)} tensors copied from its first set"] if made else []

    def _adapted(self, state: dict[str, Tensor], ours: bool) -> dict[str, Tensor]:
        if not ours:
            state = self._from_model(state)
        else:
            inner = {n.removeprefix("model."): v for n, v in state.items() if n.startswith("model.")}
            inner |= self._heads_taken(state)
            state = {n: v for n, v in state.items() if not n.startswith("model.")} | self._from_model(inner)
        for name, objective in self.module.objectives.items():
            taken = self._taken(name, state)
            if taken:
                inner = {own: state[n] for n, own in taken.items()}
                state = {n: v for n, v in state.items() if n not in taken}
                adapted = objective.adapt(inner, self.report.reshaped)
                state |= {f"objectives.{name}.{n}": v for n, v in adapted.items()}
        return state

    def _heads_taken(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for part, givers in self.module.model.init_from.items():
            giver = next((g for g in givers if any(n.startswith(f"objectives.{g}") for n in state)), None)
            if giver is not None and not any(n.startswith(f"model.{part}") for n in state):
                prefix = f"objectives.{giver}"
                found |= {part + n.removeprefix(prefix): v for n, v in state.items() if n.startswith(prefix)}
        return found

    def _taken(self, name: str, state: Iterable[str]) -> dict[str, str]:
        first, *others = self._givers(name, state)
        found = {n: n.removeprefix(f"objectives.{first}.") for n in state if n.startswith(f"objectives.{first}.")}
        wanted = set(self.module.objectives[name].state_dict())
        for giver in others:
            lacking = wanted - set(found.values())
            found |= {n: own for own in lacking if (n := f"objectives.{giver}.{own}") in state}
        return found

    def _givers(self, name: str, state: Iterable[str]) -> list[str]:
        # Its own, then one of its kind, then its ancestors'.
        held = {n.split(".")[1] for n in state if n.startswith("objectives.")}
        kind = str(self.module.parts[name].spec["name"])
        others = [kind, *self.module.objectives[name].init_from]
        heirs = [n for n in others if n not in self.module.objectives]
        return [n for n in dict.fromkeys([name, *heirs]) if n in held] or [name]

    def _from_model(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        adapted = self.module.model.adapt(state, self.report.reshaped)
        apart = ("objectives.", "teacher.")
        return {n if n.startswith(apart) else f"model.{n}": v for n, v in adapted.items()}

    def _put(self, name: str, value: Tensor) -> None:
        if name.startswith("teacher."):
            self.copies[name] = value
            return
        own = self.own.get(name)
        if own is None:
            self.report.left_over.append(name)
        elif own.shape != value.shape:
            self.report.mismatched.append(f"{name} {tuple(value.shape)} for {tuple(own.shape)}")
        else:
            with torch.no_grad():
                own.copy_(value)
            self.report.matched.append(name)

    def _check_backbone(self, names: dict[str, str]) -> None:
        patterns = [Searcher(p, "allow_unmatched") for p in self.allow]
        self.report.allowed = [n for n in names if any(p.search(n) for p in patterns)]
        wrong = [text for n, text in names.items() if n not in self.report.allowed]
        if wrong:
            raise DataError(
                f"{len(wrong)} weights of the model are not in what it starts from.",
                where=", ".join(self.report.sources),
                got="; ".join(wrong[:6]) + (" ..." if len(wrong) > 6 else "") + self._spare(),
                expected="every weight of the model",
                hint="make the model as it was trained, or let them be new: allow_unmatched: ['PATTERN']",
            )

    def _spare(self) -> str:
        spare = [n for n in self.report.left_over if n.startswith("model.")]
        return f" (without a place there: {', '.join(spare[:4])})" if spare else ""


def load_exactly(
    module: nn.Module, state: dict[str, Tensor], where: str, part_of: Callable[[str, Tensor], Tensor] | None = None
) -> None:
    """Fill ``module`` with its own saved state; nothing may differ.

    Args:
        module: to fill.
        state: by name.
        where: the file, for the message.
        part_of: this process's share of a whole tensor, where parameters are shared out.

    Raises:
        DataError: a name or a shape differs.
    """
    own = module.state_dict(keep_vars=True)
    wrong = sorted(set(own) ^ set(state)) or [n for n, v in own.items() if v.shape != state[n].shape]
    if wrong:
        raise of_another_model(wrong, where)
    with torch.no_grad():
        for name, tensor in own.items():
            local(tensor).copy_(part_of(name, state[name]) if part_of else state[name])


def of_another_model(names: list[str], where: str) -> DataError:
    """Return the error for saved weights whose names or shapes differ from the model's."""
    got = f"{len(names)} names or shapes differ: {', '.join(names[:4])}"
    hint = "the recipe has changed since: run with --force to start anew"
    return DataError("These weights are of another model.", where=where, got=got, hint=hint)
