"""Defines disentangled attention (DiM): projections for each modality, one softmax over all keys."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, cast

import torch
from torch import Tensor, nn

from vlcli.errors import ComponentError
from vlcli.nn import AttentionShape, Layout, Projected, StandardAttention


class DisentangledAttention(StandardAttention):
    """Disentangled multimodal attention: own query, key and value projections per modality (DiMBERT).

    One softmax runs over all keys, and the output projection is shared. The first set has the names of ``standard``, so
    that weights of any model load into it; further sets stay freshly drawn or start as copies of the first.

    Args:
        sets: the set of each route of the layout: words, regions, concepts, separators. ``[0, 1, 0, 0]`` is the paper's
            text and vision; ``[0, 1, 2, 0]`` gives concepts a set of their own.
        initial: how further sets start where weights are loaded that hold only the first.
        bias: which projections have a bias.
        dense: whether heads are mixed by an output projection.
        outputs: one output projection for all tokens (the paper), or one for each set (VLMo's Table 7).
        float32_softmax: scores and softmax in float32 whatever the precision around.

    Raises:
        ComponentError: the sets are not numbered 0, 1, ...
    """

    paper = "DiMBERT, Liu et al. 2021, section 3.1.2, Eq. 3"

    def __init__(
        self,
        shape: AttentionShape,
        *,
        sets: tuple[int, ...] = (0, 1, 0, 0),
        initial: Literal["fresh", "copied"] = "fresh",
        bias: Literal["all", "query_value", "none"] = "all",
        dense: bool = True,
        outputs: Literal["shared", "own"] = "shared",
        float32_softmax: bool = False,
    ) -> None:
        super().__init__(shape, bias=bias, dense=dense, float32_softmax=float32_softmax)
        self.sets, self.initial = tuple(sets), initial
        if not self.sets or set(self.sets) != set(range(max(self.sets) + 1)):
            expected = "sets numbered 0, 1, ... without a gap, one for each route"
            raise ComponentError("The numbers of projection sets have a gap.", got=str(list(sets)), expected=expected)
        width = shape.key_dim or shape.dim
        parts = {"query": (shape.dim, bias != "none"), "key": (width, bias == "all"), "value": (width, bias != "none")}
        self.others = nn.ModuleList(
            nn.ModuleDict({name: nn.Linear(size, shape.dim, bias=biased) for name, (size, biased) in parts.items()})
            for _ in range(max(self.sets))
        )
        self.own_outputs = dense and outputs == "own"
        for further in self.others if self.own_outputs else ():
            further["dense"] = nn.Linear(shape.dim, shape.dim)  # type: ignore[operator]

    def project(
        self, q_in: Tensor, k_in: Tensor | None, v_in: Tensor | None, x_layout: Layout | None, y_layout: Layout | None
    ) -> Projected:
        of_queries = Grouping(self.sets, x_layout)
        grouped = of_queries.split(q_in)
        q = self.split(of_queries.join(self._project_sets("query", grouped)))
        if k_in is None or v_in is None:
            return q, None, None
        of_keys = of_queries if y_layout is x_layout else Grouping(self.sets, y_layout)
        keys = grouped if k_in is q_in and of_keys is of_queries else of_keys.split(k_in)
        values = keys if v_in is k_in else of_keys.split(v_in)
        k, v = of_keys.join(self._project_sets("key", keys)), of_keys.join(self._project_sets("value", values))
        return q, self.split(k), self.split(v)

    def _project_sets(self, name: str, grouped: dict[int, Tensor]) -> dict[int, Tensor]:
        layers = [getattr(self, name), *(further[name] for further in self.others)]  # type: ignore[index]
        return {number: layers[number](tokens) for number, tokens in grouped.items()}

    def output(self, context: Tensor, x_layout: Layout | None) -> Tensor:
        if not self.own_outputs:
            return super().output(context, x_layout)
        groups = Grouping(self.sets, x_layout)
        return groups.join(self._project_sets("dense", groups.split(context)))

    def projection(self, linear: nn.Linear) -> nn.Module:
        return ModalityLinear(linear, self.sets, self.initial == "copied")

    def inherit(self, filled: Collection[str]) -> list[str]:
        if self.initial == "fresh":
            return []
        copied, parameters = [], dict(self.named_parameters())
        for name, value in parameters.items():
            source = name.split(".", 2)[2] if name.startswith("others.") else name
            if name not in filled and source in filled:
                value.data.copy_(parameters[source].data)
                copied.append(name)
        return copied


class ModalityLinear(nn.Linear):
    """A linear layer with a further set of weights for each further modality, as ``others``.

    Args:
        first: the layer whose parameters become the first set.
        copied: whether further sets start as copies of the first.
    """

    def __init__(self, first: nn.Linear, sets: tuple[int, ...], copied: bool) -> None:
        super().__init__(first.in_features, first.out_features, bias=first.bias is not None, device="meta")
        self.weight, self.bias = first.weight, first.bias
        like = {"device": first.weight.device, "dtype": first.weight.dtype}
        self.sets = sets
        self.others = nn.ModuleList(
            nn.Linear(first.in_features, first.out_features, bias=first.bias is not None, **like)
            for _ in range(max(sets))
        )
        for further in self.others if copied else ():
            further.load_state_dict({name: value for name, value in first.state_dict().items() if "." not in name})

    def forward(self, x: Tensor, layout: Layout | None = None) -> Tensor:
        """Projects tokens (B, T, D) by the weights of their modality; without a layout by the first set."""
        groups = Grouping(self.sets, layout)
        layers = [super().forward, *(layer.forward for layer in self.others)]
        return groups.join({number: layers[number](tokens) for number, tokens in groups.split(x).items()})


class Grouping:
    """Groups tokens by their set, and puts them back; without a layout all take the first set."""

    def __init__(self, sets: tuple[int, ...], layout: Layout | None) -> None:
        self.sets, self.layout = sets, cast("Layout", layout)  # without one there are runs
        runs = ((0, -1),) if layout is None else layout.runs
        if beyond := [route for route, _ in runs or () if route >= len(sets)]:
            what, hint = "A token's route has no set of projections.", "name a set for every route the model uses"
            got = f"route {beyond[0]}, sets {list(sets)}"
            raise ComponentError(what, where="attention disentangled", got=got, hint=hint)
        self.runs = None if runs is None else [(sets[route], count) for route, count in runs]

    def split(self, x: Tensor) -> dict[int, Tensor]:
        """Splits ``x`` (B, T, D) by set: (B, T', D) each, or (K, D) where rows differ."""
        if self.runs is None:
            self.layout = self.layout.expand(len(x))
            groups, _ = self.layout.grouped(self.sets)
            flat = x.flatten(0, 1)  # (B * T, D)
            return {number: flat.index_select(0, rows) for number, rows in enumerate(groups)}
        if len(used := {number for number, _ in self.runs}) == 1:
            return dict.fromkeys(used, x)
        parts: dict[int, list[Tensor]] = {}
        for (number, _), part in zip(self.runs, x.split([count for _, count in self.runs], 1), strict=True):
            parts.setdefault(number, []).append(part)
        return {number: one[0] if len(one) == 1 else torch.cat(one, 1) for number, one in parts.items()}

    def join(self, grouped: dict[int, Tensor]) -> Tensor:
        if self.runs is None:
            _, order = self.layout.grouped(self.sets)
            whole = torch.cat([grouped[number] for number in sorted(grouped)])  # (B * T, D')
            return torch.unflatten(whole.index_select(0, order), 0, self.layout.route.shape)
        if len(grouped) == 1:
            return next(iter(grouped.values()))
        pieces = {
            number: iter(group.split([count for of_run, count in self.runs if of_run == number], 1))
            for number, group in grouped.items()
        }
        return torch.cat([next(pieces[number]) for number, _ in self.runs], 1)
