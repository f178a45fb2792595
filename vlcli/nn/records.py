"""DataSpec, InputSpec, EncoderOutput, FusionOutput, DetectionOutput, Recorder."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from torch import Tensor, nn

from vlcli.nn.batch import Tensors
from vlcli.nn.layout import Layout


@dataclass(frozen=True)
class DataSpec:
    """Sizes of a model that come from the data; the defaults are those of the papers.

    Attributes:
        vocab_size: rows of the word table (bert-base-uncased: 30,522).
        text_length: longest text in pieces, specials included.
        regions: per image.
        region_dim: width of a region feature.
        region_classes: detector classes without background.
        answers: or labels of a classification head, in order.
        class_names: of given boxes, in the order of the class numbers; empty: they have no names.
        class_ids: numbers of these classes in the annotation file (COCO: 1 to 90 with gaps).
        attribute_names: of given boxes.
        concepts: words of the visual-concept ids, in the order of the ids.
        concept_pieces: vocabulary ids of the pieces of each of these words; empty: there is no vocabulary.
    """

    vocab_size: int = 30522
    pad_id: int = 0
    unk_id: int = 100
    cls_id: int = 101
    sep_id: int = 102
    mask_id: int = 103
    text_length: int = 20
    regions: int = 36
    region_dim: int = 2048
    region_classes: int = 1600
    region_attributes: int = 400
    answers: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()
    class_ids: tuple[int, ...] = ()
    attribute_names: tuple[str, ...] = ()
    concepts: tuple[str, ...] = ()
    concept_pieces: tuple[tuple[int, ...], ...] = ()


IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and standard deviation of ImageNet's channels in [0, 1], for ``InputSpec.mean`` and ``InputSpec.std``."""


@dataclass(frozen=True)
class InputSpec:
    """Inputs of a model; the data pipeline loads no others.

    Attributes:
        regions: region features from a store.
        grid: with ``regions``: rows and columns, if regions must be the cells of a grid.
        concepts: visual concepts from a store.
        size: height and width of pixel input; None keeps the image's proportions.
        short: without ``size``: pixels of the shorter side; 0 keeps the image's size.
        long: with ``short``: most pixels of the longer side; 0 for no limit.
        mean: per channel, of values in [0, 1]; so is ``std``.
        boxes: with ``pixels``: given boxes and their labels.
        label_maps: with ``pixels``: the class of every pixel.
        cased: the text keeps upper case.
    """

    text: bool = False
    regions: bool = False
    grid: tuple[int, int] | None = None
    concepts: bool = False
    pixels: bool = False
    size: tuple[int, int] | None = None
    short: int = 0
    long: int = 0
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)
    boxes: bool = False
    label_maps: bool = False
    cased: bool = False


@dataclass
class EncoderOutput(Tensors):
    """Hidden states of N rows.

    Attributes:
        hidden: (N, T, D).
        layout: of the tokens.
        pooled: (N, D), if the model has one vector per row.
        layers: hidden states of the layers in ``Model.output_hidden_states``.
        extra: tensors (N, ...) of a model for its own objectives, by name.
        number: (N,) number of the picture in its example, if several are fused one by one.
    """

    hidden: Tensor
    layout: Layout
    pooled: Tensor | None = None
    layers: dict[int, Tensor] = field(default_factory=dict)
    extra: dict[str, Tensor] = field(default_factory=dict)
    number: Tensor | None = None

    def select(self, rows: Tensor) -> EncoderOutput:
        """Select rows; a layout that the whole batch shares stays shared."""
        layout = self.layout if self.layout.route.shape[0] == 1 else self.layout.select(rows)
        pick = {name: {key: value[rows] for key, value in getattr(self, name).items()} for name in ("layers", "extra")}
        pooled = None if self.pooled is None else self.pooled[rows]
        number = None if self.number is None else self.number[rows]
        return EncoderOutput(self.hidden[rows], layout, pooled, **pick, number=number)


@dataclass
class FusionOutput(Tensors):
    """P fused (text, image) pairs: states of text (P, T, D) and image tokens (P, R, D), and a ``pooled`` vector (P, D).

    ``images`` is the number K of pictures per example that were fused one by one: pairs come in runs of K, P = B * K.
    """

    text: EncoderOutput
    image: EncoderOutput
    pooled: Tensor
    images: int = 1

    def by_example(self) -> Tensor:
        """Return the pooled vectors of each example side by side: (B, K * D)."""
        return self.pooled.reshape(-1, self.images * self.pooled.shape[-1])


@dataclass
class DetectionOutput(Tensors):
    """Objects found in M images, at most N in each.

    ``boxes`` (M, N, 4) are x1, y1, x2, y2 as shares of width and height; ``labels`` (M, N) 0-based classes, numbered as
    in the given boxes, -1 at padding; ``scores`` (M, N) confidences, 0 at padding.
    """

    boxes: Tensor
    labels: Tensor
    scores: Tensor

    @classmethod
    def ragged(cls, boxes: list[Tensor], labels: list[Tensor], scores: list[Tensor]) -> DetectionOutput:
        """Pad the objects of M images to the largest number."""
        pad = partial(nn.utils.rnn.pad_sequence, batch_first=True)
        return cls(pad(boxes), pad(labels, padding_value=-1), pad(scores))


@dataclass
class Recorder:
    """Keeps attention probabilities by name, e.g. ``cross.4.text_to_image``: (P, H, Tq, Tk).

    With ``gradients`` the probabilities retain their gradient (Grad-CAM).
    """

    attention: dict[str, Tensor] = field(default_factory=dict)
    gradients: bool = False

    def keep(self, name: str, weights: Tensor) -> None:
        """Keep the probabilities of an attention before dropout; called by attention."""
        if self.gradients and weights.requires_grad:
            weights.retain_grad()
        self.attention[name] = weights
