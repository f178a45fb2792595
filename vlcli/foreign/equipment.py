"""Base class of equippers, and the attention that equipped modules compute with an encoding."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlcli.foreign.places import PerBatch, TokenPlaces, signature
from vlcli.nn import Layout, PairwisePosition
from vlcli.nn.position import total

Inputs = tuple[Tensor, Tensor, Tensor]


@dataclass
class Pass:
    """Layouts of queries and keys in one forward pass of a stack, and the encoding's state for it."""

    layouts: tuple[Layout, Layout]
    state: Any


class Equipment:
    """The encoding that the attentions of one stack share, with the layouts of the batch at hand, from ``places``.

    ``position`` is None if the stack gets another attention only.
    """

    def __init__(self, position: PairwisePosition | None, places: TokenPlaces) -> None:
        self.position, self.places = position, places
        self.shifts = position is not None and type(position).inputs is not PairwisePosition.inputs
        self.passes: dict[tuple[bool, int, int], Pass] = {}
        places.watch(self.forget)

    def forget(self) -> None:
        """Drops the last batch; called when the tokens of a new one are made."""
        self.passes = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "passes": {}}

    def at(self, x: Tensor, y: Tensor, layer: int, whole: int | None = None) -> Pass:
        """Return layouts and state of a forward pass, which the first layer prepares for all.

        Queries are of tokens ``x`` (B, Tq, dim), keys of ``y`` (B, Tk, dim), of which only sizes are read if keys are
        cached. Keys are the last of ``whole`` tokens until now; None: of all of them.
        """
        turned, keys = self.places.turned(x, y), y.shape[1]
        whole = keys if whole is None else whole
        if layer == 0:
            self.passes = {known: one for known, one in self.passes.items() if known[0] != turned}
        key = (turned, keys, whole)
        if key not in self.passes:  # layers with and without a sliding window have their own
            every = y if whole == keys else y[:, -1:].expand(-1, whole, -1)
            of_x, of_y = self.places.layouts(x, every, turned)
            layouts = (of_x, of_y if whole == keys else of_y.cut(whole - keys, whole))
            state = None if self.position is None else self.position.prepare(x, y, *layouts)
            self.passes[key] = Pass(layouts, state)
        return self.passes[key]


class EquippedAttention(PerBatch):
    """Attention ``layer`` of an equipped stack; an :class:`~vlcli.foreign.AttentionEquipper` has its module call it.

    With ``reads_tokens`` tokens are changed before they are projected.
    """

    per_batch = ("tokens", "now", "shifted")

    def __init__(self, equipment: Equipment, layer: int) -> None:
        self.equipment, self.layer = equipment, layer
        self.reads_tokens = equipment.shifts or equipment.position is None
        self.tokens: tuple[Tensor, Tensor] | None = None
        self.earlier: int | None = None
        self.now: Pass | None = None
        self.shifted: Inputs | None = None

    def begin(self, x: Tensor, y: Tensor, earlier: int | None = None) -> None:
        """Keep the tokens of queries (B, Tq, dim) and keys (B, Tk, dim) of a call before they are projected.

        ``earlier`` counts the tokens that a cache has seen before them; None if unknown.
        """
        self.tokens, self.earlier, self.now, self.shifted = (x, y), earlier, None, None

    def during(self) -> Pass:
        assert self.tokens is not None
        self.now = self.now or self.equipment.at(*self.tokens, self.layer)
        return self.now

    def inputs(self) -> Inputs:
        """Returns the inputs of the query, key and value projections, as the encoding shifts them."""
        if self.shifted is None:
            assert self.tokens is not None
            assert self.equipment.position is not None
            (x, y), now = self.tokens, self.during()
            self.shifted = self.equipment.position.inputs(x, y, y, now.state, self.layer)
        return self.shifted

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, scale: float, dropout: float, fused: bool = True
    ) -> tuple[Tensor, Tensor | None]:
        """Compute attention (B, H, Tq, d) with the encoding; called between a module's projections.

        The probabilities (B, H, Tq, Tk) are returned too, if they were computed.

        Args:
            q: (B, H, Tq, d) queries after the module's norms and rotations, not scaled.
            k: (B, H or fewer, Tk, d) keys, those in a cache included.
            v: as ``k``.
            mask: added to the scores, or bool, True where a query may look.
            fused: use ``scaled_dot_product_attention`` if the encoding reads no probabilities.
        """
        whole = self._whole()
        if whole is not None and k.shape[2] > whole:  # a cache of fixed size has empty entries behind
            k, v, mask = k[:, :, :whole], v[:, :, :whole], None if mask is None else mask[..., :whole]
        if (times := q.shape[1] // k.shape[1]) > 1:  # grouped-query attention
            k, v = k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)
        position, now, layer = self.equipment.position, self._now(q, k), self.layer
        added = None
        if position is not None:
            q, k = position.rotate(q, k, now.state, layer)
            added = position.logits(q, k, now.state, layer)
        added = joined(added, mask, q.dtype)
        # The fused kernels of a CPU know no mask that learns; what torch falls back on is slower than separate steps.
        learns = added is not None and added.requires_grad and q.device.type == "cpu"
        if fused and not learns and not (position is not None and position.uses_weights):
            return F.scaled_dot_product_attention(q, k, v, added, dropout, scale=scale), None
        scores = (q @ k.transpose(-1, -2)) * scale
        weights = F.dropout((scores if added is None else scores + added).softmax(-1), dropout)
        more = None if position is None else position.values(weights, now.state, layer)
        return (weights @ v if more is None else weights @ v + more), weights

    def _whole(self) -> int | None:
        return None if self.tokens is None or self.earlier is None else self.earlier + self.tokens[0].shape[1]

    def _now(self, q: Tensor, k: Tensor) -> Pass:
        x, y = self.tokens or (q.transpose(1, 2).flatten(2), k.transpose(1, 2).flatten(2))
        if y.shape[1] != k.shape[2]:  # earlier keys come from a cache: their tokens are gone, their number is not
            y = y[:, -1:].expand(-1, k.shape[2], -1)
        now = self.now or self.equipment.at(x, y, self.layer, self._whole())
        self.tokens, self.earlier, self.now, self.shifted = None, None, None, None
        return now


def joined(term: Tensor | None, mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Return the sum of the encoding's term and the module's mask, which may be bool."""
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, torch.finfo(dtype).min)
    return total(term, mask)


# Names of cross-attention in libraries
CROSSING = re.compile(r"cross|encoder_attn|visual_attention|multihead_attn")
QUERIES, KEYS = ("hidden_states", "x", "query"), ("context", "encoder_hidden_states", "key_value_states", "key")


class AttentionEquipper:
    """Adds encodings to one style of attention; entry points of the group ``vlcli.equippers`` declare further styles.

    ``looks_for`` is the style in words, for the message about a model without any.
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
        """Make a module call ``equipped.attend`` between its projections. Subclasses define it; called once a module.

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


class KnownEquipper(AttentionEquipper):
    """Base of styles whose every part (layers and parameters) and argument is known: others compute something else."""

    parts: ClassVar[frozenset[str]]
    arguments: ClassVar[frozenset[str]]

    def resembles(self, module: nn.Module) -> bool:
        raise NotImplementedError

    def takes(self, module: nn.Module) -> bool:
        return self.resembles(module) and not self.refusal(module)

    def refusal(self, module: nn.Module) -> str:
        if not self.resembles(module):
            return ""
        children = {name.partition(".")[0] for name, _ in module.named_parameters()} - self.parts
        others = {*signature(type(module).forward).parameters} - self.arguments - {"self"}
        names = [f"`{one}`" for one in sorted(children)] + [f"an argument `{one}`" for one in sorted(others)]
        return f"{type(module).__name__} has {', '.join(names)}" if names else ""


def is_linear(module: nn.Module, *names: str) -> bool:
    """Returns True if all these parts of a module are linear layers."""
    return all(isinstance(getattr(module, name, None), nn.Linear) for name in names)
