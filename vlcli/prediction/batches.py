"""Requests to predictions: checked, read, batched, answered; a request at fault does not stop the others."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vlcli.data.checks import sentence
from vlcli.data.collate import Item, collate
from vlcli.data.sample import ImageSample, Sample, TextSample
from vlcli.engine.training_module import TrainingModule
from vlcli.errors import DataError, UsageError, VlcliError, shown
from vlcli.images.boxes import BoxList
from vlcli.nn.model import DataSpec, device_of
from vlcli.plain import comma_list
from vlcli.prediction.pictures import PictureReader
from vlcli.prediction.records import Box, Choice, Failure, Picture, Prediction, RegionFeatures, Request, name_of
from vlcli.prediction.uses import Asked, rows_of
from vlcli.tasks.detection import Detection

# Least pieces of a word that is spelt out; letters from here on are words of their own in many vocabularies
SPELT, HAN = 3, "\u2e80"
# Characters of a text; models read some tens or hundreds of word pieces
MAX_TEXT = 10_000


@dataclass
class Answerer:
    """Answers requests with one use of a model.

    Attributes:
        top: answers or labels of a prediction.
        min_score: boxes below it are left out; None: the task's own bound for drawings.
    """

    asked: Asked
    module: TrainingModule
    tokenizer: Any
    data_spec: DataSpec
    reader: PictureReader
    top: int = 5
    min_score: float | None = None

    def answer(self, requests: Iterable[Request | Failure], batch_size: int) -> Iterator[Prediction | Failure]:
        """Yield a prediction or a failure for every request, in order.

        Raises:
            VlcliError: no request can be answered: the extractor cannot be built, or the task cannot predict.
        """
        waiting = iter(requests)
        while some := list(islice(waiting, batch_size)):
            answers = iter(self._some([one for one in some if isinstance(one, Request)]))
            yield from (one if isinstance(one, Failure) else next(answers) for one in some)

    def one(self, request: Request) -> Prediction:
        """Return the prediction of one request, or raise its error."""
        (answer,) = self._some([request])
        if isinstance(answer, Failure):
            raise answer.error
        return answer

    def _some(self, requests: list[Request]) -> list[Prediction | Failure]:
        faults = {row: fault for row, request in enumerate(requests) if (fault := self._fault(request))}
        good = {row: request for row, request in enumerate(requests) if row not in faults}
        answers: dict[int, Prediction | Failure] = {row: Failure(requests[row], fault) for row, fault in faults.items()}
        groups: dict[int, dict[int, Sample]] = {}  # by number of images
        for (row, request), images in zip(good.items(), self._read(list(good.values())), strict=True):
            if isinstance(images, VlcliError):
                answers[row] = Failure(request, images)
            else:
                key, text = request.key or name_of(request.images[0], 0), None
                if request.text and self.tokenizer is not None:
                    text = self.tokenizer.encode(request.text, request.text, self.data_spec.text_length)
                groups.setdefault(len(images), {})[row] = Sample(key, text, images, {})
        for samples in groups.values():
            predictions = self._predict([requests[row] for row in samples], list(samples.values()))
            answers |= dict(zip(samples, predictions, strict=True))
        return [answers[row] for row in range(len(requests))]

    def _read(self, requests: list[Request]) -> Sequence[list[ImageSample] | VlcliError]:
        # each file is read once, whatever number of requests have it
        pictures: dict[Any, tuple[Picture, str]] = {}
        keys: list[list[Any]] = []
        for row, request in enumerate(requests):
            keys.append([str(o) if isinstance(o, str | Path) else (row, n) for n, o in enumerate(request.images)])
            for key, image, name in zip(keys[-1], request.images, request.names(), strict=True):
                pictures.setdefault(key, (image, name))
        try:
            named = pictures.values()
            images = self.reader.read([image for image, _ in named], [name for _, name in named])
        except DataError:
            self.reader.fresh.build()  # what is wrong with the extractor is wrong for all requests
            return [self._tried(request) for request in requests]
        known = dict(zip(pictures, images, strict=True))
        return [[known[key] for key in row_keys] for row_keys in keys]

    def _tried(self, request: Request) -> list[ImageSample] | VlcliError:
        try:
            return self.reader.read(request.images)
        except DataError as error:
            return error

    def _fault(self, request: Request) -> VlcliError | None:
        use, count, text = self.asked.use, len(request.images), request.text
        if not count or (use.images and count != use.images):
            got, wanted = f"{count} images", f"{use.images or 'some'} in one request"
            return UsageError(f"{use.name} takes another number of images.", got=got, expected=wanted)
        if use.text == "none" and text:
            return UsageError(f"{use.name} takes no text.", got=shown(text, 60), expected=use.about)
        if use.text == "needed" and not (text or "").strip():
            hint = 'write it behind the pictures: vlcli predict MODEL PICTURE "TEXT"'
            return UsageError(f"{use.name} needs a text.", got="none", expected=use.about, hint=hint)
        if text is not None and len(text) > MAX_TEXT:
            got = f"{len(text):,} characters: {shown(text, 40)}"
            hint = f"shorten it: this model reads {self.data_spec.text_length} word pieces at most"
            return UsageError("The text is too long.", got=got, expected=f"at most {MAX_TEXT:,} characters", hint=hint)
        try:
            sentence(text or "", request.key or "the request")
        except DataError as error:
            return error
        return None

    def _predict(self, requests: list[Request], samples: list[Sample]) -> list[Prediction]:
        items = [Item({"clean": sample}, 0) for sample in samples]
        batch = collate(items, pad_id=self.data_spec.pad_id).to(device_of(self.module.model))
        images = [image for sample in samples for image in sample.images]
        boxes = {image.key: BoxList(_pixels(image)) for image in images if image.boxes is not None}
        with torch.no_grad():
            step = self.module.step(batch)
            rows = rows_of(self.asked, self.module, step, self.tokenizer, boxes)
            choices: list[list[tuple[str, float]]] = [[] for _ in batch.keys]
            if self.asked.use.kind != "match":
                choices = self.asked.task.probabilities(step, self.module.predict, self.tokenizer)
        predictions = []
        for request, sample, row, ranked in zip(requests, samples, rows, choices, strict=True):
            answer_boxes = self._boxes(request, row)
            prediction = Prediction(
                self.asked.use,
                sample.key,
                request.names(),
                request.text,
                len(answer_boxes) if self.asked.use.kind == "boxes" else row.get("prediction"),
                choices=[Choice(label, chance) for label, chance in ranked[: self.top]],
                boxes=answer_boxes,
                regions=[_pixels(image) for image in sample.images],
                sizes=[image.size for image in sample.images],
                notes=self._notes(request),
                row=row,
            )
            predictions.append(prediction)
        return predictions

    def _boxes(self, request: Request, row: dict[str, Any]) -> list[Box]:
        if self.asked.use.kind == "box" and row.get("prediction") is not None:
            return [Box(tuple(row["prediction"]), request.text or "", float(row.get("score", 0.0)))]
        if not isinstance(self.asked.task, Detection):
            return []
        least = self.asked.task.draw_score if self.min_score is None else self.min_score
        boxes = zip(row["boxes"], row["classes"], row["scores"], strict=True)
        return [Box(tuple(box), name, score) for box, name, score in boxes if score >= least]

    def _notes(self, request: Request) -> list[str]:
        notes = []
        if request.text and self.tokenizer is not None and self.data_spec.text_length:
            sample, most = self.tokenizer.encode(request.text, "", None), self.data_spec.text_length
            if len(sample.ids) > most:
                notes.append(f"the text has {len(sample.ids)} word pieces, of which the model reads the first {most}")
            plain = self.tokenizer.encode(re.sub(r"\W+", " ", request.text), "", None)
            if strange := unknown_words(plain, self.data_spec.unk_id):
                words = len(plain.raw.split())
                notes.append(f"the model never learnt {len(strange)} of {words} words: {comma_list(strange, 4)}")
        pairs = zip(request.images, request.names(), strict=True)
        fresh = [name for image, name in pairs if not isinstance(image, RegionFeatures)]
        return notes + self.reader.fresh.notes(fresh)


def unknown_words(sample: TextSample, unk_id: int) -> list[str]:
    """Return the words that a vocabulary does not know, or spells out in pieces of a letter or two."""
    pieces: dict[int, list[int]] = {}
    for word, number in zip(sample.words, sample.ids, strict=True):
        if word >= 0:
            pieces.setdefault(word, []).append(number)
    words = sample.raw.split()
    return [
        words[at]
        for at, ids in pieces.items()
        if at < len(words) and (unk_id in ids or (len(ids) >= max(SPELT, len(words[at]) / 2) and max(words[at]) < HAN))
    ]


def _pixels(image: ImageSample) -> np.ndarray:
    if image.boxes is None or image.features is None:
        return np.zeros((0, 4), np.float32)
    return np.asarray(image.boxes * np.array(image.size[::-1] * 2, np.float32), np.float32)
