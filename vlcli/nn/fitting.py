"""Fits a checkpoint's weights to a model, and draws a model's first weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import UnionType

from torch import Tensor, nn

from vlcli.nn.initial import PUBLISHED_STD, initialise
from vlcli.nn.position import PairwisePosition, Position


def fit_weights(model: nn.Module, state: Mapping[str, Tensor], report: list[str]) -> dict[str, Tensor]:
    """Return the state with weights of another shape fitted to the model; called by ``Model.adapt``.

    A weight of a position encoding is passed to that encoding's ``fit_weight``. Weights of a classifier (names that
    begin with ``head``) of another number of classes are left out. All others stay as they are.

    Args:
        state: a checkpoint's weights under the model's names.
        report: gets a line for each weight that was changed or left out.
    """
    targets = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    modules = dict(model.named_modules())
    fitted = dict(state)
    for name, value in state.items():
        if name not in targets or value.shape == targets[name].shape:
            continue
        parts = name.split(".")
        owners = (modules[".".join(parts[:length])] for length in range(len(parts) - 1, 0, -1))
        encoding = next((owner for owner in owners if isinstance(owner, Position)), None)
        if encoding is not None:
            fitted[name] = encoding.fit_weight(name, value, targets[name], report)
        elif name.startswith("head"):
            report.append(f"{name}: left out, {len(value)} classes and not {len(targets[name])}")
            del fitted[name]
    return fitted


def initialise_model(
    model: nn.Module,
    std: float = PUBLISHED_STD,
    kinds: type[nn.Module] | UnionType = nn.Module,
    skip: Iterable[nn.Module] = (),
) -> None:
    """Initialise the modules of a model with :func:`initialise`, except pairwise encodings, which do it themselves.

    Args:
        std: standard deviation of weights.
        kinds: classes of the modules that are initialised.
        skip: modules that keep their weights, with all that is in them.
    """
    encodings = [module for module in model.modules() if isinstance(module, PairwisePosition)]
    kept = {part for module in (*encodings, *skip) for part in module.modules()}
    for module in model.modules():
        if module not in kept and isinstance(module, kinds):
            initialise(module, std)
