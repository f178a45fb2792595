"""Probes of pairs: which caption, and which picture, a model's score prefers."""

from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor

from vlcli.metrics.baseline import CHANCE
from vlcli.nn import Batch
from vlcli.objectives.base import full_precision
from vlcli.registry import Spec
from vlcli.tasks.base import Task
from vlcli.tasks.outputs import logits_of, target

Item = dict[int, float]  # scores of an item's pairs by ``part``


class _Pairs(Task):
    eval_split = "test"
    parts: ClassVar[int] = 2  # pairs of an item

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
            logits = full_precision(logits_of(outputs, self.objective, classes=2))
            scores = logits[:, 1] - logits[:, 0]
        columns = (target(batch, name) for name in ("item", "part", "kind"))
        return [
            {"key": key, "score": score, "item": item, "part": int(part), "kind": kind}
            for key, score, item, part, kind in zip(batch.keys, scores.tolist(), *columns, strict=True)
        ]

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        """Return the metrics over whole items, and by kind; items some of whose pairs were left out do not count."""
        items: dict[tuple[str, str], Item] = {}
        for row in predictions:
            items.setdefault((str(row["item"]), str(row["kind"] or "")), {})[row["part"]] = row["score"]
        whole = [(kind, item) for (_, kind), item in items.items() if len(item) == self.parts]
        if not whole:
            return {}
        metrics = self.metrics([item for _, item in whole])
        for kind in sorted({kind for kind, _ in whole if kind}):
            of_kind = self.metrics([item for other, item in whole if other == kind])
            metrics |= {f"{name}/{kind}": value for name, value in of_kind.items() if not name.startswith(CHANCE)}
        return metrics

    def metrics(self, items: Sequence[Item]) -> dict[str, float]:
        """Return the metrics of some items. Subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} has no metrics")


class SugarCrepeTask(_Pairs):
    """Prefer a picture's caption to one that a small change makes false; accuracy, overall and by kind of change.

    Args:
        objective: which scores pairs: ``matching``, ``contrast-matching`` or ``contrast``.
    """

    paper = "Hsieh et al. 2023, SugarCrepe: Fixing Hackable Benchmarks for Compositionality"
    metric = "accuracy"
    usual_data = "sugarcrepe"

    def metrics(self, items: Sequence[Item]) -> dict[str, float]:
        # equal scores are wrong
        right = sum(item[0] > item[1] for item in items)
        return {"accuracy": right / len(items), f"{CHANCE}/accuracy": 0.5}


class WinogroundTask(_Pairs):
    """Tell two captions and two pictures apart: text, image and group score, overall and by kind.

    Args:
        objective: which scores pairs: ``matching``, ``contrast-matching`` or ``contrast``.
    """

    paper = "Thrush et al. 2022, Winoground: Probing Vision and Language Models for Compositionality"
    metric = "group"
    usual_data = "winoground"
    parts = 4

    def metrics(self, items: Sequence[Item]) -> dict[str, float]:
        # by chance 1/4, 1/4 and 1/6 (two captions and two pictures in random order)
        text = [item[0] > item[2] and item[3] > item[1] for item in items]
        image = [item[0] > item[1] and item[3] > item[2] for item in items]
        both = [a and b for a, b in zip(text, image, strict=True)]
        scores = {name: sum(hits) / len(items) for name, hits in (("text", text), ("image", image), ("group", both))}
        return {**scores, f"{CHANCE}/text": 0.25, f"{CHANCE}/image": 0.25, f"{CHANCE}/group": 1 / 6}
