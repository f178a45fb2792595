"""Classification: labels of sentences with pictures (SNLI-VE, NLVR2), of pictures alone, several a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from vlcli.data.numbering import label_names
from vlcli.data.sample import Example
from vlcli.errors import DataError, shown
from vlcli.metrics.baseline import CHANCE, most_frequent
from vlcli.metrics.classification import accuracy, by_kind, consistency, yes_no
from vlcli.metrics.ranking import average_precision
from vlcli.nn import Batch, DataSpec, ForwardPasses
from vlcli.objectives.base import full_precision
from vlcli.objectives.blanking import Only
from vlcli.registry import Spec
from vlcli.tasks.base import Examples, Predict, Task
from vlcli.tasks.outputs import likeliest, logits_of, target, with_target, write_csv, write_json_lines


class NLVR2(Task):
    """Whether a sentence is true of a pair of pictures; accuracy and consistency.

    Args:
        only: ``text`` or ``images`` make the control that sees one modality, in training and in evaluation.
        head: a head of ``vlcli.nn.heads``; None takes the model's own for pairs.
    """

    paper = "Suhr et al. 2019, A Corpus for Reasoning about Natural Language Grounded in Photographs"
    metric = "accuracy"
    eval_split = "dev"
    usual_data = "nlvr2"
    images = 2

    def __init__(self, *, only: Only = "both", head: str | None = None) -> None:
        self.only, self.head = only, head

    def objectives(self) -> list[Spec]:
        spec: Spec = {"name": "classification", "classes": 2, "images": 2}
        spec |= {"only": self.only} if self.only != "both" else {}
        return [spec | ({} if self.head is None else {"head": self.head})]

    def decode(self, outputs: dict[str, dict[str, Tensor]], batch: Batch) -> list[dict[str, Any]]:
        # ``prediction`` (bool) and ``score``, the probability of True; ``correct`` where the label is known
        scores = full_precision(logits_of(outputs, "classification", classes=2)).softmax(-1)[:, 1].tolist()
        return self.judge([{"prediction": score > 0.5, "score": score} for score in scores], batch)

    def judge(self, predictions: list[dict[str, Any]], batch: Batch) -> list[dict[str, Any]]:
        rows = []
        facts = zip(target(batch, "identifier"), batch.keys, predictions, target(batch, "label"), strict=True)
        for identifier, key, prediction, label in facts:
            said = str(prediction["prediction"]).rstrip().lower()  # the official script counts " true" as wrong
            if said not in ("true", "false"):
                got, where = shown(prediction["prediction"], 60), str(prediction.get("key", ""))
                raise DataError("A prediction is no verdict.", where=where, got=got, expected="true or false")
            row: dict[str, Any] = {"key": identifier or key, "prediction": said == "true"}
            row |= {} if prediction.get("score") is None else {"score": prediction["score"]}
            if label is not None and label != -1:
                row |= {"label": bool(label), "correct": row["prediction"] == bool(label)}
            rows.append(row)
        return with_target(rows, batch, "kind")

    def probabilities(self, step: ForwardPasses, predict: Predict, tokenizer: Any) -> list[list[tuple[str, float]]]:
        logits = full_precision(logits_of(predict(step), "classification", classes=2))
        return likeliest(("False", "True"), logits.softmax(-1))

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        rows = [row for row in predictions if "correct" in row]
        if not rows:
            return {}
        right = [row["correct"] for row in rows]
        metrics = {"accuracy": accuracy(right), **most_frequent(rows)}
        metrics["consistency"] = consistency((row["key"] for row in rows), right)
        kinds = {f"accuracy/{kind}": value for kind, value in by_kind(rows, "kind").items()}
        return metrics | kinds | most_frequent(rows, "kind")

    def submission(self, predictions: list[dict[str, Any]], folder: Path) -> list[Path]:
        return [write_csv(folder / "nlvr2.csv", [(row["key"], row["prediction"]) for row in predictions])]


FEW = 20  # so many classes are also scored one by one


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
    usual_data = "jsonl"  # with the columns ``text``, ``image`` and ``label``

    def __init__(
        self, *, images: int = 1, only: Only = "both", head: str | None = None, smoothing: float = 0.0
    ) -> None:
        self.images, self.only, self.head, self.smoothing = images, only, head, smoothing
        self.names: tuple[str, ...] = ()  # of the model's classes
        self.words: tuple[str, ...] = ()  # that the data number

    def objectives(self) -> list[Spec]:
        spec: Spec = {"name": "classification", "images": self.images}
        spec |= {"only": self.only} if self.only != "both" else {}
        spec |= {"smoothing": self.smoothing} if self.smoothing else {}
        return [spec | ({} if self.head is None else {"head": self.head})]

    def labels(self, readers: list[Any]) -> tuple[str, ...]:
        if names := label_names(readers):
            numbers = [reader.label for reader in readers if not reader.label_names()]
            if numbers:
                hint = "give every data set the same list: labels: [WORD, ...]"
                what, got = "Some training sets name their labels, others number them.", ", ".join(numbers)
                raise DataError(what, got=f"numbers: {got}", expected=", ".join(names[:6]), hint=hint)
            return names
        labels = (example.targets.get("label") for reader in readers for example in reader.examples())
        return tuple(sorted({str(label) for label in labels if label is not None}, key=_order))

    def right_answers(self, example: Example, names: Sequence[str]) -> list[str]:
        label = example.targets.get("label")
        if label in (None, "") or isinstance(label, list):
            return []
        return [names[label] if names and isinstance(label, int) else str(label)]

    def attach(self, data_spec: DataSpec) -> None:
        self.names = data_spec.answers

    def read(self, runner: Examples) -> None:
        self.words = label_names(runner.data.readers)

    def logits(self, outputs: dict[str, dict[str, Tensor]]) -> tuple[Tensor, tuple[str, ...]]:
        """Return the logits (B, C) and the C names."""
        logits = logits_of(outputs, self.objectives()[0]["name"], classes=len(self.names) or None)
        return full_precision(logits), self.names or tuple(map(str, range(logits.shape[-1])))

    def decode(self, outputs: dict[str, dict[str, Tensor]], batch: Batch) -> list[dict[str, Any]]:
        # ``prediction`` (the label), ``score`` (its probability) and ``correct`` where the label is known
        logits, names = self.logits(outputs)
        score, best = logits.softmax(-1).max(-1)
        rows = zip(batch.keys, best.tolist(), score.tolist(), strict=True)
        return self._judged([{"key": key, "prediction": names[row], "score": p} for key, row, p in rows], batch)

    def probabilities(self, step: ForwardPasses, predict: Predict, tokenizer: Any) -> list[list[tuple[str, float]]]:
        logits, names = self.logits(predict(step))
        return likeliest(names, logits.softmax(-1))

    def judge(self, predictions: list[dict[str, Any]], batch: Batch) -> list[dict[str, Any]]:
        rows = [
            {"key": key, "prediction": str(row["prediction"])} | {k: row[k] for k in ("score", "top") if k in row}
            for key, row in zip(batch.keys, predictions, strict=True)
        ]
        return self._judged(rows, batch)

    def _judged(self, rows: list[dict[str, Any]], batch: Batch) -> list[dict[str, Any]]:
        # adds the true label where it is known, and the relation that the data name (``left of``)
        for row, label in zip(rows, target(batch, "label"), strict=True):
            if label not in (None, "") and not isinstance(label, list):
                truth = self.words[label] if self.words and isinstance(label, int) else str(label)
                row.update(label=truth, correct=row["prediction"] == truth)
        return with_target(rows, batch, "relation")

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        """Return accuracy, overall beside that of the most frequent label, by label and by ``relation`` (VSR).

        Where the labels are yes and no: precision, recall and F1 of yes, and the share of yes (POPE).
        """
        rows = [row for row in predictions if "correct" in row]
        if not rows:
            return {}
        per_label = {f"accuracy/{name}": value for name, value in by_kind(rows, "label").items()}
        metrics = {"accuracy": accuracy([row["correct"] for row in rows]), **most_frequent(rows)}
        metrics |= yes_no([str(row["prediction"]) for row in rows], [str(row["label"]) for row in rows])
        metrics |= {f"accuracy/{kind}": value for kind, value in by_kind(rows, "relation").items()}
        return {**metrics, **(per_label if len(per_label) <= FEW else {})}


def _order(label: str) -> tuple[bool, int, str]:
    number = label.isdecimal()
    return not number, int(label) if number else 0, label


class Entailment(Classification):
    """Visual entailment in three classes; accuracy, overall and by label.

    Args:
        only: ``text`` or ``images`` make the control that sees one modality, in training and in evaluation.
        head: a head of ``vlcli.nn.heads``; None takes the model's own for labels.
    """

    paper = "SNLI-VE, Xie et al. 2019, arXiv:1901.06706; ALBEF, Li et al. 2021, section 5"
    eval_split = "dev"
    usual_data = "snli-ve"
    classes = ("contradiction", "neutral", "entailment")

    def __init__(self, *, only: Only = "both", head: str | None = None) -> None:
        super().__init__(only=only, head=head)
        self.names = self.classes

    def objectives(self) -> list[Spec]:
        (spec,) = super().objectives()
        return [{**spec, "classes": len(self.classes)}]

    def labels(self, readers: list[Any]) -> tuple[str, ...]:
        return ()  # numbers whose names are known

    def attach(self, data_spec: DataSpec) -> None:
        """Keep the names of the three classes."""

    def _judged(self, rows: list[dict[str, Any]], batch: Batch) -> list[dict[str, Any]]:
        self.words = self.classes
        return with_target(super()._judged(rows, batch), batch, "kind")

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        rows = [row for row in predictions if "correct" in row]
        kinds = {f"accuracy/{kind}": share for kind, share in by_kind(rows, "kind").items()}
        return super().score(predictions) | kinds | most_frequent(rows, "kind")

    def submission(self, predictions: list[dict[str, Any]], folder: Path) -> list[Path]:
        # the test set is public; there is no server
        rows = [{"pairID": row["key"], "label": row["prediction"]} for row in predictions]
        return [write_json_lines(folder / "snli_ve.jsonl", rows)]


class ImageClassification(Classification):
    """Classify pictures: top-1 and top-5 accuracy.

    Args:
        head: a head of ``vlcli.nn.heads``, for a model without a classifier of its own.
    """

    paper = "Russakovsky et al. 2015, ImageNet Large Scale Visual Recognition Challenge"
    requires = frozenset({"image"})
    metric = "top1"
    eval_split = "val"
    usual_data = "imagenet"
    usual_answers = 1000
    objective = "image-classification"

    def __init__(self, *, head: str | None = None) -> None:
        super().__init__(head=head)

    def objectives(self) -> list[Spec]:
        return [{"name": self.objective, **({"head": self.head} if self.head else {})}]

    def decode(self, outputs: dict[str, dict[str, Tensor]], batch: Batch) -> list[dict[str, Any]]:
        # ``prediction``, ``score``, the five best as ``top``, and whether they hold the label
        logits, names = self.logits(outputs)
        scores, best = logits.softmax(-1).topk(min(5, logits.shape[-1]))
        tops = [[names[k] for k in row] for row in best.tolist()]
        ranked = zip(batch.keys, tops, scores[:, 0].tolist(), strict=True)
        rows = self._judged([{"key": key, "prediction": top[0], "score": score} for key, top, score in ranked], batch)
        return _in_top([{**row, "top": top} for row, top in zip(rows, tops, strict=True)])

    def judge(self, predictions: list[dict[str, Any]], batch: Batch) -> list[dict[str, Any]]:
        return _in_top(
            [{**row, "top": row.get("top", [row["prediction"]])} for row in super().judge(predictions, batch)]
        )

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        rows = [row for row in predictions if "correct" in row]
        if not rows:
            return {}
        metrics = {"top1": accuracy([row["correct"] for row in rows]), **most_frequent(rows)}
        metrics["top5"] = accuracy([row["in_top"] for row in rows])
        parts = {f"top1/{name}": value for name, value in by_kind(rows, "label").items()}
        return {**metrics, **(parts if len(parts) <= FEW else {})}


def _in_top(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "in_top": row["label"] in row["top"]} if "label" in row else row for row in rows]


class MultiLabel(ImageClassification):
    """Say which classes a picture has; mean average precision over the classes that occur, and that of each class.

    Args:
        head: a head of ``vlcli.nn.heads``, for a model without a classifier of its own.
    """

    paper = "Everingham et al. 2010, The Pascal Visual Object Classes Challenge (classification)"
    metric = "map"
    eval_split = "test"
    usual_answers = 0
    objective = "multi-label"

    def dataset(self) -> Spec:
        return {"name": "csv", "label": ["labels"]}

    def decode(self, outputs: dict[str, dict[str, Tensor]], batch: Batch) -> list[dict[str, Any]]:
        # ``scores`` (probability by class) and ``prediction`` (the classes of at least a half)
        logits, names = self.logits(outputs)
        scores = [dict(zip(names, row, strict=True)) for row in logits.sigmoid().tolist()]
        return self.judge(
            [{"scores": row, "prediction": [n for n, p in row.items() if p >= 0.5]} for row in scores], batch
        )

    def probabilities(self, step: ForwardPasses, predict: Predict, tokenizer: Any) -> list[list[tuple[str, float]]]:
        logits, names = self.logits(predict(step))
        return likeliest(names, logits.sigmoid())

    def judge(self, predictions: list[dict[str, Any]], batch: Batch) -> list[dict[str, Any]]:
        # ``scores`` by class where they are given; ``labels`` where they are known
        rows = []
        names = ("labels", "unknown_labels", "label")
        facts = zip(batch.keys, predictions, *(target(batch, name) for name in names), strict=True)
        for key, prediction, labels, unknown, label in facts:
            said = prediction["prediction"]
            said = said if isinstance(said, list) else [str(said)]
            row = {"key": key, "prediction": said, "scores": prediction.get("scores") or dict.fromkeys(said, 1.0)}
            if labels is None and label is not None:
                row["labels"] = [self.words[label] if self.words and isinstance(label, int) else str(label)]
            elif labels is not None:
                row["labels"] = labels
            if "labels" in row and unknown:
                row["unknown_labels"] = unknown
            rows.append(row)
        return rows

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        """Return ``map`` over the classes that occur, ``ap`` of each, and both for equal scores: the share of each."""
        rows = [row for row in predictions if "labels" in row]
        names = self.names or tuple(dict.fromkeys(name for row in rows for name in [*row["scores"], *row["labels"]]))
        precision, chance = {}, {}
        for name in names:
            known = [row for row in rows if name not in row.get("unknown_labels", ())]
            positive = [name in row["labels"] for row in known]
            if any(positive):
                precision[f"ap/{name}"] = average_precision([row["scores"].get(name, 0.0) for row in known], positive)
                chance[f"{CHANCE}/ap/{name}"] = sum(positive) / len(positive)
        if not precision:
            return {}
        means = {"map": sum(precision.values()) / len(precision), f"{CHANCE}/map": sum(chance.values()) / len(chance)}
        return {**means, **precision, **chance}
