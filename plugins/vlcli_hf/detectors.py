"""Detectors of transformers: of every object query the feature, the box, and a probability for each class or word."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torchvision.ops import batched_nms, box_convert

from vlcli.detection import Prepared, clip_boxes
from vlcli.errors import ComponentError, DataError
from vlcli.features import Record
from vlcli.foreign import transformers_model, transformers_processor, transformers_tokenizer, transformers_type
from vlcli.images import Labels
from vlcli_hf.extractor import TOWERS
from vlcli_hf.folder import FolderExtractor, autocast, chosen_words, words_of_data
from vlcli_hf.pictures import ProcessorPreparation, stacked


@dataclass
class Queries:
    """Outputs of a detector for a batch."""

    features: Tensor  # of every object query (B, Q, D); of OWL what its box and class heads read
    boxes: Tensor  # x1 y1 x2 y2 in shares of the picture, padding included (B, Q, 4)
    probs: Tensor  # of each class or word (B, Q, C)
    classes: Tensor  # of the largest logit (B, Q): probabilities near 1 are equal where logits still differ


class ClosedDetector(nn.Module):
    """DETR, RT-DETR and other detectors with fixed classes that ``AutoModelForObjectDetection`` knows."""

    open_vocabulary = False

    def __init__(self, folder: Path) -> None:
        from transformers import AutoModelForObjectDetection

        super().__init__()
        self.model: Any = transformers_model(AutoModelForObjectDetection, folder, may_miss=("*.num_batches_tracked",))
        labels: dict[int, str] = self.model.config.id2label
        self.names = tuple(str(labels[number]) for number in sorted(labels))

    def ask(self, words: Sequence[str]) -> None:
        """Raises ComponentError: the classes are those of the configuration."""
        what, got = "This detector finds the classes of its configuration, and no others.", ", ".join(words[:5])
        expected = "no words, or an open-vocabulary detector: grounding_dino, owlv2"
        raise ComponentError(what, got=f"words: {got}", expected=expected)

    def forward(self, pixels: Tensor) -> Queries:
        out = self.model(pixel_values=pixels)
        states = out.last_hidden_state[:, -out.logits.shape[1] :]  # YOLOS: the last tokens are the queries
        closed = out.logits.shape[-1] == len(self.names) + 1
        probs = out.logits.softmax(-1)[..., :-1] if closed else out.logits.sigmoid()
        classes = out.logits[..., : probs.shape[-1]].argmax(-1)
        return Queries(states, box_convert(out.pred_boxes, "cxcywh", "xyxy"), probs, classes)


class _Open(nn.Module):
    open_vocabulary = True
    names: tuple[str, ...]

    def __init__(self, folder: Path) -> None:
        from transformers import AutoModelForZeroShotObjectDetection

        super().__init__()
        self.model: Any = transformers_model(AutoModelForZeroShotObjectDetection, folder)
        self.tokenizer = transformers_tokenizer(folder)
        self.folder, self.names = folder, ()
        self.prompt: dict[str, Tensor] = {}

    def _output(self, pixels: Tensor) -> Any:
        prompts = {name: value.to(pixels.device).repeat(len(pixels), 1) for name, value in self.prompt.items()}
        return self.model(pixel_values=pixels, **prompts)


class OwlDetector(_Open):
    """OWL-ViT and OWLv2: every patch is an object query, and each word a prompt."""

    def ask(self, words: Sequence[str]) -> None:
        self.names = tuple(words)
        length = int(self.model.config.text_config.max_position_embeddings)
        options = {"padding": "max_length", "max_length": length, "truncation": True, "return_tensors": "pt"}
        tokens = self.tokenizer(list(words), **options)
        self.prompt = {name: tokens[name] for name in ("input_ids", "attention_mask")}

    def forward(self, pixels: Tensor) -> Queries:
        out = self._output(pixels)
        features = out.image_embeds.flatten(1, 2)  # (B, Q, D)
        boxes = box_convert(out.pred_boxes, "cxcywh", "xyxy")
        return Queries(features, boxes, out.logits.sigmoid(), out.logits.argmax(-1))


class GroundedDetector(_Open):
    """Grounding DINO: all words form one prompt, ``a cat. a dog.``; the score of a word is that of its best token."""

    tokens: list[list[int]]

    def ask(self, words: Sequence[str]) -> None:
        """Sets the words. Raises DataError: the prompt is longer than the detector reads."""
        self.names = tuple(words)
        text, spans = "", []
        for word in words:
            plain, start = word.lower().replace(".", " ").strip(), len(text)
            spans.append((start, start + len(plain)))
            text += f"{plain}. "
        text = text.removesuffix(" ")
        prompt = self.tokenizer(text, return_offsets_mapping=True, return_tensors="pt")
        offsets = prompt.pop("offset_mapping")[0].tolist()
        longest = int(getattr(self.model.config, "max_text_len", 256))
        if len(offsets) > longest:
            got = f"{len(words)} words, {len(offsets)} tokens"
            raise DataError("The text prompt is too long for this detector.", got=got, expected=f"{longest} tokens")
        self.prompt = {name: value for name, value in prompt.items() if name in PROMPT}
        self.tokens = [[n for n, (a, b) in enumerate(offsets) if start <= a < b <= end] for start, end in spans]
        if empty := [word for word, tokens in zip(words, self.tokens, strict=True) if not tokens]:
            raise DataError("The tokenizer has no tokens for a word.", where=str(self.folder), got=empty[0])

    def forward(self, pixels: Tensor) -> Queries:
        out = self._output(pixels)
        words = torch.stack([out.logits[..., tokens].amax(-1) for tokens in self.tokens], -1)  # (B, Q, words)
        boxes = box_convert(out.pred_boxes, "cxcywh", "xyxy")
        return Queries(out.last_hidden_state, boxes, words.sigmoid(), words.argmax(-1))


PROMPT = ("input_ids", "attention_mask", "token_type_ids")


def load_detector(folder: Path) -> ClosedDetector | OwlDetector | GroundedDetector:
    """Loads the detector of a folder of transformers. Raises ComponentError: it holds none."""
    from transformers.models.auto import modeling_auto

    kind = transformers_type(folder)
    if kind in modeling_auto.MODEL_FOR_ZERO_SHOT_OBJECT_DETECTION_MAPPING_NAMES:
        if kind in ("owlvit", "owlv2"):
            return OwlDetector(folder)
        if "grounding" in kind:
            return GroundedDetector(folder)
    if kind in modeling_auto.MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES:
        return ClosedDetector(folder)
    what, where = f"A model of the type {kind!r} is no detector.", str(folder / "config.json")
    expected = "detr, rt_detr, grounding_dino, owlv2, or a type that AutoModelForObjectDetection knows"
    hint = "vision towers and backbones are read by the extractor transformers" if kind in TOWERS else ""
    raise ComponentError(what, where=where, got=kind, expected=expected, hint=hint)


class TransformersDetector(FolderExtractor):
    """Objects that a detector of transformers finds: DETR, RT-DETR, and by a text prompt Grounding DINO and OWLv2.

    A region is an object query: its feature, its box, its most probable class and that class's probability.

    Args:
        words: of open-vocabulary detectors: a list, a file with one word a line (or JSON), or None for the class names
            of the stage's data; others have the classes of their configuration.
        confidence: regions with a lower score stay only to make up ``min_boxes``.
        min_boxes: fewest regions of an image.
        max_boxes: most regions of an image, by score.
        nms: overlap above which the less certain of two boxes of a class goes; 1 for no such rule (DETR needs none).
        class_probs: store the probabilities of all classes or words.
    """

    paper = "Carion et al. 2020, DETR; Zhao et al. 2024, RT-DETR; Liu et al. 2024, Grounding DINO; Minderer et al. 2023"
    name: ClassVar[str] = "transformers-detector"
    network: ClosedDetector | OwlDetector | GroundedDetector

    def __init__(
        self,
        *,
        weights: str | None = None,
        hub: str | None = None,
        words: tuple[str, ...] | str | None = None,
        confidence: Annotated[float, Field(ge=0, le=1)] = 0.2,
        min_boxes: Annotated[int, Field(ge=1)] = 10,
        max_boxes: Annotated[int, Field(ge=1)] = 36,
        nms: Annotated[float, Field(gt=0, le=1)] = 1.0,
        class_probs: bool = False,
        precision: Literal["float32", "bf16", "fp16"] = "float32",
        batch_size: int = 4,
    ) -> None:
        super().__init__(locals())
        asked = chosen_words(words, self.name)
        self.network = load_detector(self.folder)
        if asked is not None:
            self.network.ask(asked)
        self.confidence, self.least, self.most, self.nms = confidence, min_boxes, max(min_boxes, max_boxes), nms
        self.class_probs, self.precision = class_probs, precision
        config = self.network.model.config
        vision = getattr(config, "vision_config", None) or config
        self.dim = int(getattr(vision, "d_model", None) or vision.hidden_size)
        self.preparation = ProcessorPreparation(0, 0, "none", processor=transformers_processor(self.folder))

    def attach(self, labels: Labels) -> None:
        if self.network.open_vocabulary and not self.network.names:
            self.network.ask(words_of_data(labels, self.name))

    def notes(self) -> list[str]:
        names = self.network.names
        some = ", ".join(names[:5]) + (" ..." if len(names) > 5 else "")
        return [f"{self.name}: {self.model_class} of {self.folder}, {len(names)} classes: {some}"]

    def provenance(self) -> dict[str, Any]:
        return {**super().provenance(), **Labels(self.network.names).provenance()}

    def regions(self) -> str:
        return "detected"

    def extract(self, batch: list[Prepared]) -> list[Record]:
        with autocast(self.device, self.precision):
            out = self.network(stacked(batch, self.device))
        rows = zip(batch, out.features.float(), out.boxes.float(), out.probs.float(), out.classes, strict=True)
        return [self._record(*row) for row in rows]

    def _record(self, item: Prepared, features: Tensor, parts: Tensor, probs: Tensor, classes: Tensor) -> Record:
        boxes = original_boxes(item, parts)
        scores = probs.gather(1, classes[:, None])[:, 0]
        order: Tensor = scores.argsort(descending=True, stable=True)
        if self.nms < 1:
            order = batched_nms(boxes, scores, classes, self.nms)
        certain = int((scores[order] >= self.confidence).sum())
        kept = order[: min(max(certain, self.least), self.most)]
        fields = {"boxes": boxes, "features": features, "scores": scores, "classes": classes, "class_scores": scores}
        fields |= {"class_probs": probs} if self.class_probs else {}
        plain: dict[str, np.ndarray] = {name: value[kept].cpu().numpy() for name, value in fields.items()}
        return Record(id=item.id, size=item.size, **plain)


def original_boxes(item: Prepared, parts: Tensor) -> Tensor:
    """Returns boxes (Q, 4) in shares of a model's input as pixels of the original picture, clipped to it."""
    shown = parts.new_tensor([item.pixels.shape[-1], item.pixels.shape[-2]] * 2)
    boxes = clip_boxes(parts * shown / parts.new_tensor([*item.scale, *item.scale]), item.size)
    return torch.cat([boxes[:, :2], boxes[:, 2:].maximum(boxes[:, :2])], -1)
