"""Two processes beside one: what differs is named, and components that compute otherwise on two are found."""

from __future__ import annotations

import pytest
import torch
from typer.testing import CliRunner

from vlcli.cli import app
from vlcli.plugin_kit import two_processes
from vlcli.plugin_kit.checks import conform
from vlcli.plugin_kit.conformance import FAILED, PASSED, SKIPPED, chosen, of_folder
from vlcli.plugin_kit.trials import Trial
from vlcli.plugin_kit.two_processes import Share, difference, share_of

FAMILIES = ("lxmert", "dimbert", "albef", "vlmo", "deit", "swin", "detr", "two-tower")


def share(loss=0.5, **gradients):
    return Share({"mlm": loss}, {name: torch.tensor(value) for name, value in gradients.items()})


@pytest.mark.parametrize(
    ("two", "said"),
    [
        (share(head=[1.0, 2.0], body=[100.0]), ""),
        (share(head=[1.0, 2.000009], body=[100.0009]), ""),
        (share(0.25, head=[1.0, 2.0], body=[100.0]), "loss 'mlm' is 0.5 on one process and 0.25 on two"),
        (share(head=[1.0, 4.0], body=[110.0]), "the gradient of head differs by 1 (2 of 2 parameters differ)"),
        (share(head=[1.0, float("nan")], body=[100.0]), "the gradient of head differs by nan"),
        (Share({}, {}), "losses none instead of mlm"),
    ],
)
def test_what_differs_is_named_with_both_numbers(two, said):
    found = difference(share(head=[1.0, 2.0], body=[100.0]), two, 1e-5)
    assert found.startswith(said)
    assert bool(found) is bool(said)


def test_a_step_without_dropout_says_which_operators_draw():
    model = {"name": "lxmert", "hidden": 16, "heads": 2, "text_layers": 1, "image_layers": 1, "cross_layers": 1}
    data = [{"name": "captions", "file": "absent.jsonl"}]
    plain = share_of(Trial(model, {"objectives": ["mlm"], "data": data}))
    assert plain.apart == []
    assert plain.losses.keys() == {"mlm"}
    drawn = share_of(Trial(model, {"objectives": ["hard-matching"], "data": data}))
    assert drawn.apart == ["it draws random numbers (multinomial)"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["models", "objectives"])
def test_built_ins_compute_on_two_processes_what_they_compute_on_one(kind):
    entries = [entry for entry in chosen(None) if entry.distribution == "vlcli" and entry.kind == kind]
    picked = [entry for entry in entries if kind != "models" or entry.name in FAMILIES]
    found = {entry.name: result for entry in picked for result in conform(entry) if result.check == "processes"}
    assert {name: str(result) for name, result in found.items() if result.state == FAILED} == {}
    assert sum(result.state == PASSED for result in found.values()) >= {"models": 8, "objectives": 20}[kind]
    skipped = {name: result.got for name, result in found.items() if result.state == SKIPPED}
    reasons = ("random numbers", "batch normalisation")
    assert all(any(reason in got for reason in reasons) for got in skipped.values()), skipped


WRONG = {
    "mean": ("Mean.of(losses)", "Mean.of(losses.mean()[None])", "-verdict' is"),
    "rank": ("Mean.of(losses)", "Mean.of(losses * (1 + step.rank))", "-verdict' is"),
    "batch": ("Mean.of(losses)", "Mean.of(losses * losses.sum().detach())", "-verdict' is"),
    "gradient": (
        "Mean.of(losses)",
        "Mean.of(losses + (losses - losses.detach()) * step.rank)",
        "the gradient of",
    ),
    "fails": (
        "Mean.of(losses)",
        "Mean.of(losses) if step.rank == 0 else 1 / 0",
        "rank 1 of two processes fails: ZeroDivisionError",
    ),
    "waits": ("Mean.of(losses)", "Mean.of(losses) if step.rank == 0 else __import__('time').sleep(99)", "did not end"),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["none", *WRONG])
def test_an_objective_that_is_wrong_on_two_processes_is_told_in_one_line(tmp_path, monkeypatch, fault):
    monkeypatch.setattr(two_processes, "PATIENCE", 20.0)
    name = f"two-{fault}"
    folder = tmp_path / name
    assert CliRunner().invoke(app, ["plugin", "new", name, "--out", str(folder)]).exit_code == 0
    file = folder / name.replace("-", "_") / "objective.py"
    before, after, said = WRONG.get(fault, ("", "", ""))
    assert before in file.read_text()
    file.write_text(file.read_text().replace(before, after) if before else file.read_text())
    found = [result for entry in of_folder(folder) for result in conform(entry) if result.check == "processes"]
    model, result = sorted(found, key=lambda result: result.kind)
    assert model.state == PASSED  # one message names the objective, not the model that it is tried with
    assert result.state == (PASSED if fault == "none" else FAILED), str(result)
    if said:
        assert said in result.got
        assert "objective.py:" in str(result)
        assert "\n" not in str(result)
