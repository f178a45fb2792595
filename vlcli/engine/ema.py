"""Keeps a moving average of the weights for evaluation and export."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from vlcli.engine.sharding import local
from vlcli.errors import Problem, RecipeError
from vlcli.recipe.fields import EmaOptions


class Ema:
    """Averages of every trained parameter, or of this process's shards.

    With ``warmup``, update n has decay ``min(decay, (1 + n) / (10 + n))``.

    Raises:
        RecipeError: the decay is not between 0 and 1.
    """

    def __init__(self, module: nn.Module, options: EmaOptions) -> None:
        if not 0 <= options.decay <= 1:  # NaN is not either
            what = "this is no share of the average"
            raise RecipeError([Problem("ema.decay", what, got=str(options.decay), expected="0 to 1")])
        self.options, self.updates = options, 0
        self.shadow = {name: p.clone() for name, p in _trained(module)}

    @torch.no_grad()
    def update(self, module: nn.Module) -> None:
        """Called after an optimizer step."""
        self.updates += 1
        growing = (1 + self.updates) / (10 + self.updates) if self.options.warmup else 1.0
        keep = min(self.options.decay, growing)
        for name, parameter in _trained(module):
            self.shadow[name].lerp_(parameter, 1 - keep)

    @contextmanager
    def applied(self, module: nn.Module) -> Iterator[None]:
        """Replace the weights by the averages meanwhile."""
        kept = {name: p.clone() for name, p in _trained(module)}
        self._put(module, self.shadow)
        try:
            yield
        finally:
            self._put(module, kept)

    @torch.no_grad()
    def _put(self, module: nn.Module, values: dict[str, Tensor]) -> None:
        for name, parameter in _trained(module):
            parameter.copy_(values[name])


def _trained(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from ((name, local(p)) for name, p in module.named_parameters() if p.requires_grad)
