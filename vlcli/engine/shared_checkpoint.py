"""Writes and reads checkpoints of sharded parameters, with any number of processes.

``shards/shard-*.safetensors`` hold each process's shards of weights (``model:NAME``), moments (``KEY:NAME``) and
averages (``ema:NAME``), written by ``torch.distributed.checkpoint``, whose default format would hold a pickle;
``plain.safetensors`` holds, under names of the same kind, buffers and what has no dimension; ``optimizer.json`` holds
groups, numbers, and names that share a weight.
"""

import errno
import json
import warnings
from collections import ChainMap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from vlcli.engine import processes
from vlcli.engine.ema import Ema
from vlcli.engine.optimizer_state import NUMBERS, load_state, parameters_of, read_numbers, write_state
from vlcli.engine.sharding import Shards, is_share, local
from vlcli.engine.weights import first_not_finite, of_another_model, read_tensors, save_tensors
from vlcli.errors import DataError, VlcliError
from vlcli.files import facts_of, new_folder

PLAIN, FOLDER = "plain.safetensors", "shards"


@contextmanager
def together(final: Path) -> Iterator[Path]:
    """Fill a folder by all processes; it appears complete or not at all."""
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
    """Write weights, optimizer and averages; return size and checksum of every file by path. Every process calls this.

    Raises:
        VlcliError: a weight or an average is not finite.
        OSError: the disk is full.
    """
    first, tied = _distinct(shards)
    tensors = {f"model:{name}": value.detach() for name, value in first.items()}
    if ema:
        tensors |= {f"ema:{name}": shards.spread(name, average) for name, average in ema.shadow.items()}
    buffers = {f"model:{name}" for name, _ in shards.module.named_buffers()}
    bad = processes.collect(first_not_finite({name: local(value) for name, value in tensors.items()}, buffers))
    if any(bad):
        what, got = "The weights are not finite, so they are not written.", f"first of them {next(filter(None, bad))}"
        raise VlcliError(what, where=where, got=got, expected="finite numbers", hint="lower optimizer.lr or set clip")
    for key, value in write_state(folder if processes.rank() == 0 else None, optimizer, tied=tied).items():
        tensors[key] = shards.spread(key.partition(":")[2], value) if value.ndim else value.clone()
    facts = _write_shards(folder, {name: value for name, value in tensors.items() if is_share(value)})
    if processes.rank() == 0:
        save_tensors(folder / PLAIN, {name: value for name, value in tensors.items() if not is_share(value)})
        facts |= {name: facts_of(folder / name) for name in (PLAIN, NUMBERS)}
    return facts


def _write_shards(folder: Path, tensors: dict[str, Tensor]) -> dict[str, Any]:
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    shard_folder = folder / FOLDER
    shard_folder.mkdir(exist_ok=True)
    writer = HuggingFaceStorageWriter(str(shard_folder), save_distributed=True)
    try:
        save(dict(tensors), storage_writer=writer, process_group=processes.patient_group())
    except CheckpointException as error:
        if "No space left" in str(error):
            raise OSError(errno.ENOSPC, "No space left on device", str(shard_folder)) from error
        raise
    mine = sorted(shard_folder.glob(f"shard-{processes.rank() + 1:05d}-*.safetensors"))
    return dict(ChainMap(*processes.collect({f"{FOLDER}/{path.name}": facts_of(path) for path in mine})))


def _distinct(shards: Shards) -> tuple[dict[str, Tensor], dict[str, str]]:
    names: dict[int, str] = {}
    state = shards.state()
    tied = {name: kept for name, value in state.items() if (kept := names.setdefault(id(value), name)) != name}
    return {name: value for name, value in state.items() if name not in tied}, tied


def load(folder: Path, shards: Shards, optimizer: torch.optim.Optimizer, ema: Ema | None) -> None:
    """Fill module, optimizer and averages; every process calls this, however many wrote.

    Raises:
        DataError: the checkpoint is of another model or optimizer, or cannot be read.
    """
    saved = read_numbers(folder, optimizer)
    plain, known = read_tensors(folder / PLAIN), _shapes(folder)
    targets = {f"model:{name}": value.detach() for name, value in _distinct(shards)[0].items()}
    shapes = {name: tuple(value.shape) for name, value in plain.items()} | known
    wrong = [name for name, value in targets.items() if shapes.get(name) != tuple(value.shape)]
    wrong += [name for name in shapes if name.startswith("model:") and name not in targets]
    if wrong:
        raise of_another_model(sorted(wrong), str(folder))
    if ema:
        targets |= {f"ema:{name}": shards.spread(name, average) for name, average in ema.shadow.items()}
    parameters = parameters_of(optimizer)
    moments = {key: value for key, value in plain.items() if not key.startswith(("model:", "ema:"))}
    for key in known:
        name = key.partition(":")[2]
        if not key.startswith(("model:", "ema:")) and name in parameters:
            moments[key] = torch.zeros_like(parameters[name])
            targets[key] = shards.spread(name, moments[key])
    _read_shards(folder, {name: value for name, value in targets.items() if name in known})
    for name in targets.keys() - known.keys():
        if name not in plain:
            raise DataError("A checkpoint lacks a tensor.", where=str(folder), got=name)
        with torch.no_grad():
            local(targets[name]).copy_(plain[name])
    load_state(optimizer, saved, moments)


def weights(folder: Path, *, averaged: bool = False) -> dict[str, Tensor]:
    """Read the whole weights (or averages) in one process; tied names hold one tensor. Raises DataError: unreadable."""
    wanted = ("model:", "ema:") if averaged else ("model:",)
    whole = {name: torch.zeros(shape) for name, shape in _shapes(folder).items() if name.startswith(wanted)}
    _read_shards(folder, whole, alone=True)
    whole = read_tensors(folder / PLAIN) | whole
    state = {n.partition(":")[2]: v for kind in wanted for n, v in whole.items() if n.startswith(kind)}
    tied: dict[str, str] = json.loads((folder / NUMBERS).read_text(encoding="utf-8"))["tied"]
    return state | {name: state[kept] for name, kept in tied.items()}


def _read_shards(folder: Path, tensors: dict[str, Tensor], *, alone: bool = False) -> None:
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.state_dict_loader import load as load_state_dict

    if not tensors:
        return
    alone = alone or processes.world() == 1
    try:
        reader = HuggingFaceStorageReader(str(folder / FOLDER))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch tells that it reads in one process
            load_state_dict(tensors, storage_reader=reader, process_group=processes.patient_group(), no_dist=alone)
    except (CheckpointException, SafetensorError, OSError, KeyError, ValueError, RuntimeError) as error:
        got = str(error).strip().split("\n")[-1]
        raise DataError("A checkpoint cannot be read.", where=str(folder), got=got) from error


def _shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

    metadata = HuggingFaceStorageReader(str(folder / FOLDER)).read_metadata().state_dict_metadata
    return {name: tuple(facts.size) for name, facts in metadata.items() if hasattr(facts, "size")}
