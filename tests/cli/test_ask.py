"""``vlcli ask`` of a picture whose regions nobody extracted yet."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace

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
    assert f"got: new.png{'' if stored else ', a'}\n" in ended.stderr
    assert "vlcli extract --recipe tiny/lxmert --only regions stages.regions.root=FOLDER" in ended.stderr
    assert "load(" not in ended.stderr


def learnt_from(folder, extractor, **config):
    """A model whose store the extractor of these parameters made."""
    made = StageRecord(
        "regions", "extract", "done", "k", recipe="tiny/lxmert", config={"extractor": extractor, **config}
    )
    make_store(folder / "runs/tiny-lxmert/regions", ["a", "b"])
    stage_record.write(folder / "runs/tiny-lxmert/regions", made)
    stage = make_bundle(folder / "runs/tiny-lxmert/nlvr2", {"name": "nlvr2"}, NLVR2)
    stage_record.write(
        stage, StageRecord("nlvr2", "finetune", "done", "k", features=[str(folder / "runs/tiny-lxmert/regions")])
    )


@pytest.mark.parametrize(
    ("extractor", "word", "says"),
    [
        ({"name": "backbone"}, " stages.regions.extractor.boxes=grid", "given boxes"),
        ({"name": "backbone", "boxes": "given-or-grid"}, "images: .}'", ""),
        ({"name": "bottom-up", "boxes": "given"}, " stages.regions.boxes=FILE", "FILE has those of the pictures"),
        ({"name": "bottom-up"}, "images: .}'", ""),
    ],
)
def test_an_extractor_of_given_boxes_is_given_some(tmp_path, monkeypatch, extractor, word, says):
    monkeypatch.chdir(tmp_path)
    learnt_from(tmp_path, extractor)
    Image.new("RGB", (8, 8)).save("new.png")
    ended = CliRunner().invoke(app, ["ask", "tiny-lxmert/nlvr2", "a red wall", "new.png", "new.png"])
    assert ended.exit_code == 2
    assert f"{word}, where FOLDER" in ended.stderr
    assert says in ended.stderr
    assert ("boxes=" in ended.stderr) == bool(says)


def test_what_is_typed_extracts_a_new_picture(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (40, 40)).save("new.png")
    extractor = {"name": "backbone", "arch": "tiny-conv"}
    recipe = {"name": "mine", "stages": {"regions": {"kind": "extract", "extractor": extractor}}}
    (tmp_path / "mine.yaml").write_text(json.dumps(recipe))
    learnt_from(tmp_path, extractor)
    record = stage_record.read(tmp_path / "runs/tiny-lxmert/regions")
    stage_record.write(tmp_path / "runs/tiny-lxmert/regions", replace(record, recipe="mine.yaml"))
    ended = CliRunner().invoke(app, ["ask", "tiny-lxmert/nlvr2", "a red wall", "new.png", "new.png"])
    line = next(line for line in ended.stderr.splitlines() if "next: " in line).split("next: ")[1].split(", where")[0]
    words = shlex.split(line.replace("=FOLDER", f"={tmp_path}"))
    made = CliRunner().invoke(app, words[1:])
    assert (words[0], made.exit_code) == ("vlcli", 0), made.stderr
    assert len(list(tmp_path.glob("runs/mine*/regions/features.h5"))) == 1


def test_search_says_what_to_type_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    learnt_from(tmp_path, {"name": "backbone"})
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (8, 8)).save("photos/new.png")
    for words in (["a red wall"], ["--image", "photos/new.png"]):
        ended = CliRunner().invoke(app, ["search", *words, "--from", "tiny-lxmert/nlvr2", "--images", "photos"])
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
    drawn = CliRunner().invoke(app, ["draw", "attention", "--from", "ret/pre"])
    assert "did you mean runs/ret-3cfb76cf/pre?" in drawn.stderr
    with pytest.raises(DataError) as caught:
        vlcli.load("ret/other")
    assert "did you mean" not in caught.value.hint
