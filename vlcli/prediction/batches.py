"""Requests to predictions: checked, read, batched, answered; a request at fault does not stop the others."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vlcli.data.collate import Item, collate
from vlcli.data.sample import ImageSample, Sample, TextSample
from vlcli.engine.training_module import TrainingModule
from vlcli.errors import DataError, UsageError, VlcliError, shown
from vlcli.images.boxes import BoxList
from vlcli.nn.model import DataSpec, device_of
from vlcli.prediction.pictures import PictureReader
from vlcli.prediction.records import Box, Choice, Failure, Picture, Prediction, RegionFeatures, Request, name_of
from vlcli.prediction.uses import Asked, rows_of
from vlcli.tasks.detection import Detection

MAX_TEXT = 10_000
"""Characters of a text; models read some tens or hundreds of word pieces."""


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
        """Yield a prediction or a failure for every request, in order; failures of reading the requests are passed on.

        Raises:
            VlcliError: no request can be answered, since the extractor cannot be built or the task cannot predict.
        """
        waiting = iter(requests)
        while some := list(islice(waiting, batch_size)):
            answers = iter(self._some([one for one in some if isinstance(one, Request)]))
            yield from (one if isinstance(one, Failure) else next(answers) for one in some)

    def one(self, request: Request) -> Prediction:
        """Return the prediction of one request."""
        (answer,) = self._some([request])
        if isinstance(answer, Failure):
            raise answer.error
        return answer

    def _some(self, requests: list[Request]) -> list[Prediction | Failure]:
        answers: dict[int, Prediction | Failure] = {}
        groups: dict[int, dict[int, Sample]] = {}  # by number of images
        for row, (request, images) in enumerate(zip(requests, self._read(requests), strict=True)):
            if isinstance(images, VlcliError):
                answers[row] = Failure(request, images)
            else:
                key = request.key or name_of(request.images[0], 0)
                groups.setdefault(len(images), {})[row] = Sample(key, self._text(request.text), images, {})
        for samples in groups.values():
            predictions = self._predict([requests[row] for row in samples], list(samples.values()))
            answers |= dict(zip(samples, predictions, strict=True))
        return [answers[row] for row in range(len(requests))]

    def _read(self, requests: list[Request]) -> list[list[ImageSample] | VlcliError]:
        faults = [self._fault(request) for request in requests]
        good = [request for request, fault in zip(requests, faults, strict=True) if fault is None]
        try:
            read = iter(self._images(good))
        except DataError:
            self.reader.fresh.build()  # what is wrong with the extractor is wrong for all requests
            read = iter([self._tried(request) for request in good])
        return [next(read) if fault is None else fault for fault in faults]

    def _images(self, requests: list[Request]) -> Sequence[list[ImageSample] | VlcliError]:
        # each file is read once, whatever number of requests have it
        pictures: dict[Any, tuple[Picture, str]] = {}
        keys: list[list[Any]] = []
        for row, request in enumerate(requests):
            keys.append([str(o) if isinstance(o, str | Path) else (row, n) for n, o in enumerate(request.images)])
            for number, (key, image) in enumerate(zip(keys[-1], request.images, strict=True)):
                pictures.setdefault(key, (image, name_of(image, number)))
        images = self.reader.read([image for image, _ in pictures.values()], [name for _, name in pictures.values()])
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
        return None

    def _text(self, raw: str | None) -> TextSample | None:
        if not raw or self.tokenizer is None:
            return None
        text: TextSample = self.tokenizer.encode(raw, raw, self.data_spec.text_length)
        return text

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
        return [self._prediction(*one) for one in zip(requests, samples, rows, choices, strict=True)]

    def _prediction(
        self, request: Request, sample: Sample, row: dict[str, Any], choices: list[tuple[str, float]]
    ) -> Prediction:
        boxes = self._boxes(request, row)
        return Prediction(
            self.asked.use,
            sample.key,
            request.names(),
            request.text,
            len(boxes) if self.asked.use.kind == "boxes" else row.get("prediction"),
            choices=[Choice(label, chance) for label, chance in choices[: self.top]],
            boxes=boxes,
            regions=[_pixels(image) for image in sample.images],
            sizes=[image.size for image in sample.images],
            notes=self._notes(request),
            row=row,
        )

    def _boxes(self, request: Request, row: dict[str, Any]) -> list[Box]:
        if self.asked.use.kind == "box" and row.get("prediction") is not None:
            x1, y1, x2, y2 = row["prediction"]
            return [Box((x1, y1, x2, y2), request.text or "", float(row.get("score", 0.0)))]
        task = self.asked.task
        if not isinstance(task, Detection):
            return []
        least = task.draw_score if self.min_score is None else self.min_score
        boxes = zip(row["boxes"], row["classes"], row["scores"], strict=True)
        return [Box((x1, y1, x2, y2), name, score) for (x1, y1, x2, y2), name, score in boxes if score >= least]

    def _notes(self, request: Request) -> list[str]:
        notes = []
        if request.text and self.tokenizer is not None and self.data_spec.text_length:
            pieces, most = len(self.tokenizer.encode(request.text, "", None).ids), self.data_spec.text_length
            if pieces > most:
                notes.append(f"the text has {pieces} word pieces, of which the model reads the first {most}")
        pairs = zip(request.images, request.names(), strict=True)
        fresh = [name for image, name in pairs if not isinstance(image, RegionFeatures)]
        return notes + list(dict.fromkeys(line for lines in self.reader.fresh.notes(fresh) for line in lines))


def _pixels(image: ImageSample) -> np.ndarray:
    if image.boxes is None or image.features is None:
        return np.zeros((0, 4), np.float32)
    height, width = image.size
    return np.asarray(image.boxes * np.array([width, height, width, height], np.float32), np.float32)
