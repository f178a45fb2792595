"""Masked image modelling: guess hidden patches from the rest of the picture, and from the words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlcli.errors import ComponentError
from vlcli.nn import DataSpec, ForwardPasses, Images, Model, initialise
from vlcli.objectives.base import Mean, Objective, ObjectiveOutput, full_precision
from vlcli.objectives.image_targets import Kind, build_target
from vlcli.objectives.patch_masks import PatchMasks

Loss = Literal["auto", "l1", "l2", "cross-entropy"]
LOSSES = {"l1": F.l1_loss, "l2": F.mse_loss}


class MaskedImage(Objective):
    """Masked image modelling (BEiT, SimMIM, MAE's targets).

    Hidden patches are replaced by an embedding that belongs to this objective, and a linear head on the model's states
    says what they were. What is hidden follows from seed, epoch and example. BEiT: ``tokenizer: FILE``; SimMIM:
    ``{target: pixels, loss: l1, mask: random, unit: 2, ratio: 0.6}``.

    Args:
        model: encodes the pictures, and shows the embedding for hidden patches.
        data_spec: width of stored features.
        target: ``pixels`` as the model is fed them, ``normalised-pixels`` (each patch by itself), ``tokens`` of a
            tokenizer, ``features`` of a backbone or of the store; ``auto``: tokens where a tokenizer is named, features
            where a backbone is named or the model reads stored ones, else normalised pixels.
        loss: ``auto``: cross-entropy of tokens, l2 of all else.
        mask: ``blocks``: rectangles (BEiT); ``random``: squares of ``unit`` patches (SimMIM).
        ratio: share of the patches that is hidden.
        smallest: patches of the smallest rectangle.
        unit: side of a random square, in patches.
        on: states to guess from: those of the image encoder alone, or fused with the sentence (of a model whose
            patches look at words).
        tokenizer: a local file: DALL-E's encoder, or BEiT v2's tokenizer.
        codes: how many tokens the tokenizer has.
        backbone: a torchvision ResNet, a timm model or ``tiny-conv`` whose features are the target.
        backbone_weights: its local file.
        view: the view whose pictures are hidden in part.
    """

    paper = "BEiT, Bao et al. 2022, section 2.3; SimMIM, Xie et al. 2022, section 3"
    requires = frozenset({"image", "hide"})

    def __init__(
        self,
        model: Model,
        data_spec: DataSpec,
        *,
        target: Kind = "auto",
        loss: Loss = "auto",
        mask: Literal["blocks", "random"] = "blocks",
        ratio: float = 0.4,
        smallest: int = 16,
        unit: int = 1,
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
        self.grid = model.grid
        self.loss = _checked(loss, self.target.discrete)
        self.blank = nn.Parameter(torch.zeros(1, 1, self.dim))
        nn.init.trunc_normal_(self.blank, std=model.init_std)
        self.head = nn.Linear(self.dim, self.target.width)
        self.head.apply(partial(initialise, std=model.init_std))

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        images = step.view().images
        if images is None:
            return ObjectiveOutput({})
        scores, truth = self.guesses(step)
        losses = self._losses(scores, truth)
        metrics = {}
        if self.target.discrete:
            metrics["accuracy"] = Mean.of((scores.argmax(-1) == truth).float())
        return ObjectiveOutput({"masked-image": Mean.of(losses)}, metrics=metrics)

    def predict(self, step: ForwardPasses) -> dict[str, Tensor]:
        # ``loss`` (B,): the mean over each example's hidden patches
        scores, truth = self.guesses(step)
        by_picture = self._losses(scores, truth).reshape(-1, scores.shape[0] // self._rows(step))
        rows = step.view().image_rows[:, 0] if self.on == "image" else slice(None)
        return {"loss": by_picture.mean(1)[rows]}

    def guesses(self, step: ForwardPasses) -> tuple[Tensor, Tensor]:
        """What the head says of the hidden patches, picture after picture (K, width), and what they are (K, ...)."""
        images = self.masked(step)
        hidden, rows = self._states(step)
        clean = step.view().images
        assert images.hidden is not None
        assert clean is not None
        flags = images.hidden if rows is None else images.hidden[rows]
        truth = self.target(clean)
        truth = truth if rows is None else truth[rows]
        return full_precision(self.head(hidden[flags])), truth[flags]

    def masked(self, step: ForwardPasses) -> Images:
        """The pictures with hidden patches, made once a step; the step's batch shows them in a view of their own."""
        found: Images = step._once(("masked-image", self.view), lambda: self._hide(step))
        return found

    def _hide(self, step: ForwardPasses) -> Images:
        clean = step.view()
        assert clean.images is not None
        flags = self.masks.draw(self.grid, self._seeds(step)).to(clean.image_rows.device)
        images = replace(clean.images, hidden=flags, blank=self.blank[0].expand(len(flags), -1))
        step.batch.views[self.view] = replace(clean, images=images, mask_labels={})
        return images

    @staticmethod
    def _seeds(step: ForwardPasses) -> list[int]:
        rows, seeds = step.view().image_rows, step.batch.seeds.tolist()
        found: dict[int, int] = {}
        for example, pictures in enumerate(rows.tolist()):
            for number, row in enumerate(pictures):
                found.setdefault(row, seeds[example] + number)
        return [found[row] for row in sorted(found)]

    def _states(self, step: ForwardPasses) -> tuple[Tensor, Tensor | None]:
        # States of the patches (P, cells, D), and the picture of each row; None: in order
        cells = self.grid[0] * self.grid[1]
        if self.on == "image":
            return step.image(self.view).hidden[:, -cells:], None
        fused = step.fused(self.view)
        return fused.image.hidden[:, -cells:], step.view(self.view).image_rows.flatten()

    def _rows(self, step: ForwardPasses) -> int:
        view = step.view(self.view)
        assert view.images is not None
        return len(view.images) if self.on == "image" else view.image_rows.numel()

    def _losses(self, scores: Tensor, truth: Tensor) -> Tensor:
        if self.loss == "cross-entropy":
            return F.cross_entropy(scores, truth, reduction="none")
        return LOSSES[self.loss](scores, truth.to(scores.dtype), reduction="none").mean(-1)


def _checked(loss: Loss, discrete: bool) -> str:
    usual = "cross-entropy" if discrete else "l2"
    if loss != "auto" and (loss == "cross-entropy") != discrete:
        expected = "cross-entropy" if discrete else "l1 or l2"
        raise ComponentError(
            "The loss does not fit the target.", where="masked-image.loss", got=loss, expected=expected
        )
    return usual if loss == "auto" else loss
