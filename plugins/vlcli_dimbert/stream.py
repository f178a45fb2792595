"""One transformer over regions, visual concepts and words: what DiMBERT and the models it is compared on share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from vlcli.errors import DataError
from vlcli.nn import (
    CONCEPT,
    IMAGE,
    SPECIAL,
    TEXT,
    AttentionMask,
    AttentionShape,
    BlockStyle,
    DataSpec,
    EncoderOutput,
    FusionOutput,
    Images,
    InitStd,
    InputSpec,
    Layout,
    Model,
    Pooler,
    Recorder,
    Regions,
    Slot,
    Stack,
    Text,
    build_positions,
    init_scale,
    initialise,
)
from vlcli_dimbert.embedding import Appearance, ConceptPieces, PaperRegions

REGION, CONCEPTS, SENTENCE = 0, 1, 2
"""Rows of the segment table by role."""


@dataclass(frozen=True)
class Core:
    """Sizes and choices of a single-stream model; the defaults are DiMBERT's.

    Attributes:
        hidden: width.
        heads: attention heads.
        layers: depth.
        intermediate: width inside the feed-forward; None: four times ``hidden``.
        dropout: of embeddings, blocks and attention probabilities.
        attention: a registered attention.
        position: pairwise encodings, or None.
        by_mode: VLP's six segment rows instead of one a role.
        running: positions run on through the whole sequence.
        by_piece: positions count a concept's pieces.
        concepts: most concepts of a picture; 0: none.
        specials: separators and class token have a route of their own.
        length: rows of the position table.
        images: rows of a table that tells several pictures apart; 0: none.
        eps: of every norm.
        init_std: deviation of freshly drawn weights; ``auto``: 0.02 at width 768, more in a narrower model.
        packed: leave padding out of all that is done token by token.
    """

    hidden: int = 768
    heads: int = 12
    layers: int = 12
    intermediate: int | None = None
    dropout: float = 0.1
    attention: Any = "disentangled"
    position: Any = None
    by_mode: bool = False
    running: bool = False
    by_piece: bool = False
    concepts: int = 20
    specials: bool = False
    length: int = 512
    images: int = 0
    eps: float = 1e-5
    init_std: InitStd = "auto"
    packed: bool = True


class SingleStream(Model):
    """Base of models that read regions, concepts and words as one sequence.

    Args:
        data_spec: vocabulary, feature sizes, the concepts' word pieces.
        regions: embeds regions: ``regions(Regions, segment)`` gives (M, R, D).
        core: sizes and choices.
    """

    capabilities = frozenset({"fuse"})
    fuse_takes = "embeddings"
    many_images = True
    readouts = frozenset({"pooler"})
    slots: ClassVar[Mapping[str, Slot]] = {"position": Slot.of("position", ["pairs"], ["word", "box", "special"])}
    separators: ClassVar[bool] = True
    """Whether a [SEP] ends the regions, and another the concepts."""
    segment_sources: ClassVar[dict[int, list[int]]] = {2: [0, 0, 1], 6: [4, 4, 5]}
    """Rows for regions, concepts and sentence in a table of so many rows: BERT's and VLP's."""

    def __init__(self, data_spec: DataSpec, regions: nn.Module, core: Core) -> None:
        super().__init__(data_spec)
        self.core = core
        self.init_std, self.special_route = init_scale(core.init_std, core.hidden), SPECIAL if core.specials else TEXT
        shape = AttentionShape(core.hidden, core.heads, core.layers, dropout=core.dropout, routes=4)
        style = BlockStyle(eps=core.eps, dropout=core.dropout)
        self.words = nn.Embedding(data_spec.vocab_size, core.hidden)
        self.places = nn.Embedding(core.length, core.hidden)
        self.segments = nn.Embedding(6 if core.by_mode else 3, core.hidden)
        self.which_picture = nn.Embedding(core.images, core.hidden) if core.images else None
        self.norm, self.drop = nn.LayerNorm(core.hidden, eps=core.eps), nn.Dropout(core.dropout)
        self.regions = regions
        self.concepts = ConceptPieces(data_spec, core.concepts) if core.concepts else None
        encoding = build_positions(core.position, shape, self.slots["position"])[1]
        self.stack = Stack.of(core.layers, shape, core.intermediate, style, core.attention, encoding)
        self.stack.packed = core.packed
        self.pooler = Pooler(core.hidden)

    def initialise(self) -> None:
        """BERT's initialisation of everything but pairwise encodings, which initialise themselves."""
        encodings = set() if self.stack.position is None else {*self.stack.position.modules()}
        for module in self.modules():
            if module not in encodings:
                initialise(module, self.init_std)
        for module in self.regions.modules():
            if isinstance(module, Appearance | PaperRegions):
                module.initialise(self.init_std)
        if self.which_picture is not None:
            nn.init.normal_(self.which_picture.weight)
            with torch.no_grad():
                self.which_picture.weight[0] = 0  # a model of single pictures goes on as it was

    @property
    def dim(self) -> int:
        return self.words.embedding_dim

    def input_spec(self) -> InputSpec:
        return InputSpec(text=True, regions=True, concepts=self.concepts is not None)

    def word_table(self) -> nn.Embedding:
        return self.words

    def embed_text(self, text: Text) -> EncoderOutput:
        hidden = self.words(text.ids)
        if not self.core.by_mode:
            hidden = hidden + self.segments.weight[SENTENCE]
        layout = Layout.for_text(text.mask, text.special)
        if self.special_route != TEXT:
            layout = replace(layout, route=torch.where(text.special, self.special_route, layout.route), runs=None)
        extra = {} if text.causal is None else {"causal": text.causal}
        return EncoderOutput(hidden, layout, extra=extra)

    def embed_image(self, images: Images) -> EncoderOutput:
        if images.regions is None:
            raise DataError("The model reads region features, and the batch has none.", hint="name a store: features")
        roles = [None, None] if self.core.by_mode else [self.segments.weight[REGION], self.segments.weight[CONCEPTS]]
        regions = images.regions
        x = self.region_tokens(regions, roles[0])
        parts, layout = [x], Layout.for_boxes(regions.boxes, regions.mask, source=1)
        if self.separators:
            end, its_layout = self._separator(x.shape[0], 0, roles[0])
            parts, layout = [*parts, end], layout + its_layout
        if self.concepts is not None:
            tokens, its_layout, count = self._concepts(images, roles[1])
            parts, layout = [*parts, tokens], layout + its_layout
            end, its_layout = self._separator(x.shape[0], count, roles[1])
            parts, layout = [*parts, end], layout + its_layout
        return EncoderOutput(torch.cat(parts, 1), layout)

    def region_tokens(self, regions: Regions, segment: Tensor | None) -> Tensor:
        """Regions as tokens (M, R, D), with their segment's row (D,) where roles have one."""
        out: Tensor = self.regions(regions, segment)
        return out

    def _concepts(self, images: Images, role: Tensor | None) -> tuple[Tensor, Layout, Tensor]:
        if images.concepts is None or self.concepts is None:
            hint = "name a store of concepts in `features`, or leave them out: concepts: 0"
            raise DataError("The model reads visual concepts, and the batch has none.", hint=hint)
        pieces, slot, _ = self.concepts(images.concepts)
        real = pieces >= 0
        tokens = self.words(pieces.clamp(min=0))
        layout = Layout.for_text(real, route=CONCEPT, source=1)
        layout.index = real.long().cumsum(1) - 1 if self.core.by_piece else slot
        after = (layout.index.masked_fill(~real, -1)).amax(1) + 1
        return tokens if role is None else tokens + role, layout, after

    def _separator(self, rows: int, place: Tensor | int, role: Tensor | None) -> tuple[Tensor, Layout]:
        word = self.words.weight[self.data_spec.sep_id]
        x = (word if role is None else word + role).expand(rows, 1, -1)
        real = torch.ones(rows, 1, dtype=torch.bool, device=x.device)
        layout = Layout.for_text(real, real, route=self.special_route, source=1)
        layout.index = layout.index + (place[:, None] if isinstance(place, Tensor) else place)
        return x, layout

    def fuse(self, text: EncoderOutput, image: EncoderOutput, record: Recorder | None = None) -> FusionOutput:
        prefix, causal = 1 + image.hidden.shape[1], text.extra.get("causal")
        x = torch.cat([text.hidden[:, :1], image.hidden, text.hidden[:, 1:]], 1)
        layout = text.layout.cut(0, 1) + image.layout + text.layout.cut(1, text.hidden.shape[1])
        x = self._placed(x, layout, prefix, causal)
        mask = self._mask(layout, prefix, causal)
        hidden, kept = self.stack(x, layout, mask, record=record, name="fuse", keep=self.output_hidden_states)
        words, *layers = (torch.cat([x[:, :1], x[:, prefix:]], 1) for x in (hidden, *kept.values()))
        block = hidden[:, 1:prefix]
        of_image = self._of_route(block, image.layout, IMAGE)
        if self.concepts is not None:
            of_image.extra["concepts"] = self._of_route(block, image.layout, CONCEPT).hidden
        of_text = EncoderOutput(words, text.layout, layers=dict(zip(kept, layers, strict=True)))
        return FusionOutput(of_text, of_image, self.pooler(hidden))

    @staticmethod
    def _of_route(hidden: Tensor, layout: Layout, route: int) -> EncoderOutput:
        columns = layout.columns(route)
        places = [layout.cut(*span) for span in columns]
        return EncoderOutput(torch.cat([hidden[:, a:b] for a, b in columns], 1), sum(places[1:], places[0]))

    def _placed(self, x: Tensor, layout: Layout, prefix: int, causal: Tensor | None) -> Tensor:
        self._check_length(layout, prefix)
        if self.which_picture is not None:
            x = x + self._picture_rows(layout, self.which_picture)
        place = layout.valid.long().cumsum(1) - 1 if self.core.running else layout.index
        return self._normed(x, self._off_regions(place, layout), prefix, causal)

    def _picture_rows(self, layout: Layout, table: nn.Embedding) -> Tensor:
        number = layout.source - 1  # words are source 0
        if not torch.compiler.is_exporting() and int(number.max()) >= len(table.weight):
            raise DataError(
                "An example has more pictures than the model tells apart.",
                where="model dimbert",
                got=f"{int(number.max()) + 1} pictures",
                expected=f"at most {len(table.weight)}",
                hint="raise the model's `images`",
            )
        scale = torch.where(layout.route == IMAGE, 1.0, self.init_std).masked_fill(number < 0, 0).to(table.weight.dtype)
        out: Tensor = table(number.clamp(min=0)) * scale[..., None]
        return out

    @staticmethod
    def _off_regions(place: Tensor, layout: Layout) -> Tensor:
        return place.masked_fill(layout.route == IMAGE, -1)

    def _normed(self, x: Tensor, place: Tensor, prefix: int, causal: Tensor | None) -> Tensor:
        rows = len(self.places.weight)
        x = x + self.places(place.clamp(0, rows - 1)).masked_fill((place < 0)[..., None], 0)
        if self.core.by_mode:
            mode = place.new_zeros(x.shape[0], 1) if causal is None else 4 * causal.long()[:, None]
            after = mode + 1
            segment = torch.cat([mode.expand(-1, prefix), after.expand(-1, x.shape[1] - prefix)], 1)
            x = x + self.segments(segment)
        out: Tensor = self.drop(self.normalise(x, prefix))
        return out

    def normalise(self, x: Tensor, prefix: int) -> Tensor:
        """Tokens (P, T, D), the first ``prefix`` of them the prefix, before the first layer."""
        out: Tensor = self.norm(x)
        return out

    def _check_length(self, layout: Layout, prefix: int) -> None:
        longest = len(self.places.weight)
        words = layout.route.shape[1] - (0 if self.core.running else prefix - 1)
        if not torch.compiler.is_exporting() and words > longest:
            raise DataError(
                "A sequence is longer than the position table.",
                where="model dimbert",
                got=f"{words} tokens",
                expected=f"at most {longest}",
                hint="lower text.length, or raise the model's length",
            )

    @staticmethod
    def _mask(layout: Layout, prefix: int, causal: Tensor | None) -> AttentionMask:
        if causal is None:
            return AttentionMask(layout.valid)
        return AttentionMask(layout.valid, causal=True, prefix=torch.where(causal, prefix, layout.route.shape[1]))

    def layer_of(self, name: str) -> int | None:
        if name.startswith("stack.layers."):
            return int(name.split(".")[2]) + 1
        above = name.startswith(("pooler.", "word_head."))
        return len(self.stack.layers) + 1 if above else None if name.startswith("stack.position") else 0
