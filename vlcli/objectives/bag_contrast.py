"""Contrast of bags of words and pooled region features: a linear dual encoder, regularised by noise on its inputs."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlcli.errors import ComponentError, DataError
from vlcli.nn import DataSpec, ForwardPasses, Images, Model, Text
from vlcli.objectives.base import full_precision
from vlcli.objectives.contrast import Contrast, Known, Positives
from vlcli.registry.bounds import Count, NotNegative

Pooling = Literal["mean", "max"]


class BagContrast(Contrast):
    """Image-text contrast of two linear encoders, beside a model that fuses pairs.

    A sentence is the bag of its word pieces, weighted by inverse document frequency; a picture is its pooled region
    features. Both have length 1 and pass one linear layer each. Gaussian noise on the inputs in training penalises
    weights as a ridge does (Bishop 1995): rare words and features that hardly vary count for little, unless many pairs
    agree on them. ``contrast-matching`` reads the scores.

    Args:
        width: of the shared space of one member.
        members: pairs of linear layers that are trained side by side, each with its own noise and loss; the score is
            the mean of their cosines, a vector is theirs one after the other.
        pooling: of region features: their mean, their maximum in each number, or both one after the other.
        noise: expected length of the noise on a picture's and on a sentence's input, whose own length is 1.
        init_std: deviation of freshly drawn weights; small, so that words hardly seen in training hardly count.
    """

    paper = (
        "Frome et al. 2013 (linear image-text embedding); Bishop 1995 (noise as a ridge); Hansen and Salamon 1990 "
        "(ensembles); CLIP, Radford et al. 2021"
    )
    inputs = frozenset({"text", "regions"})
    requires = frozenset()

    rarity: Tensor
    text: nn.Linear
    image: nn.Linear

    def __init__(
        self,
        model: Model,
        data_spec: DataSpec,
        *,
        width: int = 128,
        members: Count = 1,
        pooling: tuple[Pooling, ...] = ("mean",),
        noise: tuple[NotNegative, NotNegative] = (1.0, 1.0),
        init_std: float = 0.002,
        temperature: float = 0.1,
        learned: bool = False,
        positives: Positives = "masked",
        view: str = "clean",
    ) -> None:
        options: dict[str, Any] = {"temperature": temperature, "learned": learned, "positives": positives, "view": view}
        super().__init__(model, data_spec, width=width, second=False, **options)
        if not pooling or len(set(pooling)) < len(pooling):
            what, got = "Linear encoders cannot be made so.", f"pooling {list(pooling)}"
            raise ComponentError(what, where="bag-contrast", got=got, expected="pooling mean, max or both")
        self.noise, self.members, self.pooling = noise, members, pooling
        self.text = nn.Linear(data_spec.vocab_size, members * width)
        self.image = nn.Linear(len(pooling) * data_spec.region_dim, members * width)
        for layer in (self.text, self.image):
            nn.init.normal_(layer.weight, std=init_std)
            nn.init.zeros_(layer.bias)
        self.register_buffer("rarity", torch.ones(data_spec.vocab_size))

    def setup(self, readers: Sequence[Any], tokenizer: Any, folder: Path | None) -> None:
        # ``rarity`` is ln((1 + N) / (1 + n)) + 1 for a piece of n of N sentences
        texts = {example.text for reader in readers for example in reader.examples() if example.text}
        counts = torch.zeros(len(self.rarity), dtype=torch.double)
        for text in texts:
            counts[list(set(tokenizer.encode(text, "", None).ids))] += 1
        self.rarity.copy_(((1 + len(texts)) / (1 + counts)).log() + 1)

    def embed(self, step: ForwardPasses, side: Literal["text", "image"], head: str = "{}") -> Tensor:
        # normalised vectors of unique sentences or pictures (N, members x width)
        view = step.view(self.view)
        if side == "text":
            assert view.text is not None
            layer, rows, noise = self.text, self.bags(view.text), self.noise[1]
        else:
            assert view.images is not None
            layer, rows, noise = self.image, self.pooled(view.images), self.noise[0]
        scale = noise / math.sqrt(rows.shape[1]) if self.training else 0.0
        vectors = []
        for weight, bias in zip(layer.weight.chunk(self.members), layer.bias.chunk(self.members), strict=True):
            noisy = rows + torch.randn_like(rows) * scale if scale else rows
            vectors.append(F.normalize(full_precision(F.linear(noisy, weight, bias)), dim=-1))
        return torch.cat(vectors, -1) / math.sqrt(self.members)

    def bags(self, text: Text) -> Tensor:
        """Return weighted counts (N, V) of pieces other than special tokens, of length 1."""
        real = (text.mask & ~text.special).to(self.rarity.dtype)
        counts = self.rarity.new_zeros(len(text.ids), len(self.rarity))
        return F.normalize(counts.scatter_add_(1, text.ids, self.rarity[text.ids] * real), dim=-1)

    def pooled(self, images: Images) -> Tensor:
        """Return each picture's region features as one vector of length 1 (M, F); (M, 2 F) of mean and maximum."""
        regions = images.regions
        if regions is None:
            hint = "use a model that reads region features (image: features), or contrast"
            raise DataError("The batch has no region features.", where="objective bag-contrast", hint=hint)
        features, real = full_precision(regions.features), regions.mask[..., None]  # (M, K, F), (M, K, 1)
        parts = []
        for kind in self.pooling:
            if kind == "max":
                part = features.masked_fill(~real, -torch.inf).amax(1).nan_to_num(neginf=0.0)
            else:
                part = (features * real).sum(1) / real.sum(1).clamp(min=1)
            parts.append(F.normalize(part, dim=-1))
        return F.normalize(torch.cat(parts, -1), dim=-1)

    def _both_ways(self, step: ForwardPasses, known: Known, second: bool) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        # losses per example (B,), the mean over members, and scores (B, N) by the members' mean cosine
        texts, images = self.paired(step)
        pairs = (images, step.gather(texts)), (texts, step.gather(images))
        losses = [
            self._loss(self.members * self._scores(ours, others), known)
            for pair in pairs
            for ours, others in zip(*(side.chunk(self.members, -1) for side in pair), strict=True)
        ]
        return torch.stack(losses).mean(0), (self._scores(*pairs[0]), self._scores(*pairs[1]))
