"""Builds text towers from any encoder of transformers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlcli.errors import DataError
from vlcli.nn import DataSpec, Text
from vlcli_two_tower import source
from vlcli_two_tower.source import Source

Pool = Literal["auto", "first", "last", "mean", "tower"]
_LAST = ("clip_text_model", "metaclip_2_text_model")
"""Towers whose sentence is the hidden state of its last real token (CLIP's end of text)."""
_WHOLE = ("siglip_text_model", "siglip2_text_model")
"""Towers that read every sentence padded to full length, padding included, as they were trained."""


class TextTower(nn.Module):
    """A text encoder of transformers.

    Args:
        pool: which vector stands for a sentence: its first token, its last real token, the mean over real tokens, or
            the tower's own pooled vector; ``auto``: as the tower was trained.
    """

    def __init__(self, network: Any, pool: Pool = "auto") -> None:
        super().__init__()
        self.network: Any = network
        self.config: Any = network.config
        self.hidden = int(self.config.hidden_size)
        self.whole = self.config.model_type in _WHOLE
        usual: Pool = "last" if self.config.model_type in _LAST else "tower" if self.whole else "first"
        self.pool = usual if pool == "auto" else pool
        projected = getattr(self.config, "projection_size", None) if self.whole and self.pool == "tower" else None
        self.pooled = int(projected or self.hidden)

    def pad_id(self, data_spec: DataSpec) -> int:
        """Returns the id that the tower was trained to see at padding."""
        pad = getattr(self.config, "pad_token_id", None)
        return pad if isinstance(pad, int) and 0 <= pad < self.config.vocab_size else data_spec.pad_id

    def forward(self, text: Text, pad: int) -> tuple[Tensor, Tensor]:
        """Returns states (N, T, D) and one vector a sentence (N, D')."""
        ids, words = text.ids.masked_fill(~text.mask, pad), text.ids.shape[1]
        if self.whole:
            ids = F.pad(ids, (0, int(self.config.max_position_embeddings) - words), value=pad)
            out = self.network(input_ids=ids)
        else:
            mask = None if ids.is_meta else text.mask.long()  # transformers reads a mask's values
            out = self.network(input_ids=ids, attention_mask=mask)
        hidden: Tensor = out.last_hidden_state  # (N, T, D)
        return hidden[:, :words], self._pooled(out, hidden, text.mask)

    def _pooled(self, out: Any, hidden: Tensor, mask: Tensor) -> Tensor:
        if self.pool == "tower":
            if getattr(out, "pooler_output", None) is None:
                what, where = "The text tower pools nothing itself.", "model.text_pool"
                raise DataError(what, where=where, got="tower", expected="first, mean")
            return torch.as_tensor(out.pooler_output)
        if self.pool == "first":
            return hidden[:, 0]
        if self.pool == "mean":
            real = mask[..., None].to(hidden.dtype)
            return (hidden[:, : mask.shape[1]] * real).sum(1) / real.sum(1).clamp(min=1)
        last = (mask.long().sum(1) - 1).clamp(min=0)  # (N,)
        return hidden.gather(1, last[:, None, None].expand(-1, 1, hidden.shape[-1]))[:, 0]

    def embeddings(self) -> nn.Embedding:
        """Returns the word embeddings (V, D)."""
        table: nn.Embedding = self.network.get_input_embeddings()
        return table


def text_config(tower: Source, data_spec: DataSpec) -> tuple[Any, str]:
    """Returns a text tower's configuration and its name in a dual model; for drawn weights the data completes it."""
    config = dict(tower.config)
    if tower.folder is None:
        dual = {"text_config", "vision_config"} & config.keys() or config.get("model_type") in ("clip", "siglip")
        part = config.setdefault("text_config", {}) if dual else config
        ids = {"pad_token_id": data_spec.pad_id, "bos_token_id": data_spec.cls_id, "eos_token_id": data_spec.sep_id}
        for key, value in {"vocab_size": data_spec.vocab_size, **ids}.items():
            part.setdefault(key, value)
    return source.part_of(source.configuration(replace(tower, config=config)), ("text_config",))


def check_text(tower: TextTower, data_spec: DataSpec, where: str) -> None:
    """Refuses a vocabulary or a length that the tower has no embeddings for.

    Raises:
        DataError: the tokenizer has more pieces than the tower, or texts are longer than its position table.
    """
    if data_spec == DataSpec():  # no data have been seen: a check before a run
        return
    rows = tower.embeddings().num_embeddings
    if data_spec.vocab_size > rows:
        raise DataError(
            "The tokenizer has more pieces than the text tower has embeddings.",
            where=f"model.{where}",
            got=f"{data_spec.vocab_size:,} pieces and {rows:,} embeddings",
            expected="the tower's own tokenizer",
            hint="leave out text.vocabulary, or name the tower's folder there",
        )
    most = getattr(tower.config, "max_position_embeddings", None)
    if isinstance(most, int) and "roberta" in tower.config.model_type:
        most -= int(tower.config.pad_token_id or 0) + 1  # RoBERTa's tables begin behind the id of padding
    if isinstance(most, int) and data_spec.text_length > most:
        what = "Sentences may be longer than the text tower's position table."
        got, hint = f"text.length {data_spec.text_length}", f"text: {{length: {most}}}"
        raise DataError(what, where=f"model.{where}", got=got, expected=f"at most {most}", hint=hint)
