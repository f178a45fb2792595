"""Visual concepts: predicts the words of a picture's captions from the picture."""

from collections import Counter
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from vlcli.data.concepts import ByImage, build_vocabulary, captions_by_image, read_vocabulary, tokens
from vlcli.data.files import inside
from vlcli.data.images import load_image
from vlcli.files import write_json
from vlcli.images.shards import is_there
from vlcli.metrics.classification import Count, per_image, pooled
from vlcli.metrics.ranking import average_precision
from vlcli.nn import Batch, DataSpec, ForwardPasses
from vlcli.registry import Spec
from vlcli.report.sheet import Cell, contact_sheet
from vlcli.tasks.base import Predict, Result, Runner, Task
from vlcli.tasks.outputs import likeliest, logits_of, target

RIGHT, WRONG = "#1a7f37", "#8a8a8a"


@dataclass(kw_only=True, eq=False)
class ConceptPrediction(Task):
    """Predict the words of all captions of a picture: precision, recall and F1 of the M best.

    ``baseline/...`` are the scores of the most frequent training words, said of every picture.

    Args:
        vocabulary: a word list under the data root (``vlcli data concepts``); None: the captions' most frequent words.
        size: most words, where the captions give them.
        pos: their parts of speech.
        function_words: keep articles, auxiliaries and the like.
        min_count: least occurrences of a word in the training captions.
        top: the M at which predictions are scored.
        keep: words of each picture in ``predictions.jsonl`` and ``concepts.json``.
        sheet: pictures in ``concepts.png``; 0 for none.
    """

    paper = "Fang et al. 2015, From Captions to Visual Concepts and Back; DiMBERT (Liu et al. 2021), Table 8"
    requires = frozenset({"image"})
    metric = "f1@own"
    joint = True
    eval_split = "val"
    usual_data = "coco-captions"
    usual_answers = 1000

    vocabulary: str | None = None
    size: int = 1000
    pos: tuple[str, ...] = ("NN", "VB", "JJ")
    function_words: bool = False
    min_count: int = 1
    top: tuple[int, ...] = (10, 20, 30, 40)
    keep: int = 20
    sheet: int = 12

    def __post_init__(self) -> None:
        self.usual_answers = self.size
        self._pictures: list[tuple[Path, dict[str, Any]]] = []

    def objectives(self) -> list[Spec]:
        return [{"name": "concepts"}]

    def arrange(self, readers: list[Any]) -> list[Any]:
        return [reader if isinstance(reader, ByImage) else ByImage(reader) for reader in readers]

    def labels(self, readers: list[Any]) -> tuple[str, ...]:
        # the words that most training pictures have first: their order is the baseline
        inner = [reader.inner if isinstance(reader, ByImage) else reader for reader in readers]
        captions = list(captions_by_image(inner).values())
        if self.vocabulary is not None:
            vocabulary = read_vocabulary(inside(inner[0].root, self.vocabulary))
        else:
            options: dict[str, Any] = {"function_words": self.function_words, "min_count": self.min_count}
            vocabulary = build_vocabulary(captions, self.size, pos=self.pos, **options)
        pictures = Counter(word for texts in captions for word in {w for text in texts for w in tokens(text)})
        return tuple(sorted((word.word for word in vocabulary), key=lambda word: -pictures[word]))

    def attach(self, data_spec: DataSpec) -> None:
        self.words = data_spec.answers
        self.index = {word: row for row, word in enumerate(self.words)}

    def logits(self, outputs: dict[str, dict[str, Tensor]]) -> Tensor:
        """Return the logits (B, W) in float32."""
        return logits_of(outputs, "concepts", classes=len(self.words)).float()

    def decode(self, outputs: dict[str, dict[str, Tensor]], batch: Batch) -> list[dict[str, Any]]:
        # ``prediction`` (words, best first) with ``scores``; ``words``, the true ones, with their ``ranks``
        logits = self.logits(outputs)
        order = logits.argsort(stable=True, dim=-1, descending=True)  # (B, W)
        rank, scores = order.argsort(), logits.sigmoid()  # (B, W)
        rows = []
        for number, (key, words) in enumerate(zip(batch.keys, target(batch, "words"), strict=True)):
            best = order[number, : self.keep]
            row: dict[str, Any] = {"key": key, "prediction": [self.words[i] for i in best.tolist()]}
            row["scores"] = [round(score, 5) for score in scores[number, best].tolist()]
            if words is not None:
                row["words"] = [word for word in words if word in self.index]
                row["ranks"] = rank[number, [self.index[word] for word in row["words"]]].tolist()
            rows.append(row)
        return rows

    def probabilities(self, step: ForwardPasses, predict: Predict, tokenizer: Any) -> list[list[tuple[str, float]]]:
        return likeliest(self.words, self.logits(predict(step)).sigmoid())

    def evaluate(self, runner: Runner) -> Result:
        # as usual, and mean average precision over the words; the first pictures are kept for the sheet
        self.attach(runner.data_spec)

        def decoded(batch: Batch) -> list[tuple[dict[str, Any], Tensor]]:
            outputs = runner.predict(runner.step(batch))
            return list(zip(self.decode(outputs, batch), self.logits(outputs).cpu(), strict=True))

        rows = runner.rows(decoded)
        predictions = [row for row, _ in rows]
        metrics = self.score(predictions)
        if metrics:
            logits = torch.stack([logits for _, logits in rows])
            truth = torch.zeros_like(logits, dtype=torch.bool)  # (N, W)
            for right, row in zip(truth, predictions, strict=True):
                right[[self.index[word] for word in row.get("words", ())]] = True
            words = zip(logits.T, truth.T, strict=True)  # one at a time: Python's numbers take eight times the memory
            precisions = (average_precision(s.tolist(), right.tolist()) for s, right in words if right.any())
            metrics["map"] = fmean(precisions)
        self._pictures = []
        for row in predictions[: self.sheet]:
            paths = (reader.locate(row["key"]) for reader in runner.data.readers)
            self._pictures += [(path, row) for path in islice(filter(is_there, paths), 1)]
        return Result(metrics, predictions)

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        # precision, recall and F1 at every M: per picture, ``pooled/...`` and ``baseline/...``
        rows = [row for row in predictions if row.get("words")]
        if not rows:
            return {}
        # Words are numbered from the most frequent one on, so a word's number is its rank in the baseline.
        ranks = {"": [r["ranks"] for r in rows], "baseline/": [[self.index[word] for word in r["words"]] for r in rows]}
        counts: tuple[Count, ...] = ("own", *self.top)
        metrics = {
            f"{prefix}{kind}{name}@{count}": value
            for prefix, of_rows in ranks.items()
            for kind, measure in (("", per_image), ("pooled/", pooled))
            for count in counts
            for name, value in measure(of_rows, count).items()
        }
        return metrics | {"words_per_image": sum(map(len, ranks[""])) / len(rows)}

    def submission(self, predictions: list[dict[str, Any]], folder: Path) -> list[Path]:
        # ``concepts.json`` (image_id, image_concepts: best first) and ``concepts.png``
        rows = [{"image_id": row["key"], "image_concepts": row["prediction"]} for row in predictions]
        files, cells = [write_json(folder / "concepts.json", rows)], []
        for path, row in self._pictures:  # with the best words: green where a caption has the word, grey where none has
            best = list(zip(row["prediction"], row["scores"], strict=True))[:8]
            lines = [(f"{word} {score:.2f}", RIGHT if word in row.get("words", ()) else WRONG) for word, score in best]
            cells.append(Cell(load_image(path), lines))
        if cells:
            contact_sheet(cells).save(folder / "concepts.png")
            files.append(folder / "concepts.png")
        return files
