"""Reads visual tokenizers from local files: the encoder of DALL-E's discrete VAE, and BEiT v2's codebook."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlcli.errors import DataError
from vlcli.nn.weights import load_tensors, read_weights

EDGE = 0.1  # DALL-E's encoder takes pixels in [0.1, 0.9] (Ramesh et al. 2021, appendix A.3).


class Tokenizer(nn.Module):
    """Converts pixels in [0, 1] to one id a patch."""

    codes: int  # number of ids

    def forward(self, pixels: Tensor, grid: tuple[int, int]) -> Tensor:
        # (M, rows * columns) ids of pixels (M, 3, H, W)
        raise NotImplementedError(f"{type(self).__name__} gives no ids")


class _Conv(nn.Module):  # under the names of DALL-E's file
    def __init__(self, inputs: int, outputs: int, side: int) -> None:
        super().__init__()
        self.w, self.b = nn.Parameter(torch.empty(outputs, inputs, side, side)), nn.Parameter(torch.empty(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.w, self.b, padding="same")


class _Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, gain: float) -> None:
        super().__init__()
        self.gain, inner = gain, outputs // 4
        self.id_path = _Conv(inputs, outputs, 1) if inputs != outputs else nn.Identity()
        sizes = [(inputs, inner, 3), (inner, inner, 3), (inner, inner, 3), (inner, outputs, 1)]
        parts: list[tuple[str, nn.Module]] = []
        for number, size in enumerate(sizes, 1):
            parts += [(f"relu_{number}", nn.ReLU()), (f"conv_{number}", _Conv(*size))]
        self.res_path = nn.Sequential(OrderedDict(parts))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.id_path(x) + self.gain * self.res_path(x)
        return out


class DiscreteVAE(Tokenizer):
    """The encoder of DALL-E's discrete VAE: an id for every 8 x 8 pixels of a picture eight times the grid.

    Args:
        width: channels of the first group.
        groups: groups of blocks, each half the size and twice the width of the one before.
        blocks: a group.
        codes: how many ids.
    """

    paper = "Ramesh et al. 2021, Zero-Shot Text-to-Image Generation, appendix A; used by BEiT, Bao et al. 2022"

    def __init__(self, width: int, groups: int, blocks: int, codes: int) -> None:
        super().__init__()
        self.codes, self.shrinks = codes, 2 ** (groups - 1)
        parts: list[tuple[str, nn.Module]] = [("input", _Conv(3, width, 7))]
        gain, before = 1 / (groups * blocks) ** 2, width
        for group in range(groups):
            wide = width * 2**group
            inner: list[tuple[str, nn.Module]] = []
            for block in range(blocks):
                inner.append((f"block_{block + 1}", _Block(before if block == 0 else wide, wide, gain)))
            before = wide
            inner += [("pool", nn.MaxPool2d(2))] if group < groups - 1 else []
            parts.append((f"group_{group + 1}", nn.Sequential(OrderedDict(inner))))
        parts.append(("output", nn.Sequential(OrderedDict(relu=nn.ReLU(), conv=_Conv(before, codes, 1)))))
        self.blocks = nn.Sequential(OrderedDict(parts))

    @classmethod
    def of(cls, state: Mapping[str, Tensor]) -> DiscreteVAE:
        """Return an encoder of the sizes of a file's tensors."""
        groups = len({name.split(".")[1] for name in state if name.startswith("blocks.group_")})
        blocks = len({name.split(".")[2] for name in state if name.startswith("blocks.group_1.block_")})
        return cls(len(state["blocks.input.b"]), groups, blocks, len(state["blocks.output.conv.b"]))

    def forward(self, pixels: Tensor, grid: tuple[int, int]) -> Tensor:
        # (M, cells) ids of pixels (M, 3, H, W) in [0, 1]
        pixels = _resized(pixels, [side * self.shrinks for side in grid])
        out: Tensor = self.blocks((1 - 2 * EDGE) * pixels + EDGE).argmax(1).flatten(1)
        return out


class Codebook(Tokenizer):
    """BEiT v2's tokenizer: a vision transformer whose patches are sorted into the nearest of its codes.

    Args:
        state: its tensors, which say its sizes.
    """

    paper = "Peng et al. 2022, BEiT v2, section 3.1 (vector-quantised knowledge distillation)"
    unneeded: ClassVar[tuple[str, ...]] = (
        *("decoder.*", "decode_task_layer.*", "teacher*", "scaling*", "loss*", "*relative_position_index"),
        *("quantize.cluster_size", "quantize.embedding.cluster_size"),
        *("quantize.embedding.embed_avg", "quantize.embedding.initted"),
    )

    def __init__(self, state: Mapping[str, Tensor]) -> None:
        super().__init__()
        from timm.models.beit import Beit

        width, _, self.patch, _ = state["encoder.patch_embed.proj.weight"].shape
        self.side = round((state["encoder.pos_embed"].shape[1] - 1) ** 0.5)
        depth = 1 + max(int(match[1]) for name in state if (match := re.match(r"encoder\.blocks\.(\d+)\.", name)))
        hidden = state["encoder.blocks.0.mlp.fc1.weight"].shape[0]
        self.encoder: Any = Beit(
            img_size=self.side * self.patch, patch_size=self.patch, embed_dim=width, depth=depth,
            num_heads=max(1, width // 64), mlp_ratio=hidden / width, num_classes=0, global_pool="avg",
            init_values=0.1 if "encoder.blocks.0.gamma_1" in state else None,
            use_rel_pos_bias="encoder.blocks.0.attn.relative_position_bias_table" in state,
        )  # fmt: skip
        self.codes, code = state["quantize.embedding.weight"].shape
        self.encode_task_layer = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, code))
        self.quantize = nn.ModuleDict({"embedding": nn.Embedding(self.codes, code)})  # the file's names

    def forward(self, pixels: Tensor, grid: tuple[int, int]) -> Tensor:
        # (M, cells) ids of pixels (M, 3, H, W) in [0, 1]
        if grid != (self.side, self.side):
            got, expected = f"{grid[0]}x{grid[1]}", f"{self.side}x{self.side}"
            raise DataError("The tokenizer has another grid.", where="masked-image", got=got, expected=expected)
        pixels = _resized(pixels, [self.side * self.patch] * 2)
        tokens = self.encoder.forward_features(2 * pixels - 1)[:, 1:]
        codes = F.normalize(self.encode_task_layer(self.encoder.fc_norm(tokens)), dim=-1)  # (M, cells, d)
        table = cast("nn.Embedding", self.quantize["embedding"]).weight
        distance: Tensor = table.pow(2).sum(1) - 2 * codes @ table.T  # (M, cells, codes), less what all codes share
        return distance.argmin(-1)


def _resized(pixels: Tensor, size: list[int]) -> Tensor:
    if list(pixels.shape[-2:]) == size:
        return pixels
    return F.interpolate(pixels, size, mode="bicubic", antialias=True, align_corners=False).clamp(0, 1)


def read_tokenizer(file: str | Path) -> Tokenizer:
    """Read a tokenizer from safetensors, or from a checkpoint that loads with ``weights_only``."""
    state = read_weights(file)
    codebook = "quantize.embedding.weight" in state
    if not codebook and "blocks.input.w" not in state:
        expected = "DALL-E's encoder (blocks.input.w ...) or BEiT v2's (quantize.embedding.weight ...)"
        got = ", ".join(list(state)[:3])
        raise DataError("This is no visual tokenizer.", where=str(file), got=got, expected=expected)
    with torch.random.fork_rng(devices=[]):
        tokenizer: Tokenizer = Codebook(state) if codebook else DiscreteVAE.of(state)
        load_tensors(tokenizer, state, file, Codebook.unneeded if codebook else ())
    return tokenizer
