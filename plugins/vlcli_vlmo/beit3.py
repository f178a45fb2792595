"""Defines BEiT-3: VLMo's experts, DiMBERT's disentangled projections, and norms for each modality."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, cast

import torch
from torch import Tensor, nn

import vlcli.nn as vl
from vlcli.errors import ComponentError
from vlcli.registry import PositionSpec
from vlcli_vlmo.blocks import IMAGE_EXPERT, TEXT_EXPERT
from vlcli_vlmo.multiway import MultiwayStack, adapt

# Hidden size, layers and heads of the published files (BEiT-3, Table 2, and the released code for ``base``)
SIZES = {"base": (768, 12, 12), "large": (1024, 24, 16)}
EPS = 1e-5
_LONGEST_CAPTION = 512  # word positions of a model that generates; the published files have 1,022


class WordLayer(nn.Linear):
    """A masked-word head of one linear layer (``mlm_head`` of the released captioning model)."""

    def forward(self, hidden: Tensor, table: Tensor | None = None) -> Tensor:
        return super().forward(hidden)


class PairHead(nn.Module):
    """Scores statements about two pictures: norm, linear layer, norm, GELU, linear layer (released ``TwoLayerMLP``)."""

    def __init__(self, dim: int, outputs: int) -> None:
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(dim, eps=EPS), nn.Linear(dim, dim // 2)
        self.inner_norm, self.outer = nn.LayerNorm(dim // 2, eps=EPS), nn.Linear(dim // 2, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.gelu(self.inner_norm(self.inner(self.norm(x))))
        return cast("Tensor", self.outer(x))  # (..., outputs)


vl.register_head("beit3-mlm", WordLayer)
vl.register_head("beit3-pair", PairHead)


class NormedPooler(nn.Module):
    """Norm, linear layer and tanh of the first token, (N, D): ``Pooler`` of the released code."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm, self.dense = nn.LayerNorm(dim, eps=EPS), nn.Linear(dim, dim)

    def forward(self, hidden: Tensor) -> Tensor:
        return torch.tanh(self.dense(self.norm(hidden[:, 0])))  # (N, D)


@dataclass
class Said:
    """The cache of incremental decoding, of P pictures."""

    cache: vl.KeyValueCache  # of patches and words; a mask is never kept
    words: Tensor  # (P,) how many words each row has, the class token included
    ahead: bool = False  # the class token is cached before its step (texts that decoding goes on from)

    def select(self, rows: Tensor, per: int = 1) -> Said:
        return Said(self.cache.select(rows, per), self.words[rows], self.ahead)


class BEiT3(vl.Model):
    """BEiT-3: one transformer over words and patches in which each modality has all weights of its own.

    Layers have VLMo's experts (without the vision-language one) and DiMBERT's disentangled projections; only the
    softmax is shared (a multiway transformer). Pixels are expected in [-1, 1]. Attention is recorded under ``text.N``,
    ``image.N`` and ``fuse.N``.

    A text that is ``causal`` is read as sequence to sequence: patches attend to patches, a word to all patches and to
    the words up to itself. With ``captions`` the model has a word head, which ``s2slm`` trains, and generates.

    Args:
        size: hidden size, layers and heads of a published file.
        hidden: another hidden size.
        layers: another number of layers.
        heads: another number of heads.
        intermediate: width inside a feed-forward network; None: four times the hidden size.
        image_size: height and width of pictures in pixels.
        patch: height and width of a patch in pixels.
        position: pairwise position encodings of all layers; BEiT-3 has none.
        pooled: the vector of a pair: ``pooler``, of the picture's class token; or ``both``, the first tokens of picture
            and text side by side, twice as wide (the published files for NLVR2).
        captions: whether the model has a word head and generates.
        final_norm: whether a norm follows the last layer; the published files for questions have none.
        drop_path: stochastic depth of the last layer, growing linearly with depth.
        init_std: standard deviation of initial weights; ``auto``: 0.02 at width 768, more in a narrower model.
    """

    paper = "BEiT-3, Wang et al., CVPR 2023, arXiv:2208.10442"
    grid: tuple[int, int]
    capabilities = frozenset({"text", "image", "fuse", "hide", "generate"})
    fuse_takes = "embeddings"
    readouts = frozenset({"pooler", "word_head"})
    slots: ClassVar[Mapping[str, vl.Slot]] = {
        "position": vl.Slot.of("position", ["pairs"], ["word", "cell", "special"])
    }
    heads: ClassVar[Mapping[str, str]] = {
        "mlm": "beit3-mlm",
        "matching": "linear",
        "answer": "vlmo-answer",
        "pair": "beit3-pair",
    }

    def __init__(
        self,
        data_spec: vl.DataSpec,
        *,
        size: Literal["base", "large"] = "base",
        hidden: int | None = None,
        layers: int | None = None,
        heads: int | None = None,
        intermediate: int | None = None,
        image_size: int = 224,
        patch: int = 16,
        position: PositionSpec | list[PositionSpec] | None = None,
        pooled: Literal["pooler", "both"] = "pooler",
        captions: bool = False,
        final_norm: bool = True,
        drop_path: float = 0.1,
        init_std: vl.InitStd = "auto",
    ) -> None:
        super().__init__(data_spec)
        sizes = zip((hidden, layers, heads), SIZES[size], strict=True)
        width, depth, count = (chosen or published for chosen, published in sizes)
        self.image_size, self.grid = image_size, vl.image_grid("pixels", image_size, patch, (0, 0), "beit3")
        self.init_std = vl.init_scale(init_std, width, published=SIZES["base"][0])
        shape, style = vl.AttentionShape(width, count, depth), vl.BlockStyle("pre", EPS, 0.0, drop_path=drop_path)
        self.words = nn.Embedding(data_spec.vocab_size, width)
        longest = max(data_spec.text_length, _LONGEST_CAPTION if captions else 0)
        self.word_positions = vl.LearnedPosition(shape, length=longest)
        self.patch = nn.Conv2d(3, width, patch, stride=patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.cell_positions = vl.LearnedPosition(shape, grid=self.grid)
        encoding = vl.build_positions(position, shape, self.slots["position"])[1]
        self.stack = MultiwayStack(shape, intermediate or 4 * width, style, encoding, final_norm)
        self.pooler = NormedPooler(width) if pooled == "pooler" else None
        self.word_head = WordLayer(width, data_spec.vocab_size) if captions else None
        self.capabilities = self.capabilities - (frozenset() if captions else {"generate"})
        vl.initialise_model(self, self.init_std)
        nn.init.trunc_normal_(self.cls_token, std=self.init_std)

    @property
    def dim(self) -> int:
        return self.words.embedding_dim

    @property
    def pooled_dim(self) -> int:
        return self.dim if self.pooler is not None else 2 * self.dim

    @property
    def depth(self) -> int:
        return len(self.stack.layers)

    @property
    def network_shape(self) -> vl.NetworkShape:
        return vl.NetworkShape(self.dim, self.depth, post_norm=False)

    def input_spec(self) -> vl.InputSpec:
        return vl.InputSpec(text=True, pixels=True, size=(self.image_size, self.image_size))

    def word_table(self) -> nn.Embedding:
        return self.words

    def embed_text(self, text: vl.Text) -> vl.EncoderOutput:
        layout = vl.Layout.for_text(text.mask, text.special)
        extra = {} if text.causal is None else {"causal": text.causal}
        return vl.EncoderOutput(self.word_positions(self.words(text.ids), layout), layout, extra=extra)

    def embed_image(self, images: vl.Images) -> vl.EncoderOutput:
        positions = (self.cell_positions,)
        return vl.embed_grid(images, self.patch, self.cls_token, positions, self.grid, "beit3", self.image_size)

    def encode_text(self, text: vl.Text, record: vl.Recorder | None = None) -> vl.EncoderOutput:
        return self._alone(self.embed_text(text), TEXT_EXPERT, record)

    def encode_image(self, images: vl.Images, record: vl.Recorder | None = None) -> vl.EncoderOutput:
        return self._alone(self.embed_image(images), IMAGE_EXPERT, record)

    def _alone(self, states: vl.EncoderOutput, expert: str, record: vl.Recorder | None) -> vl.EncoderOutput:
        x, layout = states.hidden, states.layout
        options = {"keep": self.output_hidden_states, "record": record, "name": expert}
        hidden, kept = self.stack(x, layout, [(expert, x.shape[1])], vl.AttentionMask(layout.valid), **options)
        return vl.EncoderOutput(hidden, layout, hidden[:, 0], kept)

    def fuse(
        self, text: vl.EncoderOutput, image: vl.EncoderOutput, record: vl.Recorder | None = None
    ) -> vl.FusionOutput:
        patches, layout = image.hidden.shape[1], image.layout + text.layout
        x = torch.cat([image.hidden, text.hidden], 1)
        parts = [(IMAGE_EXPERT, patches), (TEXT_EXPERT, text.hidden.shape[1])]
        mask = vl.AttentionMask.sequence_to_sequence(layout.valid, patches, text.extra.get("causal"))
        hidden, kept = self.stack(x, layout, parts, mask, keep=self.output_hidden_states, record=record, name="fuse")
        layers = {number: states[:, patches:] for number, states in kept.items()}
        of_text = vl.EncoderOutput(hidden[:, patches:], text.layout, layers=layers)
        both = torch.cat([hidden[:, 0], hidden[:, patches]], 1) if self.pooler is None else self.pooler(hidden)
        return vl.FusionOutput(of_text, vl.EncoderOutput(hidden[:, :patches], image.layout), both)

    def word_scores(self, hidden: Tensor) -> Tensor:
        if self.word_head is None:
            raise ComponentError("BEiT-3 has no word head.", where="model beit3", hint="set captions: true")
        return cast("Tensor", self.word_head(hidden))  # (..., V)

    def start(self, image: vl.EncoderOutput, text: vl.Text | None = None) -> Said:
        cache, mask = vl.KeyValueCache(), vl.AttentionMask(image.layout.valid)
        self.stack(image.hidden, image.layout, [(IMAGE_EXPERT, image.hidden.shape[1])], mask, cache=cache)
        said = Said(cache, torch.zeros(image.hidden.shape[0], dtype=torch.long, device=image.hidden.device))
        if text is None or (words := text.beginnings()) is None:
            return said
        first = words.new_full((len(words), 1), self.data_spec.cls_id)
        return replace(self._append(said, torch.cat([first, words], 1))[0], ahead=True)

    def _append(self, said: Said, ids: Tensor) -> tuple[Said, Tensor]:
        # Words (P, T) after those said, and their hidden states (P, T, D); ``said`` itself stays as it is.
        layout = vl.Layout.for_text(torch.ones_like(ids, dtype=torch.bool))
        layout = replace(layout, index=layout.index + said.words[:, None])
        x, cache = self.word_positions(self.words(ids), layout), said.cache.copy()
        mask, parts = vl.AttentionMask(causal=True), [(TEXT_EXPERT, ids.shape[1])]
        hidden, _ = self.stack(x, layout, parts, mask, cache=cache)
        return Said(cache, said.words + ids.shape[1]), hidden

    def step(self, ids: Tensor, cache: Said) -> tuple[Tensor, Said]:
        # The word chosen last and a mask after it; the class token is passed over where ``start`` was given words.
        mask = torch.full_like(ids, self.data_spec.mask_id)
        new = mask[:, None] if cache.ahead else torch.stack([ids, mask], 1)
        grown, hidden = self._append(cache, new)
        grown.cache.truncate(grown.cache.length - 1)
        return self.word_scores(hidden[:, -1]), Said(grown.cache, grown.words - 1)

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        return adapt(self, state, report)

    def layer_of(self, name: str) -> int | None:
        return vl.layer_number(name, {"stack.layers.": 0}, ("stack.", "pooler.", "word_head."), self.depth)
