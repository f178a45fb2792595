"""The small model that comes with vlcli: its digests and size, what it answers, and how the verbs find it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import vlcli
from vlcli.cli import app
from vlcli.demo.samples import of_world
from vlcli.engine.weights import read_tensors
from vlcli.errors import DataError
from vlcli.nn.weights import SCALE
from vlcli.prediction.sources import SMALL_FOLDER

MADE = json.loads((SMALL_FOLDER / "made.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory):
    return of_world(tmp_path_factory.mktemp("world"))


def test_it_is_the_output_that_its_command_made_and_small() -> None:
    for name, digest in MADE["sha256"].items():
        assert hashlib.sha256((SMALL_FOLDER / name).read_bytes()).hexdigest() == digest
    files = [path for path in SMALL_FOLDER.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 3_000_000
    for path in files:
        assert path.suffix == ".safetensors" or "/tmp" not in path.read_text(encoding="utf-8")
    assert "vlcli run quickstart" in MADE["command"]
    assert MADE["accuracy"] > 0.9


def test_ask_and_predict_use_it_without_a_model(samples, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    right = 0
    for sample in samples:
        (picture,) = map(str, sample.pictures)
        asked = CliRunner().invoke(app, ["ask", sample.text, picture, "--json"])
        told = CliRunner().invoke(app, ["predict", picture, sample.text, "--json"])
        answer = json.loads(asked.stdout)["answers"][0]["answer"]
        assert json.loads(told.stdout)["prediction"] == answer
        right += answer == sample.answer
    assert right >= len(samples) - 2
    assert vlcli.load("small").folder.is_relative_to(SMALL_FOLDER)


def test_a_question_in_another_language_is_answered_with_a_low_chance_and_no_fault(samples) -> None:
    said = vlcli.load("small").predict("¿de qué color es el círculo? 円は何色ですか", samples[0].pictures[0])
    assert said["prediction"] in vlcli.load("small").data_spec.answers


@pytest.mark.parametrize("words", [("ask", "what"), ("ask",), ("predict", "small"), ("predict", "no.png", "what")])
def test_words_that_name_no_picture(words, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(app, list(words))
    assert ended.exit_code in (2, 5)
    assert "Traceback" not in ended.stderr


def test_weights_of_8_bits_are_read_as_numbers(tmp_path: Path) -> None:
    file = SMALL_FOLDER / "questions" / "model" / "model.safetensors"
    stored, whole = load_file(file), read_tensors(file)
    name = next(name for name in stored if name.endswith(SCALE)).removesuffix(SCALE)
    assert stored[name].dtype == torch.int8
    torch.testing.assert_close(whole[name], stored[name].float() * stored[name + SCALE])
    assert not any(one.endswith(SCALE) for one in whole)
    save_file({f"a{SCALE}": torch.ones(1)}, tmp_path / "odd.safetensors")
    with pytest.raises(DataError, match="cannot be read"):
        read_tensors(tmp_path / "odd.safetensors")


@pytest.mark.parametrize(
    ("text", "strange"),
    [
        ("how many circles are there?", ""),
        ("is there a red-circle, please tell", "2 of 7 words: please, tell"),
        ("wie viele Kreise gibt es", "4 of 5 words: wie, viele, Kreise, gibt"),
        ("图片里有几个圆", "1 of 1 words: 图片里有几个圆"),
        ("كم دائرة هناك؟", "3 of 3 words: كم, دائرة, هناك"),
    ],
)
def test_words_of_a_language_that_it_never_saw_are_told(text: str, strange: str) -> None:
    notes = vlcli.load("small").predict(text, Image.new("RGB", (112, 112), "white")).notes
    assert [note for note in notes if "never learnt" in note] == (
        [f"the model never learnt {strange}"] if strange else []
    )
