"""Fits weights of a checkpoint to a model: position encodings are resized, classifiers of other classes left out."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from vlcli.nn.position import Position


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
