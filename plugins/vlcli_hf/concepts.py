"""Extracts the words of a list that a picture shows, by an open-vocabulary model."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, cast

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from vlcli.detection import Prepared
from vlcli.errors import ComponentError
from vlcli.features import CONCEPTS, WORDS, Record, concept_record
from vlcli.foreign import transformers_model, transformers_processor, transformers_tokenizer, transformers_type
from vlcli.images import Labels
from vlcli_hf.detectors import ClosedDetector, GroundedDetector, OwlDetector, load_detector, original_boxes
from vlcli_hf.folder import FolderExtractor, chosen_words, words_of_data
from vlcli_hf.pictures import ProcessorPreparation, Shown, patch_inputs, stacked

DETECTORS = ("owlvit", "owlv2", "grounding-dino", "grounding_dino", "mm-grounding-dino")
# Words whose sentences are encoded together
AT_ONCE = 256


class ImageText(nn.Module):
    """CLIP, SigLIP, SigLIP 2 and others that score sentences against a picture.

    ``template``, ``scores``: as of :class:`OpenVocabularyConcepts`; ``auto``: ``sigmoid`` where the model has a learned
    bias.
    """

    texts: Tensor
    names: tuple[str, ...] = ()

    def __init__(self, folder: Path, template: str, scores: Literal["auto", "softmax", "sigmoid"]) -> None:
        from transformers import AutoModel

        super().__init__()
        self.model: Any = transformers_model(AutoModel, folder)
        if not hasattr(self.model, "get_text_features") or not hasattr(self.model, "logit_scale"):
            what = f"A model of the type {transformers_type(folder)!r} does not score words against pictures."
            where, got = str(folder / "config.json"), type(self.model).__name__
            expected = "clip, siglip, siglip2, owlv2 or grounding_dino, with its text encoder"
            raise ComponentError(what, where=where, got=got, expected=expected)
        self.tokenizer, self.template = transformers_tokenizer(folder), template
        self.bias = getattr(self.model, "logit_bias", None)
        self.sigmoid = scores == "sigmoid" or (scores == "auto" and self.bias is not None)
        self.register_buffer("texts", torch.zeros(0), persistent=False)

    @torch.inference_mode()
    def ask(self, words: tuple[str, ...]) -> None:
        self.names = words
        sentences = [self.template.replace("{}", word) for word in words]
        parts = [self._texts(sentences[start : start + AT_ONCE]) for start in range(0, len(sentences), AT_ONCE)]
        self.texts = nn.functional.normalize(torch.cat(parts), dim=-1)

    def _texts(self, said: list[str]) -> Tensor:
        length = int(self.model.config.text_config.max_position_embeddings)
        # SigLIP was trained on sentences padded to one length, and reads their last token.
        padding = "max_length" if self.bias is not None else True
        tokens = self.tokenizer(said, padding=padding, max_length=length, truncation=True, return_tensors="pt")
        device = next(self.model.parameters()).device
        fed = {name: tokens[name].to(device) for name in ("input_ids", "attention_mask") if name in tokens}
        return cast("Tensor", self.model.get_text_features(**fed).pooler_output)  # (words, D)

    def forward(self, items: list[Shown], device: torch.device) -> Tensor:
        pixels = stacked(items, device)
        in_a_row = any(items[0].patches)
        fed = patch_inputs(pixels, [item.patches for item in items]) if in_a_row else {"pixel_values": pixels}
        images = nn.functional.normalize(self.model.get_image_features(**fed).pooler_output, dim=-1)
        logits: Tensor = images @ self.texts.T * self.model.logit_scale.exp()
        logits = logits if self.bias is None else logits + self.bias
        return logits.sigmoid() if self.sigmoid else logits.softmax(-1)


class OpenVocabularyConcepts(FolderExtractor):
    """Words of a list that each picture shows, best first, by CLIP, SigLIP, SigLIP 2, OWLv2 or Grounding DINO.

    They are stored as visual concepts, which DiMBERT and others read. A detector's word has its best box, others the
    whole picture.

    Args:
        words: a list, a file with one word a line (or JSON), or None for the class names of the stage's data.
        template: the sentence that CLIP and SigLIP score; ``{}`` stands for the word.
        scores: of CLIP and SigLIP: ``softmax`` over the words, ``sigmoid`` of each word, or ``auto``: as it was
            trained.
        top: most words of a picture; 0 for all.
        min_score: words less probable than this are left out.
    """

    paper = "Radford et al. 2021, CLIP; Zhai et al. 2023, SigLIP; DiMBERT (Liu et al. 2021), visual concepts"
    name: ClassVar[str] = "transformers-concepts"
    set = CONCEPTS
    network: ImageText | ClosedDetector | OwlDetector | GroundedDetector

    def __init__(
        self,
        *,
        weights: str | None = None,
        hub: str | None = None,
        words: tuple[str, ...] | str | None = None,
        template: Annotated[str, Field(pattern=r"\{\}")] = "a photo of a {}",
        scores: Literal["auto", "softmax", "sigmoid"] = "auto",
        top: Annotated[int, Field(ge=0)] = 20,
        min_score: float = 0.0,
        batch_size: int = 8,
    ) -> None:
        super().__init__(locals())
        asked = chosen_words(words, self.name)
        detects = transformers_type(self.folder) in DETECTORS
        self.network = load_detector(self.folder) if detects else ImageText(self.folder, template, scores)
        if asked is not None:
            self.network.ask(asked)
        self.top, self.min_score, self.dim = top, min_score, 0
        self.preparation = ProcessorPreparation(0, 0, "none", processor=transformers_processor(self.folder))

    def attach(self, labels: Labels) -> None:
        if not self.network.names:
            self.network.ask(words_of_data(labels, self.name))

    def notes(self) -> list[str]:
        return [f"{self.name}: {self.model_class} of {self.folder}, {len(self.network.names)} words"]

    def provenance(self) -> dict[str, Any]:
        return {**super().provenance(), WORDS: list(self.network.names)}

    def regions(self) -> str:
        return "whole pictures" if isinstance(self.network, ImageText) else "the best box of each word"

    def extract(self, batch: list[Prepared]) -> list[Record]:
        if isinstance(self.network, ImageText):
            items = [item for item in batch if isinstance(item, Shown)]
            return [self._record(item, row) for item, row in zip(items, self.network(items, self.device), strict=True)]
        out = self.network(stacked(batch, self.device))
        best, queries = out.probs.float().max(1)  # (B, words)
        boxes = [original_boxes(item, parts) for item, parts in zip(batch, out.boxes.float(), strict=True)]
        rows = zip(batch, best, boxes, queries, strict=True)
        return [self._record(item, scores, places[chosen]) for item, scores, places, chosen in rows]

    def _record(self, item: Prepared, scores: Tensor, places: Tensor | None = None) -> Record:
        plain: np.ndarray = scores.float().cpu().numpy()
        best = np.argsort(-plain, kind="stable")[: self.top or len(plain)]
        best = best[plain[best] >= self.min_score]
        boxes = None if places is None else places.cpu().numpy()[best]
        return concept_record(item.id, best, plain[best], item.size, boxes)
