"""Runs recurrent layers so that exported graphs take texts of any length."""

from typing import Any

import torch
from torch import Tensor, nn


def recurrent_states(cell: nn.GRU | nn.LSTM, inputs: Tensor) -> Tensor:
    """Return the states (N, T, D) of a layer with one direction for inputs (N, T, C).

    torch.export unrolls the layer for the length that it was traced with; ONNX's operator takes any.
    """
    if not torch.onnx.is_in_onnx_export():
        states: Tensor = cell(inputs)[0]
        return states
    gru = isinstance(cell, nn.GRU)
    order = (1, 0, 2) if gru else (0, 3, 1, 2)  # gates: ONNX z, r, h and i, o, f, c; torch r, z, n and i, f, g, o

    def weights(name: str) -> Tensor:
        gates = getattr(cell, name).chunk(len(order))
        return torch.cat([gates[gate] for gate in order])[None]

    biases = torch.cat([weights("bias_ih_l0"), weights("bias_hh_l0")], 1)
    attributes: dict[str, Any] = {"hidden_size": cell.hidden_size}
    states = torch.onnx.ops.symbolic(
        "GRU" if gru else "LSTM",
        (inputs.transpose(0, 1), weights("weight_ih_l0"), weights("weight_hh_l0"), biases),
        attributes | ({"linear_before_reset": 1} if gru else {}),
        dtype=inputs.dtype,
        shape=(inputs.shape[1], 1, inputs.shape[0], cell.hidden_size),
        version=14,
    )
    return states[:, 0].transpose(0, 1)
