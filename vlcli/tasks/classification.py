"""Classification with labels of one's own: any data set whose examples have a label."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from vlcli.errors import DataError
from vlcli.metrics.baseline import most_frequent
from vlcli.metrics.nlvr2 import accuracy, by_kind
from vlcli.metrics.yes_no import yes_no
from vlcli.nn.batch import Batch
from vlcli.nn.forward_passes import ForwardPasses
from vlcli.nn.model import DataSpec
from vlcli.objectives.base import full_precision
from vlcli.objectives.blanking import Only
from vlcli.registry import Spec
from vlcli.tasks.base import Examples, Find, Predict, Result, Runner, Task
from vlcli.tasks.outputs import likeliest, logits_of, target


class Classification(Task):
    """Classify a sentence with one picture or several into the labels of the data.

    Args:
        images: pictures an example has.
        only: ``text`` or ``images`` make the control that sees one modality.
        head: a head of ``vlcli.nn.heads``; None takes the model's own.
        smoothing: label smoothing of the loss.
    """

    metric = "accuracy"
    joint = True
    eval_split = "test"

    def __init__(
        self, *, images: int = 1, only: Only = "both", head: str | None = None, smoothing: float = 0.0
    ) -> None:
        self.images, self.only, self.head, self.smoothing = images, only, head, smoothing
        self.names: tuple[str, ...] = ()
        self.words: tuple[str, ...] = ()

    def objectives(self) -> list[Spec]:
        spec: Spec = {"name": "classification", "images": self.images}
        if self.only != "both":
            spec["only"] = self.only
        spec |= {"smoothing": self.smoothing} if self.smoothing else {}
        return [spec if self.head is None else {**spec, "head": self.head}]

    def dataset(self) -> Spec:
        # JSON lines with the columns ``text``, ``image`` and ``label``
        return {"name": "jsonl"}

    def labels(self, readers: list[Any]) -> tuple[str, ...]:
        words = {tuple(reader.label_names()) for reader in readers}
        if len(words) > 1:
            raise DataError(
                "The training sets do not have the same labels.",
                got="; ".join(", ".join(names[:6]) or "numbers" for names in sorted(words)),
                hint="give every data set the same list: labels: [WORD, ...]",
            )
        if any(words):
            return next(iter(words))
        given = (example.targets.get("label") for reader in readers for example in reader.examples())
        return tuple(sorted({str(label) for label in given if label is not None}, key=_order))

    def attach(self, data_spec: DataSpec) -> None:
        self.names = data_spec.answers

    def evaluate(self, runner: Runner) -> Result:
        self.words = self._words_of(runner)
        return super().evaluate(runner)

    def decode(self, outputs: dict[str, dict[str, Tensor]], batch: Batch) -> list[dict[str, Any]]:
        # ``prediction`` (the label), ``score`` (its probability) and ``correct`` where the label is known
        logits = logits_of(outputs, "classification", classes=len(self.names) or None)
        score, chosen = full_precision(logits).softmax(-1).max(-1)
        facts = zip(batch.keys, chosen.tolist(), score.tolist(), target(batch, "label"), strict=True)
        return with_relation([self._row(*row) for row in facts], batch)

    def probabilities(self, step: ForwardPasses, predict: Predict, tokenizer: Any) -> list[list[tuple[str, float]]]:
        logits = logits_of(predict(step), self.objectives()[0]["name"], classes=len(self.names) or None)
        names = self.names or tuple(map(str, range(logits.shape[-1])))
        return likeliest(names, full_precision(logits).softmax(-1))

    def _row(self, key: str, place: int, chance: float, label: Any) -> dict[str, Any]:
        name = self.names[place] if self.names else str(place)
        return self._judged({"key": key, "prediction": name, "score": chance}, label)

    def _judged(self, row: dict[str, Any], label: Any) -> dict[str, Any]:
        if label not in (None, ""):
            truth = self.words[label] if self.words and isinstance(label, int) else str(label)
            row |= {"label": truth, "correct": row["prediction"] == truth}
        return row

    def judge(self, predictions: list[dict[str, Any]], batch: Batch) -> list[dict[str, Any]]:
        kept: list[dict[str, Any]] = [{k: row[k] for k in ("score", "top") if k in row} for row in predictions]
        given = zip(batch.keys, predictions, kept, target(batch, "label"), strict=True)
        rows = [
            self._judged({"key": key, "prediction": str(p["prediction"]), **k}, label) for key, p, k, label in given
        ]
        return with_relation(rows, batch)

    def rescore(self, find: Find, runner: Examples) -> Result:
        self.words = self._words_of(runner)
        return super().rescore(find, runner)

    @staticmethod
    def _words_of(runner: Examples) -> tuple[str, ...]:
        return next((tuple(reader.label_names()) for reader in runner.data.readers if reader.label_names()), ())

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        # Accuracy, overall beside that of the most frequent label, by label, and by the target ``relation`` (VSR)
        rows = [row for row in predictions if "correct" in row]
        if not rows:
            return {}
        per_label = {f"accuracy/{name}": value for name, value in by_kind(rows, "label").items()}
        found = {"accuracy": accuracy([row["correct"] for row in rows]), **most_frequent(rows)}
        found |= yes_no([str(row["prediction"]) for row in rows], [str(row["label"]) for row in rows])
        found |= {f"accuracy/{kind}": value for kind, value in by_kind(rows, "relation").items()}
        return {**found, **(per_label if len(per_label) <= 20 else {})}


def with_relation(rows: list[dict[str, Any]], batch: Batch) -> list[dict[str, Any]]:
    """The rows with the relation that the data name (``left of``), where they do."""
    named = zip(rows, target(batch, "relation"), strict=True)
    return [row | ({} if relation in (None, "") else {"relation": str(relation)}) for row, relation in named]


def _order(label: str) -> tuple[bool, int, str]:
    number = label.isdecimal()
    return not number, int(label) if number else 0, label
