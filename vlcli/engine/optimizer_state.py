"""Converts an optimizer's state to tensors and numbers by ``"KEY:PARAMETER"``, and back."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vlcli.errors import DataError
from vlcli.files import write_json

NUMBERS = "optimizer.json"


def parameters_of(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimizer's parameters by name, in the order of its state."""
    return {n: p for group in optimizer.param_groups for n, p in zip(group["names"], group["params"], strict=True)}


def write_state(folder: Path | None, optimizer: torch.optim.Optimizer, **more: Any) -> dict[str, Tensor]:
    """Return the state's tensors; write groups, numbers and ``more`` to ``folder/optimizer.json`` (None: do not)."""
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, Any] = {}
    for name, parameter in parameters_of(optimizer).items():
        for key, value in optimizer.state.get(parameter, {}).items():
            (tensors if isinstance(value, Tensor) else numbers)[f"{key}:{name}"] = value
    groups = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
    if folder is not None:
        write_json(folder / NUMBERS, {"groups": groups, "numbers": numbers, **more})
    return tensors


def read_numbers(folder: Path, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Read ``optimizer.json``. Raises DataError: its groups have other parameters than the optimizer's."""
    saved: dict[str, Any] = json.loads((folder / NUMBERS).read_text(encoding="utf-8"))
    if [group["names"] for group in optimizer.param_groups] != [group["names"] for group in saved["groups"]]:
        what = "The checkpoint's optimizer trains other parameters."
        raise DataError(what, where=str(folder), hint="start anew with --force")
    return saved


def load_state(optimizer: torch.optim.Optimizer, saved: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Load what :func:`read_numbers` returned, and tensors in the shapes of the optimizer's parameters."""
    rows = {name: row for row, name in enumerate(parameters_of(optimizer))}
    state: dict[int, dict[str, Any]] = {}
    for key, value in {**tensors, **saved["numbers"]}.items():
        entry, _, name = key.partition(":")
        state.setdefault(rows[name], {})[entry] = value
    groups = optimizer.state_dict()["param_groups"]
    for group, old in zip(groups, saved["groups"], strict=True):
        group.update({k: tuple(v) if isinstance(v, list) and k == "betas" else v for k, v in old.items()})
    optimizer.load_state_dict({"state": state, "param_groups": groups})
