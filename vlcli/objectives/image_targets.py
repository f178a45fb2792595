"""Targets of masked image modelling: pixels, visual tokens, a network's features, or stored features."""

from __future__ import annotations

from typing import Any, Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlcli.detection.backbone import RegionBackbone
from vlcli.errors import ComponentError, DataError
from vlcli.nn import DataSpec, Images, InputSpec, Model
from vlcli.objectives.image_tokens import read_tokenizer

Kind = Literal["auto", "pixels", "normalised-pixels", "tokens", "features"]
Grid = tuple[int, int]


class Target(Protocol):
    """Targets of the patches of whole pictures."""

    width: int  # outputs of the head for a patch
    discrete: bool  # whether a target is one of ``width`` ids

    def __call__(self, images: Images) -> Tensor:
        # (M, cells, width) numbers, or (M, cells) ids, of the whole pictures
        ...


def patches(pixels: Tensor, grid: Grid) -> Tensor:
    """Cut pictures (M, 3, H, W) to (M, cells, H / rows * W / columns * 3): rows of a patch, its columns, channels."""
    rows, columns = grid
    cut = pixels.unflatten(3, (columns, -1)).unflatten(2, (rows, -1))  # (M, 3, rows, p, columns, q)
    out: Tensor = cut.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)
    return out


def pixels_of(images: Images) -> Tensor:
    """Return the pixels (M, 3, H, W), or refuse a batch without them."""
    if images.pixels is None:
        raise DataError("Patches are guessed from pixels, and the batch has none.", where="masked-image")
    return images.pixels.images


class PixelTarget:
    """Pixels of the patch in the model's input; with ``normalised`` minus their mean, by their deviation (MAE, 3)."""

    discrete = False

    def __init__(self, grid: Grid, size: Grid, normalised: bool) -> None:
        self.grid, self.normalised = grid, normalised
        self.width = 3 * (size[0] // grid[0]) * (size[1] // grid[1])

    def __call__(self, images: Images) -> Tensor:
        # (M, cells, 3 p q)
        cut = patches(pixels_of(images).float(), self.grid)
        if not self.normalised:
            return cut
        return (cut - cut.mean(-1, keepdim=True)) / (cut.var(-1, keepdim=True) + 1e-6).sqrt()


class StoredTarget:
    """The stored feature of the cell, normalised."""

    discrete = False

    def __init__(self, width: int) -> None:
        self.width = width

    def __call__(self, images: Images) -> Tensor:
        if images.regions is None:
            raise DataError("Patches are guessed as stored features, and the batch has none.", where="masked-image")
        return F.layer_norm(images.regions.features.float(), (self.width,))


class Frozen:
    """A network that is never trained; it is read when first used, and is in no checkpoint."""

    _network: nn.Module | None = None

    def network(self, like: Tensor) -> nn.Module:
        """Return the network on the device of ``like``."""
        if self._network is None:
            self._network = self.read().eval().requires_grad_(False)
        return self._network.to(like.device)

    def read(self) -> nn.Module:
        """Read the network from its file. Subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} reads nothing")


class FeatureTarget(Frozen):
    """Features of a frozen backbone of ``vlcli.detection.backbone``, pooled to the grid and normalised."""

    discrete = False

    def __init__(self, grid: Grid, needs: InputSpec, arch: str, weights: str | None) -> None:
        if weights is None:
            hint = "name its local file: backbone_weights=FILE"
            raise ComponentError("A backbone without weights has nothing to tell.", where="masked-image", hint=hint)
        self.grid, self.needs, self.arch, self.weights = grid, needs, arch, weights
        with torch.device("cpu"), torch.random.fork_rng(devices=[]):
            self.width = RegionBackbone(arch=arch).dim

    def read(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            backbone = RegionBackbone(arch=self.arch)
        backbone.load(self.weights)
        return backbone

    @torch.no_grad()
    def __call__(self, images: Images) -> Tensor:
        pixels = shades(pixels_of(images), self.needs)
        maps = self.network(pixels).feature_map(255 * pixels)  # type: ignore[operator]
        cells = F.adaptive_avg_pool2d(maps, self.grid).flatten(2).transpose(1, 2)
        return F.layer_norm(cells, (self.width,))


class TokenTarget(Frozen):
    """Visual tokens of a local tokenizer with ``codes`` tokens."""

    discrete = True

    def __init__(self, grid: Grid, needs: InputSpec, file: str, codes: int) -> None:
        self.grid, self.needs, self.file, self.width = grid, needs, file, codes

    def read(self) -> nn.Module:
        tokenizer = read_tokenizer(self.file)
        if tokenizer.codes != self.width:
            what, got, expected = "The tokenizer has another number of tokens.", str(tokenizer.codes), str(self.width)
            raise DataError(what, where=self.file, got=got, expected=expected, hint=f"set codes: {got}")
        return tokenizer

    @torch.no_grad()
    def __call__(self, images: Images) -> Tensor:
        pixels = shades(pixels_of(images), self.needs)
        ids: Tensor = self.network(pixels)(pixels, self.grid)
        return ids


def shades(pixels: Tensor, needs: InputSpec) -> Tensor:
    """Return normalised pixels (M, 3, H, W) in [0, 1]."""
    mean, std = (torch.tensor(values, device=pixels.device).view(1, 3, 1, 1) for values in (needs.mean, needs.std))
    return (pixels.float() * std + mean).clamp(0, 1)


def build_target(model: Model, data_spec: DataSpec, kind: Kind, options: dict[str, Any]) -> Target:
    """Return the target of a kind; ``auto``: tokens where a tokenizer is named, features where a backbone is named or
    the model reads stored ones, else normalised pixels.

    Args:
        model: gives grid and input.
        data_spec: width of stored features.
        kind: of target.
        options: ``tokenizer``, ``codes``, ``backbone``, ``backbone_weights``.
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
