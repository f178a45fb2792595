"""Defines Table 4's objectives that the final DiMBERT does not use: image-sentence, masked object, masked concept."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlcli.data import Corruption, Donor, Sample
from vlcli.errors import ComponentError, DataError
from vlcli.nn import DataSpec, ForwardPasses, HeadTransform, Model, initialise
from vlcli.objectives import MATCHED, Matching, Mean, Objective, ObjectiveOutput, SwapSentence, full_precision
from vlcli_dimbert.language import CAUSAL, choose_mode

REGIONS, CONCEPTS = "masked_roi", "masked_concepts"


class SwapBidirectional(SwapSentence):
    """Chooses each example's mode, and gives bidirectional ones alone another picture's sentence."""

    def __init__(self, probability: float, bidirectional: float, view: str) -> None:
        super().__init__(probability, 0.0, view)
        self.name, self.bidirectional = "image-sentence", bidirectional

    def __call__(self, sample: Sample, rng: np.random.Generator, donor: Donor) -> None:
        causal = choose_mode(sample, rng, self.bidirectional)
        if causal:
            sample.mask_labels.example[MATCHED] = 1
        else:
            super().__call__(sample, rng, donor)
        if sample.text is not None:
            sample.text = replace(sample.text, causal=causal)


class ImageSentence(Matching):
    """Image-sentence relation: does the sentence belong to the picture? Asked of bidirectional rows alone.

    In a sequence-to-sequence row [CLS] never sees the sentence. Language modelling of the same view reads the modes
    drawn here, and leaves sentences of other pictures alone.

    Args:
        probability: of replacing the sentence of a bidirectional row.
        bidirectional: share of rows that are bidirectional; that of ``blm-s2slm``.
        view: the view it shares.
        head: a named head instead of the model's own.
    """

    paper = "DiMBERT, Liu et al. 2021, Table 4 (ISRP)"

    def __init__(
        self,
        model: Model,
        data_spec: DataSpec,
        *,
        probability: float = 0.5,
        bidirectional: float = 0.25,
        view: str = "corrupted",
        head: str | None = None,
    ) -> None:
        super().__init__(model, data_spec, probability=probability, view=view, head=head)
        self._corruption = SwapBidirectional(probability, bidirectional, view)

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        marks = step.view(self.view).mask_labels
        if MATCHED not in marks:
            return ObjectiveOutput({})
        asked = ~marks[CAUSAL].bool() if CAUSAL in marks else torch.ones_like(marks[MATCHED], dtype=torch.bool)
        logits = self.logits(step.fused(self.view, rows="pooled"))  # (B, 2)
        truth = marks[MATCHED].long()
        loss = F.cross_entropy(logits, truth, reduction="none")
        right = Mean.of((logits.argmax(-1) == truth).float(), asked)
        return ObjectiveOutput({"relation": Mean.of(loss, asked)}, {"logits": logits}, {"accuracy": right})


class HideRegions(Corruption):
    """Hides the appearance and class of some regions of an example's first picture; boxes stay."""

    name, phase = "masked-roi", "regions"

    def __init__(self, probability: float, view: str) -> None:
        self.view, self.probability = view, probability

    def __call__(self, sample: Sample, rng: np.random.Generator, donor: Donor) -> None:
        image = sample.images[0] if sample.images else None
        if image is None or image.features is None:
            return
        hidden = rng.random(len(image.features)) < self.probability
        features, fields = image.features.copy(), dict(image.fields)
        features[hidden] = 0
        for name in fields.keys() & {"class_probs", "class_scores", "classes"}:
            fields[name] = fields[name].copy()
            fields[name][hidden] = -1 if name == "classes" else 0
        sample.images[0] = replace(image, features=features, fields=fields)
        sample.mask_labels.regions[REGIONS] = hidden


class MaskedRoI(Objective):
    """Masked object: the detected class of hidden regions, whose feature and class the model does not see.

    Args:
        probability: of hiding a region.
        view: the view it shares.
    """

    paper = "DiMBERT, Liu et al. 2021, Table 4 (MOP)"
    requires = frozenset({"fuse"})
    inputs = frozenset({"regions"})

    def __init__(
        self, model: Model, data_spec: DataSpec, *, probability: float = 0.15, view: str = "corrupted"
    ) -> None:
        super().__init__(model, data_spec)
        if data_spec.region_classes < 1:
            hint = "extract with a detector (vlcli ls extractors)"
            raise ComponentError("The feature store has no classes to predict.", where="masked-roi", hint=hint)
        self.view, self._corruption = view, HideRegions(probability, view)
        self.head = nn.Sequential(HeadTransform(self.dim), nn.Linear(self.dim, data_spec.region_classes))
        self.head.apply(partial(initialise, std=model.init_std))

    def corruption(self) -> Corruption:
        return self._corruption

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        view, clean = step.view(self.view), step.batch.clean
        regions, mark = None if clean.images is None else clean.images.regions, view.mask_labels.get(REGIONS)
        if regions is None or mark is None:
            return ObjectiveOutput({})
        if regions.classes is None:
            raise DataError("The feature store holds no classes of its regions.", where="masked-roi")
        count = regions.mask.shape[1]
        truth = regions.classes.index_select(0, clean.image_rows[:, 0])  # (B, R)
        asked = mark.index_select(0, view.image_rows[:, 0])[:, :count].bool() & (truth >= 0)
        hidden = step.fused(self.view).image.hidden[:, :count]  # the first picture's come first
        return _classified("object", self.head(hidden[asked]), truth[asked])


def _classified(name: str, logits: Tensor, truth: Tensor) -> ObjectiveOutput:
    loss = F.cross_entropy(full_precision(logits), truth, reduction="none")
    return ObjectiveOutput({name: Mean.of(loss)}, metrics={"accuracy": Mean.of((logits.argmax(-1) == truth).float())})


class HideConcepts(Corruption):
    """Hides concepts of an example's first picture: ``shares`` as masks, and as others of as many pieces."""

    name, phase = "masked-concept", "regions"

    def __init__(self, data_spec: DataSpec, probability: float, shares: tuple[float, float], view: str) -> None:
        self.probability, self.shares, self.view = probability, shares, view
        self.lengths = np.array([len(pieces) for pieces in data_spec.concept_pieces] or [1])

    def __call__(self, sample: Sample, rng: np.random.Generator, donor: Donor) -> None:
        if not sample.images or not sample.images[0].concepts:
            return
        image = sample.images[0]
        ids = np.asarray(image.concepts["ids"]).copy()
        chosen, how = rng.random(len(ids)) < self.probability, rng.random(len(ids))
        mark = np.where(chosen, ids.astype(np.int64) + 1, 0)
        for row in np.flatnonzero(chosen & (how >= self.shares[0]) & (how < sum(self.shares))):
            alike = np.flatnonzero(self.lengths == self.lengths[ids[row]])
            ids[row] = alike[rng.integers(len(alike))]
        concepts = {**image.concepts, "ids": ids, "hidden": chosen & (how < self.shares[0])}
        sample.images[0] = replace(image, concepts=concepts)
        sample.mask_labels.regions[CONCEPTS] = mark


class MaskedConcept(Objective):
    """Masked visual concept: the word pieces of hidden concepts, by the model's word head.

    Args:
        probability: of hiding a concept.
        mask_share: of the hidden that are shown as [MASK], piece by piece.
        random_share: of the hidden that are shown as another concept of as many pieces; the rest stay.
        view: the view it shares.
    """

    paper = "DiMBERT, Liu et al. 2021, Table 4 (masked visual concepts)"
    requires = frozenset({"fuse", "generate"})

    def __init__(
        self,
        model: Model,
        data_spec: DataSpec,
        *,
        probability: float = 0.15,
        mask_share: float = 0.8,
        random_share: float = 0.1,
        view: str = "corrupted",
    ) -> None:
        super().__init__(model, data_spec)
        if getattr(model, "concepts", None) is None:
            hint = "raise the model's concepts, or drop the objective"
            raise ComponentError("The model reads no visual concepts.", where="masked-concept", hint=hint)
        self.view = view
        self._corruption = HideConcepts(data_spec, probability, (mask_share, random_share), view)

    def corruption(self) -> Corruption:
        return self._corruption

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        view = step.view(self.view)
        concepts, mark = None if view.images is None else view.images.concepts, view.mask_labels.get(CONCEPTS)
        if concepts is None or mark is None:
            return ObjectiveOutput({})
        was = mark[:, : concepts.ids.shape[1]]  # (M, K)
        before = replace(concepts, ids=torch.where(was > 0, was - 1, concepts.ids), hidden=None)
        model: Any = step.model  # one that reads concepts
        pieces, slot, _ = model.concepts(before)  # (M, L): as many as in the view
        rows = view.image_rows[:, 0]
        truth = pieces.index_select(0, rows)
        asked = (was.gather(1, slot).index_select(0, rows) > 0) & (truth >= 0)
        hidden = step.fused(self.view).image.extra["concepts"][:, : truth.shape[1]]
        return _classified("concept", step.model.word_scores(hidden[asked]), truth[asked])
