"""What a checkpoint of shared parameters holds: the shares of all processes, and beside them what all hold alike.

``shards/shard-*.safetensors`` hold weights (``model:NAME``), moments (``KEY:NAME``) and averages (``ema:NAME``);
``plain.safetensors`` holds, under names of the same kind, buffers and whatever has no dimension; ``optimizer.json``
holds groups, numbers, and names that share a weight.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vlcli.engine import processes, shard_files
from vlcli.engine.ema import Ema
from vlcli.engine.sharding import Shards, is_share, local
from vlcli.engine.weights import first_not_finite, read_tensors, save_tensors
from vlcli.errors import DataError, VlcliError
from vlcli.files import facts_of, new_folder, write_json

PLAIN, NUMBERS = "plain.safetensors", "optimizer.json"


def is_spread(files: Mapping[str, Any]) -> bool:
    """Whether a checkpoint with these files is one of shares."""
    return PLAIN in files


@contextmanager
def together(final: Path) -> Iterator[Path]:
    """A folder that all processes fill and that then appears under its name, complete or not at all."""
    if processes.rank() == 0:
        with new_folder(final) as folder:
            processes.share(str(folder))
            yield folder
    else:
        yield Path(processes.share(None))
    processes.wait()


def write(
    folder: Path, shards: Shards, optimizer: torch.optim.Optimizer, ema: Ema | None, where: str
) -> dict[str, Any]:
    """Write weights, optimizer and averages; every process calls this.

    Returns:
        Size and checksum of every file.

    Raises:
        VlcliError: a weight or an average is not finite; no space is left.
    """
    tensors, numbers, tied = _contents(shards, optimizer, ema)
    _refuse_not_finite(shards, tensors, where)
    facts = shard_files.write(folder, {name: value for name, value in tensors.items() if is_share(value)})
    if processes.rank() == 0:
        save_tensors(folder / PLAIN, {name: value for name, value in tensors.items() if not is_share(value)})
        groups = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
        write_json(folder / NUMBERS, {"groups": groups, "numbers": numbers, "tied": tied})
        facts |= {name: facts_of(folder / name) for name in (PLAIN, NUMBERS)}
    return facts


def _contents(
    shards: Shards, optimizer: torch.optim.Optimizer, ema: Ema | None
) -> tuple[dict[str, Tensor], dict[str, Any], dict[str, str]]:
    """Tensors and numbers by their names in the files, and which weights are others under another name."""
    first, tied = _distinct(shards)
    tensors: dict[str, Tensor] = {f"model:{name}": value.detach() for name, value in first.items()}
    numbers: dict[str, Any] = {}
    for name, share in _pairs(optimizer):
        for key, value in optimizer.state.get(share, {}).items():
            if isinstance(value, Tensor):
                tensors[f"{key}:{name}"] = shards.spread(name, value) if value.ndim else value.clone()
            else:
                numbers[f"{key}:{name}"] = value
    for name, average in ema.shadow.items() if ema else ():
        tensors[f"ema:{name}"] = shards.spread(name, average)
    return tensors, numbers, tied


def _distinct(shards: Shards) -> tuple[dict[str, Tensor], dict[str, str]]:
    names: dict[int, str] = {}
    first, tied = {}, {}
    for name, value in shards.state().items():
        kept = names.setdefault(id(value), name)
        if kept == name:
            first[name] = value
        else:
            tied[name] = kept
    return first, tied


def _pairs(optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, Tensor]]:
    for group in optimizer.param_groups:
        yield from zip(group["names"], group["params"], strict=True)


def _refuse_not_finite(shards: Shards, tensors: Mapping[str, Tensor], where: str) -> None:
    buffers = {f"model:{name}" for name, _ in shards.module.named_buffers()}
    kept = {name: local(value) for name, value in tensors.items() if name.startswith(("model:", "ema:"))}
    bad = [name for name in processes.collect(first_not_finite(kept, buffers)) if name]
    if bad:
        what, hint = "The weights are not finite, so they are not written.", "lower optimizer.lr or set clip"
        raise VlcliError(what, where=where, got=f"first of them {bad[0]}", expected="finite numbers", hint=hint)


def load(folder: Path, shards: Shards, optimizer: torch.optim.Optimizer, ema: Ema | None) -> None:
    """Fill module, optimizer and averages; every process calls this, however many wrote.

    Raises:
        DataError: the checkpoint is of another model or optimizer, or cannot be read.
    """
    saved = json.loads((folder / NUMBERS).read_text(encoding="utf-8"))
    if [group["names"] for group in optimizer.param_groups] != [group["names"] for group in saved["groups"]]:
        what = "The checkpoint's optimizer trains other parameters."
        raise DataError(what, where=str(folder), hint="start anew with --force")
    plain, known = read_tensors(folder / PLAIN), shard_files.shapes(folder)
    targets = _targets(folder, shards, known, plain)
    state = _moments(shards, optimizer, known, targets)
    for name, average in ema.shadow.items() if ema else ():
        targets[f"ema:{name}"] = shards.spread(name, average)
    spread = {name: value for name, value in targets.items() if name in known}
    shard_files.read(folder, spread)
    with torch.no_grad():
        for name in targets.keys() - spread.keys():
            local(targets[name]).copy_(_found(plain, name, folder))
    _restore(optimizer, saved, state, plain)


def _targets(
    folder: Path, shards: Shards, known: Mapping[str, tuple[int, ...]], plain: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The module's own weights and buffers by their names in the files, whose shapes must be the same."""
    targets = {f"model:{name}": value.detach() for name, value in _distinct(shards)[0].items()}
    there = {name: tuple(plain[name].shape) for name in plain} | dict(known)
    wrong = [n for n, value in targets.items() if there.get(n) != tuple(value.shape)]
    wrong += [name for name in there if name.startswith("model:") and name not in targets]
    if wrong:
        got = f"{len(wrong)} names or shapes differ: {', '.join(sorted(wrong)[:4])}"
        hint = "the recipe has changed since: run with --force to start anew"
        raise DataError("These weights are of another model.", where=str(folder), got=got, hint=hint)
    return targets


def _moments(
    shards: Shards, optimizer: torch.optim.Optimizer, known: Mapping[str, Any], targets: dict[str, Tensor]
) -> dict[int, dict[str, Any]]:
    """Room for the moments of this process's shares, by row of the optimizer."""
    state: dict[int, dict[str, Any]] = {}
    shares = {name: (row, share) for row, (name, share) in enumerate(_pairs(optimizer))}
    for place in known:
        key, _, name = place.partition(":")
        if key not in ("model", "ema") and name in shares:
            row, share = shares[name]
            state.setdefault(row, {})[key] = torch.zeros_like(share)
            targets[place] = shards.spread(name, state[row][key])
    return state


def _restore(
    optimizer: torch.optim.Optimizer,
    saved: dict[str, Any],
    state: dict[int, dict[str, Any]],
    plain: Mapping[str, Tensor],
) -> None:
    rows = {name: row for row, (name, _) in enumerate(_pairs(optimizer))}
    for place, value in {**plain, **saved["numbers"]}.items():
        key, _, name = place.partition(":")
        if key not in ("model", "ema") and name in rows:
            state.setdefault(rows[name], {})[key] = value
    groups = optimizer.state_dict()["param_groups"]
    for group, old in zip(groups, saved["groups"], strict=True):
        group.update({k: tuple(v) if isinstance(v, list) and k == "betas" else v for k, v in old.items()})
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _found(plain: Mapping[str, Tensor], name: str, folder: Path) -> Tensor:
    if name not in plain:
        raise DataError("A checkpoint lacks a tensor.", where=str(folder), got=name)
    return plain[name]


def weights(folder: Path, *, averaged: bool = False) -> dict[str, Tensor]:
    """The whole weights in one process's memory, tied names holding one tensor; ``averaged``: averages in their places.

    Raises:
        DataError: they cannot be read.
    """
    plain, known = read_tensors(folder / PLAIN), shard_files.shapes(folder)
    wanted = ("model:", "ema:") if averaged else ("model:",)
    whole = {name: torch.zeros(shape) for name, shape in known.items() if name.startswith(wanted)}
    shard_files.read_whole(folder, whole)
    found = {name: value for name, value in {**plain, **whole}.items() if name.startswith("model:")}
    state = {name.partition(":")[2]: value for name, value in found.items()}
    if averaged:
        state |= {n.partition(":")[2]: v for n, v in {**plain, **whole}.items() if n.startswith("ema:")}
    tied: dict[str, str] = json.loads((folder / NUMBERS).read_text(encoding="utf-8"))["tied"]
    return state | {name: state[kept] for name, kept in tied.items()}
