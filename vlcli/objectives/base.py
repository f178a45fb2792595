"""The objective seam: losses (and predictions) from shared forward passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from vlcli.data.sample import Corruption
from vlcli.nn.model import Facts, Model
from vlcli.nn.step import Step


@dataclass
class Mean:
    """A mean kept as its two halves, so that it is the same over one process, many, or a whole evaluation.

    Attributes:
        total: sum over the terms, a scalar tensor (with gradient for a loss).
        count: how many terms; 0 makes the mean 0.
    """

    total: Tensor
    count: Tensor

    @classmethod
    def of(cls, values: Tensor, mask: Tensor | None = None) -> Mean:
        """From terms of any shape; with ``mask`` only those that are True (or weighted sums over their number)."""
        if mask is None:
            return cls(values.sum(), torch.tensor(float(values.numel()), device=values.device))
        return cls(values.masked_fill(~mask, 0).sum(), mask.sum().to(values.dtype))

    def value(self) -> Tensor:
        """The mean, 0 where there is no term."""
        return self.total / self.count.clamp(min=1e-12) if self.count > 0 else self.total * 0


@dataclass
class Outcome:
    """What an objective gives for a step.

    Attributes:
        losses: by name, unweighted; the recipe's weight multiplies their sum.
        outputs: tensors other objectives may read (``reads``), e.g. similarities for hard negatives.
        metrics: means worth logging, e.g. accuracy.
    """

    losses: dict[str, Mean]
    outputs: dict[str, Tensor] = field(default_factory=dict)
    metrics: dict[str, Mean] = field(default_factory=dict)


def full_precision(tensor: Tensor) -> Tensor:
    """Half-precision scores in float32, for losses; others as they are."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


class Objective(nn.Module):
    """Base of every objective. It may own heads (parameters) and state (buffers): both travel with the checkpoint.

    Do not keep ``model`` as a submodule: read sizes from it and ask the step for its passes.

    Args:
        model: the model it will train.
        facts: sizes that come from the data.
    """

    paper: ClassVar[str] = ""
    requires: ClassVar[frozenset[str]] = frozenset()
    """Capabilities the model must have."""
    inputs: ClassVar[frozenset[str]] = frozenset()
    """What the model must be fed, by the fields of ``Needs``: ``text``, ``regions``, ``pixels``, ``concepts``."""
    calls: ClassVar[frozenset[str]] = frozenset()
    """Methods of ``Model`` that the model must have of its own beside those of its capabilities: ``word_table``."""
    reads: ClassVar[tuple[str, ...]] = ()
    """Objectives whose outcome this one reads; they run before it.

    Of ``contrast|momentum-contrast`` either will do, and it is read under the first name.
    """
    usual_answers: ClassVar[int] = 0
    """Rows of the answer table its paper uses, for counting where no data are at hand; 0: it has none."""
    inherits: ClassVar[tuple[str, ...]] = ()
    """Objectives whose part of a checkpoint it takes over where the checkpoint has none of its own."""
    changeable: ClassVar[frozenset[str]] = frozenset()
    """Parameters that a recipe may change from an epoch on: those that say how samples are corrupted, and no more."""
    text_alone: bool = False
    """Whether it looks at no picture: where all objectives of a stage say so, none is loaded."""
    teacher_momentum: float | None = None
    """Set it to be given ``step.teacher``: the momentum copy keeps this share of itself a step."""

    def __init__(self, model: Model, facts: Facts) -> None:
        super().__init__()
        self.dim = model.dim

    @classmethod
    def labels(cls, spec: Mapping[str, Any], readers: Sequence[Any]) -> tuple[str, ...]:  # noqa: ARG003
        """The strings its head chooses from, where no task says them; none by default.

        Args:
            spec: the recipe's entry.
            readers: the training data.
        """
        return ()

    def study(self, readers: Sequence[Any], tokenizer: Any, folder: Path | None) -> None:
        """Told of the training data before training: for what must be counted in them.

        Args:
            readers: the training data, arranged by the task.
            tokenizer: ids to sentences; None where the model reads no text.
            folder: where it may keep what it has counted, for a resumed run; None: another process keeps it.
        """

    def corruption(self) -> Corruption | None:
        """How samples are changed for it; None for not at all."""
        return None

    def forward(self, step: Step, others: Mapping[str, Outcome]) -> Outcome:
        """The losses of one step.

        Args:
            step: shared passes over the batch.
            others: outcomes of the objectives named in ``reads``.
        """
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def predict(self, step: Step) -> dict[str, Tensor]:
        """What a task decodes, by name, each (B, ...): usually ``logits``."""
        raise NotImplementedError(f"{type(self).__name__} predicts nothing")

    def embed(self, step: Step, side: Literal["text", "image"]) -> Tensor:
        """A vector of each unique sentence (N, D) or picture (M, D), whose products rank; the other side may lack."""
        raise NotImplementedError(f"{type(self).__name__} gives no vectors")

    def before_step(self, step: Step) -> None:
        """Called before the forward of every optimizer step (momentum updates)."""

    def after_step(self, step: Step, outcome: Outcome) -> None:
        """Called after the optimizer step (queues)."""

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        """Reshape its own part of a checkpoint before loading (answer rows); say what was done in ``report``."""
        return state
