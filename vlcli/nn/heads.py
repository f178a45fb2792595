"""Heads by name: a model names its heads by role, and a recipe may choose others.

A masked-word head is called with the model's word table (``head(hidden, table)``), so that a tied decoder is stored
once. All others are called ``head(x)``.
"""

from collections.abc import Callable
from functools import partial
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlcli import registry
from vlcli.errors import ComponentError
from vlcli.nn.fitting import initialise
from vlcli.nn.model import Model

# The head of each role if neither model nor recipe name one
ROLES = {"mlm": "bert-mlm", "matching": "linear", "answer": "lxmert-answer", "pair": "lxmert-pair", "label": "linear"}


class HeadTransform(nn.Module):
    """BERT's layers before a decoder: linear, GELU, norm."""

    def __init__(self, dim: int, eps: float = 1e-12) -> None:
        super().__init__()
        self.dense, self.norm = nn.Linear(dim, dim), nn.LayerNorm(dim, eps=eps)

    def forward(self, x: Tensor) -> Tensor:
        # (..., D) -> (..., D)
        return cast("Tensor", self.norm(F.gelu(self.dense(x))))


class TwoLayerHead(nn.Module):
    """Two linear layers with GELU and a norm between: before GELU (``norm_first``: VLMo, ViLT) or after it (LXMERT)."""

    def __init__(self, dim: int, wide: int, outputs: int, eps: float, norm_first: bool = False) -> None:
        super().__init__()
        self.inner, self.norm, self.outer = nn.Linear(dim, wide), nn.LayerNorm(wide, eps=eps), nn.Linear(wide, outputs)
        self.norm_first = norm_first

    def forward(self, x: Tensor) -> Tensor:
        # (..., dim) -> (..., outputs)
        x = self.inner(x)
        return cast("Tensor", self.outer(F.gelu(self.norm(x)) if self.norm_first else self.norm(F.gelu(x))))


class TiedWordHead(nn.Module):
    """BERT's masked-word head: transform, then the word table as decoder, and a bias."""

    def __init__(self, dim: int, outputs: int, eps: float = 1e-12) -> None:
        super().__init__()
        self.transform = HeadTransform(dim, eps)
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.tied = (dim, outputs)

    def forward(self, hidden: Tensor, table: Tensor) -> Tensor:
        # hidden: (K, D), table: (V, D) -> (K, V)
        return F.linear(self.transform(hidden), table, self.bias)


class OwnWordHead(nn.Module):
    """A masked-word head with an untied decoder (VLMo, ViLT)."""

    def __init__(self, dim: int, outputs: int) -> None:
        super().__init__()
        self.transform = HeadTransform(dim)
        self.decoder = nn.Linear(dim, outputs)

    def forward(self, hidden: Tensor, table: Tensor | None = None) -> Tensor:
        # (K, D) -> (K, V)
        return cast("Tensor", self.decoder(self.transform(hidden)))


def linear(dim: int, outputs: int) -> nn.Module:
    """One linear layer: ITM heads, classifiers."""
    return nn.Linear(dim, outputs)


def lxmert_answer(dim: int, outputs: int) -> nn.Module:
    """LXMERT's answer head: two layers, twice as wide between them."""
    return TwoLayerHead(dim, 2 * dim, outputs, 1e-12)


def lxmert_pair(dim: int, outputs: int) -> nn.Module:
    """LXMERT's head for two pictures (NLVR2): two layers, as wide between them as the input."""
    return TwoLayerHead(dim, dim, outputs, 1e-12)


def vlmo_answer(dim: int, outputs: int) -> nn.Module:
    """VLMo's answer head: two layers, twice as wide between them, the norm before GELU."""
    return TwoLayerHead(dim, 2 * dim, outputs, 1e-5, True)


def vlmo_pair(dim: int, outputs: int) -> nn.Module:
    """VLMo's head for two pictures (NLVR2): two layers, the norm before GELU."""
    return TwoLayerHead(dim, dim, outputs, 1e-5, True)


def register_head(name: str, builder: Callable[[int, int], nn.Module]) -> None:
    """Add a head ``builder(width_in, outputs)``; raise ComponentError if another head has its name."""
    if name in registry.names("heads") and registry.load("heads", name) is not builder:
        raise ComponentError("Two heads have one name.", got=repr(name))
    registry.register("heads", name, builder)


def build_head(model: Model, role: str, dim_in: int, outputs: int, choice: str | None = None) -> nn.Module:
    """Build and initialise the head of a role; ComponentError if there is none, or two packages have its name.

    Args:
        role: ``mlm``, ``matching``, ``answer``, ``pair`` (two pictures), ``label`` or one of the model's own.
        dim_in: width of the input (twice the model's for two pictures).
        outputs: number of scores.
        choice: of the recipe, instead of the model's.
    """
    name = choice or model.heads.get(role) or ROLES.get(role, "linear")
    head: nn.Module = registry.load("heads", name)(dim_in, outputs)
    return head.apply(partial(initialise, std=model.init_std))
