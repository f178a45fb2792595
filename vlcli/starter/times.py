"""Estimates how long a recipe takes on this machine, from multiply-adds and a measured rate."""

from __future__ import annotations

from dataclasses import dataclass

from vlcli.starter.machine import seconds_a_picture
from vlcli.starter.plan import EYES_BATCH, EYES_STEPS, Plan
from vlcli.starter.stages import is_pooled

_RESNET = {"resnet18": 1.8e9, "resnet34": 3.7e9, "resnet50": 4.1e9, "resnet101": 7.8e9, "resnet152": 11.5e9}
"""Multiply-adds of a picture of 224 x 224."""
_TINY = 52e6
"""Multiply-adds of ``tiny-conv`` for a picture of 112 x 112."""
_FILM = 4e6
"""Multiply-adds of an example of ``film``; the questions about a picture share its convolutions."""
_HEADS = 1.4e9
"""Multiply-adds of a detector's heads for 100 proposals at width 256."""
_USED = 1.0
"""Share of the measured rate that training reaches; :func:`operations` counts regions and words of full examples."""
_EXTRACTED = 0.8
"""Share that a backbone reaches when it extracts features."""
_PASSES = 1.3
"""What an example of retrieval costs beside one of a single objective: contrast and matching have their own passes."""
_EACH = 1.5e-3
"""Seconds an example costs beside the model's arithmetic: loading, the optimizer's part, many small layers."""
_READ = 0.02
"""Seconds to decode and resize a large picture; in training, an eighth of it, since most are small."""
_START = 7.0
"""Seconds of processor time in which the program starts and looks at the data, and writes its tables at the end."""


@dataclass(frozen=True)
class Times:
    """Seconds of all stages of a kind."""

    extraction: float
    training: float
    evaluation: float

    @property
    def total(self) -> float:
        """Seconds of all stages, and of the start of the program."""
        return _START + self.extraction + self.training + self.evaluation

    @property
    def text(self) -> str:
        """The total, and the kinds that take longest."""
        named = ", ".join(f"{name} {span(value)}" for name, value in vars(self).items() if value >= 20)
        return f"about {span(self.total)}" + (f" ({named})" if named else "")


def span(seconds: float) -> str:
    """Return seconds, minutes or hours, rounded as an estimate should be."""
    if seconds < 90:
        return f"{max(10, round(seconds / 10) * 10)} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def times_of(plan: Plan) -> Times:
    """Estimate for a machine on which nothing else runs; docs/init.md compares with measured times."""
    rate, train, test = plan.machine.rate, plan.parts["train"], plan.parts["test"]
    each = 3 * operations(plan) / (_USED * rate) + _EACH + (_READ / 8 if plan.features == "pixels" else 0)
    each *= _PASSES if plan.goal == "retrieval" else 1.0
    passes = 1.3 if plan.goal == "captioning" else 1.0  # over the training data: pre-training, the control
    if plan.goal in ("vqa", "classification", "pairs"):
        passes = 2.0 if plan.machine.cores < 2 else 1.4  # side by side, sharing the machine
    training = train.examples * plan.epochs * passes * each
    evaluation = (plan.parts["validation"].examples * plan.epochs + 2 * test.examples) * each / 3
    if plan.goal == "retrieval":
        evaluation += test.examples * each
    if plan.goal == "captioning":
        evaluation += test.pictures * each * 10
    if plan.features == "pixels" or plan.goal == "detection":
        return Times(0.0, training, evaluation)
    pictures = sum(part.pictures for part in plan.parts.values())
    if plan.weights is not None:
        return Times(pictures * seconds_a_picture(plan.weights.arch, plan.machine.cores), training, evaluation)
    training += EYES_STEPS * EYES_BATCH * (3 * _TINY / rate + _EACH + _READ / 8)
    return Times(pictures * (_TINY * (256 * 341 / 112**2) / (_EXTRACTED * rate) + _READ), training, evaluation)


def operations(plan: Plan) -> float:
    """Return the multiply-adds of one forward pass of one example."""
    hidden, (text, image, both) = plan.size.hidden, plan.size.layers
    if is_pooled(plan):
        return 2048 * 512
    if plan.goal == "detection":
        pixels = 600 * 800 if plan.machine.gpu else 320 * 427
        body = _RESNET[plan.weights.arch] * pixels / 224**2 if plan.weights else _TINY * pixels / 112**2
        return body + pixels / 8**2 * 9 * 256**2 + _HEADS
    if plan.features == "pixels" and plan.goal != "retrieval":
        return _FILM
    regions = round(plan.candidates) if plan.goal == "referring" else 36
    tokens = plan.length * text + regions * image + (plan.length + regions) * both * 4 / 3
    return 12 * hidden**2 * tokens + regions * 2048 * hidden * (plan.features == "weights")
