"""Masked image modelling as a task: how well hidden patches of held-out pictures are guessed."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from vlcli.nn.batch import Batch
from vlcli.registry import Spec
from vlcli.tasks.base import Task
from vlcli.tasks.outputs import logits_of


class MaskedImage(Task):
    """Guess hidden patches of pictures: the mean loss, and minus it as the score that chooses checkpoints.

    Args:
        objective: the name of the objective that was trained.
    """

    paper = "BEiT, Bao et al. 2022"
    requires = frozenset({"image", "hide"})
    metric = "score"
    eval_split = "val"

    def __init__(self, *, objective: str = "masked-image") -> None:
        self.objective = objective

    def objectives(self) -> list[Spec]:
        return [{"name": "masked-image", **({"as": self.objective} if self.objective != "masked-image" else {})}]

    def dataset(self) -> Spec:
        return {"name": "imagenet"}

    def decode(self, outputs: dict[str, dict[str, Tensor]], batch: Batch) -> list[dict[str, Any]]:
        # ``loss`` of each picture
        losses = logits_of(outputs, self.objective, "loss")
        return [{"key": key, "loss": loss} for key, loss in zip(batch.keys, losses.tolist(), strict=True)]

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        # ``loss`` and ``score``
        loss = sum(row["loss"] for row in predictions) / max(1, len(predictions))
        return {"loss": loss, "score": -loss}
