"""Freezes towers, or trains them by low-rank adapters (LoRA) of the package peft."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Any, Literal

from torch import nn

from vlcli.errors import ComponentError

Tuning = Literal["trained", "frozen", "lora"]
INSTALL = "pip install 'vlcli[lora]'"


def tune(network: nn.Module, how: Tuning, options: dict[str, Any], where: str) -> None:
    """Freezes a tower's network, or adds adapters to its frozen weights; ``trained`` changes nothing.

    Args:
        network: changed in place; parameters get the names that peft gives them (``q_proj.lora_A.default.weight``).
        how: ``trained``, ``frozen`` or ``lora``.
        options: ``rank``, ``alpha``, ``targets``, ``dropout``.

    Raises:
        ComponentError: peft is not installed, or the targets match no layer.
    """
    if how == "trained":
        return
    network.requires_grad_(False)
    if how == "frozen":
        return
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError:
        what = "LoRA needs the package peft."
        raise ComponentError(what, where=f"model.{where}", hint=INSTALL) from None
    targets = targeted(network, options["targets"], where)
    config = LoraConfig(
        r=options["rank"], lora_alpha=options["alpha"], lora_dropout=options["dropout"], target_modules=targets
    )
    inject_adapter_in_model(config, network)
    for name, parameter in network.named_parameters():
        parameter.requires_grad_("lora_" in name)


def targeted(network: nn.Module, targets: list[str] | None, where: str) -> list[str]:
    """Returns full names of the linear layers that LoRA adapts.

    Args:
        targets: ends of names (``q_proj``, ``attn.qkv``) or patterns of whole names; None: every linear layer.

    Raises:
        ComponentError: a target matches nothing; the message lists what was looked for and what exists.
    """
    layers = _linear(network)
    if targets is None:
        return layers
    lacking = [target for target in targets if not any(_matches(target, name) for name in layers)]
    if lacking or not targets:
        ends = Counter(name.rpartition(".")[2] for name in layers)
        raise ComponentError(
            "LoRA has targets that match no linear layer of the tower.",
            where=f"model.{where}",
            got=f"looked for {', '.join(map(repr, lacking)) or 'nothing'}",
            expected=", ".join(f"{end} ({count})" for end, count in sorted(ends.items()))
            or "a tower with linear layers",
            hint=f"lora_targets: [{next(iter(sorted(ends)), 'NAME')}]; leave lora_targets out for every linear layer",
        )
    return [name for name in layers if any(_matches(target, name) for target in targets)]


def matches(network: nn.Module, target: str) -> bool:
    """True if a target matches a linear layer of a network."""
    return any(_matches(target, name) for name in _linear(network))


def _matches(target: str, name: str) -> bool:
    if name == target or name.endswith(f".{target}"):
        return True
    try:
        return re.fullmatch(target, name) is not None
    except re.error:
        return False


def _linear(network: nn.Module) -> list[str]:
    # torch's own attention reads the weight of its output layer itself, so that layer is never called.
    inside = {
        f"{path}.{name}" if path else name
        for path, module in network.named_modules()
        if isinstance(module, nn.MultiheadAttention)
        for name, _ in module.named_modules()
        if name
    }
    return [name for name, module in network.named_modules() if isinstance(module, nn.Linear) and name not in inside]


def default_alpha(rank: int, alpha: float | None) -> float:
    """Returns alpha, or twice the rank; both must be positive.

    Raises:
        ComponentError: one is not.
    """
    value = 2 * rank if alpha is None else alpha
    if rank < 1 or not math.isfinite(value) or value <= 0:
        raise ComponentError("LoRA's rank and alpha must be above 0.", where="model.lora_rank", got=f"{rank}, {value}")
    return value
