"""Base class of tasks: the data of a benchmark, decoding, metrics and submission files."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypeVar

from torch import Tensor

from vlcli.data.miniature import Miniature
from vlcli.data.sample import Example
from vlcli.detection.extraction import Share
from vlcli.features import FeatureStore
from vlcli.nn import Batch, DataSpec, ForwardPasses, InputSpec, Model, Recorder
from vlcli.progress import Progress
from vlcli.registry import Spec

# ``predict`` of every objective that has one, by objective name
Predict = Callable[[ForwardPasses], dict[str, dict[str, Tensor]]]
# Returns the predictions of a batch that were made elsewhere, in its order
Find = Callable[[Batch], list[dict[str, Any]]]
T = TypeVar("T")


class Examples(Protocol):
    """Keys and targets, for tasks that score predictions without a model."""

    progress: Progress
    data: Any  # vlcli.data.pipeline.Pipeline

    def batches(self, data: Any = None) -> Iterable[Batch]:
        """Yield the batches of the evaluation data, or of other data, in order."""


class Runner(Examples, Protocol):
    """Batches on the model's device, forward passes and predictions, for a task's evaluation."""

    batch_size: int
    share: Share
    folder: Path | None  # of the stage, for files that a resumed evaluation reads; None while training

    @property
    def model(self) -> Model: ...

    @property
    def data_spec(self) -> DataSpec:
        """Sizes and answers that come from the data."""

    def rows(self, make: Callable[[Batch], list[T]]) -> list[T]:
        """Return ``make(batch)`` of all batches, joined in order; the processes of an evaluation share the batches."""

    def embed(self, step: ForwardPasses, objective: str, side: Literal["text", "image"]) -> Tensor:
        """Return the float32 vectors (N, D) of a batch's unique texts or images."""

    def identity(self, objective: str) -> dict[str, Any]:
        """Return what an objective's vectors depend on besides the data: weights, precision."""

    def step(self, batch: Batch, record: Recorder | None = None) -> ForwardPasses:
        """Return forward passes over a batch, without gradient unless ``record.gradients``."""

    def predict(self, step: ForwardPasses, only: str | None = None) -> dict[str, dict[str, Tensor]]:
        """Return ``predict`` of every objective that has one, or of ``only`` this one, by objective name."""


@dataclass
class Result:
    """Metrics and predictions of an evaluation."""

    metrics: dict[str, float]  # by name; fractions in [0, 1] unless the name says otherwise
    # one mapping an example: ``key``, ``prediction``, ``score``, ``correct`` ... (predictions.jsonl).
    predictions: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Given:
    """Data of a task that is fitted without a model."""

    data: Any  # data to score on (``vlcli.data.pipeline.Pipeline``)
    fit: Any  # data to fit on
    store: FeatureStore | None  # region features of both; None where the task does without
    progress: Progress  # where to report


class Task:
    """Base of every task: defaults, decoding, metric, submission. The usual one overrides ``decode`` and ``score``."""

    paper: ClassVar[str] = ""  # source, as ``vlcli show`` prints it
    requires: ClassVar[frozenset[str]] = frozenset({"fuse"})  # capabilities that the model must have
    metric: ClassVar[str] = "accuracy"  # metric that selects the best checkpoint; higher is better
    eval_split: ClassVar[str] = "dev"  # split that ``vlcli eval TASK`` and an evaluate stage without ``split`` read
    usual_data: ClassVar[str] = ""  # reader of fine-tuning and evaluation where a recipe names none
    # whether all processes take part in :meth:`evaluate`, by ``runner.rows`` or ``runner.share``; else only the first.
    # A task that leaves :meth:`evaluate` as it is need not say so.
    joint: ClassVar[bool] = False
    # whether :meth:`solve` replaces :meth:`evaluate`: no model, fitted on the data of the key ``fit``
    fitted: ClassVar[bool] = False
    # of a fitted task, whether it reads the pictures' files where there is no store of region features
    reads_pixels: ClassVar[bool] = False
    usual_answers: int = 0  # rows of the papers' answer table, for ``vlcli count`` without data; 0: there is none
    # names of the objectives as whose corruptions the examples are shown; none: as they are
    corrupted_by: tuple[str, ...] = ()
    local_files: ClassVar[tuple[str, ...]] = ()  # parameters that name a file or a folder: under the data root, or here
    data_spec = DataSpec()  # of the trained model, from :meth:`attach` on
    images: int = 1  # images of one example, for :meth:`probabilities` of new pictures; 0: any number

    def write_miniature(self, miniature: Miniature, readers: list[Any]) -> None:
        """Write files of a few rows that the task itself reads; called by ``vlcli rehearse``. None by default.

        Args:
            miniature: writes files and draws pictures.
            readers: of the stage's data, whose miniatures are written.
        """

    def objectives(self) -> list[Spec]:
        """Objectives that fine-tuning trains where a recipe names none; called when a stage is resolved.

        Returns:
            Recipe entries of objectives.

        Raises:
            NotImplementedError: the task has none.
        """
        raise NotImplementedError(f"{type(self).__name__} has no default objectives")

    def dataset(self) -> Spec:
        """Reader of fine-tuning and evaluation where a recipe names none; called when a stage is resolved.

        Returns:
            A recipe entry without ``split``; by default :attr:`usual_data`.

        Raises:
            NotImplementedError: the task has none.
        """
        if not self.usual_data:
            raise NotImplementedError(f"{type(self).__name__} has no default data set")
        return {"name": self.usual_data}

    def arrange(self, readers: list[Any]) -> list[Any]:
        """Arrange the data for evaluation (one example per image, for instance); called once after readers are opened.

        Args:
            readers: as the recipe names them.

        Returns:
            Readers; by default the same.
        """
        return readers

    def arrange_training(self, readers: list[Any]) -> list[Any]:
        """Arrange the data for training; called once after readers are opened.

        Args:
            readers: as the recipe names them.

        Returns:
            Readers; by default those of :meth:`arrange`.
        """
        return self.arrange(readers)

    def labels(self, readers: list[Any]) -> tuple[str, ...]:
        """Answer or label strings of the task's head; called once before the model is built. None by default.

        Args:
            readers: of the training data.

        Returns:
            One string per row of the head.
        """
        return ()

    def right_answers(self, example: Example, names: Sequence[str]) -> list[str]:
        """Answers that count as right, as the strings of :meth:`labels`; called by checks before a run.

        Args:
            example: of data to be scored.
            names: of its data set's labels.

        Returns:
            Strings, several where an answer has several spellings; none by default, and where no answer is known.
        """
        return []

    def input_spec(self, spec: InputSpec, training: bool) -> InputSpec:
        """Inputs to load beyond the model's spec, or at another size; called once when data are opened.

        Args:
            spec: of the model.
            training: whether the data are for training; else they are scored.

        Returns:
            The spec of the data.
        """
        return spec

    def attach(self, data_spec: DataSpec) -> None:
        """Receive the sizes and answers that the model was trained with; called once, before anything is decoded.

        Args:
            data_spec: of the trained model.
        """
        self.data_spec = data_spec

    def read(self, runner: Examples) -> None:
        """Read more files of the data (labels, annotations); called once before the first batch. None by default.

        Args:
            runner: gives the data.
        """

    def decode(self, outputs: dict[str, dict[str, Tensor]], batch: Batch) -> list[dict[str, Any]]:
        """Turn outputs into predictions; called once per evaluation batch. Subclasses define it or :meth:`predictions`.

        Args:
            outputs: by objective and name, tensors (B, ...) from ``Objective.predict``.
            batch: the B examples.

        Returns:
            One mapping per example, with ``key``.
        """
        raise NotImplementedError(f"{type(self).__name__} has no decode")

    def predictions(self, step: ForwardPasses, predict: Predict, tokenizer: Any) -> list[dict[str, Any]]:
        """Predictions of one batch, by default of :meth:`decode`; called once per evaluation batch.

        Args:
            step: forward passes over the batch.
            predict: returns the objectives' outputs for a step.
            tokenizer: None where the model reads no text.

        Returns:
            One mapping per example, with ``key``.
        """
        return self.decode(predict(step), step.batch)

    def probabilities(self, step: ForwardPasses, predict: Predict, tokenizer: Any) -> list[list[tuple[str, float]]]:
        """Probabilities of the answers or labels that one example may have.

        Called by ``vlcli predict`` and ``Loaded.predict`` once per batch of new pictures, after :meth:`predictions`.

        Args:
            step: forward passes over the batch.
            predict: returns the objectives' outputs for a step.
            tokenizer: None where the model reads no text.

        Returns:
            B lists of answers with their probabilities, likeliest first; empty by default.
        """
        return [[] for _ in step.batch.keys]

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        """Compute the metrics; called once, after the last batch. Subclasses define it, or :meth:`evaluate`.

        Args:
            predictions: of all batches, in order.

        Returns:
            Metrics by name, fractions in [0, 1] unless the name says otherwise.
        """
        raise NotImplementedError(f"{type(self).__name__} has no score")

    def evaluate(self, runner: Runner) -> Result:
        """Evaluate the model; called once per evaluate stage and per validation.

        Args:
            runner: gives batches, forward passes and outputs.

        Returns:
            Metrics and predictions.
        """
        self.attach(runner.data_spec)
        self.read(runner)
        tokenizer = getattr(runner.data, "tokenizer", None)
        predictions = runner.rows(lambda batch: self.predictions(runner.step(batch), runner.predict, tokenizer))
        return Result(self.score(predictions), predictions)

    def judge(self, predictions: list[dict[str, Any]], batch: Batch) -> list[dict[str, Any]]:
        """Add the truth to predictions that were made elsewhere; called by :meth:`rescore` once per batch.

        Args:
            predictions: one mapping per example, with ``prediction``.
            batch: the B examples: keys and targets, without texts and images.

        Returns:
            The rows that :meth:`predictions` would return.

        Raises:
            NotImplementedError: the task needs a model.
        """
        raise NotImplementedError(f"{type(self).__name__} is not scored without a model")

    def rescore(self, find: Find, runner: Examples) -> Result:
        """Score predictions that were made elsewhere; called once per ``vlcli eval --predictions``.

        Args:
            find: returns the predictions of a batch, in order.
            runner: gives the batches of keys and targets; it has no model.

        Returns:
            Metrics and predictions.
        """
        self.read(runner)
        rows = [row for batch in runner.batches() for row in self.judge(find(batch), batch)]
        return Result(self.score(rows), rows)

    def solve(self, inputs: Given) -> Result:
        """Evaluate without a model; called once per evaluate stage, instead of :meth:`evaluate`, if ``fitted``.

        Args:
            inputs: data to fit on and data to score on.

        Returns:
            Metrics and predictions.
        """
        raise NotImplementedError(f"{type(self).__name__} is not fitted without a model")

    def submission(self, predictions: list[dict[str, Any]], folder: Path) -> list[Path]:
        """Write the files that an evaluation server takes, none by default; called once after :meth:`evaluate`.

        Args:
            predictions: of all examples.
            folder: existing folder to write to.

        Returns:
            The files.
        """
        return []


def is_joint(task: Task) -> bool:
    """Return whether all processes take part in the task's evaluation."""
    return task.joint or type(task).evaluate is Task.evaluate
