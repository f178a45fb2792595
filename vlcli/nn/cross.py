"""The cross-modality encoder of ALBEF, ACE-RPE and METER."""

from dataclasses import replace
from typing import Any, cast

from torch import Tensor, nn

from vlcli.nn.attention import AttentionContext
from vlcli.nn.blocks import AttentionBlock, BlockStyle, FeedForward, run_layer
from vlcli.nn.mask import AttentionMask
from vlcli.nn.model import EncoderOutput, Recorder
from vlcli.nn.position import AttentionShape, PairwisePosition
from vlcli.registry import Spec


class CrossLayer(nn.Module):
    """One modality's self-attention, cross-attention (keys ``shape.key_dim`` wide) and feed-forward, post-norm."""

    def __init__(self, shape: AttentionShape, hidden: int | None, style: BlockStyle, attention: Spec | str) -> None:
        super().__init__()
        self.itself = AttentionBlock(replace(shape, cross=False, key_dim=0), style, attention)
        self.other = AttentionBlock(shape, style, attention)
        self.feed_forward = FeedForward(shape.dim, hidden, style)

    def forward(self, x: Tensor, y: Tensor, itself: AttentionContext, other: AttentionContext) -> Tensor:
        # x: (P, T, D), y: (P, S, key_dim)
        return cast("Tensor", self.feed_forward(self.other(self.itself(x, None, itself), y, other)))


class CrossEncoder(nn.Module):
    """Layers in which words attend to patches and, with ``both``, patches to words.

    Each direction reads the outputs of the previous layer. Attention is recorded under ``cross.N.text_to_image``,
    ``cross.N.text`` and with ``both`` ``cross.N.image_to_text`` and ``cross.N.image``.

    Args:
        shape: of the words' attention; ``key_dim`` is the patches' width.
        across: a pairwise encoding between the modalities; ``words`` and ``patches`` are those inside each.
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
        back = replace(shape, dim=shape.key_dim or shape.dim, key_dim=shape.dim)
        self.text = nn.ModuleList(CrossLayer(shape, hidden, style, attention) for _ in range(count * pictures))
        self.image = nn.ModuleList(CrossLayer(back, hidden, style, attention) for _ in range(count if both else 0))
        attentions: list[Any] = [cast("CrossLayer", layer).other.attention for layer in self.text]
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
        among_words = _context(self.of_words, text, text, record)
        contexts = [{"text": among_words, "text_to_image": _context(self.position, text, i, record)} for i in images]
        if len(self.image):
            contexts[0]["image"] = _context(self.of_patches, images[0], images[0], record)
            contexts[0]["image_to_text"] = _context(self.position, images[0], text, record)
        active = self.checkpointing and record is None
        for number, layer in enumerate(self.text):
            depth, which = divmod(number, self.pictures)
            of = {
                name: replace(context, layer=depth, name=f"cross.{number}.{name}")
                for name, context in contexts[which].items()
            }
            seen = run_layer(layer, words, patches[which], of["text"], of["text_to_image"], active=active)
            if len(self.image):
                inputs = patches[0], words, of["image"], of["image_to_text"]
                patches[0] = run_layer(self.image[number], *inputs, active=active)
            words = seen
        return words, patches[0]


def _context(
    position: PairwisePosition | None, x: EncoderOutput, y: EncoderOutput, record: Recorder | None
) -> AttentionContext:
    state = None if position is None else position.prepare(x.hidden, y.hidden, x.layout, y.layout)
    return AttentionContext(AttentionMask(y.layout.valid), x.layout, y.layout, position, state, record=record)
