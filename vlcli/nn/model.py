"""Base class of models."""

from collections.abc import Iterable, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from vlcli.nn.batch import Images, Text
from vlcli.nn.fitting import PUBLISHED_STD
from vlcli.nn.folders import Folders
from vlcli.nn.position import Slot
from vlcli.nn.records import DataSpec, DetectionOutput, EncoderOutput, FusionOutput, InputSpec, Recorder
from vlcli.nn.shape import Shaped

__all__ = ["DataSpec", "DetectionOutput", "EncoderOutput", "FusionOutput", "InputSpec", "Model", "Recorder"]


class Model(Folders, Shaped):
    """Base of every model.

    A subclass names its capabilities and defines their methods: ``text`` (``encode_text``), ``image``
    (``encode_image``), ``fuse``, ``generate`` (``start``, ``step``), ``decode`` (``decode``, ``next_words``),
    ``detect`` (``detect``, ``detection_losses``), ``pyramid``; ``boxes`` means that it reads given boxes, ``hide`` that
    patches named in ``Images.hidden`` are replaced by the mask embedding. Objectives and tasks are checked against the
    capabilities before anything is loaded; every other method raises NotImplementedError.

    Args:
        data_spec: sizes that come from the data.

    Attributes:
        paper: source, for ``vlcli show``.
        fuse_takes: inputs of :meth:`fuse`: ``encodings``, which ``encode_text`` and ``encode_image`` return (LXMERT,
            ALBEF), or ``embeddings``, which ``embed_text`` and ``embed_image`` return (single-stream models).
        many_images: :meth:`fuse` takes the images of an example as one sequence; else each in turn.
        describes_boxes: with the capability ``boxes``: ``encode_image`` returns one state for each given box.
        partial_passes: of ``text``, ``image`` and ``fused``: those whose method accepts ``rows``, the tokens whose last
            layer is needed (``all``, ``text`` or ``pooled``).
        readouts: names of poolers: ``vlcli count`` adds them to the backbone, but not to the encoder.
        slots: slots for position encodings, by the parameter (typed ``PositionSpec``) that a recipe sets.
        heads: registered head that the paper uses, by role (``mlm``, ``matching``, ``answer``, ``pair``, ``label``);
            other roles get their usual head (``build_head``).
        init_from: parts that start from an objective's head if a checkpoint lacks them: ``decoder.head.`` from
            ``mlm.head.``; of several heads the first that the checkpoint holds.
        grid: rows and columns of the image tokens, if they form one grid.
        output_hidden_states: layers whose output ``encode_image`` returns in ``EncoderOutput.layers``; 0: the input.
        own_classes: rows of the model's image classifier, whose logits are :meth:`encode_image`'s ``extra["logits"]``.
        init_std: standard deviation of initial weights, heads included; BERT's 0.02 suits hidden sizes near 768.
    """

    paper: ClassVar[str] = ""
    capabilities: frozenset[str] = frozenset()
    fuse_takes: ClassVar[Literal["encodings", "embeddings"]] = "encodings"
    many_images: ClassVar[bool] = False
    describes_boxes: ClassVar[bool] = True
    partial_passes: ClassVar[frozenset[str]] = frozenset()
    readouts: ClassVar[frozenset[str]] = frozenset()
    slots: ClassVar[Mapping[str, Slot]] = MappingProxyType({})
    heads: ClassVar[Mapping[str, str]] = {}
    init_from: Mapping[str, tuple[str, ...]] = MappingProxyType({})

    grid: tuple[int, int] | None = None
    output_hidden_states: tuple[int, ...] = ()
    own_classes: int = 0
    init_std: float = PUBLISHED_STD

    def __init__(self, data_spec: DataSpec) -> None:
        super().__init__()
        self.data_spec = data_spec

    @property
    def dim(self) -> int:
        """Hidden size D of the states that the model returns; read by objectives when they build their heads."""
        raise self._cannot("dim")

    @property
    def pooled_dim(self) -> int:
        """Width of ``FusionOutput.pooled``; read by objectives when they build the heads of pairs."""
        return self.dim

    def input_spec(self) -> InputSpec:
        """Return the inputs that the data pipeline must load; called before data are opened, and by checks of a recipe.

        Returns:
            The kinds of input, with the size and normalisation of pixels.
        """
        raise self._cannot("input_spec")

    def fit_regions(self, rows: Tensor) -> None:
        """Take statistics of region features; called once per training from random weights, before the first step.

        Args:
            rows: features (N, F) of regions of training images, for buffers such as :class:`vlcli.nn.Whitening`.
        """

    def embed_text(self, text: Text) -> EncoderOutput:
        """Embed texts before any layer; called if ``fuse_takes`` is ``embeddings``, once per view of a batch.

        Args:
            text: N unique texts of T word pieces.

        Returns:
            States (N, T, D) with their layout.
        """
        raise self._cannot("embed_text")

    def embed_image(self, images: Images) -> EncoderOutput:
        """Embed images before any layer; called if ``fuse_takes`` is ``embeddings``, once per view of a batch.

        Args:
            images: M unique images in the forms that :meth:`input_spec` names.

        Returns:
            States (M, R, D) of regions or patches with their layout.
        """
        raise self._cannot("embed_image")

    def encode_text(self, text: Text, record: Recorder | None = None) -> EncoderOutput:
        """Encode texts that see no image (capability ``text``); called by ``ForwardPasses.text`` once per view.

        Args:
            text: N unique texts of T word pieces.
            record: keeps the attention probabilities, if given.

        Returns:
            States (N, T, D); ``pooled`` (N, D) if the model has one vector per text.
        """
        raise self._cannot("encode_text")

    def encode_image(self, images: Images, record: Recorder | None = None) -> EncoderOutput:
        """Encode images that see no text (capability ``image``); called by ``ForwardPasses.image`` once per view.

        Args:
            images: M unique images in the forms that :meth:`input_spec` names.
            record: keeps the attention probabilities, if given.

        Returns:
            States (M, R, D); ``pooled`` (M, D) if there is one vector per image; the ``layers`` that were asked for.
        """
        raise self._cannot("encode_image")

    def similarity(self) -> tuple[nn.Parameter, nn.Parameter | None] | None:
        """Return scale and bias of a model whose ``pooled`` vectors of texts and images can be compared.

        Called when ``contrast`` and ``sigmoid-contrast`` are built: they then add neither projections nor a scale.

        Returns:
            The logarithm of the factor of a cosine, and the bias added to it or None, both scalars; None for a model
            without projections.
        """
        return None

    def fuse(self, text: EncoderOutput, image: EncoderOutput, record: Recorder | None = None) -> FusionOutput:
        """Let text and image attend to each other (capability ``fuse``); called by ``ForwardPasses`` and decoding.

        Args:
            text: P rows, encoded or embedded as ``fuse_takes`` says.
            image: P rows; row i belongs to row i of ``text``.
            record: keeps the attention probabilities, if given.

        Returns:
            States of the text (P, T, D) and of the image (P, R, D), and one vector per pair (P, D).
        """
        raise self._cannot("fuse")

    @property
    def depth(self) -> int:
        """Number of layers that ``output_hidden_states`` may name; read when an objective chooses layers. 0: none."""
        return 0

    def pyramid(self, images: Images) -> list[Tensor]:
        """Feature maps at falling resolutions (capability ``pyramid``); called by segmentation heads once per batch.

        Args:
            images: M images with pixels.

        Returns:
            Maps (M, C, h, w), finest first.
        """
        raise self._cannot("pyramid")

    def pyramid_channels(self) -> tuple[int, ...]:
        """Channels of the maps of :meth:`pyramid`; called once when a head is built, before any image is seen.

        Returns:
            C of each map, finest first.
        """
        raise self._cannot("pyramid_channels")

    def detect(self, images: Images) -> DetectionOutput:
        """Detect objects (capability ``detect``); called once per batch by the task ``detection``, without gradient.

        Args:
            images: M images with pixels.

        Returns:
            Boxes (M, N, 4) as shares of width and height, labels and scores (M, N).
        """
        raise self._cannot("detect")

    def detection_losses(self, images: Images) -> dict[str, tuple[Tensor, Tensor]]:
        """Losses against given boxes (capability ``detect``); called by the objective ``detection`` in each step.

        Args:
            images: M images with pixels, boxes and labels.

        Returns:
            By name the sum over terms and the number of terms, two scalars.
        """
        raise self._cannot("detection_losses")

    def start(self, image: EncoderOutput, text: Text | None = None) -> Any:
        """Return the cache before the first word; called once per batch by :func:`vlcli.nn.generation.generate`.

        Args:
            image: P rows, encoded or embedded as ``fuse_takes`` says; several images of an example are one sequence if
                ``many_images`` is true.
            text: P texts to continue, without special tokens.

        Returns:
            A cache with ``select(rows)``, which picks, repeats or reorders its P rows.
        """
        raise self._cannot("start")

    def step(self, ids: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """Decode one word piece (capability ``generate``) without changing ``cache``; called once per piece and beam.

        Args:
            ids: (P,) first the class token (``data_spec.cls_id``), then the piece chosen last.
            cache: from :meth:`start` or the previous call.

        Returns:
            Logits (P, V) of the next piece, and the cache with this piece.
        """
        raise self._cannot("step")

    def decode(self, text: Text, seen: EncoderOutput, record: Recorder | None = None) -> Tensor:
        """Run a causal decoder (capability ``decode``); called by objectives that train on whole sentences.

        Args:
            text: N whole sentences, the class token first; no word piece sees a later one.
            seen: N rows that the decoder attends to: fused text or images.
            record: keeps the attention probabilities, if given.

        Returns:
            Hidden states (N, T, D).
        """
        raise self._cannot("decode")

    def next_words(self, hidden: Tensor) -> Tensor:
        """Return the logits of the next word piece; called after :meth:`decode`.

        Args:
            hidden: (..., D) of :meth:`decode`.

        Returns:
            Logits (..., V).
        """
        raise self._cannot("next_words")

    def word_scores(self, hidden: Tensor) -> Tensor:
        """Return the logits of masked word pieces, of a model with a word head; called by objectives and by generation.

        Args:
            hidden: (..., D) hidden states.

        Returns:
            Logits (..., V).
        """
        raise self._cannot("word_scores")

    def word_table(self) -> nn.Embedding:
        """Return the word embeddings; read by heads with a tied decoder at every forward pass.

        Returns:
            The embedding (V, D).
        """
        raise self._cannot("word_table")

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        """Convert the weights of a file before they are loaded: foreign names, other grids; called once per source.

        Args:
            state: tensors by name, as the file has them.
            report: receives one line for each conversion.

        Returns:
            Tensors by the names of this model.
        """
        return state

    def released_state(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Rename weights to the names of the model's published code; called by exporters for that code.

        Args:
            state: tensors by name, as ``state_dict`` returns them.

        Returns:
            Tensors by published name.
        """
        raise NotImplementedError(f"{type(self).__name__} knows no published names of its weights")

    def parameter_groups(self) -> Iterable[tuple[str, dict[str, float]]]:
        """Propose factors of learning rate and decay, which a recipe overrides; called once when training starts.

        Returns:
            Pairs of a pattern of parameter names and factors ``{"lr": ..., "decay": ...}``.
        """
        return ()

    def _cannot(self, what: str) -> NotImplementedError:
        can = ", ".join(sorted(self.capabilities)) or "none"
        return NotImplementedError(f"{type(self).__name__} has no {what}; its capabilities: {can}")


def device_of(module: nn.Module) -> torch.device:
    """Return the device of a module's first parameter or buffer."""
    return next(chain(module.parameters(), module.buffers())).device
