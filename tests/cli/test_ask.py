"""``vlcli ask`` of a picture whose regions nobody extracted yet."""

from __future__ import annotations

import json

import pytest
from PIL import Image
from small_run import make_bundle, make_store
from typer.testing import CliRunner

import vlcli
from vlcli.cli import app
from vlcli.errors import DataError
from vlcli.recipe import stage_record
from vlcli.recipe.stage_record import StageRecord

NLVR2 = [{"name": "classification", "classes": 2, "images": 2}]


@pytest.mark.parametrize("stored", [False, True])
def test_a_new_picture_is_answered_with_what_to_type(tmp_path, monkeypatch, stored):
    monkeypatch.chdir(tmp_path)
    make_store(tmp_path / "runs/tiny-lxmert/regions", ["a", "b"])
    stage_record.write(
        tmp_path / "runs/tiny-lxmert/regions", StageRecord("regions", "extract", "done", "k", recipe="tiny/lxmert")
    )
    stage = make_bundle(tmp_path / "runs/tiny-lxmert/nlvr2", {"name": "nlvr2"}, NLVR2)
    store = str(tmp_path / "runs/tiny-lxmert/regions")
    stage_record.write(stage, StageRecord("nlvr2", "finetune", "done", "key", features=[store]))
    Image.new("RGB", (8, 8)).save("new.png")
    words = ["ask", "tiny-lxmert/nlvr2", "a red wall", "new.png", "a"]
    ended = CliRunner().invoke(app, [*words, *(["--features", store] if stored else [])])
    assert ended.exit_code == 2
    assert "got: new.png\n" in ended.stderr
    assert "--features-from STAGE" in ended.stderr
    assert "vlcli extract --recipe tiny/lxmert --only regions stages.regions.root=FOLDER" in ended.stderr
    assert "load(" not in ended.stderr


def learnt_from(folder, extractor, **sizes):
    """A model whose store the extractor of these parameters made."""
    config = {"extractor": extractor} if extractor else {}
    made = StageRecord("regions", "extract", "done", "k", recipe="tiny/lxmert", config=config)
    make_store(folder / "runs/tiny-lxmert/regions", ["a", "b"])
    stage_record.write(folder / "runs/tiny-lxmert/regions", made)
    stage = make_bundle(folder / "runs/tiny-lxmert/nlvr2", {"name": "nlvr2"}, NLVR2, **sizes)
    stage_record.write(
        stage, StageRecord("nlvr2", "finetune", "done", "k", features=[str(folder / "runs/tiny-lxmert/regions")])
    )


@pytest.mark.parametrize("turned", [False, True])
def test_a_new_picture_is_answered_by_the_extractor_of_the_record(tmp_path, monkeypatch, turned):
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (40, 40)).save("new.png")
    learnt_from(tmp_path, {"name": "backbone", "arch": "tiny-conv"}, region_dim=128)
    words = ["new.png", "new.png", "a red wall"] if turned else ["a red wall", "new.png", "new.png"]
    ended = CliRunner().invoke(app, ["ask", "tiny-lxmert/nlvr2", *words, "--json"])
    assert ended.exit_code == 0, ended.stderr
    assert 0 < json.loads(ended.stdout)["score"] < 1


@pytest.mark.parametrize(
    ("boxes", "said"), [("given", "the model learnt from given boxes"), ("given-or-grid", "its regions are cells")]
)
def test_boxes_that_are_not_given_are_a_grid_and_said(tmp_path, monkeypatch, boxes, said):
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (40, 40)).save("new.png")
    learnt_from(tmp_path, {"name": "backbone", "arch": "tiny-conv", "boxes": boxes}, region_dim=128)
    words = ["predict", "tiny-lxmert/nlvr2", "new.png", "new.png", "a red"]  # words that the model learnt
    ended = CliRunner().invoke(app, words)
    assert said in ended.stderr
    assert "(--boxes FILE gives boxes)" in ended.stderr
    boxes = {"images": [{"id": 1, "file_name": "new.png", "width": 40, "height": 40}], "categories": []}
    boxes["annotations"] = [{"id": 1, "image_id": 1, "bbox": [0, 0, 20, 20], "category_id": 1}]
    (tmp_path / "boxes.json").write_text(json.dumps(boxes))
    given = CliRunner().invoke(app, [*words, "--boxes", "boxes.json"])
    assert given.exit_code == 0, given.stderr
    assert given.stderr == ""
    assert given.stdout != ended.stdout


def test_search_says_what_to_type_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    learnt_from(tmp_path, None)
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (8, 8)).save("photos/new.png")
    for words in (["a red wall"], ["--picture", "photos/new.png"]):
        ended = CliRunner().invoke(app, ["search", "tiny-lxmert/nlvr2", *words, "--pictures", "photos"])
        assert ended.exit_code == 2
        assert "expected: --features STORE" in ended.stderr
        assert "vlcli extract --recipe tiny/lxmert --only regions stages.regions.root=photos" in ended.stderr
        assert "load(" not in ended.stderr
        assert not list(tmp_path.glob("photos.*"))


def test_a_run_with_overrides_is_suggested(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stage = make_bundle(tmp_path / "runs/ret-3cfb76cf/pre", {"name": "nlvr2"}, NLVR2)
    stage_record.write(stage, StageRecord("pre", "pretrain", "done", "k"))
    for place in ("ret/pre", "runs/ret/pre"):
        with pytest.raises(DataError) as caught:
            vlcli.load(place)
        assert caught.value.hint == "did you mean runs/ret-3cfb76cf/pre?"
    drawn = CliRunner().invoke(app, ["draw", "attention", "--stage", "ret/pre"])
    assert "did you mean runs/ret-3cfb76cf/pre?" in drawn.stderr
    with pytest.raises(DataError) as caught:
        vlcli.load("ret/other")
    assert "did you mean" not in caught.value.hint
