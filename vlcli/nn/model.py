"""The model seam: what a model takes, what it gives, and what it can do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from vlcli.nn.batch import Images, Text
from vlcli.nn.position import Slot
from vlcli.nn.records import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Detections,
    Facts,
    Fused,
    Needs,
    Recorder,
    States,
)

__all__ = [
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "PUBLISHED_STD",
    "BoxProjection",
    "Detections",
    "Facts",
    "Fused",
    "InitStd",
    "Model",
    "Needs",
    "Recorder",
    "States",
    "device_of",
    "init_scale",
    "initialise",
]

PUBLISHED_STD = 0.02
"""Deviation of BERT's freshly drawn weights."""
InitStd = float | Literal["auto"]
"""What a model takes as ``init_std``: see :func:`init_scale`."""


class Model(nn.Module):
    """Base of every model.

    A model says what it can do in ``capabilities`` (``text``, ``image``, ``fuse``, ``generate``, ``boxes``, ``detect``,
    ``hide``: it shows the mask's embedding for patches that ``Images.hidden`` names, ``pyramid``) and overrides the
    methods that go with them; objectives and tasks are checked against it before anything is loaded.

    Args:
        facts: sizes that come from the data.
    """

    paper: ClassVar[str] = ""
    capabilities: frozenset[str] = frozenset()
    fuse_takes: ClassVar[Literal["encodings", "embeddings"]] = "encodings"
    """Whether :meth:`fuse` is fed by ``encode_*`` (LXMERT, ALBEF) or by ``embed_*`` (single-stream models)."""
    many_images: ClassVar[bool] = False
    """Whether :meth:`fuse` takes several pictures of one example as one sequence."""
    describes_boxes: ClassVar[bool] = True
    """With the capability ``boxes``: whether ``encode_image`` gives one state for each given box."""
    finishes: ClassVar[bool] = False
    """Whether ``encode_*`` and ``fuse`` take ``rows``: the tokens to be finished (``all``, ``text``, ``pooled``)."""
    readouts: ClassVar[frozenset[str]] = frozenset()
    """Parts that read out what the encoder gives (poolers): counted with the backbone, but not with the encoder."""
    slots: ClassVar[Mapping[str, Slot]] = MappingProxyType({})
    """Where it takes position encodings: each parameter typed ``PositionSpec``, and what has an effect there."""
    heads: ClassVar[Mapping[str, str]] = {}
    """The head (a name of ``vlcli.nn.heads``) this model's paper uses, by role: ``mlm``, ``matching`` ..."""
    takes: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """Its parts that start from an objective's head where a checkpoint has none of their own: ``decoder.head.`` from
    ``mlm.head.``, the first of several that is there."""

    grid: tuple[int, int] | None = None
    """Rows and columns of its image tokens, where they are one grid."""
    keep: tuple[int, ...] = ()
    """Layers whose output ``encode_image`` gives in ``States.layers``: 0 is their input, n the output of the n-th."""
    own_classes: int = 0
    """Rows of its own classifier of pictures, whose scores :meth:`encode_image` gives as ``extra["logits"]``."""
    init_std: float = PUBLISHED_STD
    """Deviation of freshly drawn weights, its heads' included; BERT's 0.02 is meant for widths near 768."""

    def __init__(self, facts: Facts) -> None:
        super().__init__()
        self.facts = facts

    @property
    def dim(self) -> int:
        """Width of the hidden states."""
        raise self._cannot("dim")

    def needs(self) -> Needs:
        """What the data pipeline must load."""
        raise self._cannot("needs")

    def embed_text(self, text: Text) -> States:
        """Texts as embeddings, before any layer."""
        raise self._cannot("embed_text")

    def embed_image(self, images: Images) -> States:
        """Images as embeddings, before any layer."""
        raise self._cannot("embed_image")

    def encode_text(self, text: Text, record: Recorder | None = None) -> States:
        """Texts alone."""
        raise self._cannot("encode_text")

    def encode_image(self, images: Images, record: Recorder | None = None) -> States:
        """Images alone."""
        raise self._cannot("encode_image")

    def fuse(self, text: States, image: States, record: Recorder | None = None) -> Fused:
        """Pairs, row by row: what ``fuse_takes`` says, already selected so that row i goes with row i."""
        raise self._cannot("fuse")

    @property
    def depth(self) -> int:
        """How many layers ``keep`` may name; 0: it keeps none."""
        return 0

    def pyramid(self, images: Images) -> list[Tensor]:
        """Maps (M, C, h, w) of falling resolution, of a model with the capability ``pyramid``."""
        raise self._cannot("pyramid")

    def pyramid_channels(self) -> tuple[int, ...]:
        """The channels of the maps that :meth:`pyramid` gives."""
        raise self._cannot("pyramid_channels")

    def detect(self, images: Images) -> Detections:
        """The objects found in each image."""
        raise self._cannot("detect")

    def detection_losses(self, images: Images) -> dict[str, tuple[Tensor, Tensor]]:
        """Losses against the boxes the images came with, by name: sum over terms and their number."""
        raise self._cannot("detection_losses")

    def start(self, image: States, text: Text | None = None) -> Any:
        """The cache that incremental decoding starts from: what has been seen before the first word.

        Args:
            image: P rows as :meth:`fuse` takes them (several pictures of an example one after another where
                ``many_images`` is true): embedded or encoded, as ``fuse_takes`` says.
            text: P texts that the words go on from, specials left out; None: from the beginning.

        Returns:
            A cache with ``select(rows)``, which picks, repeats or reorders its P rows.
        """
        raise self._cannot("start")

    def step(self, ids: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """One word further: ``ids`` (P,) gives next-word scores (P, V) and the grown cache.

        The first ids are the class token's (``facts.cls_id``), then those of the word chosen last. The cache handed in
        stays as it was.
        """
        raise self._cannot("step")

    def decode(self, text: Text, seen: States, record: Recorder | None = None) -> Tensor:
        """What comes after each word, of a model with a decoder: hidden states (N, T, D).

        Args:
            text: whole sentences, the class token first; no word sees a later one.
            seen: N rows that are spoken of: fused words, or pictures.
            record: keeps attention probabilities.
        """
        raise self._cannot("decode")

    def next_words(self, hidden: Tensor) -> Tensor:
        """Scores (..., V) of the next word, of hidden states (..., D) that :meth:`decode` gave."""
        raise self._cannot("next_words")

    def word_scores(self, hidden: Tensor) -> Tensor:
        """Scores (..., V) of hidden states (..., D) at masked words, of a model that generates."""
        raise self._cannot("word_scores")

    def word_table(self) -> nn.Embedding:
        """The word embeddings, for heads tied to them."""
        raise self._cannot("word_table")

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        """Reshape foreign or differently sized weights before loading; say what was done in ``report``."""
        return state

    def released_state(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The weights of ``state`` (as ``state_dict`` gives them) under the names of the model's published code.

        Called by exporters that write a file for that code, such as ``irpe-names``.

        Raises:
            NotImplementedError: the model knows no published names.
        """
        raise NotImplementedError(f"{type(self).__name__} knows no published names of its weights")

    def parameter_groups(self) -> Iterable[tuple[str, dict[str, float]]]:
        """Proposals for the optimizer: (pattern, {"lr": factor, "decay": factor}) pairs; a recipe overrides them."""
        return ()

    def layer_of(self, name: str) -> int | None:
        """Depth of a parameter for layer-wise decay: 0 for embeddings; None where depth has no meaning."""
        return None

    def _cannot(self, what: str) -> NotImplementedError:
        can = ", ".join(sorted(self.capabilities)) or "none"
        return NotImplementedError(f"{type(self).__name__} has no {what}; its capabilities: {can}")


def init_scale(std: InitStd, width: int, published: int = 768) -> float:
    """The deviation of freshly drawn weights: a number as it is, ``auto`` by the width.

    The published 0.02 from the published width on, and ``0.02 * (published / width) ** 0.75`` below it: 0.034 at 384,
    0.077 at 128, 0.129 at 64, near ``1 / sqrt(width)``. With 0.02 a narrow model's attention starts out all but
    even, and stays so for tens of thousands of examples.

    Args:
        std: a number, or ``auto``.
        width: of the hidden states.
        published: the narrowest width at which the papers draw with 0.02.
    """
    if std != "auto":
        return std
    return PUBLISHED_STD if width >= published else PUBLISHED_STD * (published / width) ** 0.75


class BoxProjection(nn.Linear):
    """The linear layer that reads a box: 4 coordinates, 5 numbers (and area) or 7 (and width, height, area).

    A layer norm follows in LXMERT, UNITER and DiMBERT, and with a bias of zero that norm removes the length of the
    projected box: boxes at (.1, .1) and (.7, .7) start out nearly alike. :func:`initialise` therefore gives narrow
    models (whose weights are drawn with more than the published 0.02) a bias that centres the coordinates and adds a
    fixed direction, against which lengths and signs survive the norm. At published widths the bias starts at zero.
    """

    def centre(self, std: float) -> None:
        """Draw the bias: minus the projection of a middling box, plus noise as large as the projected coordinates.

        Args:
            std: deviation of the weights, drawn before.
        """
        middle = self.weight.new_tensor([0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.06])
        if self.in_features == 5:
            middle = middle[[0, 1, 2, 3, 6]]
        with torch.no_grad():
            spread = std * (4 / 12) ** 0.5  # four coordinates, evenly spread over the picture
            nn.init.normal_(self.bias, std=spread)
            self.bias.sub_(self.weight @ middle[: self.in_features])


def initialise(module: nn.Module, std: float = PUBLISHED_STD) -> None:
    """BERT's initialisation of one module: normal weights, zero biases, unit norms (use with ``apply``)."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=std)
    if isinstance(module, nn.LayerNorm):
        nn.init.ones_(module.weight)
    if isinstance(module, nn.Linear | nn.LayerNorm) and module.bias is not None:
        nn.init.zeros_(module.bias)
    if isinstance(module, BoxProjection) and std > PUBLISHED_STD:
        module.centre(std)


def device_of(module: nn.Module) -> torch.device:
    """Where a module's first parameter lives (or its first buffer, of a module that learns nothing itself)."""
    return next(chain(module.parameters(), module.buffers())).device
