"""Sections of a training stage: optimizer, schedule, averaged weights, early stopping."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import model_validator

from vlcli.recipe.fields import Beta, Section
from vlcli.registry.bounds import Between, Count, NotNegative, Positive, Share


class GroupOptions(Section):
    """Options of the parameters whose name matches ``match`` (a regular expression, searched)."""

    match: str
    lr: NotNegative = 1.0
    decay: NotNegative | None = None


class OptimizerOptions(Section):
    """The optimizer; ``groups`` are tried in order, the first that matches wins.

    Without ``lr`` the engine chooses the rate (:mod:`vlcli.engine.schedule`).
    """

    name: Literal["adamw", "adam", "sgd", "bert-adam"] = "adamw"
    lr: NotNegative | None = None
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    eps: Share = 1e-8
    weight_decay: NotNegative = 0.01
    momentum: Beta = 0.9
    no_decay: list[str] = ["bias$", "(^|[._])(norm|layer_norm|LayerNorm)[^.]*\\.weight$"]
    groups: list[GroupOptions] = []
    layer_decay: Annotated[float, Between(0, 10, above=True)] = 1.0

    @model_validator(mode="after")
    def _has_rate(self) -> Self:
        if self.name == "sgd" and self.lr is None:
            raise ValueError("`lr` beside `name: sgd`: the rule that chooses one is for the variants of Adam")
        return self


class ScheduleOptions(Section):
    """The learning rate over time: warm-up (a share of all steps if below 1, else steps), then decay to ``end``.

    ``step`` multiplies it by ``factor`` at each of ``drops``, shares of all steps.
    """

    name: Literal["linear", "cosine", "constant", "polynomial", "step"] = "linear"
    warmup: Annotated[float, Between(0, 10**12)] = 0.05
    end: Share = 0.0
    power: Annotated[float, Between(0, 100, above=True)] = 1.0
    drops: list[Share] = []
    factor: Annotated[float, Between(0, 1000)] = 0.1


class EmaOptions(Section):
    """A moving average of the weights, used for evaluation and export."""

    decay: Share = 0.999
    warmup: bool = True


class StopOptions(Section):
    """Early stopping: after ``patience`` validations without an improvement by ``min_delta``, or after ``minutes``.

    The time includes validations and checkpoints.
    """

    patience: Count | None = None
    min_delta: NotNegative = 0.0
    minutes: Positive | None = None

    @model_validator(mode="after")
    def _says_when(self) -> Self:
        if self.patience is None and self.minutes is None:
            raise ValueError("`patience` (a number of validations), `minutes`, or both")
        return self
