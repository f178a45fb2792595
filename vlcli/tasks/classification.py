"""Classification: labels of sentences with pictures (SNLI-VE, NLVR2), of pictures alone, several a picture."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from torch import Tensor

from vlcli.data.numbering import label_names
from vlcli.data.sample import Example
from vlcli.errors import DataError, shown
from vlcli.metrics.baseline import CHANCE, most_frequent
from vlcli.metrics.classification import by_kind, consistency, yes_no
from vlcli.metrics.ranking import average_precision
from vlcli.nn import Batch, DataSpec, ForwardPasses
from vlcli.objectives.base import full_precision
from vlcli.objectives.blanking import Only
from vlcli.registry import Spec
from vlcli.tasks.base import Examples, Predict, Task
from vlcli.tasks.outputs import (
    changed_options,
    likeliest,
    logits_of,
    mean,
    said,
    target,
    with_target,
    write_csv,
    write_json_lines,
)


class NLVR2(Task):
    """Whether a sentence is true of a pair of pictures; accuracy and consistency.

    Args:
        only: ``text`` or ``images`` make the control that sees one modality, in training and in evaluation.
        head: a head of ``vlcli.nn.heads``; None: the model's own for pairs.
    """

    paper = "Suhr et al. 2019, A Corpus for Reasoning about Natural Language Grounded in Photographs"
    usual_data = "nlvr2"
    images = 2

    def __init__(self, *, only: Only = "both", head: str | None = None) -> None:
        self.only, self.head = only, head

    def objectives(self) -> list[Spec]:
        return [{"name": "classification", "classes": 2, "images": 2, **changed_options(self, "only", "head")}]

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
        return likeliest(("False", "True"), logits_of(predict(step), "classification", classes=2).float().softmax(-1))

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        rows = [row for row in predictions if "correct" in row]
        if not rows:
            return {}
        metrics = {"accuracy": mean(rows, "correct"), **most_frequent(rows)}
        metrics["consistency"] = consistency((row["key"] for row in rows), (row["correct"] for row in rows))
        return metrics | by_kind(rows, "kind", prefix="accuracy/") | most_frequent(rows, "kind")

    def submission(self, predictions: list[dict[str, Any]], folder: Path) -> list[Path]:
        return [write_csv(folder / "nlvr2.csv", [(row["key"], row["prediction"]) for row in predictions])]


FEW = 20  # so many classes are also scored one by one


class Classification(Task):
    """Classify a sentence with one picture or several into the labels of the data.

    Args:
        images: pictures an example has.
        only: ``text`` or ``images`` make the control that sees one modality, in training and in evaluation.
        head: a head of ``vlcli.nn.heads``; None: the model's own.
        smoothing: label smoothing of the loss.
    """

    eval_split = "test"
    usual_data = "jsonl"  # with the columns ``text``, ``image`` and ``label``

    def __init__(
        self, *, images: int = 1, only: Only = "both", head: str | None = None, smoothing: float = 0.0
    ) -> None:
        self.images, self.only, self.head, self.smoothing = images, only, head, smoothing
        self.names: tuple[str, ...] = ()  # of the model's classes
        self.words: tuple[str, ...] = ()  # that the data number

    def objectives(self) -> list[Spec]:
        options = changed_options(self, "only", "smoothing", "head")
        return [{"name": "classification", "images": self.images, **options}]

    def labels(self, readers: list[Any]) -> tuple[str, ...]:
        if names := label_names(readers):
            if numbers := [reader.label for reader in readers if not reader.label_names()]:
                hint = "give every data set the same list: labels: [WORD, ...]"
                what, got = "Some training sets name their labels, others number them.", ", ".join(numbers)
                raise DataError(what, got=f"numbers: {got}", expected=", ".join(names[:6]), hint=hint)
            return names
        labels = (example.targets.get("label") for reader in readers for example in reader.examples())
        words = {str(label) for label in labels if label is not None}
        return tuple(sorted(words, key=lambda word: (not word.isdecimal(), int(word) if word.isdecimal() else 0, word)))

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
        rows = zip(best.tolist(), score.tolist(), strict=True)
        return self.judge([{"prediction": names[row], "score": chance} for row, chance in rows], batch)

    def probabilities(self, step: ForwardPasses, predict: Predict, tokenizer: Any) -> list[list[tuple[str, float]]]:
        logits, names = self.logits(predict(step))
        return likeliest(names, logits.softmax(-1))

    def judge(self, predictions: list[dict[str, Any]], batch: Batch) -> list[dict[str, Any]]:
        # adds the true label where it is known, and the relation that the data name (``left of``)
        rows = []
        for key, prediction, label in zip(batch.keys, predictions, target(batch, "label"), strict=True):
            row: dict[str, Any] = {"key": key, "prediction": said(prediction)}
            row |= {name: prediction[name] for name in ("score", "top") if name in prediction}
            if label not in (None, "") and not isinstance(label, list):
                truth = self.name_of(label)
                row |= {"label": truth, "correct": row["prediction"] == truth}
            rows.append(row)
        return with_target(rows, batch, "relation")

    def name_of(self, label: int | str) -> str:
        return self.words[label] if self.words and isinstance(label, int) else str(label)

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        # by label and by ``relation`` (VSR) too; of yes and no also precision, recall, F1 and share of yes (POPE)
        rows = [row for row in predictions if "correct" in row]
        if not rows:
            return {}
        per_label = by_kind(rows, "label", prefix="accuracy/")
        metrics = {"accuracy": mean(rows, "correct"), **most_frequent(rows)}
        metrics |= yes_no([row["prediction"] for row in rows], [row["label"] for row in rows])
        metrics |= by_kind(rows, "relation", prefix="accuracy/")
        return metrics | (per_label if len(per_label) <= FEW else {})


class Entailment(Classification):
    """Visual entailment in three classes; accuracy, overall and by label."""

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
        pass  # the names are those of the three classes

    def judge(self, predictions: list[dict[str, Any]], batch: Batch) -> list[dict[str, Any]]:
        self.words = self.classes
        return with_target(super().judge(predictions, batch), batch, "kind")

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        rows = [row for row in predictions if "correct" in row]
        kinds = by_kind(rows, "kind", prefix="accuracy/")
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
        return [{"name": self.objective, **changed_options(self, "head")}]

    def decode(self, outputs: dict[str, dict[str, Tensor]], batch: Batch) -> list[dict[str, Any]]:
        # ``prediction``, ``score``, the five best as ``top``, and whether they hold the label
        logits, names = self.logits(outputs)
        scores, best = logits.softmax(-1).topk(min(5, logits.shape[-1]))
        tops = [[names[k] for k in row] for row in best.tolist()]
        ranked = zip(tops, scores[:, 0].tolist(), strict=True)
        return self.judge([{"prediction": top[0], "score": score, "top": top} for top, score in ranked], batch)

    def judge(self, predictions: list[dict[str, Any]], batch: Batch) -> list[dict[str, Any]]:
        rows = super().judge(predictions, batch)
        for row in rows:
            row.setdefault("top", [row["prediction"]])
            if "label" in row:
                row["in_top"] = row["label"] in row["top"]
        return rows

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        rows = [row for row in predictions if "correct" in row]
        if not rows:
            return {}
        metrics = {"top1": mean(rows, "correct"), **most_frequent(rows), "top5": mean(rows, "in_top")}
        parts = by_kind(rows, "label", prefix="top1/")
        return metrics | (parts if len(parts) <= FEW else {})


class MultiLabel(ImageClassification):
    """Say which classes a picture has; average precision of each class that occurs, and their mean (``map``)."""

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
        rows = [{"scores": row, "prediction": [name for name, score in row.items() if score >= 0.5]} for row in scores]
        return self.judge(rows, batch)

    def probabilities(self, step: ForwardPasses, predict: Predict, tokenizer: Any) -> list[list[tuple[str, float]]]:
        logits, names = self.logits(predict(step))
        return likeliest(names, logits.sigmoid())

    def judge(self, predictions: list[dict[str, Any]], batch: Batch) -> list[dict[str, Any]]:
        # ``scores`` by class where they are given; ``labels`` where they are known
        rows = []
        facts = (target(batch, name) for name in ("labels", "unknown_labels", "label"))
        for key, prediction, labels, unknown, label in zip(batch.keys, predictions, *facts, strict=True):
            said = prediction["prediction"]
            said = said if isinstance(said, list) else [str(said)]
            row = {"key": key, "prediction": said, "scores": prediction.get("scores") or dict.fromkeys(said, 1.0)}
            if labels is not None or label is not None:
                row["labels"] = [self.name_of(label)] if labels is None else labels
                row |= {"unknown_labels": unknown} if unknown else {}
            rows.append(row)
        return rows

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        # and both for equal scores: the share of each class
        rows = [row for row in predictions if "labels" in row]
        names = self.names or tuple(dict.fromkeys(name for row in rows for name in [*row["scores"], *row["labels"]]))
        precision, chance = {}, {}
        for name in names:
            known = [row for row in rows if name not in row.get("unknown_labels", ())]
            positive = [name in row["labels"] for row in known]
            if any(positive):
                precision[f"ap/{name}"] = average_precision([row["scores"].get(name, 0.0) for row in known], positive)
                chance[f"{CHANCE}/ap/{name}"] = fmean(positive)
        if not precision:
            return {}
        return {"map": fmean(precision.values()), f"{CHANCE}/map": fmean(chance.values()), **precision, **chance}
