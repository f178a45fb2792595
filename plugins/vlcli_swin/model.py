"""Swin Transformer: attention in shifted windows, with any pairwise encoding inside them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlcli.nn import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    AttentionBlock,
    AttentionContext,
    AttentionMask,
    AttentionShape,
    BlockStyle,
    DataSpec,
    EncoderOutput,
    FeedForward,
    Images,
    InputSpec,
    Layout,
    Model,
    Recorder,
    Slot,
    build_positions,
    fit_weights,
    initialise,
)
from vlcli.registry import AttentionSpec, PositionSpec, Spec
from vlcli_swin.names import from_transformers, has_transformers_names

SIZES: dict[str, tuple[int, tuple[int, ...], tuple[int, ...]]] = {
    "tiny": (96, (2, 2, 6, 2), (3, 6, 12, 24)),
    "small": (96, (2, 2, 18, 2), (3, 6, 12, 24)),
}
"""Width, blocks and heads by stage (Swin section 3.3)."""
Grid = tuple[int, int]
STYLE = BlockStyle(norm="pre", eps=1e-5, dropout=0.0)


@dataclass
class Windows:
    """How one map is cut.

    Attributes:
        grid: rows and columns of the map.
        window: rows and columns of a window.
        shift: cells by which odd blocks roll the map before cutting.
    """

    grid: tuple[int, int]
    window: tuple[int, int]
    shift: tuple[int, int]

    @classmethod
    def of(cls, grid: tuple[int, int], side: int) -> Windows:
        """Windows of ``side``, or the whole map where it is no larger (then without a shift)."""
        window = (min(side, grid[0]), min(side, grid[1]))
        return cls(grid, window, tuple(side // 2 if n > side else 0 for n in grid))  # type: ignore[arg-type]

    @property
    def padded(self) -> tuple[int, int]:
        """The map's size made a multiple of the window's."""
        rows, columns = (-(-n // w) * w for n, w in zip(self.grid, self.window, strict=True))
        return rows, columns

    def cut(self, x: Tensor, shifted: bool) -> Tensor:
        """Tokens (B, h w, D) as windows (B * windows, cells, D)."""
        x = x.unflatten(1, self.grid)
        (rows, columns), (height, width) = self.padded, self.window
        x = F.pad(x, (0, 0, 0, columns - self.grid[1], 0, rows - self.grid[0]))
        if shifted:
            x = x.roll((-self.shift[0], -self.shift[1]), (1, 2))
        x = x.unflatten(2, (-1, width)).unflatten(1, (-1, height))  # (B, nh, height, nw, width, D)
        return x.transpose(2, 3).flatten(3, 4).flatten(0, 2)

    def join(self, windows: Tensor, shifted: bool) -> Tensor:
        """The tokens back in their order."""
        (rows, columns), (height, width) = self.padded, self.window
        x = windows.unflatten(1, self.window).unflatten(0, (-1, rows // height, columns // width))
        x = x.transpose(2, 3).flatten(3, 4).flatten(1, 2)  # (B, rows, columns, D)
        if shifted:
            x = x.roll(self.shift, (1, 2))
        out: Tensor = x[:, : self.grid[0], : self.grid[1]].flatten(1, 2)
        return out

    def allowed(self, device: torch.device) -> Tensor | None:
        """(windows, cells, cells) bool: which cells of a rolled window were neighbours; None without a shift."""
        if self.shift == (0, 0):
            return None
        marks = [self._marks(axis, device) for axis in (0, 1)]
        region = marks[0][:, None] * 3 + marks[1]  # (rows, columns)
        plain = replace(self, grid=self.padded)
        cells = plain.cut(region.flatten()[None, :, None].float(), False)[..., 0]  # (windows, cells)
        return cells[:, :, None] == cells[:, None]

    def _marks(self, axis: int, device: torch.device) -> Tensor:
        size, window, shift = self.padded[axis], self.window[axis], self.shift[axis]
        place = torch.arange(size, device=device)
        return (place >= size - window).long() + (place >= size - shift).long() * (shift > 0)


class WindowBlock(AttentionBlock):
    """Attention inside windows, with its residual.

    Args:
        shape: of the attention.
        style: of the residual.
        attention: a registered attention.
        shifted: whether windows are rolled.
    """

    def __init__(self, shape: AttentionShape, style: BlockStyle, attention: Spec | str, shifted: bool) -> None:
        super().__init__(shape, style, attention)
        self.shifted = shifted

    def within(self, x: Tensor, windows: Windows, context: AttentionContext) -> Tensor:
        """``x`` (B, h w, D) after each token attended to those of its window; the mask is that of shifted windows."""
        shifted = self.shifted and windows.shift != (0, 0)
        context = context if shifted else replace(context, mask=None)
        seen = self.attention(windows.cut(self.enter(x), shifted), None, context)
        return self.leave(x, windows.join(seen, shifted))


class SwinLayer(nn.Module):
    """Windowed attention and feed-forward."""

    def __init__(self, shape: AttentionShape, style: BlockStyle, attention: Spec | str, shifted: bool) -> None:
        super().__init__()
        self.window = WindowBlock(shape, style, attention, shifted)
        self.feed_forward = FeedForward(shape.dim, None, style)

    def forward(self, x: Tensor, windows: Windows, context: AttentionContext) -> Tensor:
        """``x`` (B, h w, D) after windowed attention and feed-forward."""
        out: Tensor = self.feed_forward(self.window.within(x, windows, context))
        return out


class Merging(nn.Module):
    """Two by two cells as one, twice as wide (Swin section 3.1)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm, self.reduction = nn.LayerNorm(4 * dim), nn.Linear(4 * dim, 2 * dim, bias=False)

    def forward(self, x: Tensor, grid: tuple[int, int]) -> tuple[Tensor, tuple[int, int]]:
        """Tokens (B, h w, D) as (B, h w / 4, 2 D), and their grid; odd maps are padded."""
        x = F.pad(x.unflatten(1, grid), (0, 0, 0, grid[1] % 2, 0, grid[0] % 2))
        parts = [x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        joined = torch.cat(parts, -1)  # (B, h / 2, w / 2, 4 D)
        return self.reduction(self.norm(joined.flatten(1, 2))), (joined.shape[1], joined.shape[2])


class SwinStage(nn.Module):
    """Blocks over one map, every other one shifted, with one encoding prepared once for all windows."""

    def __init__(
        self, shape: AttentionShape, paths: list[float], side: int, attention: Spec | str, position: Any, merges: bool
    ) -> None:
        super().__init__()
        self.side = side
        self.downsample = Merging(shape.dim // 2) if merges else None
        styles = [replace(STYLE, dropout=shape.dropout, drop_path=path) for path in paths]
        self.blocks = nn.ModuleList(
            SwinLayer(shape, style, attention, bool(number % 2)) for number, style in enumerate(styles)
        )
        self.position = build_positions(position, shape, Swin.slots["position"])[1]

    def forward(
        self, x: Tensor, grid: tuple[int, int], record: Recorder | None, name: str
    ) -> tuple[Tensor, tuple[int, int]]:
        """Tokens (B, h w, D) and their grid after the stage."""
        if self.downsample is not None:
            x, grid = self.downsample(x, grid)
        windows = Windows.of(grid, self.side)
        layout = Layout.for_grid(*windows.window, device=x.device)
        allowed = windows.allowed(x.device)
        mask = None if allowed is None else AttentionMask(dense=allowed.repeat(x.shape[0], 1, 1))
        state = None
        if self.position is not None:
            inside = windows.cut(x, False)
            state = self.position.prepare(inside, inside, layout, layout)
        context = AttentionContext(mask, layout, None, self.position, state, record=record)
        for number, block in enumerate(self.blocks):
            x = block(x, windows, replace(context, layer=number, name=f"{name}.{number}"))
        return x, grid


class Swin(Model):
    """Swin Transformer (Swin-T, Swin-S): windows of attention, shifted in every other block.

    Attention is recorded under ``image.STAGE.BLOCK``, window by window. ``forward`` takes pixels, gives class scores.

    Args:
        data_spec: the classes, where ``classes`` is None.
        size: width, blocks and heads of the paper's model.
        hidden: another width of the first stage.
        layers: other numbers of blocks by stage.
        heads: other numbers of heads by stage.
        image_size: height and width in pixels.
        patch: side of a patch.
        window: side of a window, in cells.
        classes: rows of the classifier; 0 for none, None for those of the data.
        position: encodings inside windows, one or several; each stage has its own.
        attention: any registered attention.
        dropout: of attention probabilities and blocks.
        drop_path: stochastic depth of the last block.
    """

    paper = "Swin Transformer, Liu et al., ICCV 2021, arXiv:2103.14030; with iRPE: its supplement 6"
    capabilities = frozenset({"image", "pyramid"})
    slots: ClassVar[Mapping[str, Slot]] = {"position": Slot.of("position", ["pairs"], ["cell"])}

    def __init__(
        self,
        data_spec: DataSpec,
        *,
        size: Literal["tiny", "small"] = "tiny",
        hidden: int | None = None,
        layers: list[int] | None = None,
        heads: list[int] | None = None,
        image_size: int | tuple[int, int] = 224,
        patch: int = 4,
        window: int = 7,
        classes: int | None = 1000,
        position: PositionSpec | list[PositionSpec] | None = {"name": "swin-bias", "off_plane": "nothing"},  # noqa: B006
        attention: AttentionSpec = "standard",
        dropout: float = 0.0,
        drop_path: float = 0.2,
    ) -> None:
        super().__init__(data_spec)
        width, blocks, counts = SIZES[size]
        width, blocks, counts = hidden or width, tuple(layers or blocks), tuple(heads or counts)
        height, wide = (image_size, image_size) if isinstance(image_size, int) else image_size
        self.image_size = (height, wide)
        self.patch = nn.Conv2d(3, width, patch, stride=patch)
        self.patch_norm = nn.LayerNorm(width)
        rates = torch.linspace(0, drop_path, sum(blocks), device="cpu").tolist()
        stages, done = [], 0
        for number, (depth, count) in enumerate(zip(blocks, counts, strict=True)):
            shape = AttentionShape(width * 2**number, count, depth, dropout=dropout)
            own = _with_window(position, window)
            stages.append(SwinStage(shape, rates[done : done + depth], window, attention, own, number > 0))
            done += depth
        self.stages = nn.ModuleList(stages)
        self.norm = nn.LayerNorm(self.dim)
        rows = len(data_spec.answers) if classes is None else classes
        self.own_classes = rows
        self.head = nn.Linear(self.dim, rows) if rows else nn.Identity()
        self._initialise()

    def _initialise(self) -> None:
        positions = [cast("SwinStage", stage).position for stage in self.stages]
        encodings = {part for position in positions if position is not None for part in position.modules()}
        for module in self.modules():
            if module not in encodings and isinstance(module, nn.Linear | nn.LayerNorm):
                initialise(module)

    @property
    def dim(self) -> int:
        made: int = int(self.patch.out_channels) * 2 ** (len(self.stages) - 1)
        return made

    def input_spec(self) -> InputSpec:
        return InputSpec(pixels=True, size=self.image_size, mean=IMAGENET_MEAN, std=IMAGENET_STD)

    def pyramid_channels(self) -> tuple[int, ...]:
        return tuple(int(self.patch.out_channels) * 2**number for number in range(len(self.stages)))

    def pyramid(self, images: Images) -> list[Tensor]:
        return self._stages(images.pixels_for("swin"))[1]

    def encode_image(self, images: Images, record: Recorder | None = None) -> EncoderOutput:
        return self._encode(images.pixels_for("swin"), record)

    def _stages(self, pixels: Tensor, record: Recorder | None = None) -> tuple[tuple[Tensor, Grid], list[Tensor]]:
        cells = self.patch(pixels.to(self.patch.weight.dtype))
        grid = (cells.shape[-2], cells.shape[-1])
        x, maps = self.patch_norm(cells.flatten(2).transpose(1, 2)), []
        for number, stage in enumerate(self.stages):
            x, grid = stage(x, grid, record, f"image.{number}")
            maps.append(F.layer_norm(x, x.shape[-1:]).transpose(1, 2).unflatten(2, grid))
        return (x, grid), maps

    def _encode(self, pixels: Tensor, record: Recorder | None = None) -> EncoderOutput:
        (x, grid), _ = self._stages(pixels, record)
        x = self.norm(x)
        pooled = x.mean(1)
        scores = {} if isinstance(self.head, nn.Identity) else {"logits": self.head(pooled)}
        return EncoderOutput(x, Layout.for_grid(*grid, device=x.device), pooled, extra=scores)

    def forward(self, pixels: Tensor) -> Tensor:
        """Class scores (M, classes) of pixels (M, 3, H, W); the pooled map where there is no classifier."""
        states = self._encode(pixels)
        scores = states.extra.get("logits", states.pooled)
        assert scores is not None
        return scores

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        own = dict(self.named_parameters())
        state = from_transformers(state, own) if has_transformers_names(state) else state
        made = from_timm_swin(state, own) if any(name.startswith("layers.") for name in state) else dict(state)
        return fit_weights(self, made, report)

    def layer_of(self, name: str) -> int | None:
        parts = name.split(".")
        depths = [len(cast("SwinStage", stage).blocks) for stage in self.stages]
        if parts[0] != "stages":
            return 0 if parts[0].startswith("patch") else sum(depths) + 1
        number = next((int(part) for part in parts[2:] if part.isdecimal()), 0)
        return sum(depths[: int(parts[1])]) + number + 1


def _with_window(position: Any, window: int) -> Any:
    if isinstance(position, list):
        return [_with_window(item, window) for item in position]
    name = position if isinstance(position, str) else (position or {}).get("name")
    if name not in ("swin-bias", "log-cpb"):
        return position
    return {"name": name, "window": window, **({} if isinstance(position, str) else position)}


_FIXED = {"patch.": "patch_embed.proj.", "patch_norm.": "patch_embed.norm.", "head.": "head.fc."}
_BLOCK = {
    "window.norm.": "norm1.",
    "window.attention.dense.": "attn.proj.",
    "feed_forward.norm.": "norm2.",
    "feed_forward.inner.": "mlp.fc1.",
    "feed_forward.outer.": "mlp.fc2.",
}
_BIAS = re.compile(r"^stages\.(\d+)\.position\.(?:parts\.\d+\.)?layers\.(\d+)\.rpe_k\.lookup_table_bias$")
_TABLES = re.compile(r"^stages\.(\d+)\.position\.(?:parts\.\d+\.)?layers\.(\d+)\.(rpe_[qkv]\..+)$")
_PROJECTION = re.compile(r"^(query|key|value)\.(weight|bias)$")


def timm_swin_name(name: str) -> tuple[str, int | None]:
    """The public name of one of our parameters, and which third of it (of a joint ``qkv``) is meant."""
    for ours, theirs in _FIXED.items():
        if name.startswith(ours):
            return theirs + name[len(ours) :], None
    found = re.match(r"^stages\.(\d+)\.(?:blocks\.(\d+)\.)?(.+)$", name)
    if found is None or (found[2] is None and not found[3].startswith("downsample.")):
        return name, None
    if found[2] is None:
        return f"layers.{found[1]}.{found[3]}", None
    inside = found[3].removeprefix("window.attention.")
    if part := _PROJECTION.match(inside):
        return f"layers.{found[1]}.blocks.{found[2]}.attn.qkv.{part[2]}", ("query", "key", "value").index(part[1])
    for ours, theirs in _BLOCK.items():
        if found[3].startswith(ours):
            return f"layers.{found[1]}.blocks.{found[2]}.{theirs}{found[3][len(ours) :]}", None
    return name, None


def from_timm_swin(state: Mapping[str, Tensor], own: Iterable[str]) -> dict[str, Tensor]:
    """A public state under our names; what we have no name for keeps its own."""
    made, used = {}, set()
    for name in own:
        theirs, third = timm_swin_name(name)
        if (found := _BIAS.match(name)) and (table := _bias_name(found)) in state:
            made[name], theirs = state[table].T, table
        elif found := _TABLES.match(name):
            theirs = f"layers.{found[1]}.blocks.{found[2]}.attn.{found[3]}"
        if theirs not in state:
            continue
        used.add(theirs)
        made.setdefault(name, state[theirs] if third is None else state[theirs].chunk(3)[third])
    return {**made, **{name: value for name, value in state.items() if name not in used}}


def _bias_name(found: re.Match[str]) -> str:
    return f"layers.{found[1]}.blocks.{found[2]}.attn.relative_position_bias_table"
