"""What a recipe wants, whether it is there, and how a person gets what is not."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from vlcli.cli import app
from vlcli.recipe.load import from_mapping
from vlcli.registry import names
from vlcli.tools.published import CHECKPOINTS, NOT_VERIFIED, SOURCES, wanted_by


def recipe(root, **more):
    regions = {"kind": "extract", "extractor": {"name": "backbone", "weights": "resnet50.pth"}, "data": "mine"}
    stages = {"regions": regions, "tune": {"kind": "finetune", "task": "vqa", "data": "mine"}}
    return from_mapping(
        "r", {"root": str(root), "model": "lxmert", "datasets": {"mine": {"name": "vqa"}}, "stages": stages}
    )


def test_what_is_missing_is_told_once_with_its_source(tmp_path):
    found = {(one.what, one.name): one for one in wanted_by(recipe(tmp_path))}
    data, weights = found["data", "vqa"], found["weights", "resnet50.pth"]
    assert data.state == weights.state == "missing"
    assert data.stages == ["regions", "tune"]
    assert data.source.url == "https://visualqa.org/download.html"
    assert weights.source is CHECKPOINTS["resnet50"]
    assert str(tmp_path / "images") in data.missing


def test_what_is_there_is_not_missing(tmp_path):
    for name in (
        "vqa/v2_OpenEnded_mscoco_train2014_questions.json",
        "vqa/v2_mscoco_train2014_annotations.json",
        "resnet50.pth",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    (tmp_path / "images").mkdir()
    found = {one.name: one.state for one in wanted_by(recipe(tmp_path))}
    assert found["vqa"] == found["resnet50.pth"] == "there"


def test_what_a_stage_makes_is_not_missing():
    ended = CliRunner().invoke(app, ["data", "where", "quickstart", "--json"])
    assert ended.exit_code == 0, ended.stderr
    states = {one["name"]: one["state"] for one in json.loads(ended.stdout)["wanted"]}
    assert states["nlvr2"] == "made by a stage"


def test_sources_belong_to_readers_and_are_whole():
    assert set(SOURCES) <= set(names("datasets"))
    for found in (*SOURCES.values(), *CHECKPOINTS.values()):
        assert found.url.startswith(("https://", "http://"))
        assert found.licence
        assert found.size
        assert found.layout


def test_commands_are_printed_and_nothing_is_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(app, ["data", "where", "tiny/photo-concepts", f"root={tmp_path}"])
    assert ended.exit_code == 0, ended.stderr
    assert "to get it" in ended.stdout
    assert list(tmp_path.iterdir()) == []


def test_what_was_not_found_on_an_official_page_says_so(tmp_path):
    ended = CliRunner().invoke(app, ["data", "where"])
    assert ended.exit_code == 0, ended.stderr
    assert NOT_VERIFIED in ended.stdout
    assert "look at the source before you rely on it" in ended.stdout
    unsure = [name for name, one in SOURCES.items() if NOT_VERIFIED in f"{one.licence} {one.size}"]
    assert "gqa" in unsure
    assert "vqa" not in unsure


def test_commands_get_files_from_the_web_and_nothing_else():
    for found in (*SOURCES.values(), *CHECKPOINTS.values()):
        assert {line.split()[0] for line in found.commands} <= {"curl", "unzip", "tar", "git", "cp", "hf"}, found.title


def test_a_published_checkpoint_is_named_with_source_and_licence(tmp_path):
    stages = {"tune": {"kind": "finetune", "from": "weights/ALBEF_4M.pth", "task": "vqa", "data": "mine"}}
    mine = {"mine": {"name": "vqa"}}
    found = wanted_by(from_mapping("r", {"root": str(tmp_path), "model": "albef", "datasets": mine, "stages": stages}))
    weights = next(one for one in found if one.what == "weights" and one.name.endswith(".pth"))
    assert weights.source.url.endswith("/ALBEF/ALBEF_4M.pth")
    assert weights.source.licence.startswith("BSD-3")
    assert "curl" in weights.source.commands[0]
