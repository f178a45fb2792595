"""The task seam: what a benchmark asks, how it is scored and what its server wants."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from torch import Tensor

from vlcli.detection.extraction import Share
from vlcli.features import FeatureStore
from vlcli.nn.batch import Batch
from vlcli.nn.model import Facts, Model, Needs, Recorder
from vlcli.nn.step import Step
from vlcli.progress import Progress
from vlcli.registry import Spec

Predict = Callable[[Step], dict[str, dict[str, Tensor]]]
"""``predict`` of every objective that has one, by objective name."""


class Runner(Protocol):
    """What a task's evaluation is given."""

    progress: Progress
    data: Any
    """The assembled evaluation data (``vlcli.data.pipeline.Pipeline``), for a loop of one's own."""
    batch_size: int
    share: Share
    """This process's part, where several evaluate a task that is ``joint``."""
    folder: Path | None
    """Where what is worth keeping may be kept: the stage's folder; None while training."""

    @property
    def model(self) -> Model:
        """The model that is evaluated."""
        ...

    @property
    def facts(self) -> Facts:
        """Sizes and answers that come from the data."""
        ...

    def batches(self, data: Any = None) -> Iterable[Batch]:
        """The evaluation batches in order (or those of other data), on the model's device."""
        ...

    def embed(self, step: Step, objective: str, side: Literal["text", "image"]) -> Tensor:
        """Vectors of a batch's unique sentences or pictures, in float32."""
        ...

    def identity(self, objective: str) -> dict[str, Any]:
        """What the vectors of an objective depend on besides the data: weights, precision."""
        ...

    def step(self, batch: Batch, record: Recorder | None = None) -> Step:
        """Passes over one batch, no gradient (with gradient where ``record.gradients``)."""
        ...

    def predict(self, step: Step, only: str | None = None) -> dict[str, dict[str, Tensor]]:
        """``predict`` of every objective that has one (or of ``only`` this one), by objective name."""
        ...


@dataclass
class Result:
    """What an evaluation found.

    Attributes:
        metrics: by name; fractions in [0, 1] unless the name says otherwise.
        predictions: one mapping an example: ``key``, ``prediction``, ``score``, ``correct`` ... (predictions.jsonl).
    """

    metrics: dict[str, float]
    predictions: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Given:
    """What a task that needs no model is given.

    Attributes:
        data: the assembled data it is scored on (``vlcli.data.pipeline.Pipeline``).
        fit: those it is fitted on.
        store: region features of both.
        progress: where to report.
    """

    data: Any
    fit: Any
    store: FeatureStore
    progress: Progress


class Task:
    """Base of every task: defaults, decoding, metric, submission. The usual one overrides ``decode`` and ``score``."""

    paper: ClassVar[str] = ""
    requires: ClassVar[frozenset[str]] = frozenset({"fuse"})
    metric: ClassVar[str] = "accuracy"
    """The metric that chooses the best checkpoint (higher is better)."""
    eval_split: ClassVar[str] = "dev"
    """The split that ``vlcli eval TASK`` reads unless told otherwise."""
    joint: ClassVar[bool] = False
    """Whether all processes of a run take part in its evaluation, by ``runner.share``; else the first alone."""
    fitted: ClassVar[bool] = False
    """Whether it needs no model: it is fitted (:meth:`solve`) on the data an evaluate stage names in ``fit``."""
    usual_answers: int = 0
    """Rows of the answer table its papers use, for counting where no data are at hand; 0: it has none."""

    def objectives(self) -> list[Spec]:
        """What fine-tuning trains unless the recipe says otherwise."""
        raise NotImplementedError(f"{type(self).__name__} has no default objectives")

    def dataset(self) -> Spec:
        """The reader fine-tuning and evaluation use unless the recipe says otherwise (without ``split``)."""
        raise NotImplementedError(f"{type(self).__name__} has no default data set")

    def arrange(self, readers: list[Any]) -> list[Any]:
        """The data sets as this task reads them (one example a picture, say); as they are by default."""
        return readers

    def arrange_training(self, readers: list[Any]) -> list[Any]:
        """The data sets as it is trained on them; as :meth:`arrange` has them by default."""
        return self.arrange(readers)

    def labels(self, readers: list[Any]) -> tuple[str, ...]:
        """The answer or label strings of the task's head, from the training readers; none by default."""
        return ()

    def needs(self, needs: Needs, training: bool) -> Needs:
        """What must be loaded for it, where that is more than the model asks for, or otherwise sized.

        Args:
            needs: the model's.
            training: for training data; else for those it is scored on.
        """
        return needs

    def attach(self, facts: Facts) -> None:
        """Told, before anything is decoded, the sizes and answers the model was trained with."""

    def decode(self, outputs: dict[str, dict[str, Tensor]], batch: Batch) -> list[dict[str, Any]]:
        """Predictions of one batch: one mapping an example, with ``key``."""
        raise NotImplementedError(f"{type(self).__name__} has no decode")

    def predictions(self, step: Step, predict: Predict, tokenizer: Any) -> list[dict[str, Any]]:
        """Predictions of one batch: what :meth:`decode` makes of the objectives' outputs; a generator overrides it.

        Args:
            step: passes over the batch.
            predict: gives the objectives' outputs.
            tokenizer: turns ids into sentences; None where the model reads no text.
        """
        return self.decode(predict(step), step.batch)

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        """Metrics over all predictions."""
        raise NotImplementedError(f"{type(self).__name__} has no score")

    def evaluate(self, runner: Runner) -> Result:
        """The whole evaluation; tasks with a loop of their own (retrieval, grounding) override it."""
        self.attach(runner.facts)
        predictions: list[dict[str, Any]] = []
        tokenizer = getattr(runner.data, "tokenizer", None)
        for batch in runner.batches():
            predictions += self.predictions(runner.step(batch), runner.predict, tokenizer)
        return Result(self.score(predictions), predictions)

    def solve(self, given: Given) -> Result:
        """The whole evaluation of a task that is ``fitted``: on ``given.fit``, scored on ``given.data``."""
        raise NotImplementedError(f"{type(self).__name__} is not fitted without a model")

    def submission(self, predictions: list[dict[str, Any]], folder: Path) -> list[Path]:
        """Write the evaluation server's file(s) into ``folder``; none by default."""
        return []
