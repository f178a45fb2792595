"""Defines ALBEF and ACE-RPE's variant: image, text and cross encoders with any position encoding; the word decoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, cast

import torch
from torch import Tensor, nn

import vlcli.nn as vl
from vlcli.errors import ComponentError
from vlcli.registry import AttentionSpec, PositionSpec, Spec
from vlcli_albef.weights import adapt


@dataclass
class Saying:
    """The cache of incremental decoding, of P rows."""

    seen: vl.EncoderOutput
    cache: vl.KeyValueCache  # of the words so far, and of ``seen``
    begun: Tensor | None = None  # (P, K) words to go on from, until the first step has read them

    def select(self, rows: Tensor, per: int = 1) -> Saying:
        begun = None if self.begun is None else self.begun[rows]
        return Saying(self.seen.select(rows), self.cache.select(rows), begun)


class WordDecoder(nn.Module):
    """Layers in which words attend to earlier words, then to ``seen``; embeddings tied to a head of its own.

    Attention is recorded under ``decoder.N.text`` and ``decoder.N.other``.
    """

    def __init__(
        self,
        data_spec: vl.DataSpec,
        count: int,
        shape: vl.AttentionShape,
        hidden: int | None,
        style: vl.BlockStyle,
        attention: Spec | str,
        positions: int,
    ) -> None:
        super().__init__()
        learned = vl.build_positions({"name": "learned", "length": positions}, shape, vl.WORDS)[0]
        self.embed = vl.TextEmbeddings(data_spec, shape.dim, learned, dropout=style.dropout)
        of_layers = replace(shape, layers=count, cross=True)
        self.layers = nn.ModuleList(vl.CrossLayer(of_layers, hidden, style, attention) for _ in range(count))
        self.head = vl.TiedWordHead(shape.dim, data_spec.vocab_size)
        self.checkpointing = False

    def forward(
        self,
        text: vl.Text,
        seen: vl.EncoderOutput,
        record: vl.Recorder | None = None,
        cache: vl.KeyValueCache | None = None,
    ) -> Tensor:
        """Returns hidden states (N, T, D) of whole texts, or of the words that follow those in ``cache``."""
        x: Tensor
        x, layout = self.embed(text)
        mask = vl.AttentionMask(layout.valid if cache is None else None, causal=True)
        other_mask = vl.AttentionMask(seen.layout.valid)
        active = self.checkpointing and record is None and cache is None
        for number, layer in enumerate(self.layers):
            shared = vl.AttentionContext(x_layout=layout, layer=number, cache=cache, record=record)
            itself = replace(shared, mask=mask, name=f"decoder.{number}.text")
            other = replace(shared, mask=other_mask, y_layout=seen.layout, name=f"decoder.{number}.other")
            x = vl.run_layer(layer, x, seen.hidden, itself, other, active=active)
        return x

    def scores(self, hidden: Tensor) -> Tensor:
        return cast("Tensor", self.head(hidden, self.embed.words.weight))  # (..., V)

    def step(self, ids: Tensor, saying: Saying) -> tuple[Tensor, Saying]:
        """Returns scores (P, V) of the word after ``ids`` (P,), and the cache with these words."""
        words = ids[:, None] if saying.begun is None else torch.cat([ids[:, None], saying.begun], 1)
        first = saying.cache.kept[0, False][0].shape[2] if saying.cache.has((0, False)) else 0
        index = torch.arange(first, first + words.shape[1], device=ids.device).expand_as(words)
        real = torch.ones_like(words, dtype=torch.bool)
        cache = vl.KeyValueCache(dict(saying.cache.kept))
        hidden = self(vl.Text(words, real, ~real, index, positions=index), saying.seen, cache=cache)
        return self.scores(hidden[:, -1]), Saying(saying.seen, cache)


vl.register_head(
    "albef-label", lambda dim, outputs: nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, outputs))
)
MEAN = (0.48145466, 0.4578275, 0.40821073)
# CLIP's, which ALBEF's code normalises with
STD = (0.26862954, 0.26130258, 0.27577711)


class ALBEF(vl.Model):
    """ALBEF: an image encoder, a text encoder, and a cross encoder in which words look at patches.

    ACE-RPE's variant has six image layers, ALBEF's own twelve. Every attention takes any registered encoding; ACE-RPE's
    subject are ``cross_position`` between the modalities and ``joint_*_position`` within them (token encodings are
    added where the cross encoder begins). Attention is recorded under ``image.N``, ``text.N`` and ``cross.N...``.

    With ``decoder_layers`` a decoder says answers about the words that have looked at the picture (ALBEF's VQA):
    ``decode``, and ``start`` and ``step`` word by word.

    Args:
        as_albef: ALBEF's own model: twelve image layers, words alone ask, no encoding in the cross encoder; other
            choices are refused.
        hidden: width.
        heads: attention heads.
        intermediate: width inside a feed-forward of words; None: four times ``hidden``, as in the image encoder.
        image_layers: of the image encoder; None: 6, as ACE-RPE has it, or 12 with ``as_albef``.
        text_layers: of the text encoder.
        cross_layers: of the cross encoder.
        bidirectional: patches look at words too, in every cross layer.
        image: what is read of a picture: its pixels in square patches, or a grid of stored features.
        image_size: height and width in pixels.
        patch: side of a patch.
        grid: rows and columns of stored features, with ``image: features``.
        length: rows of the text's position table (BERT's 512).
        image_position: encodings of the image encoder.
        text_position: further encodings of the text encoder.
        cross_position: pairwise encodings between words and patches.
        joint_text_position: encodings of words in the cross encoder.
        joint_image_position: encodings of patches there; pairwise ones act only if patches ask (``bidirectional``).
        attention: a registered attention.
        dropout: of the text and cross encoders.
        drop_path: stochastic depth of the image encoder's last layer.
        images: pictures an example that the cross encoder looks at in turn (2 for NLVR2: every layer is doubled, the
            two share keys, values and encodings).
        decoder_layers: of the answer decoder (ALBEF's VQA: 6); 0: there is none.
        init_std: deviation of freshly drawn weights; ``auto``: 0.02 at width 768, more in a narrower model.
    """

    paper = "ALBEF, Li et al., NeurIPS 2021, arXiv:2107.07651; ACE-RPE"
    grid: tuple[int, int]
    capabilities = frozenset({"text", "image", "fuse", "decode", "hide"})
    slots: ClassVar[Mapping[str, vl.Slot]] = {
        "image_position": vl.Slot.of("image_position", ["tokens", "pairs"], ["cell", "special"]),
        "text_position": vl.Slot.of("text_position", ["tokens", "pairs"], ["word"]),
        "cross_position": vl.Slot.of("cross_position", ["pairs"], ["word"], ["cell", "special"]),
        "joint_text_position": vl.Slot.of("joint_text_position", ["tokens", "pairs"], ["word"]),
        "joint_image_position": vl.Slot.of("joint_image_position", ["tokens", "pairs"], ["cell", "special"]),
    }
    heads: ClassVar[Mapping[str, str]] = {
        "mlm": "bert-mlm",
        "matching": "linear",
        "pair": "albef-label",
        "label": "albef-label",
    }

    def __init__(
        self,
        data_spec: vl.DataSpec,
        *,
        as_albef: bool = False,
        hidden: int = 768,
        heads: int = 12,
        intermediate: int | None = None,
        image_layers: int | None = None,
        text_layers: int = 6,
        cross_layers: int = 6,
        bidirectional: bool = False,
        image: Literal["pixels", "features"] = "pixels",
        image_size: int = 256,
        patch: int = 16,
        grid: tuple[int, int] = (6, 6),
        length: int = 512,
        image_position: PositionSpec | list[PositionSpec] | None = "learned",
        text_position: PositionSpec | list[PositionSpec] | None = None,
        cross_position: PositionSpec | list[PositionSpec] | None = None,
        joint_text_position: PositionSpec | list[PositionSpec] | None = None,
        joint_image_position: PositionSpec | list[PositionSpec] | None = None,
        attention: AttentionSpec = "standard",
        dropout: float = 0.1,
        drop_path: float = 0.0,
        images: int = 1,
        decoder_layers: int = 0,
        init_std: vl.InitStd = "auto",
    ) -> None:
        super().__init__(data_spec)
        if as_albef:
            choices = {"bidirectional": bidirectional, "cross_position": cross_position}
            choices |= {"joint_text_position": joint_text_position, "joint_image_position": joint_image_position}
            if named := [f"{name}: {choice}" for name, choice in choices.items() if choice]:
                what, hint = "ALBEF's own model has none of these.", "leave them out, or leave out as_albef"
                raise ComponentError(what, where="model albef", got=", ".join(named), hint=hint)
        image_layers = (12 if as_albef else 6) if image_layers is None else image_layers
        self.capabilities = self.capabilities - (frozenset() if decoder_layers else {"decode"})
        if bidirectional and images > 1:
            raise ComponentError("With several pictures, cross-attention cannot be bidirectional.", where="model albef")
        self.init_std, self.image_source = vl.init_scale(init_std, hidden), image
        self.image_size, self.patch_size, self.images = image_size, patch, images
        self.grid = vl.image_grid(image, image_size, patch, grid, "albef")
        shape = vl.AttentionShape(hidden, heads)
        self.patch = vl.patch_embedding(image, patch, data_spec.region_dim, hidden, dropout)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, hidden))
        slots, deep = dict(self.slots), replace(shape, layers=image_layers)
        if not bidirectional:
            shut = "patches do not look at one another here: set bidirectional: true"
            slots["joint_image_position"] = slots["joint_image_position"].without("pairs", shut)
        of_image = vl.with_grid(image_position, self.grid)
        self.positions, pairs = vl.build_positions(of_image, deep, slots["image_position"])
        of_vit = replace(vl.VIT_STYLE, drop_path=drop_path)
        self.image = vl.Stack.of(image_layers, shape, None, of_vit, attention, pairs)
        of_bert, bert = replace(shape, dropout=dropout), replace(vl.BERT_STYLE, dropout=dropout)
        of_text = [{"name": "learned", "length": length}, *vl.chosen(text_position)]
        words, pairs = vl.build_positions(of_text, replace(of_bert, layers=text_layers), slots["text_position"])
        self.embed = vl.TextEmbeddings(data_spec, hidden, words, dropout=dropout)
        self.text = vl.Stack.of(text_layers, of_bert, intermediate, bert, attention, pairs)
        self.text.packed = True
        deep = replace(of_bert, layers=cross_layers)
        across = vl.build_positions(cross_position, replace(deep, cross=True), slots["cross_position"])[1]
        self.joint_text, among_words = vl.build_positions(joint_text_position, deep, slots["joint_text_position"])
        joint_image = vl.with_grid(joint_image_position, self.grid)
        self.joint_image, among_patches = vl.build_positions(joint_image, deep, slots["joint_image_position"])
        encodings, options = (across, among_words, among_patches), (of_bert, intermediate, bert, attention)
        self.cross = vl.CrossEncoder(cross_layers, *options, *encodings, bidirectional, images)
        self.decoder = WordDecoder(data_spec, decoder_layers, *options, length) if decoder_layers else None
        self.init_from = {"decoder.head.": ("distilled-mlm.head.", "mlm.head.")} if decoder_layers else {}
        vl.initialise_model(self, self.init_std)
        nn.init.trunc_normal_(self.cls_token, std=self.init_std)
        if image == "features" and self.init_std > vl.PUBLISHED_STD:
            vl.match_normalised(self.positions)

    @property
    def many_images(self) -> bool:  # type: ignore[override]
        return self.images > 1

    @property
    def dim(self) -> int:
        return self.embed.words.embedding_dim

    def input_spec(self) -> vl.InputSpec:
        if self.image_source == "features":
            return vl.InputSpec(text=True, regions=True, grid=self.grid)
        return vl.InputSpec(text=True, pixels=True, size=(self.image_size, self.image_size), mean=MEAN, std=STD)

    def word_table(self) -> nn.Embedding:
        return self.embed.words

    def encode_text(self, text: vl.Text, record: vl.Recorder | None = None) -> vl.EncoderOutput:
        tokens, layout = self.embed(text)
        options = {"record": record, "name": "text", "keep": self.output_hidden_states}
        hidden, kept = self.text(tokens, layout, vl.AttentionMask(layout.valid), **options)
        return vl.EncoderOutput(hidden, layout, hidden[:, 0], kept)

    def encode_image(self, images: vl.Images, record: vl.Recorder | None = None) -> vl.EncoderOutput:
        cells = vl.embed_grid(images, self.patch, self.cls_token, self.positions, self.grid, "albef")
        options = {"record": record, "name": "image", "keep": self.output_hidden_states}
        hidden, kept = self.image(cells.hidden, cells.layout, **options)
        return vl.EncoderOutput(hidden, cells.layout, hidden[:, 0], kept)

    def fuse(
        self, text: vl.EncoderOutput, image: vl.EncoderOutput, record: vl.Recorder | None = None
    ) -> vl.FusionOutput:
        count, pictures = 1 + self.grid[0] * self.grid[1], [image] * self.images
        if image.hidden.shape[1] != count:  # a chain of pictures, each with its own grid
            layout = vl.Layout.for_grid(*self.grid, skip=1, device=image.hidden.device)
            pictures = [vl.EncoderOutput(part, layout) for part in image.hidden.split(count, 1)]
        words = self._placed(text, self.joint_text)
        seen, patches = self.cross(words, [self._placed(one, self.joint_image) for one in pictures], record)
        of_image = vl.EncoderOutput(patches, pictures[0].layout)
        return vl.FusionOutput(vl.EncoderOutput(seen, text.layout), of_image, seen[:, 0])

    @staticmethod
    def _placed(states: vl.EncoderOutput, positions: nn.ModuleList) -> vl.EncoderOutput:
        hidden = states.hidden
        for position in positions:
            hidden = position(hidden, states.layout)
        return vl.EncoderOutput(hidden, states.layout)

    def decode(self, text: vl.Text, seen: vl.EncoderOutput, record: vl.Recorder | None = None) -> Tensor:
        return self._decoder().forward(text, seen, record)

    def next_words(self, hidden: Tensor) -> Tensor:
        return self._decoder().scores(hidden)

    def start(self, image: vl.EncoderOutput, text: vl.Text | None = None) -> Saying:
        return Saying(image, vl.KeyValueCache(), None if text is None else text.beginnings())

    def step(self, ids: Tensor, cache: Saying) -> tuple[Tensor, Saying]:
        return self._decoder().step(ids, cache)

    def _decoder(self) -> WordDecoder:
        if self.decoder is None:
            raise ComponentError("The model has no decoder.", where="model albef", hint="set decoder_layers: 6")
        return self.decoder

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        return adapt(self, state, report)

    def layer_of(self, name: str) -> int | None:
        # The encoders end at one depth, the cross layers follow; the decoder lies beside those it starts from.
        top = max(len(self.image.layers), len(self.text.layers))
        stacks = {f"{side}.layers.": top - len(getattr(self, side).layers) for side in ("image", "text")}
        stacks |= dict.fromkeys(("cross.text.", "cross.image.", "decoder.layers."), top)
        return vl.layer_number(name, stacks, ("cross.", "decoder.head."), top + len(self.cross.text))
