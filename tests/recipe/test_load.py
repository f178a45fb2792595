"""``extends``, overrides, and all faults at once."""

from __future__ import annotations

import packaged
import pytest

from vlcli.errors import ComponentError, RecipeError, UsageError
from vlcli.recipe.keys import data_files
from vlcli.recipe.load import from_mapping, load, locate, slug
from vlcli.recipe.overrides import uneven
from vlcli.recipe.validate import shallow
from vlcli.recipe.wiring import find_place

BASE = """\
about: base
seed: 3
model: {name: lxmert, hidden: 96, heads: 4}
stages:
  world: {kind: make, world: {name: shapes, images: 40}}
  pretrain:
    root: world
    data: [{name: coco-captions, split: train}, {name: vqa, weight: 2.0}]
    objectives: [mlm, {name: matching, weight: 0.5}]
    optimizer: {lr: 1e-4, eps: 1e-6}
  test: {kind: evaluate, from: pretrain, task: nlvr2}
"""


@pytest.fixture
def base(tmp_path):
    file = tmp_path / "base.yaml"
    file.write_text(BASE)
    return file


def heir(base, text, name="heir.yaml"):
    file = base.with_name(name)
    file.write_text(f"extends: ./base.yaml\n{text}")
    return str(file)


def problems(reference, words=(), **how):
    with pytest.raises(RecipeError) as caught:
        load(str(reference), list(words), **how)
    return {problem.key: problem for problem in caught.value.problems}


def test_stages_are_typed_and_ordered(base):
    resolved = load(str(base))
    assert list(resolved.stages) == ["world", "pretrain", "test"]
    assert resolved.stages["pretrain"].kind == "pretrain"
    assert resolved.stages["pretrain"].optimizer.lr == 1e-4
    assert resolved.stages["pretrain"].objectives == [{"name": "mlm"}, {"name": "matching", "weight": 0.5}]
    assert resolved.stages["test"].source == ["pretrain"]
    assert resolved.name == "base"


def test_heir_merges_mappings_and_replaces_lists(base):
    resolved = load(heir(base, "stages: {pretrain: {optimizer: {lr: 1}, data: [{name: csv}]}}"))
    stage = resolved.stages["pretrain"]
    assert (stage.optimizer.lr, stage.optimizer.eps) == (1.0, 1e-6)
    assert stage.data == [{"name": "csv"}]
    assert resolved.recipe.seed == 3
    assert [source.file.name for source in resolved.sources] == ["heir.yaml", "base.yaml"]


def test_a_component_of_another_name_is_replaced_whole(base):
    assert load(heir(base, "model: {name: region-classifier}")).recipe.model == {"name": "region-classifier"}
    assert load(heir(base, "model: {hidden: 8}")).recipe.model == {"name": "lxmert", "hidden": 8, "heads": 4}


def test_an_heir_of_another_name_keeps_what_it_inherits(base):
    first = heir(base, "name: first")
    second = base.with_name("second.yaml")
    second.write_text(f"extends: {first}\nname: second\nmodel: {{hidden: 8}}\n")
    resolved = load(str(second))
    assert resolved.name == "second"
    assert list(resolved.stages) == ["world", "pretrain", "test"]
    assert resolved.recipe.model == {"name": "lxmert", "hidden": 8, "heads": 4}


def test_null_sets_null_and_takes_stages_out(base):
    resolved = load(heir(base, "stages: {test: ~, pretrain: {clip: ~}}"))
    assert list(resolved.stages) == ["world", "pretrain"]
    assert resolved.stages["pretrain"].clip is None


def test_a_new_stage_goes_before_the_one_it_precedes(base):
    text = "stages:\n  warm: {kind: pretrain, root: world, data: csv, objectives: [mlm]}\n  pretrain: {from: warm}\n"
    resolved = load(heir(base, text + "  again: {kind: evaluate, from: pretrain}\n"))
    assert list(resolved.stages) == ["world", "warm", "pretrain", "test", "again"]


def test_a_circle_of_parents_is_refused(tmp_path):
    (tmp_path / "a.yaml").write_text("extends: b.yaml\nstages: {}\n")
    (tmp_path / "b.yaml").write_text("about: b\nextends: a.yaml\n")
    found = problems(tmp_path / "a.yaml")
    assert "circle" in found["extends"].what
    assert found["extends"].where.endswith("b.yaml:2")


def test_unknown_recipe_suggests():
    with pytest.raises(ComponentError) as caught:
        locate("quickstrat")
    assert "quickstart" in caught.value.hint
    with pytest.raises(UsageError):
        locate("no/such/file.yaml")


def test_an_unknown_parent_is_told_with_its_line_and_no_list_of_hundreds(tmp_path):
    (tmp_path / "heir.yaml").write_text("# mine\nextends: tiny/vmlo\n")
    with pytest.raises(ComponentError, match="tiny/vlmo") as caught:
        load(str(tmp_path / "heir.yaml"))
    assert caught.value.where == f"{tmp_path / 'heir.yaml'}:2"
    assert len(str(caught.value)) < 400


def test_every_fault_at_once_with_its_line(base):
    text = "seeed: 1\nstages:\n  pretrain:\n    optimizer: {lrr: 2}\n    batch_size: many\n"
    text += "  test: {from: pretrian}\n  x: {kind: fine}\n"
    found = problems(heir(base, text))
    assert set(found) == {
        "seeed",
        "stages.pretrain.optimizer.lrr",
        "stages.pretrain.batch_size",
        "stages.test.from",
        "stages.x.kind",
    }
    assert found["seeed"].where.endswith("heir.yaml:2")
    assert "'seed'" in found["seeed"].hint
    assert "'lr'" in found["stages.pretrain.optimizer.lrr"].hint
    assert found["stages.pretrain.batch_size"].got == "'many'"
    assert found["stages.pretrain.batch_size"].expected == "a whole number from 1 to 1,000,000"
    assert "'pretrain'" in found["stages.test.from"].hint
    assert found["stages.x.kind"].where.endswith("heir.yaml:8")


def test_a_key_without_a_value_is_named(tmp_path):
    file = tmp_path / "empty.yaml"
    file.write_text("model: lxmert\nstages:\n  pretrain:\n    data:\n    objectives: [mlm]\n")
    with pytest.raises(RecipeError) as raised:
        load(str(file))
    (problem,) = raised.value.problems
    assert (problem.key, problem.what) == ("stages.pretrain.data", "this key has no value")
    assert problem.where.endswith("empty.yaml:4")
    assert "leave the key out" in problem.hint


def test_a_fault_inherited_names_the_parents_file(base):
    base.write_text(BASE.replace("seed: 3", "seed: three"))
    assert problems(heir(base, "about: x"))["seed"].where.endswith("base.yaml:2")


def test_wiring_faults(base):
    found = problems(heir(base, "stages: {pretrain: {from: test}, other: {kind: export}}\ntable: {rows: {mine: tset}}"))
    assert "does not come before" in found["stages.pretrain.from"].what
    assert "needs 'from'" in found["stages.other.from"].what
    assert found["table.rows.mine"].got == "tset"


@pytest.mark.parametrize("name", ["3", "~", "[lxmert]"])
def test_the_name_of_a_stages_model_is_a_text(base, name):
    found = problems(heir(base, f"stages: {{pretrain: {{model: {{name: {name}}}}}}}"))
    assert found["stages.pretrain.model"].expected == "a name, or a mapping with the key 'name'"


def test_text_vocabulary_is_a_choice_told_once(base):
    found = problems(heir(base, "text: {vocabulary: {train: [csv], siz: 3}}"))
    assert list(found) == ["text.vocabulary.siz"]


class TestOverrides:
    def test_root_keys_are_absolute_others_relative_to_the_only_stage(self, base):
        resolved = load(str(base), ["seed=5", "optimizer.lr=2e-3", "stages.world.world.images=60"], verb="pretrain")
        assert resolved.recipe.seed == 5
        assert resolved.stages["pretrain"].optimizer.lr == 2e-3
        assert resolved.stages["world"].world["images"] == 60
        assert resolved.words == ["seed=5", "stages.pretrain.optimizer.lr=2e-3", "stages.world.world.images=60"]

    def test_only_names_the_stage(self, base):
        assert load(str(base), ["split=dev"], only="test").stages["test"].split == "dev"

    def test_ambiguous_lists_the_stages(self, base):
        with pytest.raises(UsageError) as caught:
            load(str(base), ["epochs=2"])
        assert "world, pretrain, test" in caught.value.expected

    def test_split_at_the_first_equals_sign(self, base):
        assert load(str(base), ["about=a=b"]).recipe.about == "a=b"

    def test_list_items_by_name_and_position(self, base):
        stage = load(str(base), ["objectives.mlm.probability=0.3", "data.0.split=val"], verb="pretrain").stages[
            "pretrain"
        ]
        assert stage.objectives[0] == {"name": "mlm", "probability": 0.3}
        assert stage.data[0]["split"] == "val"

    def test_removal(self, base):
        assert "test" not in load(str(base), ["~stages.test"]).stages
        with pytest.raises(UsageError, match="nothing to remove"):
            load(str(base), ["~stages.tset"])

    def test_a_file_as_value(self, base, tmp_path):
        file = tmp_path / "lr.yaml"
        file.write_text("{lr: 7, name: sgd}")
        assert load(str(base), [f"optimizer=@{file}"], verb="pretrain").stages["pretrain"].optimizer.name == "sgd"

    def test_environment_comes_first(self, base, monkeypatch):
        monkeypatch.setenv("VLCLI_SET", "seed=7 'about=two words'")
        assert load(str(base)).recipe.about == "two words"
        assert load(str(base), ["seed=8"]).recipe.seed == 8

    def test_faults_name_the_command_line(self, base):
        found = problems(base, ["batch_size=x", "optimiser.lr=1"], verb="pretrain")
        assert found["stages.pretrain.batch_size"].where == "command line (batch_size=x)"
        assert "'optimizer'" in found["stages.pretrain.optimiser"].hint

    @pytest.mark.parametrize("word", ["=3", "a..b=3", "seed=[1", "objectives.nope.x=1", "objectives.--1.x=1"])
    def test_unreadable(self, base, word):
        with pytest.raises(UsageError):
            load(str(base), [word], verb="pretrain")


def test_every_registered_recipe_loads():
    for name in packaged.recipes():
        resolved = load(name)
        assert resolved.stages, name
        assert resolved.sources[0].file.name.endswith(".yaml")


def test_an_extractors_weights_are_data_of_its_stage(tmp_path):
    regions = {"kind": "extract", "extractor": {"name": "backbone", "weights": "w.pth"}, "data": {"name": "folder"}}
    recipe = from_mapping("mine", {"stages": {"regions": regions}}).recipe
    assert tmp_path / "w.pth" in data_files(recipe, "regions", tmp_path)


def test_a_place_that_is_not_there_is_missing_data_not_a_fault_of_the_recipe(base, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["stages.pretrain.from=weights/bert.pth", "stages.pretrain.features=features/a.h5"]
    resolved = load(str(base), [*words, "stages.pretrain.root=."])
    found = {problem.key: problem for problem in shallow(resolved)}
    assert {key: problem.code for key, problem in found.items()} == {
        "stages.pretrain.from": 5,
        "stages.pretrain.features": 5,
    }
    (tmp_path / "features").mkdir()
    (tmp_path / "features" / "a.h5").touch()
    assert find_place("a.h5", tmp_path / "features") == tmp_path / "features" / "a.h5"
    assert "stages.pretrain.features" not in {problem.key for problem in shallow(resolved)}
    resolved = load(str(base), ["stages.pretrain.from=owner/name"])
    assert "hf download owner/name" in shallow(resolved)[0].hint
    assert problems(base, ["stages.pretrain.from=pretrian"])["stages.pretrain.from"].code == 3


def test_rows_of_stages_that_are_taken_out_go_with_them(base):
    table = "table: {rows: {one: test, two: other}}\nstages: {other: {kind: evaluate, from: pretrain, task: nlvr2}}"
    first = heir(base, table, "first.yaml")
    second = base.with_name("second.yaml")
    second.write_text(f"extends: {first}\nstages: {{test: ~}}\n")
    assert load(str(second)).recipe.table.rows == {"two": "other"}
    second.write_text(f"extends: {first}\ntable: {{rows: {{one: ~, three: test}}}}\n")
    assert load(str(second)).recipe.table.rows == {"two": "other", "three": "test"}


def test_an_override_that_leaves_the_control_alone_says_so(tmp_path):
    stage = "{kind: finetune, task: {name: vqa%s}, data: [{name: vqa}], epochs: 17}"
    stages = [f"  answer: {stage % ''}", f"  answer-blind: {stage % ', only: text'}", f"  other: {stage % ', a: 9'}"]
    (tmp_path / "r.yaml").write_text("\n".join(["model: lxmert", "stages:", *stages, ""]))
    both = ["stages.answer.epochs=12", "stages.answer-blind.epochs=12"]
    assert not list(uneven(load(str(tmp_path / "r.yaml"), both).recipe, both))
    (line,) = uneven(load(str(tmp_path / "r.yaml"), both[:1]).recipe, both[:1])
    assert line.startswith("stages.answer.epochs is set here and not in answer-blind, its control")


def test_other_toolkits_names_of_keys_are_known(tmp_path):
    (tmp_path / "r.yaml").write_text(
        "model: lxmert\nstages: {a: {kind: finetune, task: vqa, data: [{name: vqa}], checkpoint_every: 5}}\n"
    )
    with pytest.raises(RecipeError, match="did you mean 'save_every'"):
        load(str(tmp_path / "r.yaml"))


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("数据", "数据"),
        ("Größe — final (2).v1", "Größe-—-final-2-.v1"),
        ("e\u0301te\u0301", "été"),  # as macOS writes it
        ("हिन्दी", "हिन्दी"),
        ("a\u3000b\u2028c", "a-b-c"),
        ("tiny/lxmert", "tiny-lxmert"),
        ("../x", "x"),
        ("(:)", "recipe"),
        ("数" * 80, "数" * 66),  # 255 bytes are the longest name of a folder, a hash included
    ],
)
def test_a_run_folder_has_the_letters_of_its_recipe(name, folder):
    assert slug(name) == folder
