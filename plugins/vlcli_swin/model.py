"""Defines Swin Transformer: attention in shifted windows, with any pairwise encoding; renames published weights."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vlcli.nn as vl
from vlcli.errors import ComponentError
from vlcli.registry import AttentionSpec, PositionSpec, Spec, as_spec

# Name in ``SwinModel`` of the biases of a stage's block
TABLE = "encoder.layers.{}.blocks.{}.attention.relative_position_bias.relative_position_bias_table"
_BIAS = re.compile(r"^stages\.(\d+)\.position\.(?:parts\.\d+\.)?layers\.(\d+)\.rpe_k\.lookup_table_bias$")
_NAMES: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (_BIAS.pattern, TABLE.format(r"\1", r"\2")),
    (r"^stages\.(\d+)\.downsample\.", lambda stage: f"encoder.layers.{int(stage[1]) - 1}.downsample."),  # ends a stage
    (r"^patch\.", "embeddings.patch_embeddings.projection."),
    (r"^patch_norm\.", "embeddings.norm."),
    (r"^norm\.", "layernorm."),
    (r"^head\.", "classifier."),
    (r"^stages\.(\d+)\.blocks\.", r"encoder.layers.\1.blocks."),
    (r"\.window\.norm\.", ".layernorm_before."),
    (r"\.window\.attention\.(?:(q)uery|(k)ey|(v)alue)\.", r".attention.\1\2\3_proj."),
    (r"\.window\.attention\.dense\.", ".attention.o_proj."),
    (r"\.feed_forward\.norm\.", ".layernorm_after."),
    (r"\.feed_forward\.inner\.", ".mlp.fc1."),
    (r"\.feed_forward\.outer\.", ".mlp.fc2."),
)
# Names of transformers 4, which files on hubs have, and those of transformers 5.
_EARLIER = (
    (r"^swin\.", ""),
    (r"\.attention\.self\.(?:(q)uery|(k)ey|(v)alue)\.", r".attention.\1\2\3_proj."),
    (r"\.attention\.self\.(relative_position_bias_table)$", r".attention.relative_position_bias.\1"),
    (r"\.attention\.output\.dense\.", ".attention.o_proj."),
    (r"\.intermediate\.dense\.", ".mlp.fc1."),
    (r"\.output\.dense\.", ".mlp.fc2."),
)
_TIMM = (
    (r"^patch\.", "patch_embed.proj."),
    (r"^patch_norm\.", "patch_embed.norm."),
    (r"^head\.", "head.fc."),
    (r"^stages\.(\d+)\.position\.(?:parts\.\d+\.)?layers\.(\d+)\.", r"layers.\1.blocks.\2.attn."),
    (r"^stages\.", "layers."),
    (r"\.window\.", ".self_attention."),
    (r"\.self_attention\.attention\.(?:query|key|value)\.", ".attn.qkv."),
    *((rf"\.{re.escape(ours)}", f".{theirs}") for ours, theirs in vl.TIMM_NAMES.items()),
)


def to_transformers(state: Mapping[str, Tensor]) -> vl.State:
    """Returns a model's state by transformers' names, without a prefix; tables have a row for each offset there."""
    return {
        vl.substitute(name, _NAMES): value.T.contiguous() if _BIAS.match(name) else value
        for name, value in state.items()
    }


def from_transformers(state: Mapping[str, Tensor], names: Iterable[str]) -> vl.State:
    """Returns a state of transformers 4 or 5 under a model's ``names``; weights that have none of them keep theirs."""
    table = {vl.substitute(name, _NAMES): name for name in names}
    renamed = {}
    for name, value in state.items():
        if not name.endswith("relative_position_index"):  # computed here
            ours = table.get(vl.substitute(name, _EARLIER), name)
            renamed[ours] = value.T.contiguous() if _BIAS.match(ours) else value
    return renamed


def from_timm(state: Mapping[str, Tensor], names: Iterable[str]) -> vl.State:
    """Returns a state of timm under a model's ``names``; weights that have none of them keep theirs."""
    tables = "relative_position_bias_table"  # (offsets, heads) in timm
    state = {name: value.T if name.endswith(tables) else value for name, value in state.items()}

    def timm_name(name: str) -> tuple[str, int | None]:
        bias = _BIAS.sub(rf"layers.\1.blocks.\2.attn.{tables}", name)
        projection = re.search(r"\.window\.attention\.(query|key|value)\.", name)
        third = vl.PROJECTIONS.index(projection[1]) if projection else None
        return bias if bias in state else vl.substitute(name, _TIMM), third

    return vl.from_public(state, names, timm_name)


# Width, blocks and heads by stage (Swin section 3.3)
SIZES: dict[str, tuple[int, tuple[int, ...], tuple[int, ...]]] = {
    "tiny": (96, (2, 2, 6, 2), (3, 6, 12, 24)),
    "small": (96, (2, 2, 18, 2), (3, 6, 12, 24)),
}
Grid = tuple[int, int]
STYLE = vl.BlockStyle(norm="pre", eps=1e-5, dropout=0.0)


@dataclass
class Windows:
    """Cuts one map into windows and joins them; odd blocks roll the map by ``shift`` cells first."""

    grid: Grid
    window: Grid
    shift: Grid

    @classmethod
    def of(cls, grid: Grid, side: int) -> Windows:
        """Returns windows of ``side``, or of the whole map where it is no larger (then without a shift)."""
        window = (min(side, grid[0]), min(side, grid[1]))
        return cls(grid, window, tuple(side // 2 if n > side else 0 for n in grid))  # type: ignore[arg-type]

    @property
    def padded(self) -> Grid:
        rows, columns = (-(-n // w) * w for n, w in zip(self.grid, self.window, strict=True))
        return rows, columns

    def cut(self, x: Tensor, shifted: bool) -> Tensor:
        """Cuts tokens (B, h w, D) into windows (B * windows, cells, D)."""
        x = x.unflatten(1, self.grid)  # (B, h, w, D)
        (rows, columns), (height, width) = self.padded, self.window
        x = F.pad(x, (0, 0, 0, columns - self.grid[1], 0, rows - self.grid[0]))
        if shifted:
            x = x.roll((-self.shift[0], -self.shift[1]), (1, 2))
        x = x.unflatten(2, (-1, width)).unflatten(1, (-1, height))  # (B, nh, height, nw, width, D)
        return x.transpose(2, 3).flatten(3, 4).flatten(0, 2)  # (B * nh * nw, height * width, D)

    def join(self, windows: Tensor, shifted: bool) -> Tensor:
        """Joins windows (B * windows, cells, D) to tokens (B, h w, D)."""
        (rows, columns), (height, width) = self.padded, self.window
        x = windows.unflatten(1, self.window).unflatten(0, (-1, rows // height, columns // width))  # (B, nh, nw, ...)
        x = x.transpose(2, 3).flatten(3, 4).flatten(1, 2)  # (B, rows, columns, D)
        if shifted:
            x = x.roll(self.shift, (1, 2))
        return cast("Tensor", x[:, : self.grid[0], : self.grid[1]].flatten(1, 2))

    def allowed(self, device: torch.device) -> Tensor | None:
        """Returns (windows, cells, cells) bool, True for neighbours before the roll; None without a shift."""
        if self.shift == (0, 0):
            return None
        marks = []
        for size, window, shift in zip(self.padded, self.window, self.shift, strict=True):
            line = torch.arange(size, device=device)
            marks.append((line >= size - window).long() + (line >= size - shift).long() * (shift > 0))  # 0, 1 or 2
        regions = (marks[0][:, None] * 3 + marks[1]).flatten()[None, :, None].float()  # (1, rows * columns, 1)
        cells = replace(self, grid=self.padded).cut(regions, False)[..., 0]  # (windows, cells)
        return cells[:, :, None] == cells[:, None]


class SwinLayer(nn.Module):
    """Attention inside windows, rolled ones if ``shifted``, and feed-forward."""

    def __init__(self, shape: vl.AttentionShape, style: vl.BlockStyle, attention: Spec | str, shifted: bool) -> None:
        super().__init__()
        self.shifted = shifted
        self.window = vl.AttentionBlock(shape, style, attention)
        self.feed_forward = vl.FeedForward(shape.dim, None, style)

    def forward(self, x: Tensor, windows: Windows, context: vl.AttentionContext) -> Tensor:
        # x: (B, h w, D); ``context`` has the mask of shifted windows
        shifted = self.shifted and windows.shift != (0, 0)
        context = context if shifted else replace(context, mask=None)
        seen = self.window.attention(windows.cut(self.window.enter(x), shifted), None, context)
        return cast("Tensor", self.feed_forward(self.window.leave(x, windows.join(seen, shifted))))


class Merging(nn.Module):
    """Merges two by two cells into one, twice as wide (Swin section 3.1)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm, self.reduction = nn.LayerNorm(4 * dim), nn.Linear(4 * dim, 2 * dim, bias=False)

    def forward(self, x: Tensor, grid: Grid) -> tuple[Tensor, Grid]:
        """Returns tokens (B, h w / 4, 2 D) and their grid; odd maps are padded."""
        x = F.pad(x.unflatten(1, grid), (0, 0, 0, grid[1] % 2, 0, grid[0] % 2))  # (B, h, w, D)
        joined = torch.cat([x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)], -1)  # (B, h/2, w/2, 4 D)
        return self.reduction(self.norm(joined.flatten(1, 2))), (joined.shape[1], joined.shape[2])


class SwinStage(nn.Module):
    """Blocks over one map, every other one shifted, with one encoding prepared once for all windows."""

    def __init__(
        self,
        shape: vl.AttentionShape,
        paths: list[float],
        side: int,
        attention: Spec | str,
        position: Any,
        merges: bool,
    ) -> None:
        super().__init__()
        self.side = side
        self.downsample = Merging(shape.dim // 2) if merges else None
        self.blocks = nn.ModuleList(
            SwinLayer(shape, replace(STYLE, dropout=shape.dropout, drop_path=path), attention, bool(number % 2))
            for number, path in enumerate(paths)
        )
        self.position = vl.build_positions(position, shape, Swin.slots["position"])[1]

    def forward(self, x: Tensor, grid: Grid, record: vl.Recorder | None, name: str) -> tuple[Tensor, Grid]:
        """Returns tokens (B, h w, D) and their grid."""
        if self.downsample is not None:
            x, grid = self.downsample(x, grid)
        windows = Windows.of(grid, self.side)
        layout = vl.Layout.for_grid(*windows.window, device=x.device)
        allowed = windows.allowed(x.device)
        mask = None if allowed is None else vl.AttentionMask(dense=allowed.repeat(x.shape[0], 1, 1))
        state = None
        if self.position is not None:
            inside = windows.cut(x, False)
            state = self.position.prepare(inside, inside, layout, layout)
        context = vl.AttentionContext(mask, layout, None, self.position, state, record=record)
        for number, block in enumerate(self.blocks):
            x = block(x, windows, replace(context, layer=number, name=f"{name}.{number}"))
        return x, grid


class Swin(vl.Model):
    """Swin Transformer (Swin-T, Swin-S): windows of attention, shifted in every other block.

    Attention is recorded under ``image.STAGE.BLOCK``, window by window. ``forward`` takes pixels, gives class scores.

    Args:
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
    slots: ClassVar[Mapping[str, vl.Slot]] = {"position": vl.Slot.of("position", ["pairs"], ["cell"])}

    def __init__(
        self,
        data_spec: vl.DataSpec,
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
        if len(blocks) != len(counts):
            got, expected = f"layers {[*blocks]}, heads {[*counts]}", "one number of each by stage"
            raise ComponentError("Every stage needs layers and heads.", where="model swin", got=got, expected=expected)
        self.image_size = (image_size, image_size) if isinstance(image_size, int) else image_size
        self.patch = nn.Conv2d(3, width, patch, stride=patch)
        self.patch_norm = nn.LayerNorm(width)
        rates = torch.linspace(0, drop_path, sum(blocks), device="cpu").tolist()
        encodings = [
            {"window": window, **spec} if spec["name"] in ("swin-bias", "log-cpb") else spec
            for spec in map(as_spec, vl.chosen(position))
        ]
        stages, done = [], 0
        for number, (depth, count) in enumerate(zip(blocks, counts, strict=True)):
            shape = vl.AttentionShape(width * 2**number, count, depth, dropout=dropout)
            stages.append(SwinStage(shape, rates[done : done + depth], window, attention, encodings, number > 0))
            done += depth
        self.stages = nn.ModuleList(stages)
        self.norm = nn.LayerNorm(self.dim)
        self.own_classes = rows = len(data_spec.answers) if classes is None else classes
        self.head = nn.Linear(self.dim, rows) if rows else nn.Identity()
        vl.initialise_model(self, kinds=nn.Linear | nn.LayerNorm)

    @property
    def dim(self) -> int:
        return self.pyramid_channels()[-1]

    def input_spec(self) -> vl.InputSpec:
        return vl.InputSpec(pixels=True, size=self.image_size, mean=vl.IMAGENET_MEAN, std=vl.IMAGENET_STD)

    def pyramid_channels(self) -> tuple[int, ...]:
        return tuple(int(self.patch.out_channels) * 2**number for number in range(len(self.stages)))

    def pyramid(self, images: vl.Images) -> list[Tensor]:
        return self._stages(images.pixels_for("swin"), None)[2]

    def encode_image(self, images: vl.Images, record: vl.Recorder | None = None) -> vl.EncoderOutput:
        return self._encode(images.pixels_for("swin"), record)

    def _stages(self, pixels: Tensor, record: vl.Recorder | None) -> tuple[Tensor, Grid, list[Tensor]]:
        cells = self.patch(pixels.to(self.patch.weight.dtype))  # (M, C, h, w)
        grid = (cells.shape[-2], cells.shape[-1])
        x, maps = self.patch_norm(cells.flatten(2).transpose(1, 2)), []  # (M, h w, C)
        for number, stage in enumerate(self.stages):
            x, grid = stage(x, grid, record, f"image.{number}")
            maps.append(F.layer_norm(x, x.shape[-1:]).transpose(1, 2).unflatten(2, grid))  # (M, C, h, w), no weights
        return x, grid, maps

    def _encode(self, pixels: Tensor, record: vl.Recorder | None = None) -> vl.EncoderOutput:
        x, grid, _ = self._stages(pixels, record)
        x = self.norm(x)  # (M, h w, C)
        pooled = x.mean(1)  # (M, C)
        extra = {"logits": self.head(pooled)} if self.own_classes else {}
        return vl.EncoderOutput(x, vl.Layout.for_grid(*grid, device=x.device), pooled, extra=extra)

    def forward(self, pixels: Tensor) -> Tensor:
        """Return class scores (M, classes) of pixels (M, 3, H, W); the pooled map where there is no classifier."""
        states = self._encode(pixels)
        return cast("Tensor", states.extra.get("logits", states.pooled))

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        names = [name for name, _ in self.named_parameters()]
        if vl.has_vit_names(state):
            state = from_transformers(state, names)
        if any(name.startswith("layers.") for name in state):
            state = from_timm(state, names)
        return vl.fit_weights(self, state, report)

    def layer_of(self, name: str) -> int | None:
        parts = name.split(".")
        depths = [len(cast("SwinStage", stage).blocks) for stage in self.stages]
        if parts[0] != "stages":
            return 0 if parts[0].startswith("patch") else sum(depths) + 1
        number = next((int(part) for part in parts[2:] if part.isdecimal()), 0)
        return sum(depths[: int(parts[1])]) + number + 1
