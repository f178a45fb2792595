"""Defines the model for a few thousand examples: pooled image features and a bag of words, one hidden layer."""

from collections.abc import Mapping
from typing import ClassVar, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vlcli.nn as vl
from vlcli_lxmert.butd import weighted_regions

vl.register_head(
    "pooled-answer", lambda dim, outputs: nn.Sequential(nn.ReLU(), nn.Dropout(0.5), nn.Linear(dim, outputs))
)

_PRIME = 10_007


class Pooled(vl.Model):
    """Mean region feature and bag of words, each through a linear layer, multiplied or added, then one hidden layer.

    Region features are whitened by principal components of the training images (:class:`vlcli.nn.Whitening`). With a
    few thousand examples it answers better than transformers with random weights. Without words it classifies images.

    Args:
        hidden: width of the hidden layer.
        components: principal components of the region features that are kept.
        combine: ``multiply`` (words gate the image: ``q * (1 + s v)``) or ``add`` (``q + s v``); s is learned.
        words: read text; without it the model has the capability ``image`` alone.
        bigrams: buckets for pairs of neighbouring word pieces, which stand in the bag beside the words; 0: words alone.
        attention: words choose among regions before the mean; recorded as ``top_down`` (P, 1, 1, R).
        word_dropout: share of words that are dropped in training.
        dropout: of the whitened features.
    """

    paper = (
        "Zhou et al. 2015, Simple Baseline for Visual Question Answering, arXiv:1512.02167; product: Antol et al. 2015"
    )
    capabilities = frozenset({"text", "image", "fuse"})
    heads: ClassVar[Mapping[str, str]] = dict.fromkeys(("answer", "pair", "label"), "pooled-answer")

    def __init__(
        self,
        data_spec: vl.DataSpec,
        *,
        hidden: int = 512,
        components: int = 512,
        combine: Literal["multiply", "add"] = "multiply",
        words: bool = True,
        bigrams: int = 2048,
        attention: bool = False,
        word_dropout: float = 0.2,
        dropout: float = 0.5,
    ) -> None:
        super().__init__(data_spec)
        self.hidden, self.combine, self.bigrams = hidden, combine, bigrams
        self.init_std = (3 * hidden) ** -0.5  # of the head, as torch draws a linear layer
        self.words = nn.Linear(data_spec.vocab_size + bigrams, hidden) if words else None
        if self.words is None:
            self.capabilities = frozenset({"image"})
        else:
            nn.init.normal_(self.words.weight, std=0.02)  # torch's scale falls with the vocabulary; a bag has few words
        self.whitening = vl.Whitening(data_spec.region_dim, components)
        self.image = nn.Linear(self.whitening.components, hidden)
        self.scale = nn.Parameter(torch.tensor(0.1))
        self.drop_words, self.drop_image = nn.Dropout(word_dropout), nn.Dropout(dropout)
        self.score = AdditiveAttention(self.whitening.components, data_spec.vocab_size) if attention else None

    @property
    def dim(self) -> int:
        return self.hidden

    @property
    def network_shape(self) -> vl.NetworkShape:
        return vl.NetworkShape(self.hidden, 0, post_norm=False, factor=1.2)

    def input_spec(self) -> vl.InputSpec:
        return vl.InputSpec(text=self.words is not None, regions=True)

    def fit_regions(self, rows: Tensor) -> None:
        self.whitening.fit(rows)

    def encode_text(self, text: vl.Text, record: vl.Recorder | None = None) -> vl.EncoderOutput:
        assert self.words is not None
        bag = self.words.weight.new_zeros(text.ids.shape[0], self.data_spec.vocab_size)  # (N, V)
        bag.scatter_(1, text.ids * (text.mask & ~text.special), 1.0)
        bag[:, self.data_spec.pad_id] = 0.0
        pooled = self.words(self.drop_words(torch.cat([bag, self._pairs(text)], 1)))  # (N, D)
        hidden = F.embedding(text.ids, self.words.weight.T)  # (N, T, D)
        return vl.EncoderOutput(hidden, vl.Layout.for_text(text.mask, text.special), pooled, extra={"bag": bag})

    def _pairs(self, text: vl.Text) -> Tensor:
        counts = self.scale.new_zeros(text.ids.shape[0], self.bigrams)
        if not self.bigrams:
            return counts
        buckets = (_PRIME * text.ids[:, :-1] + text.ids[:, 1:]) % self.bigrams  # (N, T - 1); also [CLS] and [SEP]
        both = (text.mask[:, :-1] & text.mask[:, 1:]).to(counts.dtype)
        return counts.scatter_add(1, buckets, both).clamp(max=1)  # (N, bigrams)

    def encode_image(self, images: vl.Images, record: vl.Recorder | None = None) -> vl.EncoderOutput:
        regions = images.regions_for("pooled")
        features, real = regions.features.to(self.scale.dtype), regions.mask[..., None]  # (M, R, F), (M, R, 1)
        mean = (features * real).sum(1) / real.sum(1).clamp(min=1)  # (M, F)
        return vl.EncoderOutput(features, vl.Layout.for_boxes(regions.boxes, regions.mask), self._project(mean))

    def _project(self, features: Tensor) -> Tensor:
        return cast("Tensor", self.image(self.drop_image(self.whitening(features))))  # (M, D)

    def fuse(
        self, text: vl.EncoderOutput, image: vl.EncoderOutput, record: vl.Recorder | None = None
    ) -> vl.FusionOutput:
        words, pooled = text.pooled, image.pooled  # (P, D)
        assert words is not None
        assert pooled is not None
        if self.score is not None:
            scores = self.score(self.whitening(image.hidden), text.extra["bag"])  # (P, R)
            pooled = self._project(weighted_regions(scores, image, record))
        scaled = self.scale * pooled
        return vl.FusionOutput(text, image, words + (words * scaled if self.combine == "multiply" else scaled))


class AdditiveAttention(nn.Module):
    """Scores (P, R) of regions (P, R, K) for bags of words (P, V): ``w . tanh(A region + B words)``."""

    def __init__(self, features: int, words: int, hidden: int = 128) -> None:
        super().__init__()
        self.of_regions, self.of_words = nn.Linear(features, hidden), nn.Linear(words, hidden)
        self.weight = nn.Linear(hidden, 1)

    def forward(self, regions: Tensor, bag: Tensor) -> Tensor:
        joined = torch.tanh(self.of_regions(regions) + self.of_words(bag)[:, None])  # (P, R, hidden)
        return cast("Tensor", self.weight(joined)[..., 0])
