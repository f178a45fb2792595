"""Faults of the data are told before anything costs time."""

from __future__ import annotations

import json

import pytest
from PIL import Image
from typer.testing import CliRunner

from vlcli.cli import app
from vlcli.data.readers.generic import Csv, JsonLines
from vlcli.errors import Problem
from vlcli.recipe import validate
from vlcli.stages import first_rows
from vlcli.stages.first_rows import Peek, peek

RECIPE = """
root: .
model: {{name: lxmert, hidden: 32, heads: 2, language_layers: 1, object_layers: 1, cross_layers: 1}}
text: {{vocabulary: {{train: [{{name: jsonl, file: t.jsonl, text: said}}], size: 60}}}}
stages:
  regions: {{kind: extract, extractor: {{name: backbone, arch: tiny-conv, boxes: grid}}, data: {seen}}}
  pretrain: {{data: {read}, objectives: [mlm], steps: 2}}
  tune: {{kind: finetune, task: {task}, data: {judged}, steps: 2}}
"""
GOOD = "{name: jsonl, file: t.jsonl, image: pic, text: said, label: kind}"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "images").mkdir()
    rows = []
    for number in range(6):
        Image.new("RGB", (40, 40), (number * 40, 0, 0)).save(tmp_path / f"images/p{number}.png")
        rows.append({"pic": f"p{number}.png", "said": "a red wall", "kind": number % 2, "lost": f"q{number}.png"})
        rows[-1]["maybe"] = "a red wall" if number % 3 else None
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "latin.csv").write_bytes("image,text\np0.png,caf\xe9\n".encode("latin-1"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def deep(folder, seen=GOOD, read=GOOD, judged=GOOD, task="classification", words=("validate", "--deep")):
    (folder / "r.yaml").write_text(RECIPE.format(seen=seen, read=read, judged=judged, task=task))
    return CliRunner().invoke(app, [words[0], "r.yaml", *words[1:]])


def test_sound_data_are_valid(folder):
    ended = deep(folder)
    assert ended.exit_code == 0, ended.stderr


FAULTS = {
    "no picture column": ({"seen": "{name: jsonl, file: t.jsonl, text: said}"}, "name no picture", "image=COLUMN"),
    "another column": (
        {"seen": GOOD.replace("pic", "said"), "read": GOOD.replace("pic", "said")},
        "The only picture is not there",
        "images/a red wall",
    ),
    "lost pictures": ({"seen": GOOD.replace("pic", "lost")}, "None of the first 6 pictures is there", "images/q0.png"),
    "not extracted": ({"read": GOOD.replace("pic", "lost")}, "6 of 6 pictures of jsonl (train) are not", "q0, q1, q2"),
    "extracted in part": (
        {"seen": GOOD.replace("}", ', take: "first:3"}')},
        "3 of 6 pictures of jsonl (train) are not among those extracted",
        "missing: drop",
    ),
    "no text column": ({"read": "{name: jsonl, file: t.jsonl, image: pic}"}, "have none", "text=COLUMN"),
    "some without text": ({"read": GOOD.replace("said", "maybe")}, "2 of 6 examples without a sentence", "example 1"),
    "wrong text column": ({"read": GOOD.replace("said", "sayed")}, "lacks a column", "t.jsonl:1"),
    "no label column": ({"judged": GOOD.replace(", label: kind", "")}, "number of labels is not known", "label"),
    "no answers": ({"task": "vqa"}, "no answer to choose from", "answers"),
    "not UTF-8": ({"read": "{name: csv, file: latin.csv}"}, "not UTF-8", "latin.csv"),
}


@pytest.mark.parametrize("what", FAULTS)
def test_faults_of_data_are_told_before_anything_runs(folder, what):
    changes, said, more = FAULTS[what]
    ended = deep(folder, **changes)
    assert ended.exit_code != 0
    assert said in ended.stderr
    assert more in ended.stderr
    assert "unforeseen" not in ended.stderr
    assert "invented data" not in ended.stderr


def test_a_run_tells_them_before_its_first_stage(folder):
    ended = deep(folder, read=GOOD.replace("pic", "lost"), words=("run",))
    assert ended.exit_code == 5
    assert "are not among those extracted" in ended.stderr
    assert not (folder / "runs").exists()


def test_pictures_that_may_be_dropped_are_no_fault(folder):
    part = GOOD.replace("}", ', take: "first:3"}')
    (folder / "r.yaml").write_text(
        RECIPE.format(seen=part, read=GOOD, judged=part, task="classification").replace(
            "objectives: [mlm]", "objectives: [mlm], missing: drop"
        )
    )
    ended = CliRunner().invoke(app, ["validate", "r.yaml", "--deep"])
    assert ended.exit_code == 0, ended.stderr


@pytest.mark.parametrize("words", [("validate", "--deep"), ("run",)])
def test_typos_of_structure_components_and_extractors_are_told_at_once(folder, words):
    text = RECIPE.format(seen=GOOD, read=GOOD, judged=GOOD, task="classification")
    text = (
        text.replace("arch:", "arhc:").replace("steps: 2}", "stepz: 2}", 1).replace("[mlm]", "[{name: mlm, limt: 2}]")
    )
    (folder / "r.yaml").write_text(text)
    ended = CliRunner().invoke(app, [words[0], "r.yaml", *words[1:]])
    assert ended.exit_code == 3
    assert [word for word in ("'arhc'", "'stepz'", "'limt'") if f"unknown key {word}" not in ended.stderr] == []
    assert "3 problems" in ended.stderr


def test_typos_and_a_missing_root_are_told_at_once(folder):
    text = RECIPE.format(seen=GOOD, read=GOOD, judged=GOOD, task="classification")
    (folder / "r.yaml").write_text(text.replace("arch:", "arhc:").replace("root: .", "root: nowhere"))
    ended = CliRunner().invoke(app, ["validate", "r.yaml", "--deep"])
    assert "2 problems" in ended.stderr
    assert "the data root is not there" in ended.stderr
    assert "unknown key 'arhc'" in ended.stderr


@pytest.mark.parametrize("make", [JsonLines, Csv])
def test_of_a_large_table_only_the_first_rows_are_read(folder, monkeypatch, make):
    monkeypatch.setattr(first_rows, "WHOLE", 10)
    if make is JsonLines:
        rows = [json.dumps({"image": "p0.png", "text": "a", "part": "b" if n % 2 else "c"}) for n in range(50)]
        (folder / "big").write_text("\n".join([*rows, "{broken"]))
    else:
        (folder / "big").write_text("image,text,part\n" + "p0.png,a,b\np0.png,a,c\n" * 25)
    name = "jsonl" if make is JsonLines else "csv"
    found = peek({"name": name, "file": "big", "only": {"part": "b"}}, folder)
    assert isinstance(found, Peek)
    assert (found.whole, len(found.examples), found.images()) == (False, first_rows.ROWS, ["p0"])


def test_packages_that_are_absent_are_told_once_and_with_their_place(folder, monkeypatch):
    def lacking(kind, spec, key=""):
        return [Problem(key, "needs packages that are not installed", code=4)] if kind == "extractors" else []

    monkeypatch.setattr(validate.registry, "lacking_early", lacking)
    (folder / "r.yaml").write_text(RECIPE.format(seen=GOOD, read=GOOD, judged=GOOD, task="classification"))
    for words in ([], ["--deep"]):
        ended = CliRunner().invoke(app, ["validate", "r.yaml", *words])
        assert ended.exit_code == 4
        assert ended.stderr.count("r.yaml:6: stages.regions.extractor: needs packages") == 1
