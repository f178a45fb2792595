"""Defines later encodings: rotary 2-D, Swin's table, the log-spaced continuous bias, CPVT's generator."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlcli.errors import ComponentError
from vlcli.nn import AttentionShape, Layout, PairwisePosition, Sort, TokenPosition, between, within
from vlcli_irpe.buckets import BucketRule
from vlcli_irpe.lookup import PLANE, BucketPosition, OffPlane, by_query, with_blank
from vlcli_irpe.relative_index import RelativeIndex, bucket_ids, by_pair


class RoPE2D(PairwisePosition):
    """Rotary position embedding in two dimensions; tokens off the plane are not turned.

    Args:
        frequencies: ``axial``: half a head turns with rows, half with columns; ``mixed``: every pair of channels has a
            learned direction, per layer and head.
        base: of the geometric series of frequencies.
        cells: cells per side on which centres of boxes are measured.
    """

    paper = "Su et al. 2021, arXiv:2104.09864; in 2-D: Heo et al., ECCV 2024, arXiv:2403.13298"

    def __init__(
        self,
        shape: AttentionShape,
        *,
        frequencies: Literal["axial", "mixed"] = "axial",
        base: float = 100.0,
        cells: int = 14,
    ) -> None:
        super().__init__(shape)
        if shape.head_dim % 4:
            raise ComponentError("Rotary 2-D needs a head width that 4 divides.", got=str(shape.head_dim))
        self.cells = cells
        # A key is turned by where it lies, so that it also tells patches apart to a query that lies nowhere.
        self.encodes = between("word", *PLANE) | within(*PLANE)
        rate = base ** (-torch.arange(0, shape.head_dim, 4, dtype=torch.float32) / shape.head_dim)  # (d / 4,)
        still = torch.zeros_like(rate)
        axial = torch.stack([torch.cat([rate, still]), torch.cat([still, rate])])  # (2, d / 2): rows, columns
        self.mixed = frequencies == "mixed"
        if self.mixed:
            angle = torch.rand(shape.layers, shape.heads, 1) * 2 * math.pi
            first = torch.stack([rate * angle.cos(), rate * angle.sin()], -2)  # (layers, H, 2, d / 4)
            second = torch.stack([-rate * angle.sin(), rate * angle.cos()], -2)  # perpendicular
            self.rates = nn.Parameter(torch.cat([first, second], -1))  # (layers, H, 2, d / 2)
        else:
            self.register_buffer("rates", axial[None, None], persistent=False)

    def zero(self) -> None:
        if not self.mixed:
            what = "Axial rotations have no tables, so they always change a model."
            raise ComponentError(what, where="position rope-2d", hint="frequencies: mixed")
        super().zero()

    def prepare(self, x: Tensor, y: Tensor, x_layout: Layout, y_layout: Layout) -> Any:
        centres = [
            (one.centre * self.cells if one.boxes is not None else one.centre).nan_to_num(0.0)[:, None].float()
            for one in (x_layout, y_layout)
        ]  # (B, 1, T, 2)
        return centres if self.mixed else [self._turn(centre, self.rates[0]) for centre in centres]

    @staticmethod
    def _turn(centre: Tensor, rates: Tensor) -> tuple[Tensor, Tensor]:
        # No product of matrices: autocast would round the angles to half precision.
        rates = rates.to(torch.promote_types(rates.dtype, torch.float32))
        angle = centre[..., :1] * rates[..., :1, :] + centre[..., 1:] * rates[..., 1:, :]  # (B, H or 1, T, d / 2)
        return angle.cos(), angle.sin()

    def rotate(self, q: Tensor, k: Tensor, state: Any, layer: int) -> tuple[Tensor, Tensor]:
        turns = [self._turn(centre, self.rates[layer]) for centre in state] if self.mixed else state
        turned = []
        for x, turn in zip((q, k), turns, strict=True):
            (a, b), (cos, sin) = x.unflatten(-1, (-1, 2)).unbind(-1), (part.to(x.dtype) for part in turn)
            turned.append(torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2))  # (B, H, T, d)
        return turned[0], turned[1]


class SwinBias(BucketPosition):
    """A learned scalar per head for every offset within a window (Swin's relative position bias).

    Args:
        window: side of the window; larger offsets share the table's edge.
        off_plane: what pairs without an offset get.
        std: of the initial values.
    """

    paper = "Liu et al., ICCV 2021, arXiv:2103.14030, Eq. 4"

    def __init__(
        self, shape: AttentionShape, *, window: int = 7, off_plane: OffPlane = "bucket", std: float = 0.02
    ) -> None:
        rule = BucketRule("product", (window - 1) / 2, "clip")
        super().__init__(shape, rule, contextual=False, scaled=False, shared_heads=False, off_plane=off_plane)
        for parameter in self.parameters():
            nn.init.trunc_normal_(parameter, std=std)

    def resize_state(self, state: dict[str, Tensor], old: tuple[int, int], new: tuple[int, int]) -> dict[str, Tensor]:
        was, now = 2 * max(old) - 1, 2 * max(new) - 1
        if was == now:
            return state
        resized = {}
        for name, table in state.items():  # (H, was * was, and the extra bucket)
            image = table[:, : was * was].reshape(1, -1, was, was)
            image = image if image.dtype == torch.float64 else image.float()
            grown = F.interpolate(image, size=(now, now), mode="bicubic", align_corners=False)  # (1, H, now, now)
            resized[name] = torch.cat([grown.flatten(2)[0].to(table.dtype), table[:, was * was :]], 1)
        return resized


class LogCPB(PairwisePosition):
    """A bias that a small network makes from log-spaced offsets, so that it carries over to other windows (Swin V2).

    Pairs without an offset get nothing.

    Args:
        window: side of the window or grid.
        trained_window: side it was trained with, which offsets are measured against; 0: ``window``.
        hidden: width of the network.
        centred: subtract 8, what a network of zeros gives, so that it changes nothing for pairs without an offset
            either; without such pairs the softmax is the same.
    """

    paper = "Liu et al., CVPR 2022, arXiv:2111.09883, Eq. 3-4"
    foreign_options: ClassVar[Mapping[str, Any]] = {"centred": True}

    def __init__(
        self,
        shape: AttentionShape,
        *,
        window: int = 7,
        trained_window: int = 0,
        hidden: int = 512,
        centred: bool = False,
    ) -> None:
        super().__init__(shape)
        self.centred = centred
        self.rule = BucketRule("product", (window - 1) / 2, "clip")
        self.encodes = within(*PLANE)
        self.window, self.trained = window, trained_window or window
        self.networks = nn.ModuleList(
            nn.Sequential(nn.Linear(2, hidden), nn.ReLU(), nn.Linear(hidden, shape.heads, bias=False))
            for _ in range(shape.layers)
        )

    def zero(self) -> None:
        if not self.centred:
            what = "A network of zeros makes a bias of 8."
            raise ComponentError(what, where="position log-cpb", hint="centred: true")
        networks: Any = self.networks
        for network in networks:
            nn.init.zeros_(network[-1].weight)

    def prepare(self, x: Tensor, y: Tensor, x_layout: Layout, y_layout: Layout) -> tuple[RelativeIndex, Tensor]:
        ids = bucket_ids(self.rule, x_layout, y_layout)
        line = torch.arange(-self.window + 1, self.window, dtype=torch.float32, device="cpu")
        line *= 8 / max(self.trained - 1, 1)
        line = line.sign() * torch.log2(1 + line.abs()) / 3
        return ids, torch.cartesian_prod(line, line).to(x.device)  # (K, 2)

    def logits(self, q: Tensor, k: Tensor, state: tuple[RelativeIndex, Tensor], layer: int) -> Tensor | None:
        ids, offsets = state
        network = self.networks[layer]
        table = 16 * network(offsets.to(next(network.parameters()).dtype)).sigmoid() - 8 * self.centred  # (K, H)
        z = table.T.to(q.dtype)[None, :, None].expand(-1, -1, q.shape[2], -1)  # (1, H, Tq, K)
        return by_query(with_blank(z) if ids.outside else z, by_pair(ids.keys)[0])


class ConvolutionalGenerator(TokenPosition):
    """Position from a depth-wise convolution over the grid, added to its tokens (CPVT's generator).

    A model that runs its own layers applies one convolution after each block in ``after``; elsewhere the first one is
    applied before the stack.

    Args:
        after: blocks behind which there is a convolution; 0 is the first.
        kernel: side of the convolution, odd.
    """

    paper = "CPVT, Chu et al. 2021, arXiv:2102.10882, section 3.3"

    encodes: frozenset[Sort] = frozenset({"cell"})

    def __init__(self, shape: AttentionShape, *, after: list[int] = [0], kernel: int = 3) -> None:  # noqa: B006
        super().__init__(shape)
        if kernel % 2 == 0 or not after:
            got = f"kernel {kernel}, after {after}"
            raise ComponentError("The generator needs an odd kernel and a block.", got=got)
        self.after = tuple(after)
        self.convolutions = nn.ModuleList(
            nn.Conv2d(shape.dim, shape.dim, kernel, padding=kernel // 2, groups=shape.dim) for _ in after
        )

    def forward(self, x: Tensor, layout: Layout, block: int | None = None) -> Tensor:
        if layout.grid is None:
            what = "The convolutional generator needs one full grid."
            raise ComponentError(what, where="position cpvt", hint="use it on images")
        here = ~layout.centre[..., 0].isnan()
        count = layout.grid[0] * layout.grid[1]
        # Without memory there is nothing to look at: special tokens stand before the grid.
        front = here.shape[1] - count if here.is_meta else int(here[0].long().argmax())
        cells = x[:, front : front + count]  # (B, h w, dim)
        image = cells.transpose(1, 2).unflatten(2, layout.grid)  # (B, dim, h, w)
        added = self.convolutions[0 if block is None else self.after.index(block)](image).flatten(2).transpose(1, 2)
        return torch.cat([x[:, :front], cells + added, x[:, front + count :]], 1)
