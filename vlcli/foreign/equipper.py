"""The base of the kind ``equippers``: one style in which other libraries write attention."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

from torch import Tensor, nn

from vlcli.foreign.equipment import EquippedAttention

CROSSING = re.compile(r"cross|encoder_attn|visual_attention|multihead_attn")
"""What libraries call attention whose keys are another sequence than its queries."""
CACHES = ("cache", "past_key_values")
"""What attentions of transformers call their cache, since 5.24 and before."""
ASKING, ASKED = ("hidden_states", "x", "query"), ("context", "encoder_hidden_states", "key_value_states", "key")


class AttentionEquipper:
    """How encodings get into one style of attention: which modules have it, their sizes, and how they are changed.

    A package declares further ones as entry points of the group ``vlcli.equippers``.

    Attributes:
        looks_for: the style in words, for the message about a model without any.
    """

    looks_for: ClassVar[str] = ""

    def takes(self, module: nn.Module) -> bool:
        """Whether a module is an attention of this style. Subclasses define it; called for every module of a model.

        Args:
            module: any module of the model.

        Returns:
            True where it is.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say which modules it takes")

    def refusal(self, module: nn.Module) -> str:
        """Why a module that is nearly of this style is not taken; called for modules that no style takes.

        Args:
            module: any module of the model.

        Returns:
            Half a sentence; empty where it is something else altogether.
        """
        return ""

    def heads(self, module: nn.Module) -> tuple[int, int]:
        """How many heads the queries have, and the width of one. Subclasses define it; called for each attention.

        Args:
            module: that is taken.

        Returns:
            Number and width.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say how many heads there are")

    def install(self, module: nn.Module, place: EquippedAttention) -> None:
        """Have a module call ``place.attend`` between its projections. Subclasses define it; called once a module.

        Args:
            module: that is taken.
            place: whose ``attend`` is to be called.
        """
        raise NotImplementedError(f"{type(self).__name__} does not install anything")

    def finish(self, model: nn.Module) -> None:
        """What is left to do when all attentions of a model are changed; called once.

        Args:
            model: all of it.
        """

    def projections(self, module: nn.Module) -> tuple[str, ...]:
        """Names of the linear layers that make queries, keys and values; called for each attention.

        Args:
            module: that is taken.

        Returns:
            Three names, or one of a layer that makes all; none where they are no linear layers.
        """
        return ()

    def crosses(self, path: str, module: nn.Module) -> bool:
        """Whether keys and values come from another sequence than the queries; called once a stack.

        Args:
            path: of the module in its model.
            module: that is taken.

        Returns:
            True in cross-attention.
        """
        return CROSSING.search(path) is not None

    def tokens(self, module: nn.Module, arguments: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        """The tokens of a call; called before each forward pass of an attention.

        Args:
            module: that is called.
            arguments: of the call, by name.

        Returns:
            (B, Tq, dim) that ask, and (B, Tk, dim) that are asked.
        """
        asking = next(arguments[name] for name in ASKING if arguments.get(name) is not None)
        asked = next((arguments[name] for name in ASKED if arguments.get(name) is not None), asking)
        return asking, asked


@cache
def signature(forward: Any) -> inspect.Signature:
    """The signature of a class's ``forward``."""
    return inspect.signature(forward)


def bound(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call of a module, by name; those that ``**kwargs`` takes are among them."""
    given = signature(type(module).forward).bind_partial(module, *args, **kwargs).arguments
    open_ended = [
        one.name for one in signature(type(module).forward).parameters.values() if one.kind is one.VAR_KEYWORD
    ]
    extra = {name: value for key in open_ended for name, value in given.pop(key, {}).items()}
    return {**given, **extra}


def cache_of(call: Mapping[str, Any]) -> Any:
    """Transformers' cache among the arguments of a call, or None: ``cache`` since 5.24, ``past_key_values`` before."""
    return next((call[name] for name in CACHES if call.get(name) is not None), None)


def takes_arguments(module: nn.Module, *names: str) -> bool:
    """Whether the ``forward`` of a module has parameters of all these names."""
    return set(names) <= set(signature(type(module).forward).parameters)


def own_parts(module: nn.Module) -> set[str]:
    """The names of a module's parts that hold weights of their own."""
    children = {name for name, part in module.named_children() if any(True for _ in part.parameters())}
    return children | {name for name, _ in module.named_parameters(recurse=False)}
