"""Fits a checkpoint's weights to a model, and draws a model's first weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import UnionType

from torch import Tensor, nn

from vlcli.nn.initial import PUBLISHED_STD, initialise
from vlcli.nn.position import PairwisePosition, TokenPosition


def fit_weights(model: nn.Module, state: Mapping[str, Tensor], report: list[str]) -> dict[str, Tensor]:
    """The state with every weight of another shape fitted, where its owner knows how; called by ``Model.adapt``.

    A weight of a position encoding goes to that encoding's ``fit_weight``. Weights of a classifier (names that begin
    with ``head``) of another number of classes are left out. All others stay as they are.

    Args:
        model: the model that loads them.
        state: a checkpoint's weights under the model's own names.
        report: gets a line for each weight that was changed or left out.
    """
    own = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    made = dict(state)
    for name, value in state.items():
        if name not in own or value.shape == own[name].shape:
            continue
        if encoding := _encoding_of(model, name):
            made[name] = encoding.fit_weight(name, value, own[name], report)
        elif name.startswith("head"):
            report.append(f"{name}: left out, {len(value)} classes and not {len(own[name])}")
            del made[name]
    return made


def initialise_model(
    model: nn.Module,
    std: float = PUBLISHED_STD,
    kinds: type[nn.Module] | UnionType = nn.Module,
    skip: Iterable[nn.Module] = (),
) -> None:
    """Initialises the modules of a model with :func:`initialise`, pairwise encodings excepted: they draw their weights.

    Args:
        model: whose weights are drawn, in the order of its modules.
        std: standard deviation of weights.
        kinds: the modules that are drawn.
        skip: modules that keep their weights, with all that is in them.
    """
    encodings = [module for module in model.modules() if isinstance(module, PairwisePosition)]
    kept = {part for module in (*encodings, *skip) for part in module.modules()}
    for module in model.modules():
        if module not in kept and isinstance(module, kinds):
            initialise(module, std)


def _encoding_of(model: nn.Module, name: str) -> TokenPosition | PairwisePosition | None:
    path = name.split(".")[:-1]
    for length in range(len(path), 0, -1):
        module = model.get_submodule(".".join(path[:length]))
        if isinstance(module, TokenPosition | PairwisePosition):
            return module
    return None
