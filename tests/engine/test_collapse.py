"""A model that says the same of every example is told while it trains, with the likely cause, and in the record."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from tests.engine.parts import config
from vlcli.engine.collapse import CollapseWatch
from vlcli.engine.outcome import TrainingOutcome
from vlcli.metrics.baseline import one_answer
from vlcli.nn.batch import Images, Pixels, View
from vlcli.nn.fake import fake_batch
from vlcli.nn.model import DataSpec, InputSpec
from vlcli.nn.shape import NetworkShape
from vlcli.objectives.answering import Answering
from vlcli.objectives.classification import Classification
from vlcli.progress import Silent


class Told(Silent):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def warn(self, message: str) -> None:
        self.lines.append(message)


class Fusing(nn.Module):
    """What heads ask of a model."""

    dim = pooled_dim = 8
    many_images, heads, init_std = False, {}, 0.02
    network_shape = NetworkShape(192, 6, post_norm=True)


class Pictures:
    """Examples with labels, and batches of pictures of pixels."""

    def __init__(self, labels: list[int], spread: float = 1.0) -> None:
        self.examples = [SimpleNamespace(targets={"label": label}) for label in labels]
        self.spread = spread

    def __len__(self) -> int:
        return len(self.examples)

    def loader(self, size: int, **_: object):
        batch = fake_batch(InputSpec(pixels=True, size=(4, 4)), DataSpec(), size)
        frames = 3 + self.spread * torch.randn(size, 3, 4, 4)
        images = Images(batch.clean.images.keys, None, Pixels(frames, torch.full((size, 2), 4)))
        view: View = replace(batch.clean, images=images)
        yield replace(batch, views={"clean": view})


def watch(data: Pictures, **options: object) -> CollapseWatch:
    objective = Classification(Fusing(), DataSpec(), classes=3)
    module = SimpleNamespace(model=Fusing(), objectives={"classification": objective})
    return CollapseWatch(module, data, config(batch_size=32, **options), Told())


HALF = [0] * 32 + [1] * 32
TOO_HIGH = {"optimizer": {"lr": 5e-4}, "schedule": {"warmup": 0}}


def test_one_answer_is_collapse_unless_the_truth_is_as_one_sided():
    rows = [{"prediction": "a", "label": "ab"[number % 2]} for number in range(40)]
    assert one_answer(rows) == {"one_answer": 1.0}
    assert one_answer([{**row, "label": "a"} for row in rows]) == {}
    assert one_answer([*rows[:37], *({**row, "prediction": "b"} for row in rows[37:])]) == {}
    assert one_answer([{"prediction": f"a caption {number}", "references": ["x"]} for number in range(40)]) == {}
    assert one_answer([{"prediction": False, "label": bool(number % 2)} for number in range(9)]) == {"one_answer": 1.0}
    soft = [{"prediction": "no", "answers": {"no": 0.3, "yes": 1.0}}, {"prediction": "no", "answers": {"no": 1.0}}]
    assert one_answer(soft) == {"one_answer": 1.0}


@pytest.mark.parametrize(
    ("options", "data", "cause"),
    [
        (TOO_HIGH, Pictures(HALF), "optimizer.lr 0.0005, where the engine would choose 0.0001: leave `lr` out"),
        ({"optimizer": {"lr": 1e-4}}, Pictures(HALF), "no warm-up for 6 post-norm layers of width 192"),
        ({"optimizer": {"lr": 1e-4}, "schedule": {"warmup": 0.1}}, Pictures(HALF), "fewer layers, or a lower"),
        ({"optimizer": {"name": "muon", "lr": 1e-1}}, Pictures(HALF), "width 192: set schedule.warmup\n"),
        (
            {"optimizer": {"name": "sgd", "lr": 1e-1}, "schedule": {"warmup": 9}},
            Pictures(HALF),
            "fewer layers, or a lower",
        ),
        (TOO_HIGH, Pictures(HALF, spread=0.0), "the features of all pictures are the same"),
    ],
)
def test_the_line_has_the_likely_cause_and_comes_once(options, data, cause):
    watched = watch(data, **options)
    for step in (10, 20):
        watched.log(step, {"eval/accuracy": 0.5, "eval/one_answer": 0.98})
    (line,) = watched.progress.lines
    assert line.startswith("collapsed: one answer for 98% of the validation examples; likely cause: ")
    assert cause in f"{line}\n"
    ended = TrainingOutcome(20, 1, {}, {"accuracy": 0.5, "one_answer": 0.98}, 20)
    assert cause in f"{watched.verdict(ended)}\n"
    assert watched.verdict(replace(ended, metrics={"accuracy": 0.5})) == ""  # the best weights are other ones


def test_a_loss_that_a_constant_reaches_is_told_after_a_thousand_steps():
    watched = watch(Pictures(HALF), **TOO_HIGH)
    assert watched.constants == {"classification": pytest.approx(math.log(2))}
    watched.log(990, {"loss/classification": 0.69})
    assert not watched.progress.lines
    watched.log(1000, {"loss/classification": 0.70})
    assert (
        "loss classification 0.695, where always giving the most frequent answers has 0.693"
        in (watched.progress.lines[0])
    )
    assert watched.verdict(TrainingOutcome(1000, 1, {}))
    for step in range(1010, 1500, 10):
        watched.log(step, {"loss/classification": 0.2})
    assert watched.verdict(TrainingOutcome(1500, 1, {})) == ""
    again = watch(Pictures(HALF), **TOO_HIGH)  # a run resumed at its end
    assert again.verdict(TrainingOutcome(1000, 1, {"loss/classification": 0.7}))
    assert again.verdict(TrainingOutcome(50, 1, {})) == ""


def test_the_constant_of_answers_is_that_of_their_loss():
    spec = DataSpec(answers=("a", "b", "c"))
    targets = [{"answers": {"a": 1.0}}, {"answers": {"b": 1.0}}, {"answers": {"a": 1.0}}, {}]
    shares = torch.tensor([2 / 3, 1 / 3, 0.0]).double()
    bce = Answering(Fusing(), spec).constant_loss(targets)
    logits = shares.clamp(1e-12, 1 - 1e-12).logit().expand(3, 3)
    rows = torch.eye(3).double()[[0, 1, 0]]
    wanted = nn.functional.binary_cross_entropy_with_logits(logits, rows, reduction="none").sum(1).mean()
    assert bce == pytest.approx(float(wanted), abs=1e-6)
    assert Answering(Fusing(), spec, loss="ce").constant_loss(targets) == pytest.approx(0.6365, abs=1e-4)
    assert Answering(Fusing(), spec).constant_loss([{}]) is None
