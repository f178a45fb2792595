from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.engine.parts import DATA_SPEC, FakeData, TinyModel
from vlcli import load, registry
from vlcli.engine.bundle import find_bundle, load_bundle, read_bundle, read_weights, save_bundle
from vlcli.engine.checkpoint import Checkpoints, Position
from vlcli.engine.training_module import build_training_module
from vlcli.engine.weights import WeightLoader, read_tensors, save_tensors
from vlcli.errors import DataError, RecipeError, VlcliError
from vlcli.stages.average import average

torch.set_num_threads(1)

SPECS = [{"name": "engine-words", "weight": 2.0}, {"name": "engine-queue", "as": "bank"}]


class Foreign(TinyModel):
    """Reads names of another tool, and cuts a word table that is too long."""

    def adapt(self, state, report):
        state = {name.removeprefix("encoder."): value for name, value in state.items()}
        table = state["words.weight"]
        if len(table) > self.words.num_embeddings:
            report.append(f"words.weight cut from {len(table)} rows")
            state["words.weight"] = table[: self.words.num_embeddings]
        return state


registry.register("models", "engine-foreign", Foreign)


def module(objectives=SPECS, seed=0, **model):
    return build_training_module({"name": "engine-tiny", **model}, objectives, DATA_SPEC, seed=seed)


def save(folder, made, **given):
    common = {
        "tokenizer": None,
        "data_spec": DATA_SPEC,
        "model_spec": {"name": "engine-tiny"},
        "objectives_specs": SPECS,
    }
    save_bundle(folder, made, **{**common, **given})


def test_a_bundle_gives_the_same_outputs(tmp_path):
    made = module(seed=3).eval()
    save(tmp_path / "model", made, task_spec={"name": "nlvr2"}, text_options={"length": 20}, info={"step": 7})
    bundle = load_bundle(tmp_path)
    batch = FakeData().batch(torch.arange(5))
    mine, theirs = (one(batch).losses for one in (made, bundle.module))
    assert mine["engine-words"].value() == theirs["engine-words"].value()
    assert torch.equal(bundle.module.objectives["bank"].queue, made.objectives["bank"].queue)
    assert torch.equal(bundle.module.teacher.words.weight, made.model.words.weight)
    assert bundle.module.parts["engine-words"].options.weight == 2.0
    assert (bundle.task_spec, bundle.text_options, bundle.info["step"]) == ({"name": "nlvr2"}, {"length": 20}, 7)
    assert bundle.data_spec == DATA_SPEC
    assert bundle.model is bundle.module.model


def test_its_file_holds_weights_once_and_no_momentum_copy(tmp_path):
    save(tmp_path / "model", module())
    names = set(load_file(tmp_path / "model" / "model.safetensors"))
    assert "objectives.bank.queue" in names
    assert not any(name.startswith("teacher.") for name in names)
    assert "objectives.engine-words.table" not in names  # tied to the word table
    assert "objectives.engine-words.table" in read_weights(tmp_path / "model")


def test_a_bundle_is_replaced_whole(tmp_path, monkeypatch):
    save(tmp_path / "model", module(seed=1))
    save(tmp_path / "model", module(seed=2))
    before = read_weights(tmp_path / "model")["model.words.weight"]

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("vlcli.engine.bundle.save_tensors", full)
    with pytest.raises(VlcliError, match="disk is full"):
        save(tmp_path / "model", module(seed=4))
    assert torch.equal(read_weights(tmp_path / "model")["model.words.weight"], before)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_what_is_no_bundle_is_told(tmp_path):
    assert find_bundle(tmp_path) is None
    with pytest.raises(DataError, match="no trained model"):
        load_bundle(tmp_path)
    save(tmp_path / "model", module())
    config = tmp_path / "model" / "config.json"
    value = json.loads(config.read_text())
    config.write_text(json.dumps({**value, "version": 99}))
    with pytest.raises(DataError, match="newer vlcli"):
        read_bundle(tmp_path)
    config.write_text(json.dumps({**value, "facts": {"answers": 3}}))
    with pytest.raises(DataError, match="damaged"):
        read_bundle(tmp_path)
    config.write_text(json.dumps(value))
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-20])
    with pytest.raises(DataError, match="cannot be read"):
        load_bundle(tmp_path)


def flip(path):
    data = bytearray(path.read_bytes())
    data[-3] ^= 8
    path.write_bytes(data)


def test_weights_that_changed_since_they_were_written_are_refused(tmp_path):
    folder = tmp_path / "model"
    made = module()
    save(folder, made)
    assert read_weights(folder).keys() == {name for name in made.state_dict() if not name.startswith("teacher.")}
    flip(folder / "model.safetensors")
    for read in (load_bundle, read_weights, load):
        with pytest.raises(DataError, match="not those that were written") as caught:
            read(folder)
        assert caught.value.exit_code == 5
        assert "remove `files` from config.json" in caught.value.hint
        assert "--force --only STAGE" in caught.value.hint


def test_a_changed_model_beside_whole_checkpoints_is_made_again_from_them(tmp_path):
    made = module()
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    at = checkpoints.save(made, torch.optim.SGD([{"params": [], "names": []}]), None, Position(step=4))
    save(tmp_path / "model", made)
    flip(tmp_path / "model/model.safetensors")
    with pytest.raises(DataError) as caught:
        load_bundle(tmp_path)
    assert f"delete {tmp_path / 'model'} and run its recipe again" in caught.value.hint
    flip(at / "model.safetensors")
    with pytest.raises(DataError) as caught:
        load_bundle(tmp_path)
    assert "--force" in caught.value.hint


@pytest.mark.parametrize("files", [None, {}])
def test_models_without_a_record_of_their_weights_load(tmp_path, files):
    save(tmp_path, module())
    config = json.loads((tmp_path / "config.json").read_text())
    assert set(config["files"]) == {"model.safetensors"}
    config = {k: v for k, v in config.items() if k != "files"} | ({} if files is None else {"files": files})
    (tmp_path / "config.json").write_text(json.dumps(config))
    flip(tmp_path / "model.safetensors")
    assert load_bundle(tmp_path).module is not None


@pytest.mark.parametrize("files", [3, [1], {"model.safetensors": 3}, {"model.safetensors": {"bytes": "x"}}])
def test_a_damaged_record_of_the_weights_is_told(tmp_path, files):
    save(tmp_path, module())
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"files": files}))
    for read in (load_bundle, read_weights):
        with pytest.raises(DataError):
            read(tmp_path)


def test_loading_reports_matched_new_and_left_over():
    source = module(seed=1)
    target = module(["engine-words", "engine-contrast"], seed=2)
    loader = WeightLoader(target)
    loader.add(source.state_dict(), "there", ours=True)
    report = loader.finish()
    assert torch.equal(target.model.words.weight, source.model.words.weight)
    assert set(report.new) == {n for n in target.state_dict() if n.startswith("objectives.engine-contrast")}
    assert {"objectives.bank.queue", "objectives.bank.place"} <= set(report.left_over)
    assert report.lines()[0].startswith("weights from there")
    assert report.summary()["matched"] == len(report.matched)


def test_an_incomplete_backbone_is_an_error_unless_allowed():
    source, target = module(layers=2), module(layers=3)
    loader = WeightLoader(target)
    loader.add(source.state_dict(), "there", ours=True)
    with pytest.raises(DataError, match="4 weights of the model") as caught:
        loader.finish()
    assert "model.blocks.2.dense.weight" in caught.value.got
    assert "allow_unmatched" in caught.value.hint
    loader = WeightLoader(target, [r"blocks\.2"])
    loader.add(source.state_dict(), "there", ours=True)
    assert len(loader.finish().allowed) == 4
    with pytest.raises(RecipeError, match="1 problem"):
        WeightLoader(target, ["("])._check_backbone({"model.x": "model.x"})


def test_a_backbone_weight_of_another_shape_is_an_error_and_a_head_is_told():
    loader = WeightLoader(module(hidden=8))
    loader.add(module().state_dict(), "there", ours=True)
    with pytest.raises(DataError) as caught:
        loader.finish()
    assert "model.words.weight (30, 16) for (30, 8)" in caught.value.got
    target = module([{"name": "engine-queue", "as": "bank", "size": 5}])
    loader = WeightLoader(target)
    loader.add(module().state_dict(), "there", ours=True)
    assert loader.finish().mismatched == ["objectives.bank.queue (12, 16) for (5, 16)"]


def test_foreign_names_and_sizes_go_through_the_model():
    source = module(["engine-words"])
    state = {f"encoder.{name}": value for name, value in source.model.state_dict().items()}
    state["encoder.words.weight"] = torch.cat([source.model.words.weight.detach(), torch.ones(3, 16)])
    target = build_training_module("engine-foreign", ["engine-words"], DATA_SPEC, seed=9)
    loader = WeightLoader(target)
    loader.add(state, "file.pth", ours=False)
    report = loader.finish()
    assert torch.equal(target.model.words.weight, source.model.words.weight)
    assert report.reshaped == ["words.weight cut from 33 rows"]


def test_the_momentum_copy_starts_from_what_was_loaded():
    source, target = module(seed=1), module(seed=2)
    loader = WeightLoader(target)
    loader.add({n: v for n, v in source.state_dict().items() if not n.startswith("teacher")}, "there", ours=True)
    loader.finish()
    assert torch.equal(target.teacher.words.weight, source.model.words.weight)


def test_tensors_survive_whatever_they_share(tmp_path):
    base = torch.arange(12.0)
    given = {"a": base, "b": base, "c": base[:6], "d": base.view(3, 4).T, "e": torch.tensor(3), "f": torch.zeros(0)}
    save_tensors(tmp_path / "x.safetensors", given)
    back = read_tensors(tmp_path / "x.safetensors")
    assert all(torch.equal(back[name], value) for name, value in given.items())
    assert set(load_file(tmp_path / "x.safetensors")) == {"a", "c", "d", "e", "f"}


def test_an_average_is_taken_in_double_precision_and_ties_stay(tmp_path):
    torch.manual_seed(0)
    files, tables = [], torch.randn(3, 4, 5) * 1e4
    for number, table in enumerate(tables):
        files.append(tmp_path / f"{number}.safetensors")
        save_tensors(files[-1], {"w": table, "tied": table, "n": torch.tensor(number), "same": torch.full((2,), 0.1)})
    found = average(files)
    assert torch.equal(found["w"], tables.double().mean(0).float())
    assert found["tied"] is found["w"]
    assert int(found["n"]) == 2
    assert torch.equal(found["same"], torch.full((2,), 0.1))
    save_file({"other": torch.zeros(1)}, tmp_path / "x.safetensors")
    with pytest.raises(DataError, match="different models"):
        average([*files, tmp_path / "x.safetensors"])


def test_an_average_takes_queues_from_the_last(tmp_path):
    files = []
    for number in range(3):
        files.append(tmp_path / f"{number}.safetensors")
        save_tensors(
            files[-1], {"objectives.contrast.image_queue": torch.full((2, 3), float(number)), "w": torch.tensor(2.0)}
        )
    assert torch.equal(average(files)["objectives.contrast.image_queue"], torch.full((2, 3), 2.0))
