"""Verbs without a recipe, names in another case, and faults that several stages share."""

from __future__ import annotations

import json

import pytest

STAGES = """\
root: {root}
model: {{name: lxmert, hidden: 24, heads: 2}}
text: {{vocabulary: {{train: coco-captions, size: 100}}}}
stages:
  pretrain: {{data: coco-captions, objectives: [mlm], from: start.bin, features: store.h5}}
  again: {{kind: pretrain, data: coco-captions, objectives: [mlm], from: start.bin, features: store.h5}}
  tune: {{kind: finetune, from: again, task: vqa, features: store.h5, root: {root}}}
"""


@pytest.mark.parametrize(
    ("words", "another"),
    [
        (["extract"], "vlcli extract --recipe RECIPE"),
        (["pretrain"], "vlcli pretrain --recipe RECIPE"),
        (["finetune"], "vlcli finetune --recipe RECIPE"),
        (["export"], "vlcli export --recipe RECIPE"),
        (["eval"], "vlcli eval --recipe RECIPE"),
        (["run"], "vlcli run RECIPE"),
        (["run", "--seeds", "2"], "vlcli run RECIPE"),
    ],
)
def test_a_verb_without_a_recipe_says_first_which_it_takes(cli, words, another):
    ended = cli(*words, "--dry-run", "--output", "elsewhere")
    assert ended.code == 0, ended.err
    first = ended.err.splitlines()[0]
    assert first.startswith("recipe quickstart, folder elsewhere/quickstart, about 6 min")
    assert first.endswith(f"another: {another} (vlcli ls recipes)")
    assert ended.err.count("another:") == 1


def test_a_recipe_that_is_named_is_not_told(cli):
    assert "another:" not in cli("pretrain", "--recipe", "quickstart", "--dry-run").err
    assert "another:" not in cli("run", "tiny/vlmo:scratch", "--dry-run").err
    assert "another:" not in cli("extract", "--dry-run", "--quiet").err


@pytest.mark.parametrize(
    ("task", "command"),
    [
        ("nlvr2", "vlcli run quickstart"),
        ("vqa", "vlcli run tiny/lxmert"),
        ("captioning", "vlcli run tiny/beit3"),
        ("winoground", "vlcli run RECIPE, one with a finetune stage of task winoground (vlcli ls recipes)"),
    ],
)
def test_eval_without_a_model_names_the_command_that_makes_one(cli, task, command):
    ended = cli("eval", task)
    assert ended.code == 5
    assert f"next: make one: {command}\n" in ended.err


def test_a_recipe_is_found_in_any_case_and_has_one_folder(cli):
    for name, folder in {"QuickStart": "quickstart", "vlcli:QUICKSTART": "vlcli-quickstart"}.items():
        ended = cli("run", name, "--dry-run", "--json")
        assert ended.code == 0, ended.err
        assert json.loads(ended.out)["folder"] == f"runs/{folder}"
    row = json.loads(cli("run", "Tiny/VLMo:scratch", "--dry-run", "--json").out)
    assert row["stages"] == json.loads(cli("run", "tiny/vlmo:scratch", "--dry-run", "--json").out)["stages"]
    assert cli("show", "IRPE/Table4").out == cli("show", "irpe/table4").out
    missing = cli("show", "LXMERT/Table9")
    assert missing.code == 4
    assert "lxmert/table" in missing.err
    assert cli("show", "MLM").code == 4  # components keep their case


def test_a_root_that_is_missing_is_told_once(cli, tmp_path):
    (tmp_path / "mine.yaml").write_text(STAGES.format(root="nowhere"))
    for words in (["validate", "mine.yaml"], ["validate", "mine.yaml", "--deep"], ["run", "mine.yaml", "--dry-run"]):
        ended = cli(*words)
        assert ended.code == 5
        assert ended.err.count("mine.yaml:1: root: the data root is not there") == 1


def test_what_several_stages_lack_is_told_once_with_the_others_and_its_source(cli, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "mine.yaml").write_text(STAGES.format(root="data"))
    ended = cli("validate", "mine.yaml")
    assert ended.code == 5
    assert ended.err.count("got: start.bin") == ended.err.count("got: store.h5") == 1
    assert "also: stages.again.from\n" in ended.err
    assert "also: stages.again.features, stages.tune.features\n" in ended.err
    assert "vlcli data where mine.yaml" in ended.err
    assert cli("data", "where", "mine.yaml").code in (0, 5)
    as_json = json.loads(cli("validate", "mine.yaml", "--json").out)["error"]["problems"]
    assert [one["also"] for one in as_json if one["got"] == "start.bin"] == [["stages.again.from"]]


def test_what_all_rows_lack_is_told_once(cli, tmp_path):
    (tmp_path / "data").mkdir()
    rows = "rows:\n  a: {unchanged: true}\n  b: {seed: 3}\n  c: {seed: 4, root: here}\n"
    (tmp_path / "mine.yaml").write_text(STAGES.format(root="data") + rows)
    for words in (["validate", "mine.yaml"], ["run", "mine.yaml", "--dry-run"]):
        ended = cli(*words)
        assert ended.err.count("got: start.bin") == 1
        assert "b: stages.pretrain.from" in ended.err


def test_equal_faults_of_two_lines_stay_two(cli, tmp_path):
    stage = "    kind: pretrain\n    root: world\n    data: coco-captions\n    objectives: [mlm]\n    epocs: 3\n"
    stages = "".join(f"  {name}:\n{stage}" for name in ("one", "two"))
    (tmp_path / "mine.yaml").write_text(f"model: lxmert\nstages:\n{stages}")
    ended = cli("validate", "mine.yaml")
    assert ended.code == 3
    assert "mine.yaml:8: stages.one.epocs" in ended.err
    assert "mine.yaml:14: stages.two.epocs" in ended.err


def test_a_folder_of_pictures_names_the_recipe_that_extracts_it(cli, tmp_path):
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    ended = cli("extract", str(pictures))
    assert ended.code == 2
    assert f"next: vlcli extract --recipe regions root={pictures}\n" in ended.err
    assert "next: vlcli extract --recipe nowhere\n" in cli("extract", "nowhere").err
    assert f"next: vlcli pretrain --recipe {pictures}\n" in cli("pretrain", str(pictures)).err
    blank = tmp_path / "my pictures"
    blank.mkdir()
    assert f"next: vlcli extract --recipe regions root='{blank}'\n" in cli("extract", str(blank)).err


def test_a_word_where_a_section_stands_names_the_sections_keys(cli):
    ended = cli("extract", "images=pictures", "--dry-run")
    assert (
        "images: this value does not fit\n  got: 'pictures'\n  expected: keys and values; keys are range\n" in ended.err
    )


def test_a_folder_behind_a_task_names_the_option_for_trained_models(cli, tmp_path):
    stage = tmp_path / "runs of mine"
    stage.mkdir()
    ended = cli("eval", "image-classification", str(stage))
    assert ended.code == 2
    assert f"next: vlcli eval image-classification --stage '{stage}'\n" in ended.err
    assert f"next: vlcli eval --stage '{stage}'\n" in cli("eval", str(stage)).err


def test_a_folder_with_the_name_of_a_task_hides_no_task(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("nlvr2", "VQA"):
        (tmp_path / name).mkdir()
        assert "error: A trained model is named by --stage." not in cli("eval", name).err
