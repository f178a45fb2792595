"""Fits a checkpoint's weights to a model, and draws a model's first weights."""

from collections.abc import Iterable, Mapping
from types import UnionType
from typing import Literal

import torch
from torch import Tensor, nn

from vlcli.nn.position import PairwisePosition, Position

PUBLISHED_STD = 0.02
"""Standard deviation of BERT's initial weights."""
InitStd = float | Literal["auto"]
"""A model's ``init_std``: see :func:`init_scale`."""


def init_scale(std: InitStd, width: int, published: int = 768) -> float:
    """Return the standard deviation of initial weights: ``std`` itself, or for ``auto`` that of the hidden ``width``.

    ``auto`` is 0.02 from the ``published`` width on, and ``0.02 * (published / width) ** 0.75`` below it: 0.034 at 384,
    0.077 at 128, 0.129 at 64, near ``1 / sqrt(width)``. With 0.02 a narrow model's attention starts almost uniform, and
    stays so for tens of thousands of examples.
    """
    return PUBLISHED_STD * max(1.0, published / width) ** 0.75 if std == "auto" else std


class BoxProjection(nn.Linear):
    """Linear layer of a box: 4 coordinates, 5 numbers (with area) or 7 (with width, height, area).

    With a bias of zero, the layer norm that follows in LXMERT, UNITER and DiMBERT removes the length of the projected
    box: boxes at (.1, .1) and (.7, .7) start nearly alike. :func:`initialise` therefore gives narrow models (with more
    than the published 0.02) a bias that centres the coordinates and adds a fixed direction.
    """

    def centre(self, std: float) -> None:
        """Draw the bias for weights drawn with ``std``: minus the projection of a middling box, plus noise."""
        middle = self.weight.new_tensor([0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.06])
        if self.in_features == 5:
            middle = middle[[0, 1, 2, 3, 6]]
        with torch.no_grad():
            spread = std * (4 / 12) ** 0.5  # four coordinates, evenly spread over the picture
            nn.init.normal_(self.bias, std=spread)
            self.bias.sub_(self.weight @ middle[: self.in_features])


def initialise(module: nn.Module, std: float = PUBLISHED_STD) -> None:
    """Initialise one module as BERT does: normal weights, zero biases, unit norms (use with ``apply``)."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=std)
    if isinstance(module, nn.LayerNorm):
        nn.init.ones_(module.weight)
    if isinstance(module, nn.Linear | nn.LayerNorm) and module.bias is not None:
        nn.init.zeros_(module.bias)
    if isinstance(module, BoxProjection) and std > PUBLISHED_STD:
        module.centre(std)


def fit_weights(model: nn.Module, state: Mapping[str, Tensor], report: list[str]) -> dict[str, Tensor]:
    """Return the state with weights of another shape fitted to the model; called by ``Model.adapt``.

    A weight of a position encoding is passed to that encoding's ``fit_weight``. Weights of a classifier (names that
    begin with ``head``) of another number of classes are left out. All others stay as they are. ``report`` gets a line
    for each weight that was changed or left out.
    """
    targets = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    modules = dict(model.named_modules())
    fitted = dict(state)
    for name, value in state.items():
        if name not in targets or value.shape == targets[name].shape:
            continue
        owners = [part for path, part in modules.items() if isinstance(part, Position) and name.startswith(f"{path}.")]
        encoding = owners[-1] if owners else None
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

    Modules of other ``kinds``, and those in ``skip`` with all that is in them, keep their weights.
    """
    encodings = [module for module in model.modules() if isinstance(module, PairwisePosition)]
    kept = {part for module in (*encodings, *skip) for part in module.modules()}
    for module in model.modules():
        if module not in kept and isinstance(module, kinds):
            initialise(module, std)
