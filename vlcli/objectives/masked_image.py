"""Masked image modelling: guesses hidden patches from the rest of the picture, and from the words."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from vlcli.errors import ComponentError
from vlcli.nn import DataSpec, ForwardPasses, Images, Model, initialise
from vlcli.objectives.base import Mean, Objective, ObjectiveOutput, full_precision
from vlcli.objectives.image_targets import Kind, TokenTarget, build_target
from vlcli.registry.bounds import Between, Count

Loss = Literal["auto", "l1", "l2", "cross-entropy"]
LOSSES = {"l1": F.l1_loss, "l2": F.mse_loss}
Mask = NDArray[np.bool_]
ASPECT = 0.3  # Rectangles are at most 1 / 0.3 times as long as they are wide (BEiT, Algorithm 1)
TRIES = 10


@dataclass(frozen=True)
class PatchMasks:
    """How patches are chosen; every picture of a grid loses the same number, so that losses weigh them alike."""

    # ``blocks``: rectangles one after another (BEiT, Algorithm 1); ``random``: squares of ``unit`` patches (SimMIM)
    rule: Literal["blocks", "random"] = "blocks"
    ratio: float = 0.4  # share of the patches that is hidden
    smallest: int = 16  # patches of the smallest rectangle, less where fewer are still to be hidden
    unit: int = 1  # side of a square, in patches

    def draw(self, grid: tuple[int, int], seeds: Sequence[int]) -> Tensor:
        """Return masks (M, rows * columns) of M seeds, True where hidden."""
        masks = [self(grid, np.random.default_rng(seed & (2**63 - 1))) for seed in seeds]
        return torch.from_numpy(np.stack(masks)).flatten(1)

    def __call__(self, grid: tuple[int, int], rng: np.random.Generator) -> Mask:
        # (rows, columns), True where hidden
        if self.rule == "random":
            rows, columns = (-(-side // self.unit) for side in grid)
            count = min(math.ceil(self.ratio * rows * columns), rows * columns - 1)
            coarse = np.zeros(rows * columns, bool)
            coarse[rng.permutation(rows * columns)[: max(1, count)]] = True
            return np.kron(coarse.reshape(rows, columns), np.ones((self.unit, self.unit), bool))[: grid[0], : grid[1]]
        # rectangles while they fit into what is still to be hidden, then single patches up to the exact number
        mask = np.zeros(grid, bool)
        wanted = min(max(1, int(self.ratio * mask.size)), mask.size - 1)
        while (left := wanted - int(mask.sum())) > 0 and self._block(mask, left, rng):
            pass
        free = np.flatnonzero(~mask.ravel())
        mask.ravel()[rng.permutation(free)[: wanted - int(mask.sum())]] = True
        return mask

    def _block(self, mask: Mask, left: int, rng: np.random.Generator) -> bool:
        # hides one more rectangle of at most ``left`` new patches; False where none was possible
        for _ in range(TRIES):
            area = rng.uniform(min(self.smallest, left), left)
            aspect = math.exp(rng.uniform(math.log(ASPECT), -math.log(ASPECT)))
            height, width = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if not (0 < height < mask.shape[0] and 0 < width < mask.shape[1]):
                continue
            top, first = (int(rng.integers(n - m + 1)) for n, m in zip(mask.shape, (height, width), strict=True))
            window = mask[top : top + height, first : first + width]
            if 0 < height * width - int(window.sum()) <= left:
                window[:] = True
                return True
        return False


class MaskedImage(Objective):
    """Masked image modelling (BEiT, SimMIM, MAE's targets).

    An embedding of this objective replaces hidden patches, and a linear head on the model's states guesses them. What
    is hidden follows from seed, epoch and example. BEiT: ``tokenizer: FILE``; SimMIM:
    ``{target: pixels, loss: l1, mask: random, unit: 2, ratio: 0.6}``.

    Args:
        target: ``pixels`` as the model is fed them, ``normalised-pixels`` (each patch by itself), ``tokens`` of a
            tokenizer, ``features`` of a backbone or of the store; ``auto``: tokens where a tokenizer is named, features
            where a backbone is named or the model reads stored ones, else normalised pixels.
        loss: ``auto``: cross-entropy of tokens, l2 of all else.
        mask: ``blocks``: rectangles (BEiT); ``random``: squares of ``unit`` patches (SimMIM).
        ratio: share of the patches that is hidden.
        smallest: patches of the smallest rectangle.
        unit: side of a random square, in patches.
        on: states to guess from: of the ``image`` encoder alone, or ``fused`` with the sentence.
        tokenizer: a file, under the data root or here: DALL-E's encoder, or BEiT v2's tokenizer.
        codes: tokens of the tokenizer.
        backbone: a torchvision ResNet, a timm model or ``tiny-conv`` whose features are the target.
        backbone_weights: its local file.
        view: the view whose pictures are hidden in part.
    """

    paper = "BEiT, Bao et al. 2022, section 2.3; SimMIM, Xie et al. 2022, section 3"
    requires = frozenset({"image", "hide"})
    local_files = ("tokenizer", "backbone_weights")

    def __init__(
        self,
        model: Model,
        data_spec: DataSpec,
        *,
        target: Kind = "auto",
        loss: Loss = "auto",
        mask: Literal["blocks", "random"] = "blocks",
        ratio: Annotated[float, Between(0, 1, above=True, below=True)] = 0.4,
        smallest: Count = 16,
        unit: Count = 1,
        on: Literal["image", "fused"] = "image",
        tokenizer: str | None = None,
        codes: int = 8192,
        backbone: str | None = None,
        backbone_weights: str | None = None,
        view: str = "masked-image",
    ) -> None:
        super().__init__(model, data_spec)
        if on == "fused" and "fuse" not in model.capabilities:
            raise ComponentError("The model fuses nothing.", where="masked-image.on", got=type(model).__name__)
        options = {"tokenizer": tokenizer, "codes": codes, "backbone": backbone, "backbone_weights": backbone_weights}
        self.target, self.on, self.view = build_target(model, data_spec, target, options), on, view
        self.masks = PatchMasks(mask, ratio, smallest, unit)
        assert model.grid is not None, "build_target refuses a model without a grid"
        self.grid, discrete = model.grid, isinstance(self.target, TokenTarget)
        if loss != "auto" and (loss == "cross-entropy") != discrete:
            what, expected = "The loss does not fit the target.", "cross-entropy" if discrete else "l1 or l2"
            raise ComponentError(what, where="masked-image.loss", got=loss, expected=expected)
        self.loss = ("cross-entropy" if discrete else "l2") if loss == "auto" else loss
        self.blank = nn.Parameter(torch.zeros(1, 1, self.dim))
        nn.init.trunc_normal_(self.blank, std=model.init_std)
        self.head = nn.Linear(self.dim, self.target.width)
        self.head.apply(partial(initialise, std=model.init_std))

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        if step.view().images is None:
            return ObjectiveOutput({})
        scores, truth = self.guesses(step)
        metrics = {"accuracy": Mean.of((scores.argmax(-1) == truth).float())} if self.loss == "cross-entropy" else {}
        return ObjectiveOutput({"masked-image": Mean.of(self._losses(scores, truth))}, metrics=metrics)

    def predict(self, step: ForwardPasses) -> dict[str, Tensor]:
        # ``loss`` (B,): the mean over each example's hidden patches
        scores, truth = self.guesses(step)
        view = step.view(self.view)
        assert view.images is not None
        pictures = len(view.images) if self.on == "image" else view.image_rows.numel()
        by_picture = self._losses(scores, truth).reshape(-1, scores.shape[0] // pictures).mean(1)
        return {"loss": by_picture[step.view().image_rows[:, 0]] if self.on == "image" else by_picture}

    def guesses(self, step: ForwardPasses) -> tuple[Tensor, Tensor]:
        """Return scores (K, width) of the hidden patches, picture after picture, and their targets (K, ...)."""
        images, clean, cells = self.masked(step), step.view().images, self.grid[0] * self.grid[1]
        assert images.hidden is not None
        assert clean is not None
        flags, truth = images.hidden, self.target(clean)
        if self.on == "image":
            hidden = step.image(self.view).hidden[:, -cells:]  # (M, cells, D)
        else:
            hidden = step.fused(self.view).image.hidden[:, -cells:]  # (P, cells, D)
            rows = step.view(self.view).image_rows.flatten()
            flags, truth = flags[rows], truth[rows]
        return full_precision(self.head(hidden[flags])), truth[flags]

    def masked(self, step: ForwardPasses) -> Images:
        """Return the pictures with hidden patches, drawn once a step and added to the batch as a view."""
        return step._once(("masked-image", self.view), lambda: self._hide(step))

    def _hide(self, step: ForwardPasses) -> Images:
        clean, seeds = step.view(), step.batch.seeds.tolist()
        assert clean.images is not None
        by_picture: dict[int, int] = {}  # a seed for every unique picture: that of the first example it belongs to
        for seed, pictures in zip(seeds, clean.image_rows.tolist(), strict=True):
            for number, row in enumerate(pictures):
                by_picture.setdefault(row, seed + number)
        flags = self.masks.draw(self.grid, [by_picture[row] for row in sorted(by_picture)]).to(clean.image_rows.device)
        images = replace(clean.images, hidden=flags, blank=self.blank[0].expand(len(flags), -1))
        step.batch.views[self.view] = replace(clean, images=images, mask_labels={})
        return images

    def _losses(self, scores: Tensor, truth: Tensor) -> Tensor:
        # one a patch (K,)
        if self.loss == "cross-entropy":
            return F.cross_entropy(scores, truth, reduction="none")
        return LOSSES[self.loss](scores, truth.to(scores.dtype), reduction="none").mean(-1)
