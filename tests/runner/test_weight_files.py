"""Damaged files of weights are told before anything costs time, in the words of the stage that opens them."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from tests.runner.test_first_rows import GOOD, RECIPE, folder  # noqa: F401 (a fixture)
from vlcli.cli import app
from vlcli.detection.backbone import tiny_conv
from vlcli.runner.weight_files import _named

KINDS = ("w.safetensors", "w.pth")


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flipped(data: bytes) -> bytes:  # in the header of safetensors, in the pickle of a checkpoint
    place = 12 if data[8:9] == b"{" else data.index(b"torch._utils")
    return data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]


def written(path, damage):
    state = tiny_conv().state_dict() if damage is None else {"a.weight": torch.ones(4, 4)}
    save_file(state, path) if path.suffix == ".safetensors" else torch.save(state, path)
    path.write_bytes(path.read_bytes() if damage is None else damage(path.read_bytes()))


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("damage", [cut, flipped, None])
def test_weights_of_an_extractor(folder, name, damage):  # noqa: F811
    written(folder / name, damage)
    text = RECIPE.format(seen=GOOD, read=GOOD, judged=GOOD, task="classification")
    (folder / "r.yaml").write_text(text.replace("arch: tiny-conv", f"arch: tiny-conv, weights: {name}"))
    ended = CliRunner().invoke(app, ["validate", "r.yaml", "--deep"])
    assert ended.exit_code == (0 if damage is None else 5), ended.stderr
    if damage:
        assert ended.stderr.count("the weights cannot be read") == 1
        assert "r.yaml:6: stages.regions.extractor.weights" in ended.stderr
        assert f"({name})" in ended.stderr


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("damage", [cut, flipped])
@pytest.mark.parametrize("words", [("validate", "--deep"), ("run",)])
def test_weights_that_a_training_starts_from(folder, name, damage, words):  # noqa: F811
    written(folder / name, damage)
    text = RECIPE.format(seen=GOOD, read=GOOD, judged=GOOD, task="classification")
    (folder / "r.yaml").write_text(text.replace("pretrain: {", f"pretrain: {{from: {name}, "))
    ended = CliRunner().invoke(app, [words[0], "r.yaml", *words[1:]])
    assert ended.exit_code == 5, ended.stderr
    assert ended.stderr.count("the weights cannot be read") == 1
    assert "stages.pretrain.from" in ended.stderr
    assert not (folder / "runs").exists()


@pytest.mark.parametrize("text", ["a photo of a cat, " * 20, "~somebody/else"])
def test_texts_that_are_no_paths_are_passed_over(tmp_path, text):
    assert not list(_named({"prompt": text}, ("model",), tmp_path))
