"""Defines LXMERT: a language encoder, an object-relationship encoder and a cross-modality encoder."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

import vlcli.nn as vl
from vlcli.registry import AttentionSpec, PositionSpec, Spec
from vlcli_lxmert.names import from_public, last_layers


class CrossLayer(nn.Module):
    """One cross-modality layer: cross-attention, self-attention, feed-forward.

    Cross-attention, its output and its norm are one module for both directions, as in the released code
    (``visual_attention``), or one for each (``back``: objects look at words), as section 2.2 writes. Both read the
    previous layer.
    """

    def __init__(
        self,
        shape: vl.AttentionShape,
        hidden: int | None,
        style: vl.BlockStyle,
        attention: Spec | str,
        crossing: Spec | str,
        shared: bool,
    ) -> None:
        super().__init__()
        self.cross = vl.AttentionBlock(replace(shape, cross=True), style, crossing)
        self.back = None if shared else vl.AttentionBlock(replace(shape, cross=True), style, crossing)
        self.language_self = vl.AttentionBlock(shape, style, attention)
        self.object_self = vl.AttentionBlock(shape, style, attention)
        self.language_feed = vl.FeedForward(shape.dim, hidden, style)
        self.object_feed = vl.FeedForward(shape.dim, hidden, style)

    def forward(
        self,
        words: Tensor,
        objects: Tensor,
        words_context: vl.AttentionContext,
        objects_context: vl.AttentionContext,
        rows: vl.Rows = "all",
    ) -> tuple[Tensor, Tensor]:
        """Returns words (P, T, D) and objects (P, R, D), or packed ones; in ``words_context`` words are queries.

        Where not all ``rows`` are read, objects are returned as they came; of ``pooled`` words the first (P, 1, D).
        """
        seen = self.cross(words, objects, words_context)  # (P, T, D)
        if rows != "all":
            itself, first = self._itself(words_context, objects_context, "text"), seen
            if rows == "pooled" and (layout := words_context.x_layout) is not None:
                packing = words_context.packing[0]
                first = (seen if packing is None else packing.unpack(seen))[:, :1]  # (P, 1, D)
                of_first = layout.cut(0, 1).expand(first.shape[0])  # len() would fix an export
                itself = replace(itself, x_layout=of_first, y_layout=layout, packing=(None, packing))
            return self.language_feed(self.language_self(first, None if first is seen else seen, itself)), objects
        read = (self.back or self.cross)(objects, words, objects_context)  # (P, R, D)
        seen = self.language_self(seen, None, self._itself(words_context, objects_context, "text"))
        read = self.object_self(read, None, self._itself(objects_context, words_context, "image"))
        return self.language_feed(seen), self.object_feed(read)

    @staticmethod
    def _itself(cross: vl.AttentionContext, other: vl.AttentionContext, name: str) -> vl.AttentionContext:
        # The keys, and so the mask, are those that the other modality attends to.
        packing, name = (cross.packing[0], None), f"cross.{cross.layer}.{name}"
        return replace(cross, mask=other.mask, y_layout=None, position=None, state=None, name=name, packing=packing)


class CrossEncoder(nn.Module):
    """The cross-modality layers, with one pairwise encoding for both directions."""

    def __init__(self, layers: list[CrossLayer], position: vl.PairwisePosition | None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.position = position
        self.checkpointing = self.packed = False

    def forward(
        self, text: vl.EncoderOutput, image: vl.EncoderOutput, record: vl.Recorder | None, rows: vl.Rows
    ) -> tuple[Tensor, Tensor]:
        """Returns words (P, T, D), of ``pooled`` rows the first (P, 1, D), and objects (P, R, D)."""
        words, objects, layouts = text.hidden, image.hidden, [text.layout, image.layout]
        masks, position = [vl.AttentionMask(layout.valid) for layout in layouts], self.position
        states: list[Any] = [None, None]
        packings: list[vl.Packing | None] = [None, None]
        if position is not None:
            states = [position.prepare(words, objects, *layouts), position.prepare(objects, words, *layouts[::-1])]
        elif self.packed:
            packings = [vl.Packing.of(layout.valid) for layout in layouts]
        if packings[0] is not None:
            words, layouts[0] = packings[0].pack(words), packings[0].pack_layout(layouts[0])  # (1, K, D)
        if packings[1] is not None:
            objects, layouts[1] = packings[1].pack(objects), packings[1].pack_layout(layouts[1])
        of_words, of_objects = layouts
        forth = vl.AttentionContext(masks[1], of_words, of_objects, position, states[0], record=record)
        back = vl.AttentionContext(masks[0], of_objects, of_words, position, states[1], record=record)
        forth = replace(forth, packing=(packings[0], packings[1]))
        back = replace(back, packing=(packings[1], packings[0]))
        for number, layer in enumerate(self.layers):
            forth = replace(forth, layer=number, name=f"cross.{number}.text_to_image")
            back = replace(back, layer=number, name=f"cross.{number}.image_to_text")
            active = self.checkpointing and record is None
            of_layer = rows if number + 1 == len(self.layers) else "all"
            words, objects = vl.run_layer(layer, words, objects, forth, back, of_layer, active=active)
        words = words if packings[0] is None or rows == "pooled" else packings[0].unpack(words)
        return words, objects if packings[1] is None else packings[1].unpack(objects)


class LXMERT(vl.Model):
    """LXMERT: language, object-relationship and cross-modality encoders over region features.

    The defaults are the published 9/5/5 layers of 768. Attention is recorded under ``language.N``, ``objects.N``,
    ``cross.N.text_to_image``, ``cross.N.image_to_text``, ``cross.N.text`` and ``cross.N.image``.

    Args:
        hidden: width.
        heads: attention heads.
        intermediate: width inside the feed-forward; None: four times ``hidden``.
        text_layers: of the language encoder.
        image_layers: of the object-relationship encoder.
        cross_layers: of the cross-modality encoder.
        dropout: of embeddings, blocks and attention probabilities.
        attention: any registered attention, used in every block.
        cross_attention: another one between words and objects; None: ``attention``. With ``disentangled`` each modality
            has projections of its own there (DiMBERT, Table 6).
        shared_crossing: one cross-attention for both directions, as released; false: one for each (the paper's text);
            from weights with one, both start from it.
        bert_layers: layers of a deeper BERT that the language encoder starts from: the ``first`` (released code) or the
            ``last`` (the paper's footnote 10: top).
        text_position: positions of words, token-wise or pairwise, one or several.
        image_position: positions of objects, likewise.
        cross_position: pairwise positions between words and objects.
        init_std: deviation of freshly drawn weights; ``auto``: 0.02 at width 768, more in a narrower model.
        frozen_padding: row 0 of the word, position and segment tables is never trained, as in the released code.
        packed: compute token-wise layers without padding: the same numbers in less time.
    """

    paper = "LXMERT, Tan and Bansal, EMNLP 2019, arXiv:1908.07490"
    capabilities = frozenset({"text", "image", "fuse"})
    partial_passes = frozenset({"fused"})
    slots: ClassVar[Mapping[str, vl.Slot]] = {
        "text_position": vl.Slot.of("text_position", ["tokens", "pairs"], ["word"]),
        "image_position": vl.Slot.of("image_position", ["tokens", "pairs"], ["box"]),
        "cross_position": vl.Slot.of("cross_position", ["pairs"], ["word"], ["box"]),
    }
    heads: ClassVar[Mapping[str, str]] = {
        "mlm": "bert-mlm",
        "matching": "bert-matching",
        "answer": "lxmert-answer",
        "pair": "lxmert-pair",
    }

    def __init__(
        self,
        data_spec: vl.DataSpec,
        *,
        hidden: int = 768,
        heads: int = 12,
        intermediate: int | None = None,
        text_layers: int = 9,
        image_layers: int = 5,
        cross_layers: int = 5,
        dropout: float = 0.1,
        attention: AttentionSpec = "standard",
        cross_attention: AttentionSpec | None = None,
        shared_crossing: bool = True,
        bert_layers: Literal["first", "last"] = "first",
        text_position: PositionSpec | list[PositionSpec] | None = "learned",
        image_position: PositionSpec | list[PositionSpec] | None = "box",
        cross_position: PositionSpec | list[PositionSpec] | None = None,
        frozen_padding: bool = False,
        init_std: vl.InitStd = "auto",
        packed: bool = True,
    ) -> None:
        super().__init__(data_spec)
        shape = vl.AttentionShape(hidden, heads, dropout=dropout)
        style = vl.BlockStyle(dropout=dropout)
        self.init_std, self.bert_layers, self.dropout = vl.init_scale(init_std, hidden), bert_layers, dropout
        words_shape, objects_shape = replace(shape, layers=text_layers), replace(shape, layers=image_layers)
        cross_shape, slots = replace(shape, layers=cross_layers, cross=True), self.slots
        of_words, pairs_of_words = vl.build_positions(text_position, words_shape, slots["text_position"])
        of_objects, pairs_of_objects = vl.build_positions(image_position, objects_shape, slots["image_position"])
        across = vl.build_positions(cross_position, cross_shape, slots["cross_position"])[1]
        self.text = vl.TextEmbeddings(data_spec, hidden, of_words, dropout=dropout, frozen_padding=frozen_padding)
        self.image = vl.FeatureEmbeddings(data_spec.region_dim, hidden, of_objects, dropout=dropout)
        self.language = vl.Stack.of(text_layers, shape, intermediate, style, attention, pairs_of_words)
        self.objects = vl.Stack.of(image_layers, shape, intermediate, style, attention, pairs_of_objects)
        deep = replace(shape, layers=cross_layers)
        blocks = (deep, intermediate, style, attention, cross_attention or attention, shared_crossing)
        self.cross = CrossEncoder([CrossLayer(*blocks) for _ in range(cross_layers)], across)
        self.pooler = vl.Pooler(hidden)
        self.language.packed = self.objects.packed = self.cross.packed = packed
        vl.initialise_model(self, self.init_std)
        for position in self.text.positions:
            if frozen_padding and isinstance(position, vl.LearnedPosition):
                position.table.padding_idx = 0

    @property
    def dim(self) -> int:
        return self.pooler.dense.out_features

    def input_spec(self) -> vl.InputSpec:
        return vl.InputSpec(text=True, regions=True)

    def word_table(self) -> nn.Embedding:
        return self.text.words

    def encode_text(self, text: vl.Text, record: vl.Recorder | None = None) -> vl.EncoderOutput:
        tokens, layout = self.text(text)
        options = {"record": record, "name": "language", "keep": self.output_hidden_states}
        hidden, kept = self.language(tokens, layout, vl.AttentionMask(layout.valid), **options)
        return vl.EncoderOutput(hidden, layout, layers=kept)

    def encode_image(self, images: vl.Images, record: vl.Recorder | None = None) -> vl.EncoderOutput:
        regions = images.regions_for("lxmert")
        layout = vl.Layout.for_boxes(regions.boxes, regions.mask)
        options = {"record": record, "name": "objects", "keep": self.output_hidden_states}
        tokens = self.image(regions.features, layout)  # (M, R, D)
        hidden, kept = self.objects(tokens, layout, vl.AttentionMask(layout.valid), **options)
        return vl.EncoderOutput(hidden, layout, layers=kept)

    def fuse(
        self, text: vl.EncoderOutput, image: vl.EncoderOutput, record: vl.Recorder | None = None, rows: vl.Rows = "all"
    ) -> vl.FusionOutput:
        if self.training and self.dropout:  # fewer tokens would draw other random numbers than a run was begun with
            rows = "all"
        words, objects = self.cross(text, image, record, rows)
        of_text, of_image = vl.EncoderOutput(words, text.layout), vl.EncoderOutput(objects, image.layout)
        if rows != "all":
            of_image = vl.EncoderOutput(objects[:, :0], image.layout.cut(0, 0))
            of_text = vl.EncoderOutput(words, text.layout.cut(0, words.shape[1]))
        return vl.FusionOutput(of_text, of_image, self.pooler(words))

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        state = last_layers(state, len(self.language.layers), report) if self.bert_layers == "last" else state
        names = dict(self.named_parameters())
        state = from_public(state, names, report)
        shared = {name: name.replace(".back.", ".cross.") for name in names if ".back." in name and name not in state}
        copies = {name: state[source] for name, source in shared.items() if source in state}
        report += [f"{len(copies)} weights of the second cross-attentions are copies of the first's"] if copies else []
        return vl.fit_weights(self, {**state, **copies}, report)

    def layer_of(self, name: str) -> int | None:
        # Both encoders end at one depth, the cross layers follow.
        stacks = {"language": self.language.layers, "objects": self.objects.layers}
        top = max(map(len, stacks.values()))
        below = {f"{side}.layers.": top - len(layers) for side, layers in stacks.items()} | {"cross.layers.": top}
        if name.startswith("pooler.") or not name.startswith(("text.", "image.", *below)):
            return top + len(self.cross.layers) + name.startswith("pooler.")
        return vl.layer_number(name, below, (), 0)
