"""Builds optimizers and their parameter groups, and freezes parameters."""

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch

from vlcli.engine.optimizers import BertAdam, Muon, linear_weights
from vlcli.engine.training_module import TrainingModule
from vlcli.errors import Problem, RecipeError
from vlcli.recipe.fields import OptimizerOptions
from vlcli.recipe.patterns import Searcher


def build_optimizer(module: TrainingModule, options: OptimizerOptions) -> torch.optim.Optimizer:
    """Build the optimizer; every group has ``names`` (of parameters) and ``peak`` (the highest learning rate)."""
    groups = parameter_groups(module, options)
    assert options.lr is not None, "with_rate chooses one before"
    if options.name == "bert-adam":
        eps = options.eps if "eps" in options.model_fields_set else 1e-6
        return BertAdam(groups, lr=options.lr, betas=options.betas, eps=eps)
    if options.name == "sgd":
        return torch.optim.SGD(groups, lr=options.lr, momentum=options.momentum)
    if options.name == "muon":
        momentum = options.momentum if "momentum" in options.model_fields_set else 0.95
        return Muon(groups, options.lr, momentum, options.betas, options.eps)
    kind = torch.optim.AdamW if options.name == "adamw" else torch.optim.Adam
    fused = all(p.device.type in ("cpu", "cuda", "mps") and p.is_floating_point() for g in groups for p in g["params"])
    return kind(groups, lr=options.lr, betas=options.betas, eps=options.eps, fused=fused)


def parameter_groups(module: TrainingModule, options: OptimizerOptions) -> list[dict[str, Any]]:
    """Group trainable parameters by (learning rate, decay), tied weights once.

    The recipe's ``groups`` precede those of ``parameter_groups`` of the model and its parts. Layer-wise decay
    multiplies the rate by ``layer_decay ** (depth of the deepest layer + 1 - depth)``.

    Raises:
        RecipeError: nothing is trainable, or a pattern of the recipe matches nothing.
    """
    wanted = [Searcher(group.match, f"optimizer.groups[{i}].match") for i, group in enumerate(options.groups)]
    # BertAdam decays every parameter, biases and norms included, unless a recipe says otherwise.
    decays_all = options.name == "bert-adam" and "no_decay" not in options.model_fields_set
    exempt = () if decays_all else options.no_decay
    undecayed = [Searcher(pattern, f"optimizer.no_decay[{i}]") for i, pattern in enumerate(exempt)]
    proposals, layers = list(_proposals(module)), _layer_factors(module, options.layer_decay)
    matrices = linear_weights(module.model) if options.name == "muon" else set()
    groups: dict[tuple[float, float, bool], dict[str, Any]] = {}
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            continue
        decay = 0.0 if any(pattern.search(name) for pattern in undecayed) else options.weight_decay
        chosen = next((group for group, p in zip(options.groups, wanted, strict=True) if p.search(name)), None)
        if chosen is not None:
            rate, decay = chosen.lr, decay if chosen.decay is None else chosen.decay
        else:
            fitting = (c for start, p, c in proposals if name.startswith(start) and p.search(name[len(start) :]))
            change: dict[str, float] = next(fitting, {})
            rate, decay = change.get("lr", 1.0), decay * change.get("decay", 1.0)
        peak = (options.lr or 0.0) * rate * layers(name)
        matrix = id(parameter) in matrices
        fresh: dict[str, Any] = {"lr": peak, "peak": peak, "weight_decay": decay, "params": [], "names": []}
        group = groups.setdefault((peak, decay, matrix), fresh | {"matrices": matrix})
        group["params"].append(parameter)
        group["names"].append(name)
    names = [name for name, _ in module.named_parameters()]
    problems = [
        Problem(f"optimizer.groups[{i}].match", "matches no parameter", got=p.pattern, expected=f"e.g. {names[0]}")
        for i, p in enumerate(wanted)
        if not any(p.search(name) for name in names)
    ]
    if not groups:
        problems.append(Problem("trainable", "nothing is left to train", hint="loosen `trainable` or `frozen`"))
    if problems:
        raise RecipeError(problems)
    return list(groups.values())


def _proposals(module: TrainingModule) -> Iterator[tuple[str, re.Pattern[str], dict[str, float]]]:
    for prefix, part in module.named_modules():
        if callable(getattr(part, "parameter_groups", None)) and not prefix.startswith("teacher"):
            for pattern, change in part.parameter_groups():
                yield f"{prefix}." if prefix else "", re.compile(pattern), change


def _layer_factors(module: TrainingModule, decay: float) -> Callable[[str], float]:
    if decay == 1.0:
        return lambda _: 1.0
    names = [name for name, _ in module.model.named_parameters()]
    depths = {f"model.{name}": module.model.layer_of(name) for name in names}
    top = max((depth for depth in depths.values() if depth is not None), default=0) + 1
    return lambda name: 1.0 if (depth := depths.get(name)) is None else math.pow(decay, top - depth)


def freeze(module: TrainingModule, trainable: list[str] | None, frozen: list[str]) -> dict[str, int]:
    """Freeze parameters by patterns (searched; ``frozen`` wins); return their numbers, ``trained`` and ``total``."""
    open_patterns = [Searcher(p, "trainable") for p in (["."] if trainable is None else trainable)]
    shut_patterns = [Searcher(p, "frozen") for p in frozen]
    own = {name: parameter for name, parameter in module.named_parameters() if not name.startswith("teacher.")}
    for name, parameter in own.items():
        if not any(p.search(name) for p in open_patterns) or any(p.search(name) for p in shut_patterns):
            parameter.requires_grad_(False)
    trained = sum(parameter.numel() for parameter in own.values() if parameter.requires_grad)
    return {"trained": trained, "total": sum(parameter.numel() for parameter in own.values())}
