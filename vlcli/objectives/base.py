"""Base class of objectives: losses and predictions from shared forward passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlcli.data.sample import Corruption
from vlcli.nn import DataSpec, ForwardPasses, Model


@dataclass
class Mean:
    """A mean as sum and count of its terms, so that it is the same over one process, many, or a whole evaluation."""

    total: Tensor  # scalar tensor, with gradient for a loss
    count: Tensor  # 0 makes the mean 0

    @classmethod
    def of(cls, values: Tensor, mask: Tensor | None = None) -> Mean:
        """Take terms of any shape, with ``mask`` those where it is True."""
        if mask is None:
            return cls(values.sum(), torch.tensor(float(values.numel()), device=values.device))
        return cls(values.masked_fill(~mask, 0).sum(), mask.sum().to(values.dtype))

    def value(self) -> Tensor:
        """Return total by count, 0 where there is no term."""
        return self.total / self.count.clamp(min=1e-12) if self.count > 0 else self.total * 0


@dataclass
class ObjectiveOutput:
    """Losses, outputs and metrics of an objective for a step."""

    losses: dict[str, Mean]  # by name, unweighted; the recipe's weight multiplies their sum
    # tensors that other objectives may read (``reads``), e.g. similarities for hard negatives.
    outputs: dict[str, Tensor] = field(default_factory=dict)
    metrics: dict[str, Mean] = field(default_factory=dict)  # means to log, e.g. accuracy.


def full_precision(tensor: Tensor) -> Tensor:
    """Convert half precision to float32, for losses; other types stay."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def classified(logits: Tensor, labels: Tensor, mask: Tensor | None = None, smoothing: float = 0.0) -> tuple[Mean, Mean]:
    """Return cross-entropy and accuracy of logits (N, C) for labels (N,), over those that ``mask`` (N,) keeps."""
    terms = F.cross_entropy(logits, labels, ignore_index=-1, reduction="none", label_smoothing=smoothing)
    return Mean.of(terms, mask), Mean.of((logits.argmax(-1) == labels).float(), mask)


class Objective(nn.Module):
    """Base of every objective: it computes losses, and predictions for tasks, from shared forward passes.

    Heads (parameters) and queues (buffers) are saved in the checkpoint. ``model`` must not become a submodule: an
    objective reads its sizes and asks the step for its forward passes.
    """

    paper: ClassVar[str] = ""  # source, as ``vlcli show`` prints it
    # capabilities that the model must have; checked before anything is loaded
    requires: ClassVar[frozenset[str]] = frozenset()
    # inputs that the model must read, as fields of ``InputSpec``: ``text``, ``regions``, ``pixels``, ``concepts``
    inputs: ClassVar[frozenset[str]] = frozenset()
    # methods that the model must define beside those of its capabilities, such as ``word_table``
    calls: ClassVar[frozenset[str]] = frozenset()
    # objectives that run before this one and whose outcomes :meth:`forward` receives. ``contrast|momentum-contrast``
    # accepts either; its outcome is passed under the first name.
    reads: ClassVar[tuple[str, ...]] = ()
    # rows of the paper's answer table, for ``vlcli count`` without data; 0: there is none
    usual_answers: ClassVar[int] = 0
    # objectives whose weights in a checkpoint this one loads if the checkpoint has none for it
    init_from: ClassVar[tuple[str, ...]] = ()
    # parameters that a recipe may change from one epoch on: only those of the corruption
    changeable: ClassVar[frozenset[str]] = frozenset()
    # parameters that name a file: under the data root, or here
    local_files: ClassVar[tuple[str, ...]] = ()
    # whether :meth:`predict` speaks of what a corruption hid alone: of plain examples it says nothing, so that no
    # exported graph computes it
    predicts_hidden: ClassVar[bool] = False
    # whether no image is read; if this is true of all objectives of a stage, no image is loaded
    text_alone: bool = False
    # momentum of the copy of the model that ``step.teacher`` runs, such as 0.995; None: there is no copy
    teacher_momentum: float | None = None

    def __init__(self, model: Model, data_spec: DataSpec) -> None:
        super().__init__()
        self.dim = model.dim

    @classmethod
    def labels(cls, spec: Mapping[str, Any], readers: Sequence[Any]) -> tuple[str, ...]:  # noqa: ARG003
        """Strings that the head chooses from, none by default; called before the model is built, if no task names any.

        Args:
            spec: the recipe's entry.
            readers: of the training data.

        Returns:
            One string per row of the head.
        """
        return ()

    def setup(self, readers: Sequence[Any], tokenizer: Any, folder: Path | None) -> None:
        """Count what must be known of the training data, nothing by default; called before training, in every process.

        Args:
            readers: of the training data, arranged by the task.
            tokenizer: None where the model reads no text.
            folder: where counts may be kept for a resumed run; None: another process keeps them.
        """

    def constant_loss(self, targets: Sequence[Mapping[str, Any]]) -> float | None:
        """Loss of the best output that is the same for all examples; called once before training, to detect collapse.

        Args:
            targets: of training examples, by name.

        Returns:
            None (the default) where the objective does not choose among answers.
        """
        return None

    def corruption(self) -> Corruption | None:
        """How samples are changed (words masked, sentences exchanged); called once when data are opened.

        Returns:
            A corruption, run by loader workers on every sample; None for no change.
        """
        return None

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        """Compute the losses; called once per training step and once per validation batch. Subclasses define it.

        Args:
            step: forward passes over the batch, shared with the other objectives.
            others: outcomes of the objectives named in ``reads``, by that name.

        Returns:
            Losses as sums with counts, tensors for other objectives, metrics.
        """
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def predict(self, step: ForwardPasses) -> dict[str, Tensor]:
        """Outputs that a task decodes; called once per evaluation batch, without gradient.

        Args:
            step: forward passes over the batch.

        Returns:
            Tensors (B, ...) by name, usually ``logits``.

        Raises:
            NotImplementedError: the objective predicts nothing.
        """
        raise NotImplementedError(f"{type(self).__name__} predicts nothing")

    def embed(self, step: ForwardPasses, side: Literal["text", "image"]) -> Tensor:
        """Vectors whose dot products rank texts and images; called once per batch by retrieval, search and ``api``.

        Args:
            step: forward passes over the batch, which may lack the other side.
            side: which vectors.

        Returns:
            (N, D) of unique texts or (M, D) of unique images.

        Raises:
            NotImplementedError: the objective has no vectors.
        """
        raise NotImplementedError(f"{type(self).__name__} gives no vectors")

    def before_step(self, step: ForwardPasses) -> None:
        """Update what must move before the forward pass (momentum copies of heads); called once per optimizer step.

        Args:
            step: forward passes over the first batch of the optimizer step; none has been computed.
        """

    def after_step(self, step: ForwardPasses, outcome: ObjectiveOutput) -> None:
        """Update what moves with the optimizer (queues); called after each optimizer step, once per accumulated batch.

        Args:
            step: forward passes over that batch.
            outcome: what :meth:`forward` returned for it.
        """

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        """Convert this objective's part of a checkpoint before it is loaded (rows of answers); called once per source.

        Args:
            state: tensors by the objective's own names.
            report: receives one line for each conversion.

        Returns:
            Tensors that fit this objective.
        """
        return state
