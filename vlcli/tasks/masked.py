"""Scores masked language and image modelling on held-out data."""

from typing import Any

from torch import Tensor

from vlcli.errors import DataError
from vlcli.nn import Batch
from vlcli.registry import Spec
from vlcli.tasks.base import Task
from vlcli.tasks.outputs import logits_of, mean


class MaskedImage(Task):
    """Guess hidden patches of pictures: the mean loss, and minus it as the score that chooses checkpoints.

    Args:
        objective: the trained objective's name.
    """

    paper = "BEiT, Bao et al. 2022"
    requires = frozenset({"image", "hide"})
    metric = "score"
    eval_split = "val"
    usual_data = "imagenet"

    def __init__(self, *, objective: str = "masked-image") -> None:
        self.objective = objective

    def objectives(self) -> list[Spec]:
        return [{"name": "masked-image", **({"as": self.objective} if self.objective != "masked-image" else {})}]

    def decode(self, outputs: dict[str, dict[str, Tensor]], batch: Batch) -> list[dict[str, Any]]:
        losses = logits_of(outputs, self.objective, "loss")
        return [{"key": key, "loss": loss} for key, loss in zip(batch.keys, losses.tolist(), strict=True)]

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        loss = mean(predictions, "loss")
        return {"loss": loss, "score": -loss}


class MaskedWords(Task):
    """Guess hidden words of held-out sentences from the rest and the picture: the share of them that is right.

    Words are hidden as in training: the same ones for the same masking and seed. Sentences without any do not count.

    Args:
        objective: the trained objective's name.
    """

    paper = "BERT, Devlin et al. 2019; with pictures: LXMERT, Tan and Bansal 2019"
    requires = frozenset({"text"})
    eval_split = "val"
    usual_data = "karpathy"

    def __init__(self, *, objective: str = "mlm") -> None:
        self.objective, self.corrupted_by = objective, (objective,)

    def objectives(self) -> list[Spec]:
        return [{"name": "mlm", **({"as": self.objective} if self.objective != "mlm" else {})}]

    def decode(self, outputs: dict[str, dict[str, Tensor]], batch: Batch) -> list[dict[str, Any]]:
        # ``accuracy`` of each sentence that has hidden words, and how many it has (``hidden``)
        right, hidden = (logits_of(outputs, self.objective, name) for name in ("right", "hidden"))
        if len(right) != len(batch):
            got = f"{len(right)} sentences in {len(batch)} examples"
            raise DataError("Each example needs one sentence.", where="task masked-words", got=got)
        rows = zip(batch.keys, right.tolist(), hidden.tolist(), strict=True)
        return [{"key": key, "accuracy": good / count, "hidden": int(count)} for key, good, count in rows if count]

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        return {"accuracy": mean(predictions, "accuracy"), "hidden": float(sum(row["hidden"] for row in predictions))}
