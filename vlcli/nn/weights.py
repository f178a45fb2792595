"""Reads files of weights without unpickling, and loads them completely."""

import fnmatch
import hashlib
import json
import pickle
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from vlcli.errors import DataError, shown

# Files of which a folder of weights holds one, an index beside its shards, as transformers writes them
WEIGHT_FILES = tuple(name + end for name in ("model.safetensors", "pytorch_model.bin") for end in ("", ".index.json"))
# Buffers of batch normalisation that inference never reads and many checkpoints lack
COUNTERS = "*num_batches_tracked"
# Keys of a checkpoint's weights, looked at before others.
_USUAL = ("state_dict", "model", "module")
_DEEPEST = 3  # most keys between a checkpoint and its weights
_AVERAGED = re.compile(r"(^|[._])(ema|teacher)([._]|$)")
_NO_STATE = re.compile(r"optim|sched|scaler|^(args|config|hparams|hyper_parameters|criterion|loss|loops|callbacks)$")


@dataclass(frozen=True)
class WeightsReport:
    """Result of loading a file: ``matched`` tensors were loaded, and ``prefix`` (``model.``) taken off all names.

    ``left_over`` names tensors of the file that are not in the model, and not needed.
    """

    path: str
    sha256: str
    matched: int
    left_over: list[str] = field(default_factory=list)
    prefix: str = ""

    def __str__(self) -> str:
        rest = f", {len(self.left_over)} not needed ({', '.join(self.left_over[:3])})" if self.left_over else ""
        rest += f", {self.prefix!r} taken off their names" if self.prefix else ""
        rest += f"; sha256 {self.sha256[:12]}" if self.sha256 else ""
        return f"{self.path}: {self.matched} tensors loaded{rest}"


# LookupError: bytes that are no pickle at all; RecursionError is a RuntimeError
_WRONG = (RuntimeError, ValueError, LookupError, TypeError, AttributeError)
_UNREADABLE = (SafetensorError, pickle.UnpicklingError, OSError, EOFError, *_WRONG)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_weights(path: str | Path, key: str | None = None) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file or of a checkpoint that loads with ``weights_only``, by name.

    Names lose ``module.`` of DistributedDataParallel, if all have it, and ``_orig_mod.`` of torch.compile. Of several
    state dicts ``key`` names one (``model``, ``state_dict_ema``); None: the averaged one (as timm loads it), else the
    first. Raises DataError if the file is missing, damaged, holds more than tensors or lacks the key.
    """
    return choose_state(read_states(path), path, key)[1]


def choose_state(
    states: dict[str, dict[str, Tensor]], path: str | Path, key: str | None = None
) -> tuple[str, dict[str, Tensor]]:
    """Return key and state dict that :func:`read_weights` takes from a checkpoint; DataError without such a key."""
    if key is not None and key not in states:
        got, expected = shown(key), ", ".join(filter(None, states)) or "no key: the file holds one state dict"
        raise DataError("the checkpoint has no such state dict", where=str(path), got=got, expected=expected)
    wanted = [key] if key is not None else [*filter(_AVERAGED.search, states), *states, ""]
    return wanted[0], states.get(wanted[0], {})


# Ending of the name beside weights of 8 bits: the factor of each of their rows
SCALE = ".int8_scale"


def unscaled(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors with weights of 8 bits multiplied by their factors; others as they are."""
    plain = {name: value for name, value in tensors.items() if not name.endswith(SCALE)}
    scales = {name.removesuffix(SCALE): value for name, value in tensors.items() if name.endswith(SCALE)}
    return plain | {name: plain[name].float() * scale for name, scale in scales.items()}


def read_states(path: str | Path) -> dict[str, dict[str, Tensor]]:
    """Read all state dicts of a file by key (``model``, ``state.model_ema``; ``""``: the file), or raise DataError."""
    path = Path(path)
    if not path.is_file():
        raise DataError("the weights do not exist", where=str(path), hint="check the path given as weights")
    try:
        content = _content(path)
        if not isinstance(content, dict):
            raise ValueError(f"it holds a {type(content).__name__}")
    except _UNREADABLE as error:
        got = str(error).splitlines()[0].split(". ")[0] if str(error) else type(error).__name__  # not torch's advice
        hint = "fetch it whole: a web page or a pointer of Git LFS is no weights"
        expected = "a safetensors file, or a checkpoint of tensors only"
        raise DataError("the weights cannot be read", where=str(path), got=got, expected=expected, hint=hint) from None
    if not (states := states_of(content, path)):
        got, expected = f"keys {shown(list(content))}", f"tensors by name, below {_DEEPEST} keys at most"
        raise DataError("the file of weights holds no tensors", where=str(path), got=got, expected=expected)
    return states


def _content(path: Path) -> Any:
    if path.suffix == ".json":  # the index of a folder of shards, which lie beside it
        shards = json.loads(path.read_text(encoding="utf-8"))["weight_map"].values()
        names = sorted({Path(name).name for name in shards})
        return {name: value for one in names for name, value in _content(path.with_name(one)).items()}
    return load_file(path) if path.suffix == ".safetensors" else torch.load(path, map_location="cpu", weights_only=True)


def states_of(content: Mapping[Any, Any], path: str | Path) -> dict[str, dict[str, Tensor]]:
    """Return all state dicts of a checkpoint in memory, as :func:`read_states`; DataError if tensors have no names."""
    states = _states(content, "")
    if odd := [name for tensors in states.values() for name in tensors if not isinstance(name, str)]:
        got, expected = f"keys such as {odd[0]!r}", "tensors by name"
        raise DataError("the weights have no names", where=str(path), got=got, expected=expected)
    return {key: _unwrapped(tensors) for key, tensors in states.items()}


def _states(content: Mapping[Any, Any], key: str) -> dict[str, dict[Any, Tensor]]:
    inner = [name for name, value in content.items() if isinstance(value, Mapping) and isinstance(name, str)]
    deeper: dict[str, dict[Any, Tensor]] = {}
    for name in sorted(inner, key=lambda name: name not in _USUAL):
        if not _NO_STATE.search(name) and key.count(".") < _DEEPEST:
            deeper |= _states(content[name], f"{key}.{name}" if key else name)
    tensors = {name: value for name, value in content.items() if isinstance(value, Tensor)}
    return deeper or ({key: tensors} if tensors else {})


def _unwrapped(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    plain = {name.replace("_orig_mod.", ""): value for name, value in tensors.items()}
    while plain and all(name.startswith("module.") for name in plain):
        plain = {name.removeprefix("module."): value for name, value in plain.items()}
    return plain


def without_prefix(
    tensors: dict[str, Tensor], matched: Callable[[dict[str, Tensor]], int], whole: int
) -> tuple[dict[str, Tensor], str]:
    """Remove the prefix without which most names match a model (``model.``, ``ema_model.net.``), and return it too.

    ``matched`` counts the names that match; if as many as the model has (``whole``) do, no prefix is tried.
    """
    if matched(tensors) >= whole:
        return tensors, ""
    names = [name.split(".") for name in tensors]
    counts = Counter(f"{'.'.join(name[:depth])}." for name in names for depth in range(1, min(len(name), 4)))
    prefixes = ["", *(text for text, count in counts.items() if 5 * count >= len(tensors))]
    prefix = max(prefixes, key=lambda text: matched(cut(tensors, {text: ""})))
    return cut(tensors, {prefix: ""}), prefix


def cut(tensors: dict[str, Tensor], prefixes: Mapping[str, str]) -> dict[str, Tensor]:
    """Replace prefixes of names, the longest first; a renamed tensor replaces one of that name."""
    order = sorted(prefixes, key=len, reverse=True)
    hits = {name: old for name in tensors if (old := next((p for p in order if name.startswith(p)), None)) is not None}
    kept = {name: value for name, value in tensors.items() if name not in hits}
    return kept | {prefixes[old] + name[len(old) :]: tensors[name] for name, old in hits.items()}


def load_tensors(
    module: nn.Module, tensors: dict[str, Tensor], path: str | Path, unneeded: Sequence[str] = ()
) -> WeightsReport:
    """Load all tensors of a module, keeping its types; ``path`` is for messages.

    ``unneeded`` are patterns of tensors that need not be in the module (a classifier's). Raises DataError that names
    tensors that are missing, left over or of another shape.
    """
    path = Path(path)
    targets = module.state_dict()

    def fitting(some: dict[str, Tensor]) -> int:
        return sum(name in some and some[name].shape == value.shape for name, value in targets.items())

    tensors, prefix = without_prefix(tensors, fitting, len(targets))
    extra = [name for name in tensors if name not in targets]
    left_over = [name for name in extra if any(fnmatch.fnmatch(name, pattern) for pattern in (*unneeded, COUNTERS))]
    pairs = {name: (tuple(tensors[name].shape), tuple(targets[name].shape)) for name in targets if name in tensors}
    faults = {
        "missing": [name for name in targets if name not in tensors and not fnmatch.fnmatch(name, COUNTERS)],
        "without a place": [name for name in extra if name not in left_over],
        "of another shape": [f"{name} {theirs} for {ours}" for name, (theirs, ours) in pairs.items() if theirs != ours],
    }
    if any(faults.values()):
        got = "; ".join(f"{len(names)} {what}: {', '.join(names[:5])}" for what, names in faults.items() if names)
        what, hint = "the weights do not fit the network", "check arch, layout and weights"
        expected = f"{len(targets)} tensors as in {next(iter(targets), 'nothing')}"
        raise DataError(what, where=str(path), got=got, expected=expected, hint=hint)
    module.load_state_dict(tensors, strict=False)
    return WeightsReport(str(path), file_sha256(path) if path.is_file() else "", len(pairs), left_over, prefix)
