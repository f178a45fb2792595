"""The sigmoid contrast: against its formula, over two processes, and with pairs that share a picture."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from process_group import places

from tests.plugins.vlmo import ranks
from vlcli.engine.training_module import build_training_module
from vlcli.engine.weights import read_tensors
from vlcli.objectives.contrast import Known, SigmoidContrast

ROOT = Path(__file__).parents[2]


def module(**options):
    model = {"name": "vlmo", **ranks.TINY, "packed": True}
    made = build_training_module(model, [{"name": "sigmoid-contrast", **options}], ranks.DATA_SPEC, seed=3)
    return made.double().eval()


def loss_of(made, batch):
    return float(made(batch).losses["sigmoid-contrast"].value())


def test_the_loss_is_the_published_formula():
    made, batch = module(), ranks.batch([0, 1, 2, 3])
    part, step = made.objectives["sigmoid-contrast"], made.step(batch)
    assert isinstance(part, SigmoidContrast)
    with torch.no_grad():
        texts, images = (part.embed(step, side) for side in ("text", "image"))
        logits = texts @ images.T * part.scale.exp() + part.offset
        signs = 2 * torch.eye(4, dtype=logits.dtype) - 1
        wanted = -F.logsigmoid(signs * logits).sum(-1).mean()
        assert loss_of(made, batch) == pytest.approx(float(wanted), abs=1e-6)
        assert (float(part.offset), float(part.scale.exp())) == pytest.approx((-10, 10))


@pytest.mark.parametrize(("positives", "signs"), [("own", [1, -1]), ("shared", [1, 1]), ("masked", [1, 0])])
def test_pairs_of_one_picture_are_wrong_right_or_left_out(positives, signs):
    part = module(positives=positives).objectives["sigmoid-contrast"]
    same = torch.zeros(2, dtype=torch.long)  # two sentences of one picture
    known = Known(torch.arange(2), same, torch.arange(2))
    scores = torch.tensor([[0.5, -1.0], [2.0, 0.25]])
    every = torch.tensor([[signs[0], signs[1]], [signs[1], signs[0]]])
    wanted = (-F.logsigmoid(every * scores) * every.abs()).sum(1)
    torch.testing.assert_close(part._loss(scores, known), wanted)


def test_matching_draws_hard_negatives_by_its_logits():
    model = {"name": "vlmo", **ranks.TINY}
    made = build_training_module(model, ["sigmoid-contrast", "contrast-matching"], ranks.DATA_SPEC, seed=3).double()
    losses = made(ranks.batch([0, 1, 2, 3])).losses
    assert set(losses) == {"sigmoid-contrast", "contrast-matching"}


@pytest.mark.slow("papers")
def test_two_processes_with_half_the_batch_are_one_with_the_whole(tmp_path):
    common = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.plugins.vlmo.ranks", str(tmp_path / "two.safetensors"), "sigmoid"]
    started = [
        subprocess.Popen(command, cwd=ROOT, env={**common, **place}, stderr=subprocess.PIPE, text=True)
        for place in places(2)
    ]
    for process in started:
        _, errors = process.communicate(timeout=200)
        assert process.returncode == 0, errors[-2000:]
    two, one = read_tensors(tmp_path / "two.safetensors"), ranks.gradients([0, 1, 2, 3], False, "sigmoid-contrast")
    assert set(one) == set(two)
    for name, value in one.items():
        torch.testing.assert_close(two[name], value.detach().to(two[name].dtype), rtol=0, atol=1e-9, msg=name)
    assert float(one["grad/objectives.sigmoid-contrast.offset"].abs()) > 0
