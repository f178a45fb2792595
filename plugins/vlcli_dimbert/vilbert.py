"""Defines the two-stream model of Table 6: ViLBERT's co-attention, or one softmax over both streams' keys."""

import re
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn

import vlcli.nn as vl
from vlcli.errors import ComponentError
from vlcli.registry import AttentionSpec
from vlcli_dimbert.attention import DisentangledAttention
from vlcli_dimbert.embedding import whole_picture
from vlcli_dimbert.weights import our_name

# BERT's parts outside the layers, by our names of a single stream and of the text stream.
_OUTSIDE = {
    "words.": "text.words.",
    "places.": "text.positions.0.table.",
    "segments.": "text.segments.",
    "norm.": "text.norm.",
    "pooler.": "text_pool.",
}


class CoLayer(nn.Module):
    """One co-attention layer, then each stream feeds forward; all projections are the streams' own.

    A token sees the other stream's keys, or with ``joint`` (disentangled attention) those of both in one softmax.
    """

    def __init__(self, shape: vl.AttentionShape, hidden: int | None, style: vl.BlockStyle, joint: bool) -> None:
        super().__init__()
        self.joint = joint
        self.attention = DisentangledAttention(shape, sets=(0, 1), dense=False)
        self.text_dense, self.image_dense = nn.Linear(shape.dim, shape.dim), nn.Linear(shape.dim, shape.dim)
        self.text_way, self.image_way = vl.Residual(shape.dim, style), vl.Residual(shape.dim, style)
        self.text_feed = vl.FeedForward(shape.dim, hidden, style)
        self.image_feed = vl.FeedForward(shape.dim, hidden, style)

    def forward(self, words: Tensor, regions: Tensor, context: vl.AttentionContext) -> tuple[Tensor, Tensor]:
        """Returns words (P, T, D) and regions (P, R, D); ``context`` is that of both in one sequence."""
        both = self.attention(torch.cat([words, regions], 1), None, context)  # (P, T + R, D)
        seen, read = both.split([words.shape[1], regions.shape[1]], 1)
        words = self.text_way.leave(words, self.text_dense(seen))
        regions = self.image_way.leave(regions, self.image_dense(read))
        return self.text_feed(words), self.image_feed(regions)


class ViLBERT(vl.Model):
    """ViLBERT-like: a stream of words and one of regions, with co-attention between their upper layers.

    The first layers of the text stream stand alone; then a co-attention layer, a layer of words and a layer of regions
    take turns (released code). The first image token is the mean of the regions with a box as large as the picture.
    Both streams have one width.

    Args:
        hidden: width.
        heads: attention heads.
        text_layers: of the text stream.
        cross_layers: co-attention layers, and layers of the image stream.
        intermediate: width inside the feed-forward; None: four times ``hidden``.
        dropout: of embeddings, blocks and attention probabilities.
        attention: any registered attention within each stream.
        cross_attention: each stream sees the other's keys (``crossed``, ViLBERT), or all keys stand in one softmax
            (``joint``: disentangled attention, Table 6).
        length: rows of the position table.
        init_std: deviation of freshly drawn weights; ``auto``: 0.02 at width 768, more in a narrower model.
        packed: compute the text stream's lower layers without padding.
    """

    paper = "ViLBERT, Lu et al., NeurIPS 2019, section 2.1; DiMBERT, Table 6"
    capabilities = frozenset({"fuse"})
    fuse_takes = "embeddings"
    readouts = frozenset({"text_pool", "image_pool"})

    def __init__(
        self,
        data_spec: vl.DataSpec,
        *,
        hidden: int = 768,
        heads: int = 12,
        text_layers: int = 12,
        cross_layers: int = 6,
        intermediate: int | None = None,
        dropout: float = 0.1,
        attention: AttentionSpec = "standard",
        cross_attention: Literal["crossed", "joint"] = "crossed",
        length: int = 512,
        init_std: vl.InitStd = "auto",
        packed: bool = True,
    ) -> None:
        super().__init__(data_spec)
        if cross_layers > text_layers:
            got = f"{cross_layers} of {text_layers}"
            raise ComponentError("There are more co-attention layers than text layers.", where="model vilbert", got=got)
        self.init_std, self.joint = vl.init_scale(init_std, hidden), cross_attention == "joint"
        shape, style = vl.AttentionShape(hidden, heads, dropout=dropout), vl.BlockStyle(dropout=dropout)
        positions = vl.build_positions({"name": "learned", "length": length}, shape, vl.WORDS)[0]
        self.text = vl.TextEmbeddings(data_spec, hidden, positions, dropout=dropout)
        self.look, self.place = nn.Linear(data_spec.region_dim, hidden), vl.BoxProjection(5, hidden)
        self.look_norm, self.drop = nn.LayerNorm(hidden, eps=style.eps), nn.Dropout(dropout)
        self.lower = vl.Stack.of(text_layers - cross_layers, shape, intermediate, style, attention)
        self.lower.packed = packed
        self.co = nn.ModuleList(CoLayer(shape, intermediate, style, self.joint) for _ in range(cross_layers))
        self.upper, self.objects = (
            nn.ModuleList(vl.TransformerLayer(shape, intermediate, style, attention) for _ in range(cross_layers))
            for _ in range(2)
        )
        self.text_pool, self.image_pool = vl.Pooler(hidden), vl.Pooler(hidden)
        self.checkpointing = False
        vl.initialise_model(self, self.init_std)

    @property
    def dim(self) -> int:
        return self.text_pool.dense.out_features

    def input_spec(self) -> vl.InputSpec:
        return vl.InputSpec(text=True, regions=True)

    def word_table(self) -> nn.Embedding:
        return self.text.words

    def embed_text(self, text: vl.Text) -> vl.EncoderOutput:
        x, layout = self.text(text)
        return vl.EncoderOutput(self.lower(x, layout, vl.AttentionMask(layout.valid))[0], layout)

    def embed_image(self, images: vl.Images) -> vl.EncoderOutput:
        regions = images.regions_for("vilbert")
        mean, frame = whole_picture(regions)
        boxes, mask = torch.cat([frame, regions.boxes], 1), torch.cat([regions.mask[:, :1] | True, regions.mask], 1)
        features = torch.cat([mean, regions.features], 1).to(self.look.weight.dtype)
        x = self.look(features) + self.place(vl.geometry(boxes, 5).to(features.dtype))
        return vl.EncoderOutput(self.drop(self.look_norm(x)), vl.Layout.for_boxes(boxes, mask))

    def fuse(
        self, text: vl.EncoderOutput, image: vl.EncoderOutput, record: vl.Recorder | None = None
    ) -> vl.FusionOutput:
        words, regions, layout = text.hidden, image.hidden, text.layout + image.layout
        masks = (vl.AttentionMask(text.layout.valid), vl.AttentionMask(image.layout.valid))
        of_words = torch.arange(words.shape[1] + regions.shape[1], device=words.device) < words.shape[1]  # (T + R,)
        crossing = (of_words[:, None] != of_words[None])[None]  # (1, T + R, T + R): a token sees the other stream
        both = vl.AttentionMask(layout.valid, dense=None if self.joint else crossing)
        active = self.checkpointing and record is None
        for number, (co, upper, objects) in enumerate(zip(self.co, self.upper, self.objects, strict=True)):
            context = vl.AttentionContext(both, layout, layer=number, record=record, name=f"co.{number}")
            words, regions = vl.run_layer(co, words, regions, context, active=active)
            of_text = replace(context, mask=masks[0], x_layout=text.layout, name=f"text.{number}")
            words = vl.run_layer(upper, words, of_text, active=active)
            of_image = replace(context, mask=masks[1], x_layout=image.layout, name=f"image.{number}")
            regions = vl.run_layer(objects, regions, of_image, active=active)
        pooled = self.text_pool(words) * self.image_pool(regions)
        seen = vl.EncoderOutput(regions[:, 1:], image.layout.cut(1, regions.shape[1]))
        return vl.FusionOutput(vl.EncoderOutput(words, text.layout), seen, pooled)

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        names, below = self.state_dict(), len(self.lower.layers)

        def text_name(name: str) -> str:
            # The text stream's layers are BERT's, as in the released code.
            if name in names or name.startswith("objectives."):
                return name
            plain = our_name(name) or name
            if layer := re.fullmatch(r"stack\.layers\.(\d+)\.(.+)", plain):
                number = int(layer[1])
                return f"lower.layers.{number}.{layer[2]}" if number < below else f"upper.{number - below}.{layer[2]}"
            return vl.translate(plain, _OUTSIDE) or plain

        return {text_name(name): value for name, value in state.items()}

    def layer_of(self, name: str) -> int | None:
        below = len(self.lower.layers)  # depth counts turns of the streams
        stacks = {"lower.layers.": 0, "co.": below, "upper.": below, "objects.": below}
        return vl.layer_number(name, stacks, ("text_pool.", "image_pool."), below + len(self.co))
