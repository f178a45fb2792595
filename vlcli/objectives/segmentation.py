"""Semantic segmentation: cross-entropy of every pixel."""

from collections.abc import Mapping
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlcli.errors import ComponentError, DataError
from vlcli.nn import DataSpec, ForwardPasses, Images, Model, initialise
from vlcli.nn.segmentation import LightHead, Maps, PlainHead, UPerHead, resized
from vlcli.objectives.base import Mean, Objective, ObjectiveOutput, full_precision

VOID = 255  # What label files call a pixel that has no class, beside 0


class Segmentation(Objective):
    """Classify every pixel of a picture whose label map is read.

    Args:
        head: ``light``: one linear layer a patch; ``upernet``: context and pyramid, with an auxiliary head.
        width: channels inside UPerNet's head; None: the model's own (512 in its paper).
        layers: layers to read, 1-based; None: the last, for UPerNet four, evenly. BEiT's are 4, 6, 8, 12 of 12.
        auxiliary: weight of the auxiliary head's loss (``upernet``); 0 leaves it out.
        auxiliary_width: its channels.
        dropout: of channels before the classifiers.
        classes: how many; None: those of the data.
        zero_is_void: 0 in a label map is no class, and 1 the first (ADE20K); false: 0 is the first.
        view: the view whose pictures are classified.
    """

    paper = "UPerNet, Xiao et al., ECCV 2018; on one resolution: BEiT, Bao et al. 2022, section 3.2"
    requires = frozenset({"image"})

    def __init__(
        self,
        model: Model,
        data_spec: DataSpec,
        *,
        head: Literal["light", "upernet"] = "light",
        width: int | None = None,
        layers: list[int] | None = None,
        auxiliary: float = 0.4,
        auxiliary_width: int = 256,
        dropout: float = 0.1,
        classes: int | None = None,
        zero_is_void: bool = True,
        view: str = "clean",
    ) -> None:
        super().__init__(model, data_spec)
        self.count = classes or len(data_spec.answers)
        if not self.count:
            raise ComponentError("The number of classes is not known.", where="segmentation", expected="`classes: N`")
        self.zero_is_void, self.view, self.weight = zero_is_void, view, auxiliary if head == "upernet" else 0.0
        self.maps = Maps(model, layers, head == "upernet")
        channels = self.maps.channels
        self.head: nn.Module = LightHead(channels, self.count)
        if head == "upernet":
            self.head = UPerHead(channels, width or self.dim, self.count, dropout=dropout)
        self.middle, self.auxiliary = min(2, len(channels) - 1), None
        if self.weight:
            self.auxiliary = PlainHead(channels[self.middle], auxiliary_width, self.count, dropout)
        self.head.apply(partial(initialise, std=model.init_std))

    def scores(self, model: Model, images: Images) -> Tensor:
        """Return scores at the head's resolution (M, classes, h, w)."""
        return full_precision(self.head(self.maps(model, images)))

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        images = step.view(self.view).images
        if images is None or images.pixels is None or images.pixels.label_map is None:
            hint = "name a data set with label maps (ade20k), and the task `segmentation`"
            raise DataError("The pictures come without label maps.", where="segmentation", hint=hint)
        truth = classes_of(images.pixels.label_map, self.count, self.zero_is_void)  # (M, H, W)
        maps = self.maps(step.model, images)
        logits = resized(full_precision(self.head(maps)), truth.shape[-2:])
        losses = {"segmentation": _loss(logits, truth)}
        if self.auxiliary is not None:
            beside = _loss(resized(full_precision(self.auxiliary(maps[self.middle])), truth.shape[-2:]), truth)
            losses["auxiliary"] = Mean(self.weight * beside.total, beside.count)
        right = (logits.argmax(1) == truth).float()
        return ObjectiveOutput(losses, metrics={"accuracy": Mean.of(right, truth >= 0)})

    def predict(self, step: ForwardPasses) -> dict[str, Tensor]:
        # ``logits`` (B, classes, h, w)
        view = step.view(self.view)
        assert view.images is not None
        return {"logits": self.scores(step.model, view.images)[view.image_rows[:, 0]]}


def _loss(logits: Tensor, truth: Tensor) -> Mean:
    return Mean.of(F.cross_entropy(logits, truth, ignore_index=-1, reduction="none"), truth >= 0)


def classes_of(labels: Tensor, count: int, zero_is_void: bool) -> Tensor:
    """Convert the values of label files to classes from 0, -1 where a pixel has none. Raises DataError: above them."""
    void = (labels < 0) | (labels == VOID) | ((labels == 0) & zero_is_void)
    classes = torch.where(void, -1, labels - int(zero_is_void))
    if classes.numel() and int(classes.max()) >= count:
        got, expected = f"label {int(labels[~void].max())}", f"{count} classes"
        raise DataError("A class number of a label map is too large.", where="segmentation", got=got, expected=expected)
    return classes
