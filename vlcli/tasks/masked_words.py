"""Masked words as a task: how many hidden words of held-out sentences are guessed."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from vlcli.errors import DataError
from vlcli.nn.batch import Batch
from vlcli.registry import Spec
from vlcli.tasks.base import Task
from vlcli.tasks.outputs import logits_of


class MaskedWords(Task):
    """Guess hidden words of held-out sentences from the rest and the picture: the share of them that is right.

    Words are hidden as in training, the same ones in every model that was trained with the same masking and is scored
    with the same seed. A sentence of which nothing is hidden does not count.

    Args:
        objective: the name of the objective that was trained.
    """

    paper = "BERT, Devlin et al. 2019; with pictures: LXMERT, Tan and Bansal 2019"
    requires = frozenset({"text"})
    eval_split = "val"

    def __init__(self, *, objective: str = "mlm") -> None:
        self.objective = objective
        self.corrupted_by = (objective,)

    def objectives(self) -> list[Spec]:
        return [{"name": "mlm", **({"as": self.objective} if self.objective != "mlm" else {})}]

    def dataset(self) -> Spec:
        return {"name": "karpathy"}

    def decode(self, outputs: dict[str, dict[str, Tensor]], batch: Batch) -> list[dict[str, Any]]:
        # ``accuracy`` of each sentence that has hidden words, and how many it has (``hidden``)
        right, hidden = (logits_of(outputs, self.objective, name) for name in ("right", "hidden"))
        if len(right) != len(batch):
            got = f"{len(right)} sentences in {len(batch)} examples"
            raise DataError("Each example needs one sentence.", where="task masked-words", got=got)
        rows = zip(batch.keys, right.tolist(), hidden.tolist(), strict=True)
        return [{"key": key, "accuracy": good / all_, "hidden": int(all_)} for key, good, all_ in rows if all_]

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        # ``accuracy``, a mean over sentences, and ``hidden``, the number of hidden pieces
        shares = [row["accuracy"] for row in predictions]
        return {
            "accuracy": sum(shares) / max(1, len(shares)),
            "hidden": float(sum(row["hidden"] for row in predictions)),
        }


__all__ = ["MaskedWords"]
