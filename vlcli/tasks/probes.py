"""Probes of pairs: which caption, and which picture, a model's score prefers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from vlcli.data.readers.probes import SugarCrepe
from vlcli.errors import DataError, shown
from vlcli.foreign.pairs import log_likelihoods
from vlcli.metrics.baseline import CHANCE
from vlcli.metrics.classification import by_kind
from vlcli.nn import Batch
from vlcli.objectives.base import full_precision
from vlcli.registry import Spec
from vlcli.tasks.base import Examples, Task
from vlcli.tasks.outputs import logits_of, mean, target
from vlcli.tasks.ranking import match_score

Item = dict[int, float]  # scores of an item's pairs by ``part``
FACTS = ("item", "part", "kind")


class PairTask(Task):
    """Base of tasks that compare the scores of an item's pairs of a sentence and a picture.

    The first row of an item says what was right in it, so that metrics are means over items.

    Args:
        objective: which scores pairs: ``matching``, ``contrast-matching`` or ``contrast``.
    """

    eval_split = "test"
    parts: ClassVar[int] = 2  # pairs of an item
    by_chance: ClassVar[Mapping[str, float]] = {}  # score of a random order, by metric

    def __init__(self, *, objective: str = "matching") -> None:
        self.objective = objective

    def objectives(self) -> list[Spec]:
        return [{"name": self.objective}]

    def decode(self, outputs: dict[str, dict[str, Tensor]], batch: Batch) -> list[dict[str, Any]]:
        # ``score`` of each pair, with its ``item``, ``part`` and ``kind``
        vectors = outputs.get(self.objective, {})
        if "text_embedding" in vectors:
            scores = full_precision((vectors["text_embedding"] * vectors["image_embedding"]).sum(-1))
        else:
            scores = match_score(logits_of(outputs, self.objective, classes=2))
        return self._rows(batch, scores.tolist())

    def judge(self, predictions: list[dict[str, Any]], batch: Batch) -> list[dict[str, Any]]:
        for key, row in zip(batch.keys, predictions, strict=True):
            if not isinstance(row["prediction"], int | float) or row["prediction"] != row["prediction"]:
                what, got = "The prediction of a pair is its score.", shown(row["prediction"])
                raise DataError(what, where=key, got=got, expected="a number, higher where the two fit better")
        return self._rows(batch, [float(row["prediction"]) for row in predictions])

    def _rows(self, batch: Batch, scores: Sequence[float]) -> list[dict[str, Any]]:
        rows = zip(batch.keys, scores, *(target(batch, name) for name in FACTS), strict=True)
        return [pair_row(key, score, dict(zip(FACTS, known, strict=True))) for key, score, *known in rows]

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        # items some of whose pairs were left out do not count
        firsts = self.judged(predictions)
        chances = {f"{CHANCE}/{name}": value for name, value in self.by_chance.items()}
        return {**self.means(firsts), **chances} if firsts else {}

    def judged(self, predictions: Sequence[dict[str, Any]], ties: float = 0.0) -> list[dict[str, Any]]:
        """Write what is right into the first row of each whole item, and return these; equal scores count ``ties``."""
        items: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
        for row in predictions:
            items.setdefault((str(row["item"]), str(row["kind"] or "")), {})[row["part"]] = row
        whole = [rows for rows in items.values() if len(rows) == self.parts]
        for rows in whole:
            rows[0].update(self.right({part: row["score"] for part, row in rows.items()}, ties))
        return [rows[0] for rows in whole]

    def means(self, firsts: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        means = {name: mean(firsts, name) for name in self.by_chance}
        for name in self.by_chance:
            means |= by_kind(firsts, "kind", name, prefix=f"{name}/")
        return means

    def right(self, item: Item, ties: float) -> dict[str, float]:
        """Return what is right in an item, by metric. Subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} judges no items")


def pair_row(key: str, score: float, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a pair."""
    return {"key": key, "score": score, "item": facts["item"], "part": int(facts["part"]), "kind": facts.get("kind")}


class SugarCrepeTask(PairTask):
    """Prefer a picture's caption to one that a small change makes false; accuracy, overall and by kind of change.

    Two rules see no picture: ``shorter/accuracy`` chooses the caption of fewer letters (equal ones count half),
    ``likelier/accuracy`` the one that a language model finds likelier.

    Args:
        language_model: a folder with a causal language model of transformers, under the data root or here; None: there
            is no ``likelier``.
    """

    paper = "Hsieh et al. 2023, SugarCrepe: Fixing Hackable Benchmarks for Compositionality"
    usual_data = "sugarcrepe"
    local_files = ("language_model",)
    by_chance: ClassVar[Mapping[str, float]] = {"accuracy": 0.5}

    def __init__(self, *, objective: str = "matching", language_model: str | None = None) -> None:
        super().__init__(objective=objective)
        self.language_model = language_model
        self._captions: dict[str, str] = {}

    def dataset(self) -> Spec:
        return {"name": self.usual_data, "split": list(SugarCrepe.splits), "images": "val2017"}

    def read(self, runner: Examples) -> None:
        self._captions = {example.key: example.text or "" for example in runner.data.examples}

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        metrics = super().score(predictions)
        captions = [self._captions.get(row.get("key", ""), "") for row in predictions]
        if not metrics or not any(captions):
            return metrics
        blind = {"shorter": [-float(len(text)) for text in captions]}
        if self.language_model is not None:
            blind["likelier"] = log_likelihoods(Path(self.language_model).expanduser(), captions)
        for name, scores in blind.items():
            rows = [{**row, "score": score} for row, score in zip(predictions, scores, strict=True)]
            metrics |= {f"{name}/{key}": value for key, value in self.means(self.judged(rows, ties=0.5)).items()}
        return metrics

    def right(self, item: Item, ties: float) -> dict[str, float]:
        return {"accuracy": _above(item[0], item[1], ties)}


class WinogroundTask(PairTask):
    """Tell two captions and two pictures apart: text, image and group score, overall and by kind."""

    paper = "Thrush et al. 2022, Winoground: Probing Vision and Language Models for Compositionality"
    metric = "group"
    usual_data = "winoground"
    parts = 4
    # two captions and two pictures in random order
    by_chance: ClassVar[Mapping[str, float]] = {"text": 0.25, "image": 0.25, "group": 1 / 6}

    def right(self, item: Item, ties: float) -> dict[str, float]:
        text = min(_above(item[0], item[2], ties), _above(item[3], item[1], ties))
        image = min(_above(item[0], item[1], ties), _above(item[3], item[2], ties))
        return {"text": text, "image": image, "group": min(text, image)}


def _above(first: float, second: float, ties: float) -> float:
    return ties if first == second else float(first > second)
