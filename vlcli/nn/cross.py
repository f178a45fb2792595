"""The cross-modality encoder of ALBEF, ACE-RPE and METER."""

from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from vlcli.nn.attention import AttentionContext
from vlcli.nn.blocks import AttentionBlock, BlockStyle, FeedForward, run_layer
from vlcli.nn.layout import Layout
from vlcli.nn.mask import AttentionMask
from vlcli.nn.model import EncoderOutput, Recorder
from vlcli.nn.position import AttentionShape, PairwisePosition
from vlcli.registry import Spec


class CrossLayer(nn.Module):
    """One modality's part of a layer: self-attention, cross-attention and feed-forward (post-norm).

    Args:
        shape: of the attention; ``key_dim`` is the other modality's width.
        hidden: width inside the feed-forward.
    """

    def __init__(self, shape: AttentionShape, hidden: int | None, style: BlockStyle, attention: Spec | str) -> None:
        super().__init__()
        self.itself = AttentionBlock(replace(shape, cross=False, key_dim=0), style, attention)
        self.other = AttentionBlock(shape, style, attention)
        self.feed_forward = FeedForward(shape.dim, hidden, style)

    def forward(self, x: Tensor, y: Tensor, itself: AttentionContext, other: AttentionContext) -> Tensor:
        # x: (P, T, D), y: (P, S, key_dim)
        out: Tensor = self.feed_forward(self.other(self.itself(x, None, itself), y, other))
        return out


class CrossEncoder(nn.Module):
    """Layers in which words attend to patches and, with ``both``, patches to words.

    Each direction reads the outputs of the previous layer. Attention is recorded under ``cross.N.text_to_image``,
    ``cross.N.text`` and with ``both`` ``cross.N.image_to_text`` and ``cross.N.image``.

    Args:
        count: layers.
        shape: of the words' attention; ``key_dim`` is the patches' width.
        hidden: width inside a feed-forward.
        across: a pairwise encoding between the modalities.
        words: a pairwise encoding among words.
        patches: a pairwise encoding among patches.
        both: whether patches attend to words.
        pictures: per example, attended to in turn; each layer is doubled and shares keys, values and encodings.
    """

    def __init__(
        self,
        count: int,
        shape: AttentionShape,
        hidden: int | None,
        style: BlockStyle,
        attention: Spec | str,
        across: PairwisePosition | None,
        words: PairwisePosition | None,
        patches: PairwisePosition | None,
        both: bool,
        pictures: int,
    ) -> None:
        super().__init__()
        shape = replace(shape, layers=count * pictures, cross=True)
        width = shape.key_dim or shape.dim
        back = replace(shape, dim=width, key_dim=shape.dim)
        words_layers = [CrossLayer(shape, hidden, style, attention) for _ in range(count * pictures)]
        self.text = nn.ModuleList(words_layers)
        self.image = nn.ModuleList(CrossLayer(back, hidden, style, attention) for _ in range(count if both else 0))
        attentions: list[Any] = [layer.other.attention for layer in words_layers]
        for number, other in enumerate(attentions):
            first = attentions[number - number % pictures]
            if number % pictures and hasattr(first, "key"):
                other.key, other.value = first.key, first.value
        self.position, self.of_words, self.of_patches, self.pictures = across, words, patches, pictures
        self.checkpointing = False

    def forward(
        self, text: EncoderOutput, images: list[EncoderOutput], record: Recorder | None
    ) -> tuple[Tensor, Tensor]:
        # words (P, T, D), and patches of the first picture (P, S, W)
        words, patches = text.hidden, [image.hidden for image in images]
        states = [self._prepare(text, image) for image in images]
        of_words, of_patches = _Self(self.of_words, text, "text"), _Self(self.of_patches, images[0], "image")
        active = self.checkpointing and record is None
        for number, layer in enumerate(self.text):
            which = number % self.pictures
            forth = self._context(text.layout, images[which].layout, states[which][0], number, "text_to_image", record)
            itself = of_words.context(number, self.pictures, record)
            seen = run_layer(layer, words, patches[which], itself, forth, active=active)
            if len(self.image):
                back = self._context(images[0].layout, text.layout, states[0][1], number, "image_to_text", record)
                itself = of_patches.context(number, 1, record)
                patches[0] = run_layer(self.image[number], patches[0], words, itself, back, active=active)
            words = seen
        return words, patches[0]

    def _prepare(self, text: EncoderOutput, image: EncoderOutput) -> tuple[Any, Any]:
        if self.position is None:
            return None, None
        forth = self.position.prepare(text.hidden, image.hidden, text.layout, image.layout)
        both = len(self.image) > 0
        back = self.position.prepare(image.hidden, text.hidden, image.layout, text.layout) if both else None
        return forth, back

    def _context(
        self, x_layout: Layout, y_layout: Layout, state: Any, number: int, name: str, record: Recorder | None
    ) -> AttentionContext:
        return AttentionContext(
            mask=AttentionMask(y_layout.valid),
            x_layout=x_layout,
            y_layout=y_layout,
            position=self.position,
            state=state,
            layer=number // self.pictures,
            record=record,
            name=f"cross.{number}.{name}",
        )


class _Self:
    def __init__(self, position: PairwisePosition | None, states: EncoderOutput, name: str) -> None:
        self.position, self.layout, self.name = position, states.layout, name
        self.mask = AttentionMask(states.layout.valid)
        self.state = (
            None if position is None else position.prepare(states.hidden, states.hidden, states.layout, states.layout)
        )

    def context(self, number: int, shared: int, record: Recorder | None) -> AttentionContext:
        """Return the attention's context in layer ``number``; ``shared`` neighbouring layers have one encoding."""
        return AttentionContext(
            mask=self.mask,
            x_layout=self.layout,
            position=self.position,
            state=self.state,
            layer=number // shared,
            record=record,
            name=f"cross.{number}.{self.name}",
        )
