"""Defines the base class of equippers: how an encoding is added to one style of attention."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from vlcli.foreign.equipment import EquippedAttention

CROSSING = re.compile(r"cross|encoder_attn|visual_attention|multihead_attn")
"""Names of cross-attention in libraries."""
QUERIES, KEYS = ("hidden_states", "x", "query"), ("context", "encoder_hidden_states", "key_value_states", "key")


class AttentionEquipper:
    """Adds encodings to one style of attention; entry points of the group ``vlcli.equippers`` declare further styles.

    Attributes:
        looks_for: the style in words, for the message about a model without any.
    """

    looks_for: ClassVar[str] = ""

    def takes(self, module: nn.Module) -> bool:
        """Returns True if a module is an attention of this style. Subclasses define it; called for every module.

        Args:
            module: of the model.

        Returns:
            True for an attention of this style.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say which modules it takes")

    def refusal(self, module: nn.Module) -> str:
        """Returns why a module that resembles this style is not taken; called for modules that no style takes.

        Args:
            module: of the model.

        Returns:
            Half a sentence; empty if the module is no attention of this style.
        """
        return ""

    def heads(self, module: nn.Module) -> tuple[int, int]:
        """Returns the number of query heads and their width. Subclasses define it; called for each attention.

        Args:
            module: the attention.

        Returns:
            Number and width.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say how many heads there are")

    def install(self, module: nn.Module, equipped: EquippedAttention) -> None:
        """Makes a module call ``equipped.attend`` between its projections. Subclasses define it; called once a module.

        Args:
            module: the attention.
            equipped: whose ``attend`` replaces the softmax attention of the module.
        """
        raise NotImplementedError(f"{type(self).__name__} does not install anything")

    def finish(self, model: nn.Module) -> None:
        """Completes a model whose attentions are all changed; called once.

        Args:
            model: the whole model.
        """

    def projections(self, module: nn.Module) -> tuple[str, ...]:
        """Returns the names of the linear layers of queries, keys and values; called for each attention.

        Args:
            module: the attention.

        Returns:
            Three names, or one of a fused layer; none if they are no linear layers.
        """
        return ()

    def crosses(self, path: str, module: nn.Module) -> bool:
        """Returns True for cross-attention; called once a stack.

        Args:
            path: of the module in its model.
            module: the attention.

        Returns:
            True if keys and values come from another sequence than the queries.
        """
        return CROSSING.search(path) is not None

    def tokens(self, module: nn.Module, arguments: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        """Returns the tokens of a call; called before each forward pass of an attention.

        Args:
            module: the attention.
            arguments: of the call, by name.

        Returns:
            Tokens of the queries (B, Tq, dim) and of the keys (B, Tk, dim).
        """
        queries = next(arguments[name] for name in QUERIES if arguments.get(name) is not None)
        keys = next((arguments[name] for name in KEYS if arguments.get(name) is not None), queries)
        return queries, keys
