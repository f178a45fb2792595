"""Reads and writes weights as safetensors, tied tensors once, and loads them with a report."""

import json
from collections import Counter
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
from vlcli.nn.weights import choose_state, cut, unscaled, without_prefix
from vlcli.plain import comma_list
from vlcli.recipe.patterns import Searcher

# What to do about numbers that are not finite
REMEDY = "lower optimizer.lr, lengthen schedule.warmup or set clip"
_TIED = "tied"  # key of the file's metadata: JSON, name of each tied tensor -> name it is stored under


def save_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write ``tensors``, tied ones once; equal tensors give equal bytes."""
    stored: dict[str, Tensor] = {}
    tied: dict[str, str] = {}
    seen: dict[tuple[Any, ...], str] = {}
    for name, tensor in tensors.items():
        value = tensor.detach()
        key = (value.data_ptr(), value.dtype, value.shape, value.stride(), value.device)
        if value.numel() and key in seen:
            tied[name] = seen[key]
        else:
            seen[key], stored[name] = name, value.cpu().contiguous()
    # Views of one storage that are not the same tensor must be copied before safetensors takes them.
    storages = Counter(value.untyped_storage().data_ptr() for value in stored.values())
    stored = {n: v.clone() if storages[v.untyped_storage().data_ptr()] > 1 else v for n, v in stored.items()}
    save_file(stored, path, {_TIED: json.dumps(tied)})  # one key: their order is not fixed
    path.chmod(usual_mode(path.parent))  # safetensors writes for the owner alone


def refuse_not_finite(
    tensors: Mapping[str, Tensor], where: str, buffers: Container[str] = (), hint: str = REMEDY
) -> None:
    """Raise VlcliError if weights are NaN or infinite; ``buffers`` (masks) may be infinite."""
    if (name := first_not_finite(tensors, buffers)) is not None:
        bad, what = int((~torch.isfinite(tensors[name])).sum()), "The weights are not finite, so they are not written."
        got = f"{name}: {bad} of {tensors[name].numel()} values are NaN or infinite"
        raise VlcliError(what, where=where, got=got, expected="finite numbers", hint=hint)


def first_not_finite(tensors: Mapping[str, Tensor], buffers: Container[str] = ()) -> str | None:
    """Return the name of the first tensor that holds NaN, or infinity and is no buffer."""
    for name, value in tensors.items():
        if not value.is_floating_point() or not value.numel():
            continue
        # A sum is not finite where any part is not (and rarely otherwise): one pass, no mask, for the usual case.
        if torch.isfinite(value.detach().sum(dtype=torch.float64 if value.device.type != "mps" else None)):
            continue
        if bool((value.isnan() if name in buffers else ~torch.isfinite(value)).any()):
            return name
    return None


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a file of :func:`save_tensors`, with tied names. Raises DataError: missing, truncated or no safetensors."""
    try:
        with safe_open(path, framework="pt") as file:
            tensors = unscaled({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118 (not a mapping)
            tied = json.loads((file.metadata() or {}).get(_TIED, "{}"))
    except (SafetensorError, OSError, ValueError, RecursionError, KeyError, RuntimeError) as error:
        hint = "fetch it again; a stage's: delete it, and vlcli run makes it again"
        got = str(error).split("\n")[0]
        raise DataError("These weights cannot be read.", where=str(path), got=got, hint=hint) from error
    if not isinstance(tied, dict) or any(source not in tensors for source in map(str, tied.values())):
        raise DataError("These weights cannot be read.", where=str(path), got=f"{_TIED}: {shown(tied)}")
    return tensors | {name: tensors[source] for name, source in tied.items()}


@dataclass
class LoadReport:
    """Names of a training module's weights, by how they were loaded.

    Attributes:
        sources: files and folders.
        matched: loaded.
        new: in no source; they keep their initial values.
        reshaped: lines of ``adapt`` on what it changed.
        mismatched: of another shape, with both shapes; they keep their initial values.
        left_over: in a source but not in the module.
        allowed: of the backbone, not loaded because of ``allow_unmatched``.
        choices: which state dict of a file was read, and which prefix was removed.
    """

    sources: list[str] = field(default_factory=list)
    matched: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    reshaped: list[str] = field(default_factory=list)
    mismatched: list[str] = field(default_factory=list)
    left_over: list[str] = field(default_factory=list)
    allowed: list[str] = field(default_factory=list)
    choices: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Return the report as lines: for each list of weights, its length and first names."""
        lines = [*self.choices, f"weights from {', '.join(self.sources)}: {len(self.matched)} tensors matched"]
        words = {"new, freshly drawn": self.new, "of another shape, freshly drawn": self.mismatched}
        words |= {"left over, not used": self.left_over, "adapted": self.reshaped}
        return lines + [f"{len(names)} {text}: {comma_list(names, 4)}" for text, names in words.items() if names]

    def summary(self) -> dict[str, Any]:
        """Return the lists, with the count of matched names, for ``stage.json``."""
        return {**asdict(self), "matched": len(self.matched)}


class WeightLoader:
    """Loads weights of sources into a training module.

    Args:
        allow_unmatched: patterns (searched) of backbone names that may keep their initial values.
    """

    def __init__(self, module: TrainingModule, allow_unmatched: Iterable[str] = ()) -> None:
        self.module, self.allow = module, list(allow_unmatched)
        self.report = LoadReport()
        self.copies: dict[str, Tensor] = {}
        state = module.state_dict(keep_vars=True)
        self.targets = {name: value for name, value in state.items() if not name.startswith("teacher.")}

    def add(self, state: dict[str, Tensor], source: str, *, ours: bool) -> None:
        """Load the tensors of ``state`` that fit, over those of earlier sources; ``ours``: of a bundle of vlcli."""
        self.report.sources.append(source)
        for name, value in self._adapted(state, ours).items():
            self._put(name, value)

    def _put(self, name: str, value: Tensor) -> None:
        if name.startswith("teacher."):
            self.copies[name] = value
        elif self._copy(self.targets, name, value):
            self.report.matched.append(name)

    def add_file(
        self,
        path: Path,
        states: dict[str, dict[str, Tensor]],
        key: str | None = None,
        rename: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Load another tool's checkpoint, whatever prefix its names have.

        Args:
            key: of its state dict; None: the averaged one, else the first.
            rename: new prefixes by old ones.

        Raises:
            DataError: there is no such key or prefix.
        """
        chosen, state = choose_state(states, path, key)
        if wrong := [old for old in rename if not any(name.startswith(old) for name in state)]:
            got, expected = shown(wrong[0]), f"the beginning of a name such as {next(iter(state), 'none')}"
            what = "No weight has a name that begins so."
            raise DataError(what, where=f"rename ({path})", got=got, expected=expected)
        whole = sum(n.startswith("model.") for n in self.targets)
        state, prefix = without_prefix(cut(state, rename), self._fitting, whole)
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
        shapes = {n.removeprefix("model."): v.shape for n, v in self.targets.items() if n.startswith("model.")}
        return sum(shapes.get(n) == v.shape for n, v in adapted.items())

    def finish(self) -> LoadReport:
        """Check that the backbone is complete, start the momentum copy from it, and return the report.

        Raises:
            DataError: weights of the backbone are in no source, and not in ``allow_unmatched``.
        """
        self._inherit()
        filled = {id(self.targets[name]) for name in self.report.matched}
        shapes = {text.split(" ")[0]: text for text in self.report.mismatched}
        self.report.new = [n for n, v in self.targets.items() if id(v) not in filled and n not in shapes]
        self._check_backbone({n: shapes.get(n, n) for n in [*shapes, *self.report.new] if n.startswith("model.")})
        if (teacher := self.module.teacher) is not None:
            teacher.load_state_dict(self.module.model.state_dict())
            # A momentum copy that the sources hold (released weights) goes on as it was.
            targets = {f"teacher.{name}": value for name, value in teacher.state_dict(keep_vars=True).items()}
            if loaded := sum(self._copy(targets, name, value) for name, value in self.copies.items()):
                self.report.reshaped.append(f"momentum copy: {loaded} weights of its own")
        return self.report

    def _inherit(self) -> None:
        # Attentions with several sets of projections may copy those that no source holds from another set.
        for path, part in self.module.named_modules():
            if isinstance(part, Attention) and not path.startswith("teacher."):
                filled = {n.removeprefix(f"{path}.") for n in self.report.matched if n.startswith(f"{path}.")}
                copied = part.inherit(filled)
                self.report.matched += [f"{path}.{name}" for name in copied]
                self.report.reshaped += [f"{path}: {len(copied)} tensors copied from its first set"] if copied else []

    def _adapted(self, state: dict[str, Tensor], ours: bool) -> dict[str, Tensor]:
        inner, outer = state, dict[str, Tensor]()
        if ours:
            inner = {n.removeprefix("model."): v for n, v in state.items() if n.startswith("model.")}
            inner |= self._heads_taken(state)
            outer = {n: v for n, v in state.items() if not n.startswith("model.")}
        adapted = self.module.model.adapt(inner, self.report.reshaped)
        apart = ("objectives.", "teacher.")
        state = outer | {n if n.startswith(apart) else f"model.{n}": v for n, v in adapted.items()}
        for name, objective in self.module.objectives.items():
            if taken := self._taken(name, state):
                adapted = objective.adapt({inside: state[n] for n, inside in taken.items()}, self.report.reshaped)
                state = {n: v for n, v in state.items() if n not in taken}
                state |= {f"objectives.{name}.{n}": v for n, v in adapted.items()}
        return state

    def _heads_taken(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        heads: dict[str, Tensor] = {}
        for part, givers in self.module.model.init_from.items():
            giver = next((g for g in givers if any(n.startswith(f"objectives.{g}") for n in state)), None)
            if giver is not None and not any(n.startswith(f"model.{part}") for n in state):
                prefix = f"objectives.{giver}"
                heads |= {part + n.removeprefix(prefix): v for n, v in state.items() if n.startswith(prefix)}
        return heads

    def _taken(self, name: str, state: Iterable[str]) -> dict[str, str]:
        # From its own name in the checkpoint, else from one of its kind, else from its ancestors.
        held = {n.split(".")[1] for n in state if n.startswith("objectives.")}
        others = [str(self.module.parts[name].spec["name"]), *self.module.objectives[name].init_from]
        heirs = [n for n in others if n not in self.module.objectives]
        first, *rest = [n for n in dict.fromkeys([name, *heirs]) if n in held] or [name]
        taken = {n: n.removeprefix(f"objectives.{first}.") for n in state if n.startswith(f"objectives.{first}.")}
        wanted = set(self.module.objectives[name].state_dict())
        for giver in rest:
            lacking = wanted - set(taken.values())
            taken |= {n: inside for inside in lacking if (n := f"objectives.{giver}.{inside}") in state}
        return taken

    def _copy(self, targets: Mapping[str, Tensor], name: str, value: Tensor) -> bool:
        target = targets.get(name)
        if target is None:
            self.report.left_over.append(name)
        elif target.shape != value.shape:
            self.report.mismatched.append(f"{name} {tuple(value.shape)} for {tuple(target.shape)}")
        else:
            with torch.no_grad():
                target.copy_(value)
            return True
        return False

    def _check_backbone(self, names: dict[str, str]) -> None:
        patterns = [Searcher(p, "allow_unmatched") for p in self.allow]
        self.report.allowed = [n for n in names if any(p.search(n) for p in patterns)]
        if wrong := [text for n, text in names.items() if n not in self.report.allowed]:
            unused = [n for n in self.report.left_over if n.startswith("model.")]
            spare = f" (without a place there: {', '.join(unused[:4])})" if unused else ""
            what = f"{len(wrong)} weights of the model are not in what it starts from."
            where, expected = ", ".join(self.report.sources), "every weight of the model"
            got = "; ".join(wrong[:6]) + (" ..." if len(wrong) > 6 else "") + spare
            hint = "make the model as it was trained, or let them be new: allow_unmatched: ['PATTERN']"
            raise DataError(what, where=where, got=got, expected=expected, hint=hint)


def load_exactly(
    module: nn.Module, state: dict[str, Tensor], where: str, part_of: Callable[[str, Tensor], Tensor] | None = None
) -> None:
    """Load a state with the module's names and shapes; ``part_of`` returns this process's shard of a tensor.

    Raises:
        DataError: a name or a shape differs.
    """
    targets = module.state_dict(keep_vars=True)
    wrong = sorted(set(targets) ^ set(state)) or [n for n, v in targets.items() if v.shape != state[n].shape]
    if wrong:
        raise of_another_model(wrong, where)
    with torch.no_grad():
        for name, tensor in targets.items():
            local(tensor).copy_(part_of(name, state[name]) if part_of else state[name])


def of_another_model(names: list[str], where: str) -> DataError:
    """Return the error for weights whose names or shapes differ from the model's."""
    got = f"{len(names)} names or shapes differ: {', '.join(names[:4])}"
    hint = "the recipe has changed since: run with --force to start anew"
    return DataError("These weights are of another model.", where=where, got=got, hint=hint)
