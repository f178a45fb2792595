"""Predictions on pictures that are in no store equal those on stored features."""

from __future__ import annotations

import json
import re
import shutil
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_run import SENTENCES
from typer.testing import CliRunner

import vlcli
from vlcli.cli import app
from vlcli.errors import DataError, UsageError
from vlcli.prediction import MAX_TEXT, Failure, Prediction, RegionFeatures, Request
from vlcli.prediction.pictures import open_picture
from vlcli.prediction.records import read_lines
from vlcli.recipe import stage_record
from vlcli.recipe.stage_record import StageRecord


@pytest.mark.parametrize("stage", ["nlvr2", "vqa", "pretrain"])
def test_a_new_picture_gives_what_its_stored_features_give(studio, stage):
    stored = vlcli.load(studio.run / stage, features=studio.run / "regions")
    new = vlcli.load(studio.run / stage)
    count = 2 if stage == "nlvr2" else 1
    requests = [Request([studio.photo((row + n) % 6) for n in range(count)], SENTENCES[row % 4]) for row in range(6)]
    for one, other in zip(new.predict_many(requests), stored.predict_many(requests, batch_size=1), strict=True):
        assert one.prediction == (other.prediction if stage != "match" else pytest.approx(other.prediction, abs=1e-5))
        assert [choice.label for choice in one.choices] == [choice.label for choice in other.choices]
        given, wanted = ([choice.probability for choice in found.choices] for found in (one, other))
        assert given == pytest.approx(wanted, abs=1e-5)
        assert one["score"] == pytest.approx(other["score"], abs=1e-4)
        assert stage != "vqa" or one["score"] == pytest.approx(one.choices[0].probability, abs=1e-6)
    assert new.features is None


def test_files_paths_and_open_images_are_one(studio):
    model = vlcli.load(studio.run / "vqa")
    first = model.predict(SENTENCES[0], studio.photo(0))
    assert model.predict(SENTENCES[0], [studio.photos / "photo0.png"]).choices == first.choices
    with Image.open(studio.photo(0)) as image:
        same = model.predict(SENTENCES[0], image)
    assert same.choices == first.choices
    assert same.images == ["image-0"]
    assert first.sizes == [(56, 40)]
    assert first.regions[0].shape == (6, 4)
    assert first.regions[0][-1].tolist() == pytest.approx([80 / 3, 28, 40, 56], abs=0.01)
    assert {"key", "prediction", "score"} <= set(first)
    assert json.loads(json.dumps(first.as_dict()))["choices"][0]["label"] == first.prediction


def test_an_id_is_read_from_the_store_that_the_model_was_trained_with(studio, tmp_path):
    shutil.copytree(studio.run, tmp_path / "moved")
    record = vlcli.recipe.stage_record.StageRecord(
        "vqa", "finetune", "done", "k", features=["/nowhere/regions/features.h5"]
    )
    vlcli.recipe.stage_record.write(tmp_path / "moved/vqa", record)
    model = vlcli.load(tmp_path / "moved/vqa")
    wanted = vlcli.load(studio.run / "vqa").predict(SENTENCES[1], studio.photo(3))
    assert model.predict(SENTENCES[1], "photo3").choices == [
        type(choice)(choice.label, pytest.approx(choice.probability, abs=1e-5)) for choice in wanted.choices
    ]
    with pytest.raises(DataError, match="photo9"):
        model.predict(SENTENCES[1], "photo9")


def test_a_file_is_never_mistaken_for_the_stored_picture_of_its_name(studio, tmp_path):
    shutil.copy(studio.photo(1), tmp_path / "photo0.png")
    model = vlcli.load(studio.run / "vqa")
    other = model.predict(SENTENCES[0], tmp_path / "photo0.png")
    assert other.choices == model.predict(SENTENCES[0], studio.photo(1)).choices


def test_the_documented_lines_run(studio, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    shutil.copytree(studio.run, tmp_path / "runs/quickstart")
    for number, name in enumerate(("one.png", "two.png")):
        shutil.copy(studio.photo(number), name)
    page = (Path(__file__).parents[2] / "docs/python.md").read_text()
    (block,) = [code for code in re.findall(r"```python\n(.*?)```", page, re.S) if "one.png" in code]
    found = {}
    exec(block, found)
    assert found["found"].choices[0].label == str(found["found"].prediction)


def test_uses_of_models(studio):
    uses = vlcli.load(studio.run / "nlvr2").uses
    assert [(use.name, use.kind, use.images, use.text) for use in uses.values()] == [("nlvr2", "verdict", 2, "needed")]
    model = vlcli.load(studio.run / "pretrain")
    assert [(use.name, use.kind) for use in model.uses.values()] == [("image-qa", "answer"), ("matching", "match")]
    found = model.predict(SENTENCES[0], studio.photo(0), task="matching")
    assert 0 <= found.prediction <= 1
    assert found.prediction == pytest.approx(1 / (1 + np.exp(-found["score"])), abs=1e-6)
    chances = model.predict(SENTENCES[0], studio.photo(0)).choices
    assert [(choice.label, choice.probability) for choice in chances] == model.answers(SENTENCES[0], studio.photo(0))
    assert model.predict(SENTENCES[0], studio.photo(0))["matching/logits"].shape == (2,)
    with pytest.raises(UsageError, match="cannot do captioning") as met:
        model.predict(SENTENCES[0], studio.photo(0), task="captioning")
    assert "image-qa (an image and a question" in met.value.expected


def test_a_request_at_fault_does_not_stop_the_others(studio, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"x" * 40)
    model = vlcli.load(studio.run / "vqa")
    bad = [str(tmp_path / "broken.png"), str(tmp_path / "absent.png")]
    requests = [Request([one], SENTENCES[0]) for one in (studio.photo(0), *bad, studio.photo(1))]
    requests += [Request([studio.photo(0)], None), Request([studio.photo(0)], "a " * MAX_TEXT), Request([], "a")]
    found = list(model.predict_many(requests, batch_size=4))
    assert [isinstance(one, Failure) for one in found] == [False, True, True, False, True, True, True]
    alone = model.predict(SENTENCES[0], studio.photo(1)).choices[0].probability
    assert found[3].choices[0].probability == pytest.approx(alone, abs=1e-5)
    says = [one.error for one in found if isinstance(one, Failure)]
    assert [error.what for error in says[2:]] == [
        "vqa needs a text.",
        "The text is too long.",
        "vqa takes another number of images.",
    ]
    assert all(str(path) in error.where for path, error in zip(bad, says, strict=False))
    assert len(str(says[3])) < 500
    with pytest.raises(DataError, match="cannot be read"):
        model.predict(SENTENCES[0], bad[0])


def test_a_picture_too_large_is_refused_by_its_header(studio, tmp_path):
    path = tmp_path / "large.png"
    header, rows = b"IHDR" + struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0), b"IDAT" + zlib.compress(b"")
    chunks = [struct.pack(">I", len(one) - 4) + one + struct.pack(">I", zlib.crc32(one)) for one in (header, rows)]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))
    model = vlcli.load(studio.run / "vqa")
    with pytest.raises(DataError) as met:
        model.predict(SENTENCES[0], path)
    assert "too large" in met.value.got
    assert "make it smaller" in met.value.hint


def test_a_long_text_is_noted(studio):
    model = vlcli.load(studio.run / "vqa")
    found = model.predict(" ".join(SENTENCES * 3), studio.photo(0))
    assert "of which the model reads the first 10" in found.notes[0]
    assert model.predict(SENTENCES[0], studio.photo(0)).notes == []


def test_regions_of_ones_own_need_no_extractor(studio):
    model = vlcli.load(studio.run / "vqa")
    own = RegionFeatures(np.ones((2, 128), np.float32), np.array([[0, 0, 1, 1], [0, 0, 0.5, 0.5]]))
    assert isinstance(model.predict(SENTENCES[0], own), Prediction)


@pytest.fixture
def reused(studio, tmp_path):
    """A run whose stage ``vqa`` another run made: its folder holds the record alone."""
    shutil.copytree(studio.run, tmp_path / "runs/first")
    made, pointer = tmp_path / "runs/first/vqa", tmp_path / "runs/second/vqa"
    regions = [str(tmp_path / "runs/first/regions")]
    record = StageRecord("vqa", "finetune", "done", "k", features=regions, recipe="second")
    stage_record.write(made, record)
    pointer.mkdir(parents=True)
    stage_record.write(pointer, replace(record, artifact="../../first/vqa"))
    return pointer


def test_a_stage_that_another_run_made_answers_as_it_does_there(studio, reused, monkeypatch):
    monkeypatch.chdir(reused.parents[2])
    wanted = vlcli.load("first/vqa").predict(SENTENCES[0], studio.photo(0)).choices
    assert vlcli.load("second/vqa").predict(SENTENCES[0], studio.photo(0)).choices == wanted
    for verb in (
        ["ask", "second/vqa", SENTENCES[0], str(studio.photo(0))],
        ["demo", "second/vqa", "--check", "--port", "0"],
    ):
        ended = CliRunner().invoke(app, verb)
        assert ended.exit_code == 0, ended.stderr


@pytest.mark.parametrize("how", ["gone", "changed"])
def test_a_stage_whose_maker_is_gone_says_which_run_that_was(reused, how):
    made = reused.parents[1] / "first/vqa"
    if how == "gone":
        shutil.rmtree(made)
    else:
        stage_record.write(made, replace(stage_record.read(made), key="another"))
    with pytest.raises(DataError, match="The run that made this stage is gone or has changed") as error:
        vlcli.load(reused)
    assert error.value.got == str(made)
    assert "vlcli run second" in error.value.hint


@pytest.mark.parametrize("verb", ["ask", "predict", "demo"])
def test_components_of_a_python_file_answer(studio, tmp_path, monkeypatch, verb):
    file = tmp_path / f"{verb}.py"  # another module for each: pytest may give a folder twice
    file.write_text("from pathlib import Path\nPath('loaded').write_text('yes')\n")
    monkeypatch.chdir(tmp_path)
    words = {
        "ask": ["ask", str(studio.run / "vqa"), SENTENCES[0], str(studio.photo(0))],
        "predict": ["predict", str(studio.run / "vqa"), str(studio.photo(0)), SENTENCES[0]],
        "demo": ["demo", str(studio.run / "vqa"), "--check", "--port", "0"],
    }[verb]
    ended = CliRunner().invoke(app, [*words, "--plugin", file.name])
    assert ended.exit_code == 0, ended.stderr
    assert Path("loaded").read_text() == "yes"


def test_an_array_is_no_picture():
    with pytest.raises(DataError, match="This is no picture") as caught:
        open_picture(np.zeros((4, 4, 3), np.uint8))
    assert "fromarray" in caught.value.hint


def test_a_request_without_a_key_has_none():
    first, second = read_lines(['{"image": "a.png", "key": null}', '{"image": "a.png", "key": 0}'])
    assert (first.key, second.key) == ("", "0")


def test_a_picture_that_is_not_there_is_not_called_unreadable(tmp_path):
    with pytest.raises(DataError, match="There is no such picture") as caught:
        open_picture(tmp_path / "absent.png")
    assert "absent.png" in str(caught.value.where)
