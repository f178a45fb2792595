"""Files of tensors that are spread over processes: every process writes and reads its own share (safetensors).

They are written and read by ``torch.distributed.checkpoint``, so that any number of processes can read what any other
number wrote. Its own format holds a pickle; this one does not.
"""

from __future__ import annotations

import errno
import warnings
from pathlib import Path

from safetensors import SafetensorError
from torch import Tensor

from vlcli.engine import processes
from vlcli.errors import DataError
from vlcli.files import facts_of

FOLDER = "shards"


def write(folder: Path, tensors: dict[str, Tensor]) -> dict[str, dict[str, int]]:
    """Write shares to ``folder/shards``; every process calls this.

    Returns:
        Size and checksum of every file, by its path below ``folder``.
    """
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    place = folder / FOLDER
    place.mkdir(exist_ok=True)
    writer = HuggingFaceStorageWriter(str(place), save_distributed=True)
    try:
        save(dict(tensors), storage_writer=writer, process_group=processes.patient_group())
    except CheckpointException as error:
        if "No space left" in str(error):
            raise OSError(errno.ENOSPC, "No space left on device", str(place)) from error
        raise
    mine = sorted(place.glob(f"shard-{processes.rank() + 1:05d}-*.safetensors"))
    facts = processes.collect({f"{FOLDER}/{path.name}": facts_of(path) for path in mine})
    return {name: known for each in facts for name, known in each.items()}


def read(folder: Path, tensors: dict[str, Tensor]) -> None:
    """Fill ``tensors`` (whole or shares, of the shapes written) from ``folder/shards``; every process calls this.

    Raises:
        DataError: one of them is not there, or the files cannot be read.
    """
    _read(folder, tensors, alone=processes.world() == 1)


def read_whole(folder: Path, tensors: dict[str, Tensor]) -> None:
    """Fill whole ``tensors`` in this process alone.

    Raises:
        DataError: one of them is not there, or the files cannot be read.
    """
    _read(folder, tensors, alone=True)


def _read(folder: Path, tensors: dict[str, Tensor], *, alone: bool) -> None:
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.state_dict_loader import load

    if not tensors:
        return
    try:
        reader = HuggingFaceStorageReader(str(folder / FOLDER))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch tells that it reads in one process
            load(tensors, storage_reader=reader, process_group=processes.patient_group(), no_dist=alone)
    except (CheckpointException, SafetensorError, OSError, KeyError, ValueError, RuntimeError) as error:
        got = str(error).strip().split("\n")[-1]
        raise DataError("A checkpoint cannot be read.", where=str(folder), got=got) from error


def shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Shapes of the whole tensors in ``folder/shards``, by name."""
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

    found = HuggingFaceStorageReader(str(folder / FOLDER)).read_metadata().state_dict_metadata
    return {name: tuple(facts.size) for name, facts in found.items() if hasattr(facts, "size")}
