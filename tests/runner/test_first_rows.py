"""Faults of the data are told before anything costs time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from vlcli import registry
from vlcli.cli import app
from vlcli.data import Example
from vlcli.data.readers.generic import Csv, JsonLines
from vlcli.errors import Problem
from vlcli.recipe import validate
from vlcli.runner import first_rows
from vlcli.runner.first_rows import Peek, peek
from vlcli.tasks.base import Task

RECIPE = """
root: .
model: {{name: lxmert, hidden: 32, heads: 2, text_layers: 1, image_layers: 1, cross_layers: 1}}
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
        rows[-1]["twin"] = f"p{5 - number}.png"
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


class Silent(Task):
    """A task that says neither what it trains nor on what."""

    def decode(self, batch, step, outputs):
        return []

    def score(self, rows):
        return {}


registry.register("tasks", "silent-test", Silent)


@pytest.mark.parametrize("words", [("validate", "--deep"), ("run",), ("count",)])
def test_a_task_without_objectives_is_the_fault_of_its_author(folder, words):
    ended = deep(folder, task="silent-test", words=(*words, "--stage", "tune") if words == ("count",) else words)
    assert ended.exit_code == 4, ended.stderr
    assert "silent-test" in ended.stderr
    assert "Silent has no default objectives" in ended.stderr
    assert "test_first_rows.py" in ended.stderr
    assert "unforeseen" not in ended.stderr


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
    "two pictures": (
        {"judged": GOOD.replace("image: pic", "image: [pic, twin]")},
        "The objective classification reads fewer pictures of an example",
        "2 in one example",
    ),
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


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            "model: {name: lxmert, hidden: 64, heads: 2, text_layers: 1, image_layers: 1, cross_layers: 1}",
            ", 32) for (",
        ),
        ("model: {name: lxmert, hidden: 32, heads: 2, text_layers: 2, image_layers: 1, cross_layers: 1}", "layers.1"),
        ("model: {name: lxmert, hidden: 32, heads: 4, text_layers: 1, image_layers: 1, cross_layers: 1}", ""),
        (
            "model: {name: lxmert, hidden: 32, heads: 2, text_layers: 2, image_layers: 1, cross_layers: 1}, "
            "allow_unmatched: [layers.1]",
            "",
        ),
    ],
)
def test_a_stage_that_starts_from_a_model_of_other_sizes_is_refused_before_either_is_trained(folder, more, said):
    text = RECIPE.format(seen=GOOD, read=GOOD, judged=GOOD, task="classification")
    text = text.replace("{kind: finetune,", f"{{kind: finetune, from: pretrain, {more},")
    (folder / "r.yaml").write_text(text)
    ended = CliRunner().invoke(app, ["validate", "r.yaml", "--deep"])
    assert ended.exit_code == (5 if said else 0), ended.stderr
    if said:
        assert "weights of the model are not in what it starts from. (pretrain)" in ended.stderr
        assert said in ended.stderr
        assert "allow_unmatched" in ended.stderr


ALBEF = (
    "{name: albef, image: features, grid: [5, 5], hidden: 32, heads: 2, "
    "image_layers: 1, text_layers: 1, cross_layers: 1}"
)


def reading_a_grid(extractor: str) -> str:
    text = RECIPE.format(seen=GOOD, read=GOOD, judged=GOOD, task="classification")
    lxmert = next(line for line in text.splitlines() if line.startswith("model:"))
    return text.replace(lxmert, f"model: {ALBEF}").replace("boxes: grid", extractor)


@pytest.mark.parametrize(
    ("extractor", "said"),
    [
        ("boxes: grid, grid: [5, 5]", None),
        ("boxes: given-or-grid", None),
        ("boxes: grid", "got: grid: [6, 6]"),
        ("boxes: given", "got: boxes: given"),
    ],
)
def test_an_extraction_that_is_no_grid_is_told_to_a_model_of_a_grid(folder, extractor, said):
    (folder / "r.yaml").write_text(reading_a_grid(extractor))
    ended = CliRunner().invoke(app, ["validate", "r.yaml", "--deep"])
    assert ended.exit_code == (3 if said else 0), ended.stderr
    if said:
        assert said in ended.stderr
        assert "r.yaml:6: stages.regions.extractor: the model reads a grid" in ended.stderr
        assert "expected: 5 x 5 cells" in ended.stderr
        assert "boxes: grid, grid: [5, 5]" in ended.stderr


def test_files_of_boxes_may_hold_a_grid(folder):
    (folder / "boxes.json").write_text("[]")
    (folder / "r.yaml").write_text(
        reading_a_grid("boxes: given").replace("{kind: extract,", "{kind: extract, boxes: boxes.json,")
    )
    ended = CliRunner().invoke(app, ["validate", "r.yaml", "--deep"])
    assert ended.exit_code == 0, ended.stderr


def test_a_network_that_gives_no_map_is_told_before_it_is_needed(folder):
    text = RECIPE.format(seen=GOOD, read=GOOD, judged=GOOD, task="classification")
    (folder / "r.yaml").write_text(text.replace("arch: tiny-conv", "arch: hiera_tiny_224"))
    ended = CliRunner().invoke(app, ["validate", "r.yaml", "--deep"])
    assert ended.exit_code == 4
    assert "r.yaml:6: stages.regions.extractor: the timm model hiera_tiny_224 cannot be used" in ended.stderr
    assert "choose another arch" in ended.stderr


@pytest.mark.parametrize("own", [False, True])
def test_a_lost_file_of_the_vocabulary_is_told_of_the_vocabulary(folder, own):
    text = RECIPE.format(seen=GOOD, read=GOOD, judged=GOOD, task="classification")
    line = next(line for line in text.splitlines() if line.startswith("text:"))
    lost = line.replace("t.jsonl", "lost.jsonl")
    text = text.replace("pretrain: {", f"pretrain: {{{lost}, ") if own else text.replace(line, lost)
    (folder / "r.yaml").write_text(text)
    ended = CliRunner().invoke(app, ["validate", "r.yaml", "--deep"])
    assert ended.exit_code == 5
    key = "stages.pretrain.text.vocabulary.train" if own else "text.vocabulary.train"
    assert f": {key}: " in ended.stderr
    assert "lost.jsonl" in ended.stderr
    assert "stages.pretrain.data" not in ended.stderr


def test_stages_are_counted_in_words(folder):
    text = RECIPE.format(seen=GOOD, read=GOOD, judged=GOOD, task="classification")
    (folder / "r.yaml").write_text(text)
    assert "3 stages" in CliRunner().invoke(app, ["validate", "r.yaml"]).stdout
    (folder / "r.yaml").write_text("".join(text.splitlines(keepends=True)[:-2]))
    assert CliRunner().invoke(app, ["validate", "r.yaml"]).stdout.endswith("1 stage\n")


@pytest.mark.parametrize("key", ["features", "from"])
def test_a_mapping_where_a_stage_or_file_is_named_is_answered_in_words(folder, key):
    text = RECIPE.format(seen=GOOD, read=GOOD, judged=GOOD, task="classification")
    (folder / "r.yaml").write_text(text.replace("pretrain: {", f"pretrain: {{{key}: {{name: regions}}, "))
    ended = CliRunner().invoke(app, ["validate", "r.yaml"])
    assert ended.exit_code == 3
    assert "expected: the name of an earlier stage, of a file or of a folder" in ended.stderr
    assert "valid string" not in ended.stderr


def test_a_shallow_validation_names_what_it_leaves_out(tmp_path):
    (tmp_path / "r.yaml").write_text("stages: {w: {kind: make, world: {name: shapes}}}\n")
    ended = CliRunner().invoke(app, ["validate", str(tmp_path / "r.yaml")])
    assert (ended.exit_code, "valid (shallow), 1 stage" in ended.stdout) == (0, True)
    assert "--deep checks them" in ended.stderr
    assert "not checked" not in CliRunner().invoke(app, ["validate", str(tmp_path / "r.yaml"), "--deep"]).stderr


def test_two_files_of_one_name_are_told_where_a_model_reads_pictures(folder):
    (folder / "images/more").mkdir()
    Image.new("RGB", (40, 40)).save(folder / "images/more/p3.png")
    data = "{name: jsonl, file: t.jsonl, image: bare, text: said, label: kind}"
    rows = [json.loads(line) for line in (folder / "t.jsonl").read_text().splitlines()]
    (folder / "t.jsonl").write_text("\n".join(json.dumps({**row, "bare": row["pic"][:2]}) for row in rows))
    model = "{name: vlmo, image: pixels, image_size: 32, patch: 16, hidden: 32, heads: 2, layers: 2, fused_layers: 1}"
    (folder / "r.yaml").write_text(
        f"root: .\nmodel: {model}\n"
        f"text: {{vocabulary: {{train: [{data}], size: 60}}}}\n"
        f"stages:\n  tune: {{kind: finetune, task: classification, data: {data}, steps: 2}}\n"
    )
    ended = CliRunner().invoke(app, ["validate", "r.yaml", "--deep"])
    assert "Several files fit the picture name p3" in ended.stderr
    assert ended.exit_code == 5


@pytest.mark.parametrize(
    ("learnt", "tested", "line"),
    [
        ((0, 1, 2, 3), (3, 4, 5), "test: 1 of 3 pictures are in the data of tune: p3"),
        ((0, 1, 2, 3), (2, 3), "test: 2 of 2 pictures are in the data of tune: p2, p3"),
        ((0, 1, 2, 3), (4, 5), ""),
        ((0, 1, 2, 3), None, ""),  # the very data of the training: meant so
    ],
)
def test_pictures_of_the_training_in_a_test_are_told_with_their_number(folder, learnt, tested, line):
    for name, numbers in {"learnt": learnt, "tested": tested or ()}.items():
        rows = [{"pic": f"p{number}.png", "said": "a wall", "kind": number % 2} for number in numbers]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    train, test = (GOOD.replace("t.jsonl", f"{name}.jsonl") for name in ("learnt", "tested" if tested else "learnt"))
    recipe = RECIPE.format(seen=GOOD, read=train, judged=train, task="classification")
    (folder / "r.yaml").write_text(recipe + f"  test: {{kind: evaluate, from: tune, data: {test}}}\n")
    ended = CliRunner().invoke(app, ["validate", "r.yaml", "--deep"])
    assert ended.exit_code == 0, ended.output
    said = " ".join(ended.output.split())
    assert line in said
    assert ("pictures are in the data of" in said) is bool(line)


def test_a_model_of_regions_is_told_before_its_training_that_no_stage_extracts_any(folder):
    text = RECIPE.format(seen=GOOD, read=GOOD, judged=GOOD, task="classification")
    lines = [line for line in text.splitlines() if "extract" not in line]
    (folder / "r.yaml").write_text("\n".join(lines))
    ended = CliRunner().invoke(app, ["validate", "--deep", "r.yaml"])
    assert ended.exit_code == 5, ended.output
    for stage in ("stages.pretrain", "stages.tune"):
        assert f"there is no store of them. ({stage})" in ended.stderr


def test_an_evaluation_without_the_features_of_its_model_is_told_before_the_training(folder):
    text = RECIPE.format(seen=GOOD, read=GOOD, judged=GOOD, task="classification")
    lines = [line for line in text.splitlines() if "extract" not in line and "pretrain" not in line]
    lines[-1] = lines[-1].replace("steps: 2", "features: [regions.h5], steps: 2")
    lines.append(f"  test: {{kind: evaluate, from: tune, data: {GOOD}}}")
    (folder / "regions.h5").write_bytes(b"")
    (folder / "r.yaml").write_text("\n".join(lines))
    ended = CliRunner().invoke(app, ["validate", "--deep", "r.yaml"])
    assert "there is no store of them. (stages.test)" in ended.stderr, ended.output


class Strange(JsonLines):
    """A reader whose author made a mistake."""

    what = ""

    def __init__(self, root):
        super().__init__(root, file="t.jsonl", image="pic", text="said", label="kind")
        if self.what == "init":
            raise ValueError(self.what)

    def files(self):
        return {"none": None, "text": "t.jsonl"}.get(self.what, super().files())

    def read(self):
        made = {"rows": {"key": "1"}, "path": Example("1", "a", [Path("p0.png")]), "word": Example("1", "a", "p0.png")}
        return [made[self.what]]


registry.register("datasets", "strange-test", Strange)


@pytest.mark.parametrize("what", ["init", "none", "text", "rows", "path", "word"])
def test_a_fault_of_a_strangers_reader_is_told_with_its_name_and_file(folder, monkeypatch, what):
    monkeypatch.setattr(Strange, "what", what)
    ended = deep(folder, judged="strange-test")
    assert ended.exit_code in (4, 5), ended.output
    assert "unforeseen" not in ended.stderr
    assert __file__ in ended.stderr
    assert "trange" in ended.stderr
