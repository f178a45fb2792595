"""What a hidden patch is guessed as: its pixels, visual tokens, a network's features, or the stored ones."""

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
    """What patches are guessed as.

    Attributes:
        width: numbers that the head gives a patch.
        discrete: whether a target is one of ``width`` ids.
    """

    width: int
    discrete: bool

    def __call__(self, images: Images) -> Tensor:
        # (M, cells, width) numbers, or (M, cells) ids, of the whole pictures
        ...


def patches(pixels: Tensor, grid: Grid) -> Tensor:
    """Pictures (M, 3, H, W) as (M, cells, H / rows * W / columns * 3): rows of a patch, its columns, channels."""
    rows, columns = grid
    cut = pixels.unflatten(3, (columns, -1)).unflatten(2, (rows, -1))  # (M, 3, rows, p, columns, q)
    out: Tensor = cut.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)
    return out


def pixels_of(images: Images) -> Tensor:
    """The pixels (M, 3, H, W).

    Raises:
        DataError: the batch has none.
    """
    if images.pixels is None:
        raise DataError("Patches are guessed from pixels, and the batch has none.", where="masked-image")
    return images.pixels.images


class PixelTarget:
    """The patch's own pixels as the model is fed them.

    Args:
        grid: rows and columns of patches.
        size: height and width of the model's input.
        normalised: each patch less its mean, divided by its deviation (MAE, section 3).
    """

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
    """The stored feature of the cell, normalised over its numbers.

    Args:
        width: of a feature.
    """

    discrete = False

    def __init__(self, width: int) -> None:
        self.width = width

    def __call__(self, images: Images) -> Tensor:
        if images.regions is None:
            raise DataError("Patches are guessed as stored features, and the batch has none.", where="masked-image")
        return F.layer_norm(images.regions.features.float(), (self.width,))


class Frozen:
    """A network that is asked and never trained; it is read when first used, and is in no checkpoint."""

    def __init__(self) -> None:
        self._network: nn.Module | None = None

    def network(self, like: Tensor) -> nn.Module:
        """The network where ``like`` is."""
        if self._network is None:
            self._network = self.read().eval().requires_grad_(False)
        return self._network.to(like.device)

    def read(self) -> nn.Module:
        """From its file."""
        raise NotImplementedError(f"{type(self).__name__} reads nothing")


class FeatureTarget(Frozen):
    """The features of a frozen backbone, pooled to the grid and normalised over their numbers.

    Args:
        grid: rows and columns of patches.
        needs: how the model's pixels are normalised.
        arch: a backbone of ``vlcli.detection.backbone``.
        weights: its local weights.
    """

    discrete = False

    def __init__(self, grid: Grid, needs: InputSpec, arch: str, weights: str | None) -> None:
        super().__init__()
        if weights is None:
            hint = "name its local file: backbone_weights=FILE"
            raise ComponentError("A backbone without weights has nothing to tell.", where="masked-image", hint=hint)
        self.grid, self.needs, self.arch, self.weights = grid, needs, arch, weights
        with torch.device("cpu"), torch.random.fork_rng(devices=[]):
            self.width = RegionBackbone(arch=arch).dim

    def read(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            made = RegionBackbone(arch=self.arch)
        made.load(self.weights)
        return made

    @torch.no_grad()
    def __call__(self, images: Images) -> Tensor:
        pixels = shades(pixels_of(images), self.needs)
        maps = self.network(pixels).feature_map(255 * pixels)  # type: ignore[operator]
        cells = F.adaptive_avg_pool2d(maps, self.grid).flatten(2).transpose(1, 2)
        return F.layer_norm(cells, (self.width,))


class TokenTarget(Frozen):
    """Visual tokens of a local tokenizer.

    Args:
        grid: rows and columns of patches.
        needs: how the model's pixels are normalised.
        file: the tokenizer.
        codes: how many tokens it has.
    """

    discrete = True

    def __init__(self, grid: Grid, needs: InputSpec, file: str, codes: int) -> None:
        super().__init__()
        self.grid, self.needs, self.file, self.width = grid, needs, file, codes

    def read(self) -> nn.Module:
        made = read_tokenizer(self.file)
        if made.codes != self.width:
            hint = f"set codes: {made.codes}"
            raise DataError(
                "The tokenizer has another number of tokens.", where=self.file, got=str(made.codes),
                expected=str(self.width), hint=hint,
            )  # fmt: skip
        return made

    @torch.no_grad()
    def __call__(self, images: Images) -> Tensor:
        pixels = shades(pixels_of(images), self.needs)
        found: Tensor = self.network(pixels)(pixels, self.grid)
        return found


def shades(pixels: Tensor, needs: InputSpec) -> Tensor:
    """Normalised pixels (M, 3, H, W) back in [0, 1]."""
    mean, std = (torch.tensor(given, device=pixels.device).view(1, 3, 1, 1) for given in (needs.mean, needs.std))
    return (pixels.float() * std + mean).clamp(0, 1)


def build_target(model: Model, data_spec: DataSpec, kind: Kind, options: dict[str, Any]) -> Target:
    """The target of a recipe's words.

    Args:
        model: gives grid and input.
        data_spec: width of stored features.
        kind: ``auto``: tokens where a tokenizer is named, features where a backbone is named or the model reads
            stored ones, else normalised pixels.
        options: ``tokenizer``, ``codes``, ``backbone``, ``backbone_weights``.

    Raises:
        ComponentError: the model has no grid of patches, or what the target needs is not named.
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
