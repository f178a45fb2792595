"""DiMBERT: one transformer over regions, visual concepts and words, which generates as well as it understands."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from vlcli.errors import DataError
from vlcli.nn import (
    CONCEPT,
    IMAGE,
    TEXT,
    AttentionMask,
    AttentionShape,
    BlockStyle,
    Facts,
    Fused,
    KeyValueCache,
    Layout,
    Model,
    Needs,
    Pooler,
    Recorder,
    Stack,
    States,
    build_positions,
    initialise,
)
from vlcli.nn.batch import Images, Text
from vlcli.nn.heads import TiedWordHead
from vlcli.nn.layout import SPECIAL
from vlcli.registry import AttentionSpec, PositionSpec
from vlcli_dimbert.embedding import ConceptPieces, PaperRegions, VLPRegions
from vlcli_dimbert.weights import adapt

REGION, CONCEPTS, SENTENCE = 0, 1, 2
"""Rows of the segment table by role."""


@dataclass
class Decoding:
    """What incremental decoding has seen: P rows.

    Attributes:
        cache: keys and values of everything but the mask that was asked about.
        before: (P,) real tokens before the sentence's words, the class token included.
        words: (P,) words so far.
        begun: whether the class token's own step is done.
    """

    cache: KeyValueCache
    before: Tensor
    words: Tensor
    begun: bool = False

    def select(self, rows: Tensor) -> Decoding:
        """The given rows, repeats allowed."""
        return Decoding(self.cache.select(rows), self.before[rows], self.words[rows], self.begun)

    def __len__(self) -> int:
        return len(self.before)


class DiMBERT(Model):
    """DiMBERT: regions, visual concepts and words in one transformer with disentangled attention.

    The sequence is [CLS] regions [SEP] concepts [SEP] words [SEP]; with several pictures regions and concepts of each
    follow one another, ranks beginning anew. Rows whose text is ``causal`` are read as sequence to sequence: the prefix
    up to the words sees itself, a word sees the prefix and the words up to itself. The mask is built once a batch.
    Attention is recorded under ``fuse.N``.

    Args:
        facts: vocabulary, feature sizes, the concepts' word pieces.
        hidden: width.
        heads: attention heads.
        layers: depth.
        intermediate: width inside the feed-forward; None: four times ``hidden``.
        dropout: of embeddings, blocks and attention probabilities.
        attention: any registered attention; ``standard`` makes it the paper's ESABERT (Table 5).
        position: pairwise encodings of all tokens, one or several, besides the learned places.
        regions: how regions are embedded: as the paper prints it, or as VLP's code does.
        appearance: a region feature through fc7 anew and a linear layer (VLP), or one linear layer.
        weighted: learned weights in the sum of a region's embeddings; they start at 1.
        segments: a row for regions, concepts and sentence each (``roles``), or VLP's six rows by mode (``modes``).
        places: positions begin anew in every part (``restart``: a concept's is its rank), or run on through the whole
            sequence (``running``, VLP); regions have none.
        rank: pieces of a concept share its rank (``concept``) or count on (``piece``).
        concepts: most concepts of a picture; 0: none, and no separator for them.
        specials: class token and separators take the words' route (``text``) or one of their own (``own``).
        length: rows of the position table.
        eps: of every layer norm.
        init_std: deviation of freshly drawn weights.
        packed: leave padding out of all that is done token by token.
    """

    paper = "DiMBERT, Liu et al., ACM TKDD 2021, arXiv:2210.16431; VLP, Zhou et al., AAAI 2020, for what it leaves open"
    capabilities = frozenset({"fuse", "generate"})
    fuse_takes = "embeddings"
    many_images = True
    readouts = frozenset({"pooler", "word_head"})

    def __init__(
        self,
        facts: Facts,
        *,
        hidden: int = 768,
        heads: int = 12,
        layers: int = 12,
        intermediate: int | None = None,
        dropout: float = 0.1,
        attention: AttentionSpec = "disentangled",
        position: PositionSpec | list[PositionSpec] | None = None,
        regions: Literal["paper", "vlp"] = "paper",
        appearance: Literal["fc7", "linear"] = "fc7",
        weighted: bool = False,
        segments: Literal["roles", "modes"] = "roles",
        places: Literal["restart", "running"] = "restart",
        rank: Literal["concept", "piece"] = "concept",
        concepts: int = 20,
        specials: Literal["text", "own"] = "text",
        length: int = 512,
        eps: float = 1e-5,
        init_std: float = 0.02,
        packed: bool = True,
    ) -> None:
        super().__init__(facts)
        self.keep: Collection[int] = ()
        self.init_std, self.special_route = init_std, TEXT if specials == "text" else SPECIAL
        self.by_mode, self.running, self.by_piece = segments == "modes", places == "running", rank == "piece"
        shape = AttentionShape(hidden, heads, layers, dropout=dropout, routes=4)
        style = BlockStyle(eps=eps, dropout=dropout)
        self.words = nn.Embedding(facts.vocab_size, hidden)
        self.places = nn.Embedding(length, hidden)
        self.segments = nn.Embedding(6 if self.by_mode else 3, hidden)
        self.norm, self.drop = nn.LayerNorm(hidden, eps=eps), nn.Dropout(dropout)
        self.regions: PaperRegions | VLPRegions
        if regions == "paper":
            options = {"appearance": appearance, "dropout": dropout, "eps": eps, "weighted": weighted}
            self.regions = PaperRegions(facts, hidden, **options)  # type: ignore[arg-type]
        else:
            self.regions = VLPRegions(facts, hidden, appearance=appearance, dropout=dropout)
        self.concepts = ConceptPieces(facts, concepts) if concepts else None
        encoding = build_positions(position, shape)[1]
        self.stack = Stack.of(layers, shape, intermediate, style, attention, encoding)
        self.stack.packed = packed
        self.pooler = Pooler(hidden)
        self.word_head = TiedWordHead(hidden, facts.vocab_size, eps)
        self._initialise()

    def _initialise(self) -> None:
        encodings = set() if self.stack.position is None else {*self.stack.position.modules()}
        for module in self.modules():
            if module not in encodings:
                initialise(module, self.init_std)

    @property
    def dim(self) -> int:
        """Width of the hidden states."""
        return self.words.embedding_dim

    def needs(self) -> Needs:
        """Texts, region features and, unless there are none, visual concepts."""
        return Needs(text=True, regions=True, concepts=self.concepts is not None)

    def word_table(self) -> nn.Embedding:
        """The word embeddings."""
        return self.words

    def word_scores(self, hidden: Tensor) -> Tensor:
        """Scores (..., V) of hidden states (..., D)."""
        return self.word_head(hidden, self.words.weight)

    def embed_text(self, text: Text) -> States:
        """Words (N, T, D), before places and norm; ``extra["causal"]`` (N,) where rows are sequence to sequence."""
        hidden = self.words(text.ids)
        if not self.by_mode:
            hidden = hidden + self.segments.weight[SENTENCE]
        layout = Layout.for_text(text.mask, text.special)
        if self.special_route != TEXT:
            layout = replace(layout, route=torch.where(text.special, self.special_route, layout.route), runs=None)
        extra = {} if text.causal is None else {"causal": text.causal}
        return States(hidden, layout, extra=extra)

    def embed_image(self, images: Images) -> States:
        """Regions, a separator, and concepts with theirs (M, R + 1 + L + 1, D), before places and norm."""
        if images.regions is None:
            raise DataError("The model reads region features, and the batch has none.", hint="name a store: features")
        roles = [None, None] if self.by_mode else [self.segments.weight[REGION], self.segments.weight[CONCEPTS]]
        regions = images.regions
        x = self.regions(regions, roles[0])
        parts, layout = [x], Layout.for_boxes(regions.boxes, regions.mask, source=1)
        end, its_layout = self._separator(len(x), 0, roles[0])
        parts, layout = [*parts, end], layout + its_layout
        if self.concepts is not None:
            tokens, its_layout, count = self._concepts(images, roles[1])
            parts, layout = [*parts, tokens], layout + its_layout
            end, its_layout = self._separator(len(x), count, roles[1])
            parts, layout = [*parts, end], layout + its_layout
        return States(torch.cat(parts, 1), layout)

    def _concepts(self, images: Images, role: Tensor | None) -> tuple[Tensor, Layout, Tensor]:
        """Word pieces of concepts (M, L, D), where they stand, and the place after them (M,)."""
        if images.concepts is None or self.concepts is None:
            hint = "name a store of concepts in `features`, or leave them out: concepts: 0"
            raise DataError("The model reads visual concepts, and the batch has none.", hint=hint)
        pieces, slot, _ = self.concepts(images.concepts)
        real = pieces >= 0
        tokens = self.words(pieces.clamp(min=0))
        layout = Layout.for_text(real, route=CONCEPT, source=1)
        layout.index = real.long().cumsum(1) - 1 if self.by_piece else slot
        after = (layout.index.masked_fill(~real, -1)).amax(1) + 1
        return tokens if role is None else tokens + role, layout, after

    def _separator(self, rows: int, place: Tensor | int, role: Tensor | None) -> tuple[Tensor, Layout]:
        """[SEP] (M, 1, D) at a place of its own."""
        word = self.words.weight[self.facts.sep_id]
        x = (word if role is None else word + role).expand(rows, 1, -1)
        real = torch.ones(rows, 1, dtype=torch.bool, device=x.device)
        layout = Layout.for_text(real, real, route=self.special_route, source=1)
        layout.index = layout.index + (place[:, None] if isinstance(place, Tensor) else place)
        return x, layout

    def fuse(self, text: States, image: States, record: Recorder | None = None) -> Fused:
        """Regions, concepts and words, row i with row i.

        ``Fused.text`` stands as the text does, [CLS] first; ``Fused.image`` are the regions (of all pictures), its
        ``extra["concepts"]`` the states of the concepts' pieces.
        """
        prefix, causal = 1 + image.hidden.shape[1], text.extra.get("causal")
        x = torch.cat([text.hidden[:, :1], image.hidden, text.hidden[:, 1:]], 1)
        layout = text.layout.cut(0, 1) + image.layout + text.layout.cut(1, text.hidden.shape[1])
        x = self._placed(x, layout, prefix, causal)
        mask = self._mask(layout, prefix, causal)
        hidden, kept = self.stack(x, layout, mask, record=record, name="fuse", keep=self.keep)
        words = torch.cat([hidden[:, :1], hidden[:, prefix:]], 1)
        block = hidden[:, 1:prefix]
        of_image = self._of_route(block, image.layout, IMAGE)
        if self.concepts is not None:
            of_image.extra["concepts"] = self._of_route(block, image.layout, CONCEPT).hidden
        return Fused(States(words, text.layout, layers=kept), of_image, self.pooler(hidden))

    @staticmethod
    def _of_route(hidden: Tensor, layout: Layout, route: int) -> States:
        columns = layout.columns(route)
        places = [layout.cut(*span) for span in columns]
        return States(torch.cat([hidden[:, a:b] for a, b in columns], 1), sum(places[1:], places[0]))

    def _placed(self, x: Tensor, layout: Layout, prefix: int, causal: Tensor | None) -> Tensor:
        """Tokens with their places and, by mode, their segments, normalised."""
        self._check_length(layout, prefix)
        place = layout.valid.long().cumsum(1) - 1 if self.running else layout.index
        return self._normed(x, self._off_regions(place, layout), prefix, causal)

    @staticmethod
    def _off_regions(place: Tensor, layout: Layout) -> Tensor:
        return place.masked_fill(layout.route == IMAGE, -1)

    def _normed(self, x: Tensor, place: Tensor, prefix: int, causal: Tensor | None) -> Tensor:
        """``place`` (P, T), -1 for none; the first ``prefix`` tokens are the prefix."""
        rows = len(self.places.weight)
        x = x + self.places(place.clamp(0, rows - 1)).masked_fill((place < 0)[..., None], 0)
        if self.by_mode:
            mode = place.new_zeros(len(x), 1) if causal is None else 4 * causal.long()[:, None]
            after = mode + 1
            segment = torch.cat([mode.expand(-1, prefix), after.expand(-1, x.shape[1] - prefix)], 1)
            x = x + self.segments(segment)
        return self.drop(self.norm(x))

    def _check_length(self, layout: Layout, prefix: int) -> None:
        longest = len(self.places.weight)
        words = layout.route.shape[1] - (0 if self.running else prefix - 1)
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
        """One rule for rows of both modes: a row that is not causal is all prefix."""
        if causal is None:
            return AttentionMask(layout.valid)
        return AttentionMask(layout.valid, causal=True, prefix=torch.where(causal, prefix, layout.route.shape[1]))

    def start(self, image: States, text: Text | None = None) -> Decoding:
        """[CLS] and what the pictures give, seen once; then the words of ``text``, if any."""
        rows, prefix = len(image.hidden), 1 + image.hidden.shape[1]
        first, layout = self._words(torch.full((rows, 1), self.facts.cls_id, device=image.hidden.device))
        layout = replace(layout, special=torch.ones_like(layout.special))
        layout = self._special(layout) + image.layout
        causal = torch.ones(rows, dtype=torch.bool, device=first.device)
        x = self._placed(torch.cat([first, image.hidden], 1), layout, prefix, causal)
        made = KeyValueCache()
        self.stack(x, layout, AttentionMask(layout.valid), cache=made)
        before = layout.valid.sum(1)
        state = Decoding(made, before, torch.zeros_like(before))
        return state if text is None else self._continued(state, text)

    def _special(self, layout: Layout) -> Layout:
        return layout if self.special_route == TEXT else layout.with_route(self.special_route)

    def _words(self, ids: Tensor) -> tuple[Tensor, Layout]:
        """Words (P, T) as tokens without places, and where they stand."""
        x = self.words(ids) if self.by_mode else self.words(ids) + self.segments.weight[SENTENCE]
        return x, Layout.for_text(torch.ones_like(ids, dtype=torch.bool))

    def _continued(self, state: Decoding, text: Text) -> Decoding:
        """Words of a text appended, specials and padding passed over."""
        real = text.mask & ~text.special
        if not bool(real.any()):
            return state
        order = (~real).to(torch.uint8).argsort(dim=1, stable=True)[:, : int(real.sum(1).max())]
        return self._append(state, text.ids.gather(1, order), real.gather(1, order))[0]

    def _append(self, state: Decoding, ids: Tensor, real: Tensor) -> tuple[Decoding, Tensor]:
        """Words (P, T) after those seen, and their states (P, T, D); the state handed in stays."""
        x, layout = self._words(ids)
        count = state.words[:, None] + real.long().cumsum(1)  # (P, T): 1 for the first word
        layout = replace(layout, valid=real, index=count)
        place = state.before[:, None] + count - 1 if self.running else count
        x = self._normed(x, place, 0, torch.ones_like(state.before, dtype=torch.bool))
        seen = state.cache.layout
        assert seen is not None
        cache = KeyValueCache(dict(state.cache.kept), seen)
        mask = AttentionMask(torch.cat([seen.expand(len(real)).valid, real], 1), causal=True)
        hidden, _ = self.stack(x, layout, mask, cache=cache)
        return Decoding(cache, state.before, state.words + real.sum(1), state.begun), hidden

    def step(self, ids: Tensor, cache: Decoding) -> tuple[Tensor, Decoding]:
        """The word chosen last and a mask after it: scores (P, V) of what the mask hides.

        The first ids (the class token) were seen at the start and are passed over.
        """
        mask = torch.full_like(ids, self.facts.mask_id)
        new = torch.stack([ids, mask], 1) if cache.begun else mask[:, None]
        grown, hidden = self._append(cache, new, torch.ones_like(new, dtype=torch.bool))
        grown.cache.truncate(len(grown.cache) - 1)
        made = replace(grown, words=grown.words - 1, begun=True)
        return self.word_scores(hidden[:, -1]), made

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        """Files of VLP, UniLM and BERT under our names, at this model's sizes."""
        return adapt(self, state, report)

    def layer_of(self, name: str) -> int | None:
        """Depth: 0 for embeddings; heads lie above the last layer."""
        if name.startswith("stack.layers."):
            return int(name.split(".")[2]) + 1
        above = name.startswith(("pooler.", "word_head."))
        return len(self.stack.layers) + 1 if above else None if name.startswith("stack.position") else 0
