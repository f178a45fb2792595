"""Targets of masked image modelling: pixels, visual tokens, a network's features, or stored features."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlcli.detection.backbone import RegionBackbone
from vlcli.errors import ComponentError, DataError
from vlcli.nn import DataSpec, Images, InputSpec, Model
from vlcli.nn.weights import load_tensors, read_weights

EDGE = 0.1  # DALL-E's encoder takes pixels in [0.1, 0.9] (Ramesh et al. 2021, appendix A.3).


class _Conv(nn.Module):  # under the names of DALL-E's file
    def __init__(self, inputs: int, outputs: int, side: int) -> None:
        super().__init__()
        self.w, self.b = nn.Parameter(torch.empty(outputs, inputs, side, side)), nn.Parameter(torch.empty(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.w, self.b, padding="same")


class _Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, gain: float) -> None:
        super().__init__()
        self.gain, inner = gain, outputs // 4
        self.id_path = _Conv(inputs, outputs, 1) if inputs != outputs else nn.Identity()
        sizes = [(inputs, inner, 3), (inner, inner, 3), (inner, inner, 3), (inner, outputs, 1)]
        parts: OrderedDict[str, nn.Module] = OrderedDict()
        for number, size in enumerate(sizes, 1):
            parts |= {f"relu_{number}": nn.ReLU(), f"conv_{number}": _Conv(*size)}
        self.res_path = nn.Sequential(parts)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.id_path(x) + self.gain * self.res_path(x))


class DiscreteVAE(nn.Module):
    """The encoder of DALL-E's discrete VAE: an id for every 8 x 8 pixels of a picture eight times the grid.

    Args:
        width: channels of the first group.
        groups: groups of blocks, each half the size and twice the width of the one before.
        blocks: per group.
        codes: number of ids.
    """

    paper = "Ramesh et al. 2021, Zero-Shot Text-to-Image Generation, appendix A; used by BEiT, Bao et al. 2022"

    def __init__(self, width: int, groups: int, blocks: int, codes: int) -> None:
        super().__init__()
        self.codes, self.shrinks = codes, 2 ** (groups - 1)
        parts: OrderedDict[str, nn.Module] = OrderedDict(input=_Conv(3, width, 7))
        gain, wide = 1 / (groups * blocks) ** 2, width
        for group in range(groups):
            inner: OrderedDict[str, nn.Module] = OrderedDict()
            for block in range(1, blocks + 1):
                before, wide = wide, width * 2**group
                inner[f"block_{block}"] = _Block(before, wide, gain)
            if group < groups - 1:
                inner["pool"] = nn.MaxPool2d(2)
            parts[f"group_{group + 1}"] = nn.Sequential(inner)
        parts["output"] = nn.Sequential(OrderedDict(relu=nn.ReLU(), conv=_Conv(wide, codes, 1)))
        self.blocks = nn.Sequential(parts)

    @classmethod
    def of(cls, state: Mapping[str, Tensor]) -> DiscreteVAE:
        groups = len({name.split(".")[1] for name in state if name.startswith("blocks.group_")})
        blocks = len({name.split(".")[2] for name in state if name.startswith("blocks.group_1.block_")})
        return cls(len(state["blocks.input.b"]), groups, blocks, len(state["blocks.output.conv.b"]))

    def forward(self, pixels: Tensor, grid: tuple[int, int]) -> Tensor:
        # (M, cells) ids of pixels (M, 3, H, W) in [0, 1]
        pixels = _resized(pixels, [side * self.shrinks for side in grid])
        return torch.argmax(self.blocks((1 - 2 * EDGE) * pixels + EDGE), 1).flatten(1)


class Codebook(nn.Module):
    """BEiT v2's tokenizer: a vision transformer, and the nearest code of each patch; ``state`` says its sizes."""

    paper = "Peng et al. 2022, BEiT v2, section 3.1 (vector-quantised knowledge distillation)"
    unneeded: ClassVar[tuple[str, ...]] = (
        *("decoder.*", "decode_task_layer.*", "teacher*", "scaling*", "loss*", "*relative_position_index"),
        *("quantize.cluster_size", "quantize.embedding.cluster_size"),
        *("quantize.embedding.embed_avg", "quantize.embedding.initted"),
    )

    def __init__(self, state: Mapping[str, Tensor]) -> None:
        super().__init__()
        from timm.models.beit import Beit

        width, _, self.patch, _ = state["encoder.patch_embed.proj.weight"].shape
        self.side = round((state["encoder.pos_embed"].shape[1] - 1) ** 0.5)
        depth = 1 + max(int(match[1]) for name in state if (match := re.match(r"encoder\.blocks\.(\d+)\.", name)))
        hidden = state["encoder.blocks.0.mlp.fc1.weight"].shape[0]
        self.encoder: Any = Beit(
            img_size=self.side * self.patch, patch_size=self.patch, embed_dim=width, depth=depth,
            num_heads=max(1, width // 64), mlp_ratio=hidden / width, num_classes=0, global_pool="avg",
            init_values=0.1 if "encoder.blocks.0.gamma_1" in state else None,
            use_rel_pos_bias="encoder.blocks.0.attn.relative_position_bias_table" in state,
        )  # fmt: skip
        self.codes, code = state["quantize.embedding.weight"].shape
        self.encode_task_layer = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, code))
        self.quantize = nn.ModuleDict({"embedding": nn.Embedding(self.codes, code)})  # the file's names

    def forward(self, pixels: Tensor, grid: tuple[int, int]) -> Tensor:
        # (M, cells) ids of pixels (M, 3, H, W) in [0, 1]
        if grid != (self.side, self.side):
            got, expected = f"{grid[0]}x{grid[1]}", f"{self.side}x{self.side}"
            raise DataError("The tokenizer has another grid.", where="masked-image", got=got, expected=expected)
        pixels = _resized(pixels, [self.side * self.patch] * 2)
        tokens = self.encoder.forward_features(2 * pixels - 1)[:, 1:]
        codes = F.normalize(self.encode_task_layer(self.encoder.fc_norm(tokens)), dim=-1)  # (M, cells, d)
        table = cast("nn.Embedding", self.quantize["embedding"]).weight
        return (table.pow(2).sum(1) - 2 * codes @ table.T).argmin(-1)  # of distances less what all codes share


def _resized(pixels: Tensor, size: list[int]) -> Tensor:
    if list(pixels.shape[-2:]) == size:
        return pixels
    return F.interpolate(pixels, size, mode="bicubic", antialias=True, align_corners=False).clamp(0, 1)


def read_tokenizer(file: str | Path) -> DiscreteVAE | Codebook:
    """Read a tokenizer from safetensors or a checkpoint (``weights_only``). Raises DataError: the file holds none."""
    state = read_weights(file)
    codebook = "quantize.embedding.weight" in state
    if not codebook and "blocks.input.w" not in state:
        expected = "DALL-E's encoder (blocks.input.w ...) or BEiT v2's (quantize.embedding.weight ...)"
        got = ", ".join(list(state)[:3])
        raise DataError("This is no visual tokenizer.", where=str(file), got=got, expected=expected)
    with torch.random.fork_rng(devices=[]):
        tokenizer = Codebook(state) if codebook else DiscreteVAE.of(state)
        load_tensors(tokenizer, state, file, Codebook.unneeded if codebook else ())
    return tokenizer


Kind = Literal["auto", "pixels", "normalised-pixels", "tokens", "features"]
Grid = tuple[int, int]


def patches(pixels: Tensor, grid: Grid) -> Tensor:
    """Cut pictures (M, 3, H, W) to (M, cells, H / rows * W / columns * 3): rows of a patch, its columns, channels."""
    rows, columns = grid
    cut = pixels.unflatten(3, (columns, -1)).unflatten(2, (rows, -1))  # (M, 3, rows, p, columns, q)
    return torch.permute(cut, (0, 2, 4, 3, 5, 1)).flatten(3).flatten(1, 2)


def pixels_of(images: Images) -> Tensor:
    """Return the pixels (M, 3, H, W). Raises DataError: the batch has none."""
    if images.pixels is None:
        raise DataError("Patches are guessed from pixels, and the batch has none.", where="masked-image")
    return images.pixels.images


class PixelTarget:
    """Pixels of the patch in the model's input; with ``normalised`` minus their mean, by their deviation (MAE, 3)."""

    def __init__(self, grid: Grid, size: Grid, normalised: bool) -> None:
        self.grid, self.normalised = grid, normalised
        self.width = 3 * (size[0] // grid[0]) * (size[1] // grid[1])

    def __call__(self, images: Images) -> Tensor:
        # (M, cells, 3 p q)
        cut = patches(pixels_of(images).float(), self.grid)
        if not self.normalised:
            return cut
        return (cut - cut.mean(-1, keepdim=True)) / (cut.var(-1, keepdim=True) + 1e-6).sqrt()


@dataclass
class StoredTarget:
    """The stored feature of the cell, normalised."""

    width: int

    def __call__(self, images: Images) -> Tensor:
        if images.regions is None:
            raise DataError("Patches are guessed as stored features, and the batch has none.", where="masked-image")
        return F.layer_norm(images.regions.features.float(), (self.width,))


class FeatureTarget:
    """Features of a frozen backbone, pooled to the grid and normalised; read when first used, in no checkpoint."""

    def __init__(self, grid: Grid, needs: InputSpec, arch: str, weights: str | None) -> None:
        if weights is None:
            hint = "name its local file: backbone_weights=FILE"
            raise ComponentError("The backbone of the targets has no trained weights.", where="masked-image", hint=hint)
        self.grid, self.needs, self.arch, self.weights = grid, needs, arch, weights
        with torch.device("cpu"), torch.random.fork_rng(devices=[]):
            self.width = RegionBackbone(arch=arch).dim

    @cached_property
    def network(self) -> RegionBackbone:
        with torch.random.fork_rng(devices=[]):
            backbone = RegionBackbone(arch=self.arch)
        backbone.load(self.weights)
        return backbone.eval().requires_grad_(False)

    @torch.no_grad()
    def __call__(self, images: Images) -> Tensor:
        pixels = shades(pixels_of(images), self.needs)
        maps = self.network.to(pixels.device).feature_map(255 * pixels)
        cells = F.adaptive_avg_pool2d(maps, self.grid).flatten(2).transpose(1, 2)
        return F.layer_norm(cells, (self.width,))


class TokenTarget:
    """Visual tokens (BEiT) from a file that holds an image tokenizer with ``codes`` tokens; loaded when first used."""

    def __init__(self, grid: Grid, needs: InputSpec, file: str, codes: int) -> None:
        self.grid, self.needs, self.file, self.width = grid, needs, file, codes

    @cached_property
    def network(self) -> DiscreteVAE | Codebook:
        tokenizer = read_tokenizer(self.file)
        if tokenizer.codes != self.width:
            what, got, expected = "The tokenizer has another number of tokens.", str(tokenizer.codes), str(self.width)
            raise DataError(what, where=self.file, got=got, expected=expected, hint=f"set codes: {got}")
        return tokenizer.eval().requires_grad_(False)

    @torch.no_grad()
    def __call__(self, images: Images) -> Tensor:
        pixels = shades(pixels_of(images), self.needs)
        ids: Tensor = self.network.to(pixels.device)(pixels, self.grid)
        return ids


def shades(pixels: Tensor, needs: InputSpec) -> Tensor:
    """Return pixels (M, 3, H, W) in [0, 1] of normalised ones."""
    mean, std = (torch.tensor(values, device=pixels.device).view(1, 3, 1, 1) for values in (needs.mean, needs.std))
    return (pixels.float() * std + mean).clamp(0, 1)


Target = PixelTarget | StoredTarget | FeatureTarget | TokenTarget
"""Targets (M, cells, width), or ids (M, cells), of whole pictures; ``width`` is the head's outputs for a patch."""


def build_target(model: Model, data_spec: DataSpec, kind: Kind, options: dict[str, Any]) -> Target:
    """Return the target of a kind (:class:`MaskedImage`) with the options on tokenizer and backbone.

    Raises:
        ComponentError: the model has no grid or no fixed input, or the options lack a file.
    """
    needs, grid = model.input_spec(), model.grid
    if grid is None:
        raise ComponentError("The model's image tokens are no grid of patches.", where="masked-image")
    if kind == "auto":
        stored = needs.regions or options["backbone"]
        kind = "tokens" if options["tokenizer"] else "features" if stored else "normalised-pixels"
    if kind == "tokens":
        if options["tokenizer"] is None:
            hint = "name its local file: tokenizer=FILE; or take target=normalised-pixels"
            raise ComponentError("Visual tokens need a tokenizer.", where="masked-image.target", hint=hint)
        return TokenTarget(grid, needs, options["tokenizer"], options["codes"])
    if kind == "features":
        if needs.regions:
            return StoredTarget(data_spec.region_dim)
        return FeatureTarget(grid, needs, options["backbone"] or "resnet50", options["backbone_weights"])
    if needs.size is None:
        raise ComponentError("The model has no fixed input, so its patches have no pixels.", where="masked-image")
    return PixelTarget(grid, needs.size, kind == "normalised-pixels")
