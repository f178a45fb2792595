"""Defines bottom-up and top-down attention (BUTD), the baseline of LXMERT's Table 3."""

from collections.abc import Mapping
from functools import partial
from typing import ClassVar, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vlcli.nn as vl
from vlcli_lxmert.names import from_public

# Factor of the rule for the learning rate; docs/learning.md has the trials
RATE = 3.0


class GatedTanh(nn.Module):
    """tanh(W x + b) * sigmoid(W' x + b'), Eq. 1 and 2 of Anderson et al. 2018."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.value, self.gate = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.value(x)) * torch.sigmoid(self.gate(x))  # (..., outputs)


vl.register_head("butd-answer", lambda dim, outputs: nn.Sequential(GatedTanh(dim, dim), nn.Linear(dim, outputs)))


def weighted_regions(scores: Tensor, image: vl.EncoderOutput, record: vl.Recorder | None) -> Tensor:
    """Returns the mean (P, F) of regions weighted by the softmax of ``scores`` (P, R), recorded as ``top_down``."""
    padding = ~image.layout.valid  # all of a picture without regions, whose mean is 0
    weights = scores.masked_fill(padding, torch.finfo(scores.dtype).min).softmax(-1).masked_fill(padding, 0)
    if record is not None:
        record.keep("top_down", weights[:, None, None])
    return (weights[..., None] * image.hidden).sum(1)


class RecurrentEncoder(nn.Module):
    """A GRU or LSTM over words; the state after the last word piece is ``pooled``."""

    def __init__(self, data_spec: vl.DataSpec, words: int, hidden: int, cell: str, dropout: float) -> None:
        super().__init__()
        self.words = nn.Embedding(data_spec.vocab_size, words, padding_idx=data_spec.pad_id)
        self.drop = nn.Dropout(dropout)
        self.cell = (nn.LSTM if cell == "lstm" else nn.GRU)(words, hidden, batch_first=True)

    def forward(self, text: vl.Text) -> vl.EncoderOutput:
        # Padding comes last: no state before it sees it.
        hidden = vl.recurrent_states(self.cell, self.drop(self.words(text.ids)))
        last = (text.mask.sum(1) - 1)[:, None, None].expand(-1, 1, hidden.shape[-1])
        return vl.EncoderOutput(hidden, vl.Layout.for_text(text.mask, text.special), hidden.gather(1, last)[:, 0])


class BUTD(vl.Model):
    """Bottom-up and top-down attention: the question attends to regions, the product of both is classified.

    Boxes are not read, as in the paper. The attention is recorded as ``top_down`` (P, 1, 1, R).

    Args:
        encoder: of the question: ``gru`` (the paper), ``lstm``, or ``bert`` (LXMERT's Table 3), filled by a BERT
            checkpoint in ``from``.
        hidden: width of the recurrent state, the attention and the product.
        words: width of a word of the recurrent encoder.
        text_hidden: width of BERT.
        text_heads: its attention heads.
        text_layers: its layers.
        dropout: of words and regions, and inside BERT.
        normalise: divide every region by its length first.
        init_std: deviation of BERT's fresh weights; all others are drawn as torch does.
    """

    paper = "Anderson et al., CVPR 2018, arXiv:1707.07998, section 3.3; with BERT: LXMERT, Table 3"
    capabilities = frozenset({"text", "image", "fuse"})
    heads: ClassVar[Mapping[str, str]] = dict.fromkeys(("answer", "pair", "label"), "butd-answer")

    def __init__(
        self,
        data_spec: vl.DataSpec,
        *,
        encoder: Literal["gru", "lstm", "bert"] = "gru",
        hidden: int = 512,
        words: int = 300,
        text_hidden: int = 768,
        text_heads: int = 12,
        text_layers: int = 12,
        dropout: float = 0.1,
        normalise: bool = True,
        init_std: float = 0.02,
    ) -> None:
        super().__init__(data_spec)
        self.hidden, self.normalise, self.init_std = hidden, normalise, init_std
        self.recurrent = None if encoder == "bert" else RecurrentEncoder(data_spec, words, hidden, encoder, dropout)
        if encoder == "bert":  # under the names of LXMERT's language encoder, so that its checkpoints fill it
            shape = vl.AttentionShape(text_hidden, text_heads, dropout=dropout)
            learned = vl.build_positions("learned", shape, vl.WORDS)[0]
            self.text = vl.TextEmbeddings(data_spec, text_hidden, learned, dropout=dropout)
            self.language = vl.Stack.of(text_layers, shape, None, vl.BlockStyle(dropout=dropout))
            self.language.packed = True
            self.pooler = vl.Pooler(text_hidden)
            for part in (self.text, self.language, self.pooler):
                part.apply(partial(vl.initialise, std=self.init_std))
        question = text_hidden if encoder == "bert" else hidden
        self.attend = GatedTanh(data_spec.region_dim + question, hidden)
        self.score = nn.Linear(hidden, 1)
        self.of_question, self.of_regions = GatedTanh(question, hidden), GatedTanh(data_spec.region_dim, hidden)
        self.drop = nn.Dropout(dropout)

    @property
    def dim(self) -> int:
        return self.hidden

    @property
    def network_shape(self) -> vl.NetworkShape:
        if self.recurrent is None:
            return super().network_shape
        return vl.NetworkShape(self.hidden, 0, post_norm=False, factor=RATE)

    def input_spec(self) -> vl.InputSpec:
        return vl.InputSpec(text=True, regions=True)

    def encode_text(self, text: vl.Text, record: vl.Recorder | None = None) -> vl.EncoderOutput:
        if self.recurrent is not None:
            return cast("vl.EncoderOutput", self.recurrent(text))
        tokens, layout = self.text(text)
        hidden, _ = self.language(tokens, layout, vl.AttentionMask(layout.valid), record=record, name="language")
        return vl.EncoderOutput(hidden, layout, self.pooler(hidden))

    def encode_image(self, images: vl.Images, record: vl.Recorder | None = None) -> vl.EncoderOutput:
        regions = images.regions_for("butd")
        features = regions.features.to(self.score.weight.dtype)
        features = F.normalize(features, dim=-1) if self.normalise else features
        return vl.EncoderOutput(self.drop(features), vl.Layout.for_boxes(regions.boxes, regions.mask))

    def fuse(
        self, text: vl.EncoderOutput, image: vl.EncoderOutput, record: vl.Recorder | None = None
    ) -> vl.FusionOutput:
        question, regions = text.pooled, image.hidden  # (P, Q), (P, R, F)
        assert question is not None
        beside = question[:, None].expand(-1, regions.shape[1], -1)
        scores = self.score(self.attend(torch.cat([regions, beside], -1)))[..., 0]  # (P, R)
        seen = weighted_regions(scores, image, record)  # (P, F)
        return vl.FusionOutput(text, image, self.of_question(question) * self.of_regions(seen))

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        return from_public(state, dict(self.named_parameters()), report)
