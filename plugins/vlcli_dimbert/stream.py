"""Defines the base of DiMBERT, UNITER and VL-BERT: one transformer over regions, visual concepts and words."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

import vlcli.nn as vl
from vlcli.errors import DataError
from vlcli.registry import AttentionSpec, PositionSpec
from vlcli_dimbert.embedding import Appearance, ConceptPieces, PaperRegions
from vlcli_dimbert.weights import adapt

REGION, CONCEPTS, SENTENCE = 0, 1, 2
"""Rows of the segment table by role."""


class SingleStream(vl.Model):
    """Base of models that read regions, concepts and words as one sequence.

    Args:
        regions: called with width and dropout; makes the module that embeds regions (M, R, D).
        eps: of every norm.
        concepts: most concepts of a picture; 0: none.
        modes: VLP's six segment rows instead of one a role.
        specials: separators and class token have a route of their own.
        images: rows of a table that tells several pictures apart; 0: none.
        hidden: width.
        heads: attention heads.
        layers: depth.
        intermediate: width inside the feed-forward; None: four times ``hidden``.
        dropout: of embeddings, blocks and attention probabilities.
        attention: any registered attention; ``disentangled`` is DiMBERT's (Table 6).
        position: pairwise encodings of all tokens, one or several, besides the learned places.
        length: rows of the position table.
        init_std: deviation of freshly drawn weights; ``auto``: 0.02 at width 768, more in a narrower model.
        packed: leave padding out of all that is done token by token.

    Attributes:
        running: positions run on through the whole sequence.
        by_piece: positions count a concept's pieces.
    """

    capabilities = frozenset({"fuse"})
    fuse_takes = "embeddings"
    many_images = True
    readouts = frozenset({"pooler"})
    slots: ClassVar[Mapping[str, vl.Slot]] = {"position": vl.Slot.of("position", ["pairs"], ["word", "box", "special"])}
    running = by_piece = False
    separators: ClassVar[bool] = True
    """Whether a [SEP] ends the regions, and another the concepts."""
    segment_sources: ClassVar[dict[int, list[int]]] = {2: [0, 0, 1], 6: [4, 4, 5]}
    """Rows for regions, concepts and sentence in a table of so many rows: BERT's and VLP's."""

    def __init__(
        self,
        data_spec: vl.DataSpec,
        regions: Callable[[int, float], nn.Module],
        eps: float = 1e-12,
        concepts: int = 0,
        modes: bool = False,
        specials: bool = False,
        images: int = 0,
        *,
        hidden: int = 768,
        heads: int = 12,
        layers: int = 12,
        intermediate: int | None = None,
        dropout: float = 0.1,
        attention: AttentionSpec = "standard",
        position: PositionSpec | list[PositionSpec] | None = None,
        length: int = 512,
        init_std: vl.InitStd = "auto",
        packed: bool = True,
    ) -> None:
        super().__init__(data_spec)
        of_regions = regions(hidden, dropout)  # drawn first
        self.by_mode, self.special_route = modes, vl.SPECIAL if specials else vl.TEXT
        self.init_std = vl.init_scale(init_std, hidden)
        shape = vl.AttentionShape(hidden, heads, layers, dropout=dropout, routes=4)
        self.words = nn.Embedding(data_spec.vocab_size, hidden)
        self.places = nn.Embedding(length, hidden)
        self.segments = nn.Embedding(6 if modes else 3, hidden)
        self.which_picture = nn.Embedding(images, hidden) if images else None
        self.norm, self.drop = nn.LayerNorm(hidden, eps=eps), nn.Dropout(dropout)
        self.regions = of_regions
        self.concepts = ConceptPieces(data_spec, concepts) if concepts else None
        encoding = vl.build_positions(position, shape, self.slots["position"])[1]
        style = vl.BlockStyle(eps=eps, dropout=dropout)
        self.stack = vl.Stack.of(layers, shape, intermediate, style, attention, encoding)
        self.stack.packed = packed
        self.pooler = vl.Pooler(hidden)

    def initialise(self) -> None:
        """Draws weights as BERT does, regions by their own rules; a first picture's row is 0."""
        vl.initialise_model(self, self.init_std)
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

    def input_spec(self) -> vl.InputSpec:
        return vl.InputSpec(text=True, regions=True, concepts=self.concepts is not None)

    def word_table(self) -> nn.Embedding:
        return self.words

    def embed_text(self, text: vl.Text) -> vl.EncoderOutput:
        layout = vl.Layout.for_text(text.mask, text.special)
        if self.special_route != vl.TEXT:
            layout = replace(layout, route=torch.where(text.special, self.special_route, layout.route), runs=None)
        extra = {} if text.causal is None else {"causal": text.causal}
        return vl.EncoderOutput(self._in_role(self.words(text.ids), SENTENCE), layout, extra=extra)

    def _in_role(self, x: Tensor, role: int) -> Tensor:
        # Adds the segment of regions, concepts or the sentence, where the table has a row for each.
        return x if self.by_mode else x + self.segments.weight[role]

    def embed_image(self, images: vl.Images) -> vl.EncoderOutput:
        regions = images.regions_for("dimbert")
        x = self.region_tokens(regions, None if self.by_mode else self.segments.weight[REGION])
        layout = vl.Layout.for_boxes(regions.boxes, regions.mask, source=1)
        parts = [(x, layout)]
        if self.separators:
            parts.append(self._separator(x.shape[0], 0, REGION))
        if self.concepts is not None:
            tokens, its_layout, after = self._concepts(images)
            parts += [(tokens, its_layout), self._separator(x.shape[0], after, CONCEPTS)]
        hidden, layouts = zip(*parts, strict=True)
        return vl.EncoderOutput(torch.cat(hidden, 1), sum(layouts[1:], layout))

    def region_tokens(self, regions: vl.Regions, segment: Tensor | None) -> Tensor:
        """Embeds regions (M, R, D), with the segment's row (D,) where roles have one; called by ``embed_image``."""
        return cast("Tensor", self.regions(regions, segment))

    def _concepts(self, images: vl.Images) -> tuple[Tensor, vl.Layout, Tensor]:
        # Word pieces of concepts (M, L, D), their layout, and the position after them (M, 1).
        if images.concepts is None or self.concepts is None:
            hint = "name a store of concepts in `features`, or leave them out: concepts: 0"
            raise DataError("The model reads visual concepts, and the batch has none.", hint=hint)
        pieces, slot, _ = self.concepts(images.concepts)
        real = pieces >= 0
        layout = vl.Layout.for_text(real, route=vl.CONCEPT, source=1)
        layout.index = real.long().cumsum(1) - 1 if self.by_piece else slot
        after = layout.index.masked_fill(~real, -1).amax(1, keepdim=True) + 1
        return self._in_role(self.words(pieces.clamp(min=0)), CONCEPTS), layout, after

    def _separator(self, rows: int, place: Tensor | int, role: int) -> tuple[Tensor, vl.Layout]:
        # [SEP] (M, 1, D) at a position of its own.
        x = self._in_role(self.words.weight[self.data_spec.sep_id], role).expand(rows, 1, -1)
        real = torch.ones(rows, 1, dtype=torch.bool, device=x.device)
        layout = vl.Layout.for_text(real, real, route=self.special_route, source=1)
        layout.index = layout.index + place
        return x, layout

    def fuse(
        self, text: vl.EncoderOutput, image: vl.EncoderOutput, record: vl.Recorder | None = None
    ) -> vl.FusionOutput:
        # [CLS], image and words: ``FusionOutput.text`` has the text's layout, ``FusionOutput.image`` the regions of
        # all images, and in ``extra["concepts"]`` the hidden states of the concepts' pieces.
        prefix, causal = 1 + image.hidden.shape[1], text.extra.get("causal")
        x = torch.cat([text.hidden[:, :1], image.hidden, text.hidden[:, 1:]], 1)
        layout = text.layout.cut(0, 1) + image.layout + text.layout.cut(1, text.hidden.shape[1])
        x = self._placed(x, layout, prefix, causal)
        mask = vl.AttentionMask.sequence_to_sequence(layout.valid, prefix, causal)
        hidden, kept = self.stack(x, layout, mask, record=record, name="fuse", keep=self.output_hidden_states)
        words, *layers = (torch.cat([x[:, :1], x[:, prefix:]], 1) for x in (hidden, *kept.values()))
        block = hidden[:, 1:prefix]
        of_image = self._of_route(block, image.layout, vl.IMAGE)
        if self.concepts is not None:
            of_image.extra["concepts"] = self._of_route(block, image.layout, vl.CONCEPT).hidden
        of_text = vl.EncoderOutput(words, text.layout, layers=dict(zip(kept, layers, strict=True)))
        return vl.FusionOutput(of_text, of_image, self.pooler(hidden))

    @staticmethod
    def _of_route(hidden: Tensor, layout: vl.Layout, route: int) -> vl.EncoderOutput:
        columns = layout.columns(route)
        places = [layout.cut(*span) for span in columns]
        return vl.EncoderOutput(torch.cat([hidden[:, a:b] for a, b in columns], 1), sum(places[1:], places[0]))

    def _placed(self, x: Tensor, layout: vl.Layout, prefix: int, causal: Tensor | None) -> Tensor:
        # Tokens (P, T, D) with their positions and, by mode, their segments, normalised.
        longest = self.places.num_embeddings
        words = layout.route.shape[1] - (0 if self.running else prefix - 1)
        if not torch.compiler.is_exporting() and words > longest:
            what, where = "A sequence is longer than the position table.", "model dimbert"
            got, expected = f"{words} tokens", f"at most {longest}"
            hint = "lower text.length, or raise the model's length"
            raise DataError(what, where=where, got=got, expected=expected, hint=hint)
        if self.which_picture is not None:
            x = x + self._picture_rows(layout, self.which_picture)
        place = layout.valid.long().cumsum(1) - 1 if self.running else layout.index
        return self._normed(x, place.masked_fill(layout.route == vl.IMAGE, -1), prefix, causal)  # regions have none

    def _picture_rows(self, layout: vl.Layout, table: nn.Embedding) -> Tensor:
        # (P, T, D): the row of a token's picture; nothing for words. Regions are sums of normalised terms, concepts and
        # separators of embeddings as small as they were drawn: each gets its row at its own scale, or it would not be
        # seen among the former and drown the latter.
        number = layout.source - 1  # words are source 0
        if not torch.compiler.is_exporting() and int(number.max()) >= len(table.weight):
            what, hint = "An example has more pictures than the model tells apart.", "raise the model's `images`"
            got, expected = f"{int(number.max()) + 1} pictures", f"at most {len(table.weight)}"
            raise DataError(what, where="model dimbert", got=got, expected=expected, hint=hint)
        scale = torch.where(layout.route == vl.IMAGE, 1.0, self.init_std).masked_fill(number < 0, 0).to(table.weight)
        return cast("Tensor", table(number.clamp(min=0)) * scale[..., None])

    def _normed(self, x: Tensor, place: Tensor, prefix: int, causal: Tensor | None) -> Tensor:
        # ``place`` (P, T), -1 for none; the first ``prefix`` tokens are the prefix.
        x = x + self.places(place.clamp(0, self.places.num_embeddings - 1)).masked_fill((place < 0)[..., None], 0)
        if self.by_mode:
            mode = place.new_zeros(x.shape[0], 1) if causal is None else 4 * causal.long()[:, None]
            x = x + self.segments(mode + (torch.arange(x.shape[1], device=x.device) >= prefix).long())  # (P, T, D)
        return cast("Tensor", self.drop(self.normalise(x, prefix)))

    def normalise(self, x: Tensor, prefix: int) -> Tensor:
        """Normalises tokens (P, T, D), ``prefix`` of them before the words; called before the first layer."""
        return cast("Tensor", self.norm(x))

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        return adapt(self, state, report)

    def layer_of(self, name: str) -> int | None:
        if name.startswith("stack.position"):
            return None
        return vl.layer_number(name, {"stack.layers.": 0}, ("pooler.", "word_head."), len(self.stack.layers))
