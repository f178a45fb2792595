"""FiLM: convolutions whose channels a question scales and shifts, for small pictures and for few of them."""

from collections.abc import Mapping
from itertools import pairwise
from math import gcd
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

import vlcli.nn as vl
from vlcli.errors import ComponentError


class FiLM(vl.Model):
    """Feature-wise linear modulation: a question scales and shifts the channels of convolutional features.

    Strided convolutions read every picture once, however many questions are asked about it. Per question, the cells
    pass a modulation with ReLU and ``blocks`` residual 3x3 convolutions, each modulated too; the largest value of every
    channel over the cells makes the pooled vector. A picture alone passes the same layers without modulation.
    Differences from the paper: group instead of batch normalisation (several processes compute the same gradient as
    one), and a modulation before the first block, so that none is needed.

    Args:
        image_size: height and width in pixels.
        convolutions: channels of the 3x3 convolutions that halve height and width, from the pixels on.
        blocks: residual convolutions behind them.
        hidden: width of the question and of the pooled vectors.
        words: width of a word; 0 for pictures without texts.
        dropout: of words and of pooled vectors.
    """

    paper = "FiLM, Perez et al., AAAI 2018, arXiv:1709.07871"
    capabilities = frozenset({"text", "image", "fuse"})
    heads: ClassVar[Mapping[str, str]] = {"answer": "linear"}

    def __init__(
        self,
        data_spec: vl.DataSpec,
        *,
        image_size: int | tuple[int, int] = 64,
        convolutions: list[int] = [16, 32, 64],  # noqa: B006 (only read)
        blocks: int = 0,
        hidden: int = 128,
        words: int = 64,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(data_spec)
        if not convolutions:
            raise ComponentError("FiLM needs a convolution.", where="model film", got="convolutions: []")
        self.image_size = (image_size, image_size) if isinstance(image_size, int) else (image_size[0], image_size[1])
        self.hidden, self.words, self.init_std = hidden, None, hidden**-0.5
        (rows, columns), channels, stem = self.image_size, convolutions[-1], []
        for inputs, outputs in pairwise([3, *convolutions]):
            rows, columns = (rows + 1) // 2, (columns + 1) // 2
            halved = nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.GroupNorm(gcd(8, outputs), outputs)
            stem.append(nn.Sequential(*halved, nn.ReLU(inplace=True)))
        del stem[-1][-1]  # its ReLU follows the modulation
        self.grid, self.stem = (rows, columns), nn.Sequential(*stem)
        self.place = nn.Linear(2, channels, bias=False)
        nn.init.zeros_(self.place.weight)  # a cell is first what it shows
        self.blocks = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(blocks))
        self.norm = nn.GroupNorm(gcd(8, channels), channels, affine=False)
        self.mix, self.out = nn.Linear(channels, hidden), nn.Linear(hidden, hidden)
        self.drop = nn.Dropout(dropout)
        if words:
            self.words = nn.Embedding(data_spec.vocab_size, words, padding_idx=data_spec.pad_id)
            self.question = nn.GRU(words, hidden, batch_first=True)
            self.modulate = nn.Linear(hidden, 2 * channels * (1 + blocks))

    @property
    def dim(self) -> int:
        return self.hidden

    @property
    def network_shape(self) -> vl.NetworkShape:
        return vl.NetworkShape(self.hidden, 0, post_norm=False, factor=2.4)

    def input_spec(self) -> vl.InputSpec:
        # Pixels, normalised as ImageNet's, and texts unless ``words`` is 0
        text = self.words is not None
        return vl.InputSpec(text=text, pixels=True, size=self.image_size, mean=vl.IMAGENET_MEAN, std=vl.IMAGENET_STD)

    def encode_text(self, text: vl.Text, record: vl.Recorder | None = None) -> vl.EncoderOutput:
        # States of the GRU (N, T, D), and the one after the last piece as ``pooled``
        assert self.words is not None
        words = self.drop(self.words(text.ids))
        hidden = vl.recurrent_states(self.question, words)  # padding comes last: no state before it sees it
        last = (text.mask.sum(1) - 1)[:, None, None].expand(-1, 1, self.hidden)
        return vl.EncoderOutput(hidden, vl.Layout.for_text(text.mask, text.special), hidden.gather(1, last)[:, 0])

    def encode_image(self, images: vl.Images, record: vl.Recorder | None = None) -> vl.EncoderOutput:
        # Cells (M, R, C) with their places, and the pooled vector (M, D) of a picture without a question
        maps = self.stem(images.pixels_for("film").to(self.place.weight.dtype))  # (M, C, h, w)
        rows, columns = maps.shape[-2:]
        layout = vl.Layout.for_grid(rows, columns, device=maps.device)
        extent = layout.centre.new_tensor([max(rows - 1, 1), max(columns - 1, 1)])
        cells = maps.flatten(2).transpose(1, 2) + self.place((2 * layout.centre / extent - 1).to(maps.dtype))
        modulation = cells.new_zeros(1, 2 * cells.shape[-1] * (1 + len(self.blocks)))
        return vl.EncoderOutput(cells, layout, self._pool(cells, (rows, columns), modulation))

    def fuse(
        self, text: vl.EncoderOutput, image: vl.EncoderOutput, record: vl.Recorder | None = None
    ) -> vl.FusionOutput:
        # The question modulates the cells; ``pooled`` (P, D) is what is left of them
        grid = image.layout.grid
        assert grid is not None
        return vl.FusionOutput(text, image, self._pool(image.hidden, grid, self.modulate(text.pooled)))

    def _pool(self, cells: Tensor, grid: tuple[int, int], modulation: Tensor) -> Tensor:
        # Modulate cells (P, R, C), mix neighbours, and reduce them to (P, D): Eq. 2 and section 2.2 of the paper.
        scale, shift, *more = modulation[:, None].chunk(2 * (1 + len(self.blocks)), -1)  # (P, 1, C) each
        cells = F.relu(cells * (1 + scale) + shift)
        for number, block in enumerate(self.blocks):
            maps = self.norm(block(cells.transpose(1, 2).unflatten(2, grid)))  # (P, C, h, w)
            scale, shift = more[2 * number : 2 * number + 2]
            cells = cells + F.relu(maps.flatten(2).transpose(1, 2) * (1 + scale) + shift)
        pooled: Tensor = self.drop(F.relu(self.out(F.relu(self.mix(cells)).amax(1))))
        return pooled
