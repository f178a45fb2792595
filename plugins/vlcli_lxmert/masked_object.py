"""Predicts the features, detected labels and attributes of masked regions."""

from collections.abc import Mapping
from functools import partial
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlcli.data import Corruption, Donor, Sample, copied
from vlcli.errors import ComponentError, DataError
from vlcli.nn import DataSpec, ForwardPasses, HeadTransform, Model, Regions, initialise
from vlcli.objectives import Mean, Objective, ObjectiveOutput, full_precision

Target = Literal["label", "attribute", "feature"]
TARGETS: tuple[Target, ...] = ("label", "attribute", "feature")
MARK = "masked_regions"


class MaskRegions(Corruption):
    """Hides features of an example's first picture: a share ``zero`` of the hidden is 0, ``swap`` another picture's."""

    phase = "regions"

    def __init__(self, probability: float, zero: float, swap: float, view: str) -> None:
        self.name, self.view = "masked-object", view
        self.probability, self.zero, self.swap = probability, zero, swap

    def __call__(self, sample: Sample, rng: np.random.Generator, donor: Donor) -> None:
        image = sample.images[0] if sample.images else None
        if image is None or image.features is None:
            return
        count = len(image.features)
        draws = rng.random(2 * count).tolist()  # lists: of a few numbers they are faster than arrays
        hidden = [draw < self.probability for draw in draws[:count]]
        if True in hidden:
            features = image.features.copy()
            for row, how in enumerate(draws[count:]):
                if hidden[row] and how < self.zero:
                    features[row] = 0
                elif hidden[row] and how < self.zero + self.swap:
                    others = donor().images
                    other = others[0].features if others else None
                    if other is not None and len(other):
                        features[row] = other[rng.integers(len(other))]
            sample.images[0] = copied(image, features=features)
        sample.mask_labels.regions[MARK] = np.array(hidden, bool)


class MaskedObject(Objective):
    """Masked object prediction: region features, detected labels and attributes (LXMERT).

    ``as_released``: labels and attributes of every region, weighted by the detector's confidence, and features of
    hidden regions by SmoothL1; each loss is a mean over all regions times 1 / 0.15; hidden features are zeroed 80 %,
    swapped 10 %, kept 10 %. ``as_published``: hidden regions only, equal weights, squared error, always zeros; the
    paper has no attributes, so leave ``attribute`` out of ``targets``.

    Args:
        mode: whose details.
        targets: what is predicted; None: everything the feature store holds.
        probability: of hiding a region.
        factor: what the mean over all regions is multiplied by in ``as_released`` (transformers: 6.67).
        view: the view it shares.
    """

    paper = (
        "LXMERT, Tan and Bansal 2019, section 3.1.2; airsplay/lxmert for as_released; as_published is UNITER's masked "
        "region feature regression and classification, too (Chen et al. 2020, section 3.2)"
    )
    requires = frozenset({"fuse"})
    inputs = frozenset({"regions"})

    def __init__(
        self,
        model: Model,
        data_spec: DataSpec,
        *,
        mode: Literal["as_released", "as_published"] = "as_released",
        targets: tuple[Target, ...] | None = None,
        probability: float = 0.15,
        factor: float = 1 / 0.15,
        view: str = "corrupted",
    ) -> None:
        super().__init__(model, data_spec)
        self.released, self.view = mode == "as_released", view
        self.probability, self.factor = probability, factor
        numbers = (data_spec.region_classes, data_spec.region_attributes, data_spec.region_dim)
        sizes: dict[str, int] = dict(zip(TARGETS, numbers, strict=True))
        self.targets = tuple(name for name in TARGETS if sizes[name] > 0) if targets is None else targets
        empty = [name for name in self.targets if sizes[name] < 1]
        if empty or not self.targets:
            what = "The feature store has nothing to predict for a target of masked-object."
            hint = "name only targets that the store holds, e.g. targets: [feature]"
            where, got = "masked-object.targets", ", ".join(empty) or "no target"
            raise ComponentError(what, where=where, got=got, hint=hint)
        self.transform = HeadTransform(self.dim)
        self.decoders = nn.ModuleDict({name: nn.Linear(self.dim, sizes[name]) for name in self.targets})
        self.apply(partial(initialise, std=model.init_std))

    def corruption(self) -> MaskRegions:
        zero, swap = (0.8, 0.1) if self.released else (1.0, 0.0)
        return MaskRegions(self.probability, zero, swap, self.view)

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        view, clean = step.view(self.view), step.batch.clean
        regions = None if clean.images is None else clean.images.regions
        mark = view.mask_labels.get(MARK)
        if regions is None or mark is None:
            return ObjectiveOutput({})
        rows, clean_rows = view.image_rows[:, 0], clean.image_rows[:, 0]  # (B,)
        fused = step.fused(self.view)
        hidden = fused.image.hidden.unflatten(0, (-1, fused.images))[:, 0]  # (B, R, D)
        real = regions.mask.index_select(0, clean_rows)  # (B, R)
        masked = mark.index_select(0, rows).bool() & real  # (B, R)
        labels = [name for name in self.targets if name != "feature"]
        # Heads see only the regions that count: all real ones, or the hidden ones.
        asked = (real if self.released and labels else masked).flatten().nonzero()[:, 0]  # (K,) of B * R
        states = self.transform(hidden.flatten(0, 1).index_select(0, asked))  # (K, D)
        count = (real if self.released else masked).sum().to(states.dtype)
        losses: dict[str, Mean] = {}
        metrics: dict[str, Mean] = {}
        for name in labels:
            truth, score = (one.flatten()[asked] for one in self._truth(name, regions, clean_rows))  # (K,)
            logits = full_precision(self.decoders[name](states))  # (K, classes)
            known = truth >= 0
            loss = F.cross_entropy(logits, truth.clamp(min=0), reduction="none").masked_fill(~known, 0)
            if self.released:
                losses[name] = Mean((loss * score.to(states.dtype)).sum() * self.factor, count)
            else:
                losses[name] = Mean(loss.sum(), known.sum().to(loss.dtype))
            metrics[f"{name}_accuracy"] = Mean.of((logits.argmax(-1) == truth).float(), known)
        if "feature" in self.targets:
            chosen = masked.flatten()[asked].nonzero()[:, 0]
            spots, width = asked[chosen], masked.shape[1]  # of B * R
            flat = clean_rows[spots // width] * width + spots % width  # of M * R
            guess = full_precision(self.decoders["feature"](states.index_select(0, chosen)))  # (hidden, F)
            truth = regions.features.flatten(0, 1).index_select(0, flat).to(guess.dtype)
            measure = F.smooth_l1_loss if self.released else F.mse_loss
            error = measure(guess, truth, reduction="none").mean(-1).sum()
            losses["feature"] = Mean(error * self.factor if self.released else error, count)
        return ObjectiveOutput(losses, metrics=metrics)

    def _truth(self, name: str, regions: Regions, rows: Tensor) -> tuple[Tensor, Tensor]:
        truth, score = regions.classes, regions.class_scores
        if name == "attribute":
            truth, score = regions.attributes, regions.attribute_scores
        if truth is None:
            what, hint = f"The feature store holds no {name} of its regions.", "leave it out: targets: [feature]"
            raise DataError(what, where="masked-object.targets", hint=hint)
        truth = truth.index_select(0, rows)  # (B, R)
        return truth, torch.ones_like(truth, dtype=torch.float) if score is None else score.index_select(0, rows)
