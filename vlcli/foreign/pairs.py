"""Scores sentence-picture pairs by a transformers model in a folder, and sentences by a language model."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL.Image import Image
from torch import Tensor

from vlcli.errors import ComponentError, DataError
from vlcli.foreign.transformers_folder import (
    transformers_model,
    transformers_processor,
    transformers_tokenizer,
    transformers_type,
)

# Sentences that a language model reads together
SENTENCES = 64


class PairScorer:
    """A dual encoder (CLIP, SigLIP and others with ``logits_per_text``) or BLIP's matching of pictures and sentences.

    Raises ComponentError if the model gives pairs no score, DataError if a file of the folder is missing or damaged.
    """

    def __init__(self, folder: Path, device: str = "cpu") -> None:
        from transformers import AutoModel, BlipForImageTextRetrieval

        kind = transformers_type(folder)
        self.matches = kind == "blip"
        self.model: Any = transformers_model(BlipForImageTextRetrieval if self.matches else AutoModel, folder)
        if not self.matches and not hasattr(self.model, "logit_scale"):
            what, got = "This model of transformers scores no pairs of a sentence and a picture.", f"model_type {kind}"
            expected = "a dual encoder (clip, siglip, siglip2, ...) or blip with its matching head"
            raise ComponentError(what, where=str(folder / "config.json"), got=got, expected=expected)
        self.model.to(device)
        self.folder, self.device = folder, device
        self.processor, self.tokenizer = transformers_processor(folder), transformers_tokenizer(folder)

    @torch.inference_mode()
    def __call__(self, texts: Sequence[str], names: Sequence[str], pictures: Mapping[str, Image]) -> list[float]:
        """Return the logit of each pair of a text and the name of an RGB picture; for BLIP, match less no match."""
        rows = {name: row for row, name in enumerate(dict.fromkeys(names))}
        images = self.processor(images=[pictures[name] for name in rows], return_tensors="pt").to(self.device)
        picked = [rows[name] for name in names]
        if self.matches:
            pixels = images["pixel_values"][picked]
            logits = self.model(pixel_values=pixels, **self._read(list(texts))).itm_score.float()  # (pairs, 2)
            return list((logits[:, 1] - logits[:, 0]).tolist())
        columns = {text: column for column, text in enumerate(dict.fromkeys(texts))}
        logits = self.model(**self._read(list(columns)), **images).logits_per_text.float()  # (texts, pictures)
        return list(logits[[columns[text] for text in texts], picked].tolist())

    def _read(self, texts: list[str]) -> dict[str, Tensor]:
        # a sigmoid's bias is SigLIP's, which was trained on sentences padded to one length
        padding = "max_length" if getattr(self.model, "logit_bias", None) is not None else True
        length = int(self.model.config.text_config.max_position_embeddings)
        tokens = self.tokenizer(texts, padding=padding, max_length=length, truncation=True, return_tensors="pt")
        return {name: tokens[name].to(self.device) for name in ("input_ids", "attention_mask") if name in tokens}


@torch.inference_mode()
def log_likelihoods(folder: Path, texts: Sequence[str], device: str = "cpu") -> list[float]:
    """Return the log-likelihood of each sentence, in nats, by a causal language model of transformers in a folder.

    Raises ComponentError if the model sees later words, so that its predictions are no likelihood; DataError if the
    folder lacks something, or its tokenizer has no token that begins a sentence.
    """
    from transformers import AutoModelForCausalLM

    model, tokenizer = transformers_model(AutoModelForCausalLM, folder).to(device), transformers_tokenizer(folder)
    begin = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
    if begin is None:
        what, expected = "The tokenizer has no token that begins a sentence.", "bos_token or eos_token"
        raise DataError(what, where=str(folder), expected=expected)
    probes = torch.tensor([[[begin, begin, last]] for last in (0, begin + 1)], device=model.device)  # (2, 1, 3)
    first, other = (model(probe).logits[0, :2] for probe in probes)
    if not torch.allclose(first, other, atol=1e-4):
        what, expected = "This language model sees the words that it is to predict.", "a causal one, such as GPT-2"
        raise ComponentError(what, where=str(folder), got=type(model).__name__, expected=expected)
    ids = [[begin, *(i for i in tokenizer(text)["input_ids"] if i != begin)] for text in texts]
    return [one for start in range(0, len(ids), SENTENCES) for one in _sums(model, ids[start : start + SENTENCES])]


def _sums(model: Any, ids: list[list[int]]) -> list[float]:
    rows = [torch.tensor(row, device=model.device) for row in ids]
    padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=ids[0][0])  # (N, T)
    known = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row[1:]) for row in rows], batch_first=True)
    values = model(padded).logits[:, :-1].float().log_softmax(-1).gather(-1, padded[:, 1:, None])[..., 0]
    return list((values * known).sum(1).tolist())
