"""Defines DeiT (and plain ViT), an image classifier with any position encoding, and renames timm's weights."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal, cast

import torch
from torch import Tensor, nn

import vlcli.nn as vl
from vlcli.errors import ComponentError, DataError
from vlcli.registry import AttentionSpec, PositionSpec

_FIXED = {"patch.": "patch_embed.proj.", "stack.norm.": "norm.", "positions.0.table.weight": "pos_embed"}
_TABLES = re.compile(r"^stack\.position\.(?:parts\.\d+\.)?layers\.(\d+)\.(rpe_[qkv]\..+)$")
_PROJECTION = re.compile(r"^stack\.layers\.(\d+)\.self_attention\.attention\.(query|key|value)\.(weight|bias)$")
_LAYER = re.compile(r"^stack\.layers\.(\d+)\.(.+)$")


def timm_name(name: str) -> tuple[str, int | None]:
    """Returns timm's name of a parameter and, for ``attn.qkv``, which third is meant."""
    if table := _TABLES.match(name):
        return f"blocks.{table[1]}.attn.{table[2]}", None
    if projection := _PROJECTION.match(name):
        return f"blocks.{projection[1]}.attn.qkv.{projection[3]}", vl.PROJECTIONS.index(projection[2])
    if (layer := _LAYER.match(name)) and (inner := vl.translate(layer[2], vl.TIMM_NAMES)):
        return f"blocks.{layer[1]}.{inner}", None
    return vl.translate(name, _FIXED) or name, None


def to_timm(state: Mapping[str, Tensor]) -> vl.State:
    """Returns a model's state as timm and the authors' code load it."""
    renamed = vl.to_public(state, timm_name)
    return renamed | ({"pos_embed": renamed["pos_embed"][None]} if "pos_embed" in renamed else {})  # (1, T, D)


def from_timm(state: Mapping[str, Tensor], names: Iterable[str]) -> vl.State:
    """Returns a state of timm under a model's ``names``; weights that have none of them keep theirs."""
    return vl.from_public(state, names, timm_name)


# Width, layers and heads (DeiT Table 1)
SIZES = {"tiny": (192, 12, 3), "small": (384, 12, 6), "base": (768, 12, 12)}


class Block(vl.TransformerLayer):
    """A transformer layer, and behind it an encoding that computes positions from its output (CPVT), or nothing."""

    behind: Callable[[Tensor, vl.Layout], Tensor] | None = None

    def forward(self, x: Tensor, context: vl.AttentionContext = vl.NO_CONTEXT) -> Tensor:
        x = super().forward(x, context)  # (B, T, D)
        return x if self.behind is None else self.behind(x, cast("vl.Layout", context.x_layout))


class DeiT(vl.Model):
    """A vision transformer over square patches with a class token (DeiT-Ti, -S and -B).

    Attention is recorded under ``image.N``. ``forward`` takes pixels and gives class scores.

    Args:
        size: width, depth and heads of the paper's model.
        hidden: another width.
        layers: another depth.
        heads: another number of heads.
        image_size: height and width in pixels.
        patch: side of a patch.
        classes: rows of the classifier; 0 for none, None for those of the data.
        absolute: positions added to the tokens.
        position: further encodings, pairwise or token-wise, one or several.
        attention: any registered attention.
        distilled: a second special token with a classifier of its own; evaluation averages the two.
        dropout: of tokens and attention probabilities.
        drop_path: stochastic depth of the last layer.
        init_std: deviation of freshly drawn weights; ``auto``: 0.02 at the published widths, more in a narrower model.
    """

    paper = "DeiT, Touvron et al., ICML 2021, arXiv:2012.12877"
    grid: tuple[int, int]
    capabilities = frozenset({"image", "hide"})
    slots: ClassVar[Mapping[str, vl.Slot]] = {
        "position": vl.Slot.of("position", ["tokens", "pairs"], ["cell", "special"])
    }

    def __init__(
        self,
        data_spec: vl.DataSpec,
        *,
        size: Literal["tiny", "small", "base"] = "small",
        hidden: int | None = None,
        layers: int | None = None,
        heads: int | None = None,
        image_size: int | tuple[int, int] = 224,
        patch: int = 16,
        classes: int | None = 1000,
        absolute: Literal["learned", "sinusoid", "none"] = "learned",
        position: PositionSpec | list[PositionSpec] | None = None,
        attention: AttentionSpec = "standard",
        distilled: bool = False,
        dropout: float = 0.0,
        drop_path: float = 0.1,
        init_std: vl.InitStd = "auto",
    ) -> None:
        super().__init__(data_spec)
        sizes = zip((hidden, layers, heads), SIZES[size], strict=True)
        width, depth, count = (chosen or published for chosen, published in sizes)
        self.init_std = vl.init_scale(init_std, width, published=192)
        self.image_size = (image_size, image_size) if isinstance(image_size, int) else image_size
        self.patch_size, self.specials = patch, 1 + distilled
        self.grid = self._grid(*self.image_size)
        shape = vl.AttentionShape(width, count, depth, dropout=dropout)
        self.patch = nn.Conv2d(3, width, patch, stride=patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.dist_token = nn.Parameter(torch.zeros(1, 1, width)) if distilled else None
        encodings = vl.with_grid([absolute, *vl.chosen(position)], self.grid, self.specials)
        self.positions, pairwise = vl.build_positions(encodings, shape, self.slots["position"])
        self.drop = nn.Dropout(dropout)
        positions: Any = self.positions
        generators = {block: partial(one.forward, block=block) for one in positions for block in one.after}
        if generators and max(generators) >= depth:
            raise ComponentError("The generator follows a block that does not exist.", got=str(max(generators)))
        style = replace(vl.VIT_STYLE, dropout=dropout)
        rates = [drop_path * number / max(depth - 1, 1) for number in range(depth)]
        blocks = [Block(shape, None, replace(style, drop_path=rate), attention) for rate in rates]
        for number, generator in generators.items():
            blocks[number].behind = generator
        self.stack = vl.Stack(blocks, pairwise, nn.LayerNorm(width, eps=style.eps))
        self.own_classes = rows = len(data_spec.answers) if classes is None else classes
        self.head = nn.Linear(width, rows) if rows else nn.Identity()
        self.head_dist = nn.Linear(width, rows) if rows and distilled else None
        self._layouts: dict[tuple[int, int, torch.device], vl.Layout] = {}
        vl.initialise_model(self, self.init_std, nn.Linear | nn.LayerNorm)
        for token in filter(torch.is_tensor, (self.cls_token, self.dist_token)):
            nn.init.normal_(token, std=self.init_std)

    def _grid(self, height: int, width: int) -> tuple[int, int]:
        if height % self.patch_size or width % self.patch_size:
            what, got = "The image is no multiple of the patch.", f"{height}x{width}"
            expected = f"multiples of {self.patch_size}"
            raise DataError(what, where="model deit", got=got, expected=expected, hint="set image_size")
        return height // self.patch_size, width // self.patch_size

    @property
    def dim(self) -> int:
        return self.patch.out_channels

    @property
    def depth(self) -> int:
        return len(self.stack.layers)

    def input_spec(self) -> vl.InputSpec:
        return vl.InputSpec(pixels=True, size=self.image_size, mean=vl.IMAGENET_MEAN, std=vl.IMAGENET_STD)

    def layout(self, height: int, width: int, device: torch.device) -> vl.Layout:
        """Return the layout of an image of this size: one object per size, by which encodings know it again."""
        rows, columns = self._grid(height, width)
        key = (rows, columns, device)
        if key not in self._layouts:
            with torch.inference_mode(False):  # it is kept, and training may be next
                layout = vl.Layout.for_grid(rows, columns, skip=self.specials, device=device)
            if torch.compiler.is_compiling():
                return layout
            self._layouts[key] = layout
        return self._layouts[key]

    def embed_image(self, images: vl.Images) -> vl.EncoderOutput:
        return self._embed(images.pixels_for("deit"), images)

    def _embed(self, pixels: Tensor, images: vl.Images | None = None) -> vl.EncoderOutput:
        layout = self.layout(pixels.shape[-2], pixels.shape[-1], pixels.device)
        x = self.patch(pixels.to(self.patch.weight.dtype)).flatten(2).transpose(1, 2)  # (M, h w, D)
        x = x if images is None else vl.hide(x, images)
        special = [token.expand(x.shape[0], -1, -1) for token in (self.cls_token, self.dist_token) if token is not None]
        x = torch.cat([*special, x], 1)  # (M, T, D)
        for position in self.positions:
            if not position.after:
                x = position(x, layout)
        return vl.EncoderOutput(self.drop(x), layout)

    def encode_image(self, images: vl.Images, record: vl.Recorder | None = None) -> vl.EncoderOutput:
        return self._encode(images.pixels_for("deit"), record, images)

    def _encode(
        self, pixels: Tensor, record: vl.Recorder | None = None, images: vl.Images | None = None
    ) -> vl.EncoderOutput:
        states = self._embed(pixels, images)
        hidden, kept = self.stack(
            states.hidden, states.layout, record=record, name="image", keep=self.output_hidden_states
        )
        scores = self.head(hidden[:, 0])  # (M, classes)
        if self.head_dist is not None:
            scores = (scores + self.head_dist(hidden[:, 1])) / 2
        extra = {"logits": scores} if self.own_classes else {}
        return vl.EncoderOutput(hidden, states.layout, hidden[:, 0], kept, extra)

    def forward(self, pixels: Tensor) -> Tensor:
        """Return class scores (M, classes) of pixels (M, 3, H, W); the class token where there is no classifier."""
        states = self._encode(pixels)
        return cast("Tensor", states.extra.get("logits", states.pooled))

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        state = vl.from_vit(state, "stack") if vl.has_vit_names(state) else state
        if any(name.startswith(("blocks.", "patch_embed.")) for name in state):
            state = from_timm(state, self.state_dict())
        return vl.fit_weights(self, state, report)

    def released_state(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return to_timm(state)

    def layer_of(self, name: str) -> int | None:
        parts = name.split(".")
        if parts[:2] in (["stack", "layers"], ["stack", "position"]):
            number = parts[2] if parts[1] == "layers" else next((p for p in parts if p.isdecimal()), "0")
            return int(number) + 1
        return len(self.stack.layers) + 1 if parts[0] in ("head", "head_dist", "stack") else 0
