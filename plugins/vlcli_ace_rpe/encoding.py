"""ACE-RPE: relative positions between words and patches, measured along anchors by cosines (section 3.2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlcli.errors import ComponentError
from vlcli.nn import IMAGE, TEXT, AttentionShape, Layout, PairwisePosition, between
from vlcli_ace_rpe.path import Metric, shortest_paths, shortest_paths_between


class _Widened(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        ctx.kind = tensor.dtype
        return tensor.float()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        bound = torch.finfo(ctx.kind).max / 2
        return gradient.clamp(-bound, bound).to(ctx.kind)


def working(tensor: Tensor) -> Tensor:
    """Converts to float32 at least: the shrinking is a cliff that half precision falls off."""
    if tensor.dtype not in (torch.float16, torch.bfloat16):
        return tensor
    return cast("Tensor", _Widened.apply(tensor))


def grouped_cosine(patches: Tensor, words: Tensor, groups: int) -> Tensor:
    """Eq. 3: cosines (B, G, M, N) by group of neighbouring channels, of patches (B, M, D) and words (B, N, D)."""
    device = patches.device.type
    with torch.autocast("cpu" if device == "meta" else device, enabled=False):
        left, right = (
            F.normalize(working(x).unflatten(-1, (groups, -1)), dim=-1, eps=1e-6).transpose(1, 2)
            for x in (patches, words)
        )
        return left @ right.transpose(-1, -2)


def log_distance(similarity: Tensor, threshold: float, sharpness: float) -> Tensor:
    """Eq. 4 and 6 as a logarithm: -log S from ``threshold`` on, below it -log(threshold) + sharpness (threshold - S).

    The soft shrinking, threshold * exp(sharpness (S - threshold)), leaves every floating-point range within a hundredth
    of the threshold.
    """
    return sharpness * (threshold - similarity).clamp(min=0) - similarity.clamp(min=threshold).log()


def distance(similarity: Tensor, threshold: float, sharpness: float, farthest: float) -> Tensor:
    """Eq. 6: 1 / shrunk similarity (in [-1, 1]), at most ``farthest``; from there on no gradient flows."""
    return log_distance(working(similarity), threshold, sharpness).clamp(max=math.log(farthest)).exp()


Side = Literal["query", "key", "value"]


@dataclass
class Paths:
    """Shortest paths that all layers of a stack share."""

    paths: Tensor  # (B, Tq, Tk, G) lengths of the shortest ways; 0 at pairs without a position or beyond the cap
    asking: Tensor  # (B, Tq, G) mean length from each query to all tokens of the other modality that have a position
    asked: Tensor  # (B, Tk, G) the same from each key
    anchors: Tensor  # (B, Tq, Tk, G) bool: pairs whose similarity reaches the threshold (Eq. 5), a diagnostic.


class ACERPE(PairwisePosition):
    """Anchor-based cross-modal relative position encoding: how far a word is from a patch by way of anchors.

    An anchor is a patch and a word that are alike in a group of channels. The length of the shortest way from a patch
    over an anchor to a word (a step between patches, the anchor's distance, a step between words) is embedded linearly:
    as a number added to the scores (``bias``, Eq. 9), or as a vector added to the inputs of queries and keys (pooled
    over the other modality, Eq. 10) and to the values (Eq. 12). Tokens without a place (class tokens, padding) and
    pairs without a way shorter than ``farthest`` have no encoding.

    Cross-attention of words and patches or regions has it in either direction, self-attention over both in one sequence
    for pairs of two modalities. Lengths are measured once a stack, on its input.

    Args:
        mode: ``contextual`` (Eq. 10-12) or ``bias`` (Eq. 9).
        sides: what a contextual encoding acts on.
        groups: G, groups of channels that each have their own similarity.
        threshold: delta of Eq. 4.
        sharpness: tau of Eq. 4.
        farthest: the cap of distances; a pair as far apart is masked.
        words: window over words, odd; null: all. The paper's 5 is read as words, its 9 as a square of 3 by 3 patches.
        side: side of the square window over patches, odd; null: all. Between regions any step is allowed.
        metric: of steps between patches (the paper: "physical distance").
        word_step: cost of a step by one word.
        patch_step: cost of a step by one patch.
        plane: sides of a picture in patches, to measure steps between regions in.
        shared: one embedding for all layers and sides instead of one each.
        uniform: every related pair has this length instead (the baseline "Uniform"); null: shortest ways.
        scaled: divide the bias by the square root of a head's width, as printed.
        gradient: let the loss change similarities, too.
        init_std: deviation of freshly drawn embeddings.
    """

    paper = "ACE-RPE, anchor-based cross-modal relative position encoding, section 3.2, Eq. 3-12"

    def __init__(
        self,
        shape: AttentionShape,
        *,
        mode: Literal["contextual", "bias"] = "contextual",
        sides: list[Side] | None = None,
        groups: int = 8,
        threshold: float = 0.05,
        sharpness: float = 1e4,
        farthest: float = 100.0,
        words: int | None = 5,
        side: int | None = 3,
        metric: Metric = "euclidean",
        word_step: float = 1.0,
        patch_step: float = 1.0,
        plane: float = 16.0,
        shared: bool = False,
        uniform: float | None = None,
        scaled: bool = True,
        gradient: bool = True,
        init_std: float = 0.02,
    ) -> None:
        super().__init__(shape)
        key_dim, wrong = shape.key_dim or shape.dim, ""
        if shape.dim % groups or key_dim != shape.dim:
            wrong = f"groups {groups} of widths {shape.dim} and {key_dim}"
        elif not 0 < threshold < 1 or farthest <= 1 / threshold:
            most = f"{1 / max(threshold, 1e-9):g}"
            wrong = f"threshold {threshold}, farthest {farthest:g}: anchors lie up to {most} apart"
        elif any(window is not None and (window < 1 or window % 2 == 0) for window in (words, side)):
            wrong = f"words {words}, side {side}"
        if wrong:
            expected = "groups that divide the one width, 0 < threshold < 1 < threshold * farthest, odd windows"
            what = "These options contradict each other."
            raise ComponentError(what, where="position ace-rpe", got=wrong, expected=expected)
        self.encodes = between("word", "cell", "box")
        self.mode, self.groups = mode, groups
        self.sides: tuple[Side, ...] = tuple(sides or ("query", "key", "value")) if mode == "contextual" else ()
        self.threshold, self.sharpness, self.farthest = threshold, sharpness, farthest
        self.words, self.word_step = words, word_step
        self.side, self.metric, self.patch_step = side, metric, patch_step
        self.plane, self.uniform, self.scaled, self.gradient = plane, uniform, scaled, gradient
        self.uses_weights, self.shared = "value" in self.sides, shared
        names = ("bias",) if mode == "bias" else ("all",) if shared else self.sides
        # keys are shifted before their projection; both modalities have one width
        size = (1 if shared else shape.layers, groups, shape.heads if mode == "bias" else shape.dim)
        self.embeddings = nn.ParameterDict({name: nn.Parameter(torch.randn(size) * init_std) for name in names})

    def prepare(self, x: Tensor, y: Tensor, x_layout: Layout, y_layout: Layout) -> Paths:
        # all pairs of two sequences, or of the two modalities in one
        if not torch.compiler.is_exporting() and y.shape[1] < y_layout.route.shape[1]:
            what, hint = "ACE-RPE cannot generate word by word: a cache lacks the tokens it measures.", "leave it out"
            raise ComponentError(what, where="position ace-rpe", expected="a task without generation", hint=hint)
        queries, keys = _Tokens(x, x_layout), _Tokens(y, y_layout)
        kind = torch.float64 if x.dtype == torch.float64 else torch.float32
        whole = x.new_zeros(x.shape[0], x.shape[1], y.shape[1], self.groups, dtype=kind)  # (B, Tq, Tk, G)
        anchors = torch.zeros(whole.shape, dtype=torch.bool, device=x.device)
        for texts, pictures, turned in ((keys, queries, False), (queries, keys, True)):
            if texts.texts.numel() and pictures.pictures.numel():
                rows, columns = pictures.pictures[:, None], texts.texts[None]
                for table, measured in zip((whole, anchors), self._measure(pictures, texts), strict=True):
                    filled = table.transpose(1, 2) if turned else table
                    filled[:, rows, columns] = measured.permute(0, 2, 3, 1)  # of (B, G, M, N)
        # means are over the other modality's tokens that have a position, related or not
        placed = queries.placed[:, :, None] & keys.placed[:, None]
        cross = (queries.is_text[:, :, None] != keys.is_text[:, None]) & placed  # (B, Tq, Tk)
        forth, back = cross.sum(2)[..., None].clamp(min=1), cross.sum(1)[..., None].clamp(min=1)
        return Paths(whole, whole.sum(2) / forth, whole.sum(1) / back, anchors)

    def _measure(self, pictures: _Tokens, texts: _Tokens) -> tuple[Tensor, Tensor]:
        # lengths (0 at masked pairs) and anchors (B, G, M, N)
        patches, words = pictures.x[:, pictures.pictures], texts.x[:, texts.texts]
        there = pictures.placed[:, pictures.pictures][:, None, :, None] & texts.placed[:, texts.texts][:, None, None]
        if not self.gradient:
            patches, words = patches.detach(), words.detach()
        similar = grouped_cosine(patches, words, self.groups)
        anchors = (similar >= self.threshold) & there
        if self.uniform is not None:
            return torch.full_like(similar, self.uniform) * there, anchors
        near = distance(similar, self.threshold, self.sharpness, self.farthest).masked_fill(~there, self.farthest)
        lengths = self._paths(near, pictures)
        return lengths.masked_fill(~there | (lengths >= self.farthest), 0), anchors

    def _paths(self, near: Tensor, pictures: _Tokens) -> Tensor:
        grid, options = pictures.layout.grid, {"words": self.words, "word_step": self.word_step}
        if grid is not None and grid[0] * grid[1] == near.shape[2]:
            options |= {"side": self.side, "patch_step": self.patch_step}
            return shortest_paths(near, grid, metric=self.metric, **options)  # type: ignore[arg-type]
        unit = 1.0 if pictures.layout.boxes is None else self.plane  # of cells, or of shares of the picture
        centre = pictures.layout.centre[:, pictures.pictures].to(near.dtype) * unit
        apart = centre[:, :, None] - centre[:, None]  # (B, R, R, 2)
        metric = {"euclidean": 2.0, "l1": 1.0, "chebyshev": torch.inf}[self.metric]
        steps = torch.linalg.vector_norm(apart.nan_to_num(torch.inf), metric, -1) * self.patch_step
        return shortest_paths_between(near, steps.expand(near.shape[0], -1, -1), **options)  # type: ignore[arg-type]

    def _embedding(self, name: str, layer: int, dtype: torch.dtype) -> Tensor:
        table: Tensor = self.embeddings["all" if self.shared and name != "bias" else name]
        return table[0 if self.shared else layer].to(dtype)  # (G, D or H)

    def inputs(self, q_in: Tensor, k_in: Tensor, v_in: Tensor, state: Any, layer: int) -> tuple[Tensor, Tensor, Tensor]:
        # Eq. 10: each token with the mean embedding of its paths to the other modality
        if "query" in self.sides:
            q_in = q_in + (state.asking @ self._embedding("query", layer, state.asking.dtype)).to(q_in.dtype)
        if "key" in self.sides:
            k_in = k_in + (state.asked @ self._embedding("key", layer, state.asked.dtype)).to(k_in.dtype)
        return q_in, k_in, v_in

    def logits(self, q: Tensor, k: Tensor, state: Any, layer: int) -> Tensor | None:
        # Eq. 9: a number a pair and head
        if self.mode != "bias":
            return None
        added: Tensor = (state.paths @ self._embedding("bias", layer, state.paths.dtype)).permute(0, 3, 1, 2)
        return (added * self.shape.head_dim**-0.5 if self.scaled else added).to(q.dtype)  # (B, H, Tq, Tk)

    def values(self, weights: Tensor, state: Any, layer: int) -> Tensor | None:
        # Eq. 12: the embeddings of the paths, weighted as the values are; summed by group first, embedded once
        if "value" not in self.sides:
            return None
        seen = torch.einsum("bhij,bijg->bhig", weights, state.paths.to(weights.dtype))
        table = self._embedding("value", layer, weights.dtype).unflatten(-1, (self.shape.heads, -1))  # (G, H, d)
        return torch.einsum("bhig,ghd->bhid", seen, table)


class _Tokens:
    # One side's tokens: words, tokens on a picture, and which of them have a position. The columns of each are alike in
    # all rows of a batch; padding differs.
    def __init__(self, x: Tensor, layout: Layout) -> None:
        self.x, self.layout = x, layout
        layout = layout.expand(x.shape[0]) if layout.route.shape[0] != x.shape[0] else layout
        self.is_text = layout.index >= 0
        self.placed = layout.valid & ~layout.special
        tracing = torch.compiler.is_exporting() and layout.runs is not None
        if layout.index.is_meta or tracing:  # counting, or writing a graph: there are no values, only the layout's runs
            cells = None if layout.grid is None else layout.grid[0] * layout.grid[1]
            self.texts, self.pictures = _columns(layout, TEXT, None), _columns(layout, IMAGE, cells)
            return
        text, picture = self.is_text.any(0), (~self.is_text & ~layout.special).any(0)
        self.texts, self.pictures = text.nonzero()[:, 0], (picture & ~text).nonzero()[:, 0]


def _columns(layout: Layout, route: int, count: int | None) -> Tensor:
    # the last ``count`` columns of a route: class tokens come first
    columns = [column for start, stop in layout.columns(route) for column in range(start, stop)]
    return torch.tensor(columns[-count:] if count else columns, dtype=torch.long, device=layout.index.device)
