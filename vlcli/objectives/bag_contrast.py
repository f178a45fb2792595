"""Contrast of bags of words and mean region features: a linear dual encoder, regularised by noise on its inputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlcli.errors import ComponentError, DataError
from vlcli.nn.batch import Images, Text
from vlcli.nn.forward_passes import ForwardPasses
from vlcli.nn.model import DataSpec, Model
from vlcli.objectives.base import full_precision
from vlcli.objectives.contrast import Contrast, Positives


class BagContrast(Contrast):
    """Image-text contrast of two linear encoders, beside a model that fuses pairs.

    A sentence is the bag of its word pieces, each weighted by its inverse document frequency; a picture is the mean of
    its region features. Both have length 1 and pass one linear layer each. In training, Gaussian noise is added to both
    inputs. Noise of equal size in all directions penalises weights as a ridge does (Bishop 1995): rare words and
    features that hardly vary count for little, unless many pairs agree on them. ``contrast-matching`` reads its scores.

    Args:
        model: not read; it is trained by the other objectives of the stage.
        data_spec: vocabulary and width of a region feature.
        width: of the shared space.
        noise: expected length of the noise on a picture's and on a sentence's input, whose own length is 1.
        init_std: deviation of freshly drawn weights; small, so that words hardly seen in training hardly count.
        temperature: to begin with; the scale is log(1 / temperature).
        learned: whether the temperature is learned.
        positives: as for ``contrast``.
        view: the view it reads.
    """

    paper = "Frome et al. 2013 (linear image-text embedding); Bishop 1995 (noise as a ridge); CLIP, Radford et al. 2021"
    inputs = frozenset({"text", "regions"})
    requires = frozenset()

    rarity: Tensor

    def __init__(
        self,
        model: Model,
        data_spec: DataSpec,
        *,
        width: int = 128,
        noise: tuple[float, float] = (1.0, 1.0),
        init_std: float = 0.002,
        temperature: float = 0.1,
        learned: bool = False,
        positives: Positives = "masked",
        view: str = "clean",
    ) -> None:
        options: dict[str, Any] = {"temperature": temperature, "learned": learned, "positives": positives, "view": view}
        super().__init__(model, data_spec, width=width, second=False, **options)
        if len(noise) != 2 or min(noise) < 0:
            got = str(list(noise))
            raise ComponentError("Noise has two lengths, 0 or more.", where="bag-contrast.noise", got=got)
        self.noise = (float(noise[0]), float(noise[1]))
        self.text = nn.Linear(data_spec.vocab_size, width)
        self.image = nn.Linear(data_spec.region_dim, width)
        for layer in (self.text, self.image):
            nn.init.normal_(layer.weight, std=init_std)
            nn.init.zeros_(layer.bias)
        self.register_buffer("rarity", torch.ones(data_spec.vocab_size))

    def setup(self, readers: Sequence[Any], tokenizer: Any, folder: Path | None) -> None:
        """Count in how many sentences each piece occurs: ``rarity`` is ln((1 + N) / (1 + n)) + 1."""
        texts = {example.text for reader in readers for example in reader.examples() if example.text}
        counts = torch.zeros(len(self.rarity), dtype=torch.double)
        for text in texts:
            sample = tokenizer.encode(text, "", None)
            counts[sorted({int(piece) for piece in sample.ids})] += 1
        self.rarity.copy_(((1 + len(texts)) / (1 + counts)).log() + 1)

    def embed(self, step: ForwardPasses, side: Literal["text", "image"]) -> Tensor:
        """Normalised vectors of unique sentences (N, width) or pictures (M, width)."""
        view = step.view(self.view)
        if side == "text":
            assert view.text is not None
            return self._vector(self.text, self.bags(view.text), self.noise[1])
        assert view.images is not None
        return self._vector(self.image, self.means(view.images), self.noise[0])

    def unique(self, step: ForwardPasses, second: bool = False) -> tuple[Tensor, Tensor]:
        """Vectors of a step's unique sentences (N, width) and pictures (M, width)."""
        return self.embed(step, "text"), self.embed(step, "image")

    def bags(self, text: Text) -> Tensor:
        """(N, V) weighted counts of pieces, length 1; special tokens do not count."""
        real = (text.mask & ~text.special).to(self.rarity.dtype)
        made = self.rarity.new_zeros(len(text.ids), len(self.rarity))
        return F.normalize(made.scatter_add_(1, text.ids, self.rarity[text.ids] * real), dim=-1)

    @staticmethod
    def means(images: Images) -> Tensor:
        """(M, F) the mean feature of each picture's regions, length 1.

        Raises:
            DataError: the batch has no region features.
        """
        regions = images.regions
        if regions is None:
            hint = "use a model that reads region features (image: features), or contrast"
            raise DataError("The batch has no region features.", where="objective bag-contrast", hint=hint)
        real = regions.mask[..., None].to(regions.features.dtype)
        total = (full_precision(regions.features) * real).sum(1) / real.sum(1).clamp(min=1)
        return F.normalize(total, dim=-1)

    def _vector(self, layer: nn.Module, rows: Tensor, noise: float) -> Tensor:
        if self.training and noise > 0:
            rows = rows + torch.randn_like(rows) * (noise / math.sqrt(rows.shape[1]))
        made: Tensor = F.normalize(full_precision(layer(rows)), dim=-1)
        return made
