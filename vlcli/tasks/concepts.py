"""Visual concepts: the words of a picture's captions, told from the picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from vlcli.data.concepts import ByImage, build_vocabulary, captions_by_image, read_vocabulary, tokens
from vlcli.data.files import inside
from vlcli.data.images import load_image
from vlcli.files import write_json
from vlcli.images.shards import is_there
from vlcli.metrics.concepts import Count, average_precision, per_image, pooled
from vlcli.nn import Batch, DataSpec, ForwardPasses
from vlcli.registry import Spec
from vlcli.report.sheet import Cell, contact_sheet
from vlcli.tasks.base import Predict, Result, Runner, Task
from vlcli.tasks.outputs import likeliest, logits_of, target

RIGHT, WRONG = "#1a7f37", "#8a8a8a"


class ConceptPrediction(Task):
    """Words of a picture's captions, told from the picture: precision, recall and F1 of the M best.

    Captions are read a picture at a time: its words are those of all its captions. Beside each figure stands that of
    the most frequent training words, said of every picture (``baseline/...``).

    Args:
        vocabulary: a word list under the data root (``vlcli data concepts``); None: the captions' most frequent words.
        size: most words, where the captions give them.
        pos: their parts of speech.
        function_words: keep articles, auxiliaries and the like.
        min_count: how often a word must occur in the training captions.
        top: the M at which predictions are scored.
        keep: how many words of each picture ``predictions.jsonl`` and ``concepts.json`` list.
        sheet: how many pictures ``concepts.png`` shows; 0 for none.
    """

    paper = "Fang et al. 2015, From Captions to Visual Concepts and Back; DiMBERT (Liu et al. 2021), Table 8"
    requires = frozenset({"image"})
    metric = "f1@own"
    joint = True
    eval_split = "val"
    usual_answers = 1000

    def __init__(
        self,
        *,
        vocabulary: str | None = None,
        size: int = 1000,
        pos: tuple[str, ...] = ("NN", "VB", "JJ"),
        function_words: bool = False,
        min_count: int = 1,
        top: tuple[int, ...] = (10, 20, 30, 40),
        keep: int = 20,
        sheet: int = 12,
    ) -> None:
        self.vocabulary, self.size, self.pos, self.function_words = vocabulary, size, tuple(pos), function_words
        self.min_count, self.top, self.keep, self.sheet = min_count, tuple(top), keep, sheet
        self.usual_answers = size
        self.words: tuple[str, ...] = ()
        self.number: dict[str, int] = {}
        self._pictures: list[tuple[Path, dict[str, Any]]] = []

    def objectives(self) -> list[Spec]:
        return [{"name": "concepts"}]

    def dataset(self) -> Spec:
        return {"name": "coco-captions"}

    def arrange(self, readers: list[Any]) -> list[Any]:
        return [reader if isinstance(reader, ByImage) else ByImage(reader) for reader in readers]

    def labels(self, readers: list[Any]) -> tuple[str, ...]:
        inner = [reader.inner if isinstance(reader, ByImage) else reader for reader in readers]
        captions = list(captions_by_image(inner).values())
        if self.vocabulary is not None:
            words = [word.word for word in read_vocabulary(inside(inner[0].root, self.vocabulary))]
        else:
            found = build_vocabulary(
                captions, self.size, pos=self.pos, function_words=self.function_words, min_count=self.min_count
            )
            words = [word.word for word in found]
        pictures = Counter(word for texts in captions for word in {w for text in texts for w in tokens(text)})
        return tuple(sorted(words, key=lambda word: -pictures[word]))

    def attach(self, data_spec: DataSpec) -> None:
        self.words = data_spec.answers
        self.number = {word: place for place, word in enumerate(self.words)}

    def decode(self, outputs: dict[str, dict[str, Tensor]], batch: Batch) -> list[dict[str, Any]]:
        # ``prediction`` (words, best first) with ``scores``; ``words``, the true ones, with their ``ranks``
        logits = logits_of(outputs, "concepts", classes=len(self.words)).float()
        order = logits.argsort(stable=True, dim=-1, descending=True)  # (B, W)
        places = torch.arange(order.shape[1], device=order.device).expand_as(order)
        rank = torch.empty_like(order).scatter_(1, order, places)
        chances = logits.sigmoid()
        rows = []
        for row, (key, given) in enumerate(zip(batch.keys, target(batch, "words"), strict=True)):
            best = order[row, : self.keep]
            found: dict[str, Any] = {
                "key": key,
                "prediction": [self.words[i] for i in best.tolist()],
                "scores": [round(score, 5) for score in chances[row, best].tolist()],
            }
            if given is not None:
                true = [word for word in given if word in self.number]
                numbers = [self.number[word] for word in true]
                found |= {"words": true, "ranks": rank[row, numbers].tolist()}
            rows.append(found)
        return rows

    def probabilities(self, step: ForwardPasses, predict: Predict, tokenizer: Any) -> list[list[tuple[str, float]]]:
        return likeliest(self.words, logits_of(predict(step), "concepts", classes=len(self.words)).float().sigmoid())

    def evaluate(self, runner: Runner) -> Result:
        self.attach(runner.data_spec)

        def told(batch: Batch) -> list[tuple[dict[str, Any], Tensor]]:
            outputs = runner.predict(runner.step(batch))
            logits = logits_of(outputs, "concepts", classes=len(self.words)).float().cpu()
            return list(zip(self.decode(outputs, batch), logits, strict=True))

        rows = runner.rows(told)
        predictions = [row for row, _ in rows]
        metrics = self.score(predictions)
        if metrics:
            metrics["map"] = self._mean_average_precision(torch.stack([one for _, one in rows]), predictions)
        self._pictures = [
            (path, row) for row in predictions[: self.sheet] if (path := _file(runner.data, row["key"])) is not None
        ]
        return Result(metrics, predictions)

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        # Precision, recall and F1 at every M: per picture, ``pooled/...`` and ``baseline/...``
        rows = [row for row in predictions if row.get("words")]
        if not rows:
            return {}
        model = [row["ranks"] for row in rows]
        # Words are numbered from the most frequent one on, so a word's number is its rank in the baseline.
        constant = [[self.number[word] for word in row["words"]] for row in rows]
        found = _table("", model, self.top) | _table("baseline/", constant, self.top)
        return found | {"words_per_image": sum(map(len, model)) / len(model)}

    def _mean_average_precision(self, logits: Tensor, predictions: list[dict[str, Any]]) -> float:
        truth = torch.zeros_like(logits, dtype=torch.bool)
        for row, found in enumerate(predictions):
            truth[row, [self.number[word] for word in found.get("words", ())]] = True
        each = [
            average_precision(logits[:, word].tolist(), truth[:, word].tolist())
            for word in truth.any(0).nonzero().flatten().tolist()
        ]
        known = [value for value in each if value is not None]
        return sum(known) / len(known) if known else 0.0

    def submission(self, predictions: list[dict[str, Any]], folder: Path) -> list[Path]:
        # ``concepts.json`` (image_id, image_concepts: best first) and ``concepts.png``
        rows = [{"image_id": row["key"], "image_concepts": row["prediction"]} for row in predictions]
        written = [write_json(folder / "concepts.json", rows)]
        if self._pictures:
            picture = folder / "concepts.png"
            draw_sheet(self._pictures).save(picture)
            written.append(picture)
        return written


def draw_sheet(pictures: Sequence[tuple[Path, dict[str, Any]]], words: int = 8) -> Image.Image:
    """Pictures, each with its best words: green where a caption has the word, grey where none has."""
    cells = []
    for path, row in pictures:
        true = set(row.get("words", ()))
        best = list(zip(row["prediction"], row["scores"], strict=True))[:words]
        lines = [(f"{word} {score:.2f}", RIGHT if word in true else WRONG) for word, score in best]
        cells.append(Cell(load_image(path), lines))
    return contact_sheet(cells)


def _table(prefix: str, ranks: list[list[int]], top: Sequence[int]) -> dict[str, float]:
    found: dict[str, float] = {}
    counts: tuple[Count, ...] = ("own", *top)
    for count in counts:
        found |= {f"{prefix}{name}@{count}": value for name, value in per_image(ranks, count).items()}
    for count in counts:
        found |= {f"{prefix}pooled/{name}@{count}": value for name, value in pooled(ranks, count).items()}
    return found


def _file(data: Any, image: str) -> Path | None:
    places = (reader.locate(image) for reader in getattr(data, "readers", ()))
    return next((path for path in places if is_there(path)), None)
