"""Defines the relative encodings that iRPE is compared with (section 3.1; on images, supplement 4)."""

import math
from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vlcli.errors import ComponentError
from vlcli.nn import AttentionShape, Layout, PairwisePosition, Slot, within
from vlcli_irpe.buckets import BucketRule
from vlcli_irpe.lookup import PLANE, BucketPosition, box_objection, by_key, by_query, look_up, with_blank
from vlcli_irpe.relative_index import RelativeIndex, bucket_ids, by_pair

Plane = Literal["image", "sequence"]


def _clipped(plane: Plane, distance: int) -> BucketRule:
    if distance < 1:
        raise ComponentError("The largest distance must be 1 or more.", where="key distance", got=str(distance))
    return BucketRule("product" if plane == "image" else "sequence", distance / 2, "clip")


class Shaw(BucketPosition):
    """Relative position representations: a clipped offset's vector on keys, and on values by option (Shaw et al.).

    Args:
        plane: rows and columns of an image, clipped each; or indices in the sequence.
        distance: the clip distance k; 3 makes the 7x7 table of iRPE's Table 5.
        value: also add vectors to values (Eq. 7); the cost that Table 5 gives is that of keys alone.
    """

    paper = "Shaw et al., NAACL 2018, arXiv:1803.02155; iRPE Eq. 7-9"

    def __init__(
        self, shape: AttentionShape, *, plane: Plane = "image", distance: int = 3, value: bool = False, **options: Any
    ) -> None:
        super().__init__(shape, _clipped(plane, distance), ("key", "value") if value else ("key",), **options)


class Huang(BucketPosition):
    """One vector per offset that meets queries and keys (Huang et al., method 4).

    Args:
        plane: rows and columns of an image, clipped each; or indices in the sequence.
        distance: the clip distance.
    """

    paper = "Huang et al., Findings of EMNLP 2020, arXiv:2009.13658; iRPE Eq. 11"

    def __init__(self, shape: AttentionShape, *, plane: Plane = "image", distance: int = 3, **options: Any) -> None:
        super().__init__(shape, _clipped(plane, distance), **options)

    def logits(self, q: Tensor, k: Tensor, state: RelativeIndex, layer: int) -> Tensor | None:
        # (q + p)(k + p) - p p without q k
        (table,), (ids,) = self.tables(layer, "key"), by_pair(state.keys)
        of_queries = by_query(self.scores(q, table, state), ids)  # (B, H, Tq, Tk)
        return of_queries.add_(by_key(self.scores(k, table, state), ids))


class SASA(BucketPosition):
    """Row and column offsets, each with half a vector, on keys (stand-alone self-attention).

    Args:
        distance: largest offset with a vector of its own; 13 is all of a 14x14 grid.
    """

    paper = "Ramachandran et al., NeurIPS 2019, arXiv:1906.05909; iRPE Eq. 12"

    def __init__(self, shape: AttentionShape, *, distance: int = 13, **options: Any) -> None:
        if shape.head_dim % 2:
            raise ComponentError("SASA splits heads in two, so the head size must be even.", got=str(shape.head_dim))
        super().__init__(shape, BucketRule("cross", distance / 2, "clip"), width=shape.head_dim // 2, **options)

    def logits(self, q: Tensor, k: Tensor, state: RelativeIndex, layer: int) -> Tensor | None:
        parts = reversed(q.chunk(2, -1))  # columns read the first half of a query, rows the second (Eq. 12)
        pairs = zip(parts, self.tables(layer, "key"), strict=True)
        return look_up([self.scores(part, table, state) for part, table in pairs], state.keys)  # (B, H, Tq, Tk)


class TransformerXL(PairwisePosition):
    """Sinusoids of the offset, projected, with a bias for content and one for place (Transformer-XL).

    Pairs without an offset get the content bias alone.

    Args:
        plane: rows and columns of an image, half the sinusoid each; or indices in the sequence.
        distance: the clip distance; the original paper does not clip: give it the longest distance there is.
        shared_heads: one set of weights for all heads of a layer.
        cells: cells per side on which centres of boxes are measured.
    """

    paper = "Dai et al., ACL 2019, arXiv:1901.02860; iRPE Eq. 10"

    def __init__(
        self,
        shape: AttentionShape,
        *,
        plane: Plane = "image",
        distance: int = 3,
        shared_heads: bool = True,
        cells: int = 14,
    ) -> None:
        super().__init__(shape)
        if shape.head_dim % 4:
            raise ComponentError("Sinusoids need a head width that 4 divides.", got=str(shape.head_dim))
        self.rule, self.cells, self.distance = _clipped(plane, distance), cells, distance
        self.encodes = within("word", "cell") if plane == "sequence" else within(*PLANE)
        heads, d = 1 if shared_heads else shape.heads, shape.head_dim
        self.content, self.place = (nn.Parameter(torch.zeros(shape.layers, heads, d)) for _ in range(2))  # u, v
        self.project = nn.Parameter(nn.init.normal_(torch.empty(shape.layers, heads, d, d), std=0.02))  # W^R

    def objection(self, slot: Slot) -> str:
        return box_objection(self.rule, slot) or super().objection(slot)

    def prepare(self, x: Tensor, y: Tensor, x_layout: Layout, y_layout: Layout) -> tuple[RelativeIndex, Tensor]:
        return bucket_ids(self.rule, x_layout, y_layout, cells=self.cells), self.waves().to(x.device)

    def waves(self) -> Tensor:
        line = torch.arange(-self.distance, self.distance + 1, dtype=torch.float32, device="cpu")  # (S,)
        width = self.shape.head_dim if self.rule.method == "sequence" else self.shape.head_dim // 2
        rate = torch.exp(torch.arange(0, width, 2, device="cpu") * (-math.log(10000.0) / width))
        angle = line[:, None] * rate
        half = torch.cat([angle.sin(), angle.cos()], -1)  # (S, width)
        if self.rule.method == "sequence":
            return half
        rows, columns = half[:, None].expand(-1, len(line), -1), half[None].expand(len(line), -1, -1)
        return torch.cat([columns, rows], -1).flatten(0, 1)  # (S * S, d)

    def logits(self, q: Tensor, k: Tensor, state: tuple[RelativeIndex, Tensor], layer: int) -> Tensor | None:
        # u k + (q + v) W^R s
        ids, waves = state
        scale = self.shape.head_dim**-0.5
        content, place = (part[layer][:, None].to(q.dtype) for part in (self.content, self.place))  # (Hs, 1, d)
        table = waves.to(q.dtype) @ self.project[layer].to(q.dtype)  # (Hs, K, d)
        z = ((q + place) * scale) @ table.transpose(-1, -2)  # (B, H, Tq, K)
        z = with_blank(z) if ids.outside else z
        of_keys: Tensor = (k @ (content * scale).transpose(-1, -2)).transpose(-1, -2)  # (B, H, 1, Tk)
        of_pairs: Tensor = by_query(z, by_pair(ids.keys)[0])  # (B, H, Tq, Tk)
        return of_pairs + of_keys

    def parameter_groups(self) -> Iterable[tuple[str, dict[str, float]]]:
        return [("^(content|place)$", {"decay": 0.0})]
