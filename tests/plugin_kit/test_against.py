"""`plugin check --against`: a model beside a class of transformers that has the same weights."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from vlcli.cli import app
from vlcli.nn.blocks import TransformerLayer


def check(*words: object):
    return CliRunner().invoke(app, ["plugin", "check", *map(str, words)])


@pytest.mark.parametrize(
    ("model", "kind", "outputs"),
    [
        ("vilt", "ViltModel", {"words", "image", "pooled"}),
        ("lxmert", "LxmertModel", {"words", "image", "pooled"}),
        ("deit", "ViTModel", {"image"}),  # it has no pooler
    ],
)
def test_a_model_equals_its_class(model, kind, outputs):
    ended = check(model, "--against", f"transformers:{kind}", "--json")
    assert ended.exit_code == 0, ended.output
    told = json.loads(ended.stdout)
    assert set(told["outputs"]) == outputs
    assert 0 < told["largest"] == max(told["outputs"].values()) < told["tolerance"] == 1e-4


def test_a_tolerance_that_is_not_met_ends_with_code_4():
    ended = check("lxmert", "--against", "transformers:LxmertModel", "--tolerance", "0")
    assert ended.exit_code == 4
    assert "lxmert differs from transformers:LxmertModel within 0" in ended.stderr


def test_a_model_that_computes_something_else_is_told(monkeypatch):
    usual = TransformerLayer.forward
    monkeypatch.setattr(TransformerLayer, "forward", lambda self, x, *more: usual(self, x, *more) + 0.1 * x.sin())
    ended = check("vilt", "--against", "transformers:ViltModel", "--json")
    assert ended.exit_code == 4
    assert json.loads(ended.stdout)["largest"] > 1e-3


@pytest.mark.parametrize(
    ("model", "against", "code", "said"),
    [
        ("vilt", "transformers:Nix", 2, "There is no such class to compare with."),
        ("vilt", "torch:nn", 2, "There is no such class to compare with."),
        ("vlcli", "transformers:ViltModel", 2, "One model is compared at a time."),
        ("uniter", "transformers:ViltModel", 5, "weights of the model are not in what it starts from"),
        ("swin", "transformers:SwinModel", 4, "SwinModel has no such sizes."),
        ("nix", "transformers:ViltModel", 4, "There is no such package or component."),
    ],
)
def test_what_cannot_be_compared_is_told_in_one_message(model, against, code, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where no folder has the name of a package
    ended = check(model, "--against", against)
    assert ended.exit_code == code
    assert said in ended.stderr
    assert "Traceback" not in ended.output
