"""SNLI-VE: does the picture entail the sentence, contradict it, or leave it open?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from vlcli.metrics.baseline import most_frequent
from vlcli.metrics.nlvr2 import by_kind
from vlcli.nn.batch import Batch
from vlcli.nn.model import DataSpec
from vlcli.objectives.blanking import Only
from vlcli.registry import Spec
from vlcli.tasks.classification import Classification
from vlcli.tasks.outputs import target, write_json_lines

LABELS = ("contradiction", "neutral", "entailment")


class Entailment(Classification):
    """Visual entailment in three classes; accuracy, overall and by label.

    Args:
        only: ``text`` or ``images`` make the control that sees one modality, in training and in evaluation.
        head: a head of ``vlcli.nn.heads``; None takes the model's own for labels.
    """

    paper = "SNLI-VE, Xie et al. 2019, arXiv:1901.06706; ALBEF, Li et al. 2021, section 5"
    eval_split = "dev"

    def __init__(self, *, only: Only = "both", head: str | None = None) -> None:
        super().__init__(only=only, head=head)

    def objectives(self) -> list[Spec]:
        (spec,) = super().objectives()
        return [{**spec, "classes": len(LABELS)}]

    def dataset(self) -> Spec:
        return {"name": "snli-ve"}

    def labels(self, readers: list[Any]) -> tuple[str, ...]:
        return ()

    def attach(self, data_spec: DataSpec) -> None:
        self.names = LABELS

    def decode(self, outputs: dict[str, dict[str, Tensor]], batch: Batch) -> list[dict[str, Any]]:
        # ``prediction``, its probability, ``label`` and ``correct`` where the label is known; the data's ``kind``
        self.names = self.words = LABELS
        return self._with_kind(super().decode(outputs, batch), batch)

    def judge(self, predictions: list[dict[str, Any]], batch: Batch) -> list[dict[str, Any]]:
        # Labels by their words; the data's ``kind``
        self.words = LABELS
        return self._with_kind(super().judge(predictions, batch), batch)

    @staticmethod
    def _with_kind(rows: list[dict[str, Any]], batch: Batch) -> list[dict[str, Any]]:
        kinds = target(batch, "kind")
        return [row if kind in (None, "") else {**row, "kind": kind} for row, kind in zip(rows, kinds, strict=True)]

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        rows = [row for row in predictions if "correct" in row]
        kinds = {f"accuracy/{kind}": share for kind, share in by_kind(rows, "kind").items()}
        return super().score(predictions) | kinds | most_frequent(rows, "kind")

    def submission(self, predictions: list[dict[str, Any]], folder: Path) -> list[Path]:
        # ``snli_ve.jsonl``: pair and label a line (the test set is public; there is no server)
        rows = [{"pairID": row["key"], "label": row["prediction"]} for row in predictions]
        return [write_json_lines(folder / "snli_ve.jsonl", rows)]
