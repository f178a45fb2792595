"""Checkpoints that are damaged, strange or would hold weights that are no numbers."""

from __future__ import annotations

import json
import math
import os
import shutil
import stat
from types import SimpleNamespace

import pytest
import torch

from tests.engine.parts import DATA_SPEC, TinyModel, config
from tests.engine.test_trainer import Told, losses, make, same
from vlcli.engine.bundle import save_bundle
from vlcli.engine.checkpoint import Checkpoints, read_state
from vlcli.engine.ema import Ema
from vlcli.engine.trainer import Score
from vlcli.engine.training_module import build_training_module
from vlcli.engine.weights import first_not_finite, refuse_not_finite, save_tensors
from vlcli.errors import DataError, RecipeError, VlcliError
from vlcli.files import follow_mask, sweep

torch.set_num_threads(1)


def names(folder):
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def flip(file, place=-1):
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


def scored(*values):
    found = iter(values)
    return lambda *_: Score({"m": (value := next(found))}, value)


@pytest.mark.parametrize("ema", [None, {"decay": 0.5}])
def test_a_damaged_best_is_made_again_from_the_checkpoint_of_its_step(tmp_path, ema):
    told = Told()
    trainer = make(
        tmp_path, progress=told, evaluate=scored(1, 5, 2), steps=6, save_every=2, evaluate_every=2, keep=9, ema=ema
    )
    outcome = trainer.run()
    best = {name: value.clone() for name, value in trainer.checkpoints.best(4).items()}  # not the file itself
    flip(tmp_path / "checkpoints" / "best-00000004" / "model.safetensors")
    with pytest.raises(DataError, match="damaged"):
        trainer.checkpoints.best(4)
    after, state = trainer.select_weights(outcome)
    assert (after.best, after.metrics) == (4, {"m": 5})
    assert same(best, state)
    assert "best-00000004 is damaged" in told.lines[0]
    assert "checkpoint of step 4" in told.lines[1]
    assert "damaged-best-00000004" in names(tmp_path)


@pytest.mark.parametrize("harm", ["flip", "remove"])
def test_a_damaged_best_whose_step_is_gone_gives_way_to_the_last_weights_and_their_score(tmp_path, harm):
    told = Told()
    trainer = make(tmp_path, progress=told, evaluate=scored(5, 1, 2, 3), steps=6, save_every=2, evaluate_every=2)
    outcome = trainer.run()
    file = tmp_path / "checkpoints" / "best-00000002" / "model.safetensors"
    {"flip": lambda: flip(file), "remove": file.unlink}[harm]()
    after, state = trainer.select_weights(outcome)
    assert (after.best, after.metrics) == (6, {"m": 3})
    assert same(trainer.module.state_dict(), state)
    assert "the last, stand in" in told.lines[1]


def test_damaged_checkpoints_never_prune_or_shadow_sound_ones(tmp_path):
    make(tmp_path, save_every=2, steps=8, evaluate_every=4, evaluate=scored(1, 2)).run()
    for path in (tmp_path / "checkpoints").glob("step-*"):
        flip(path / "model.safetensors")
    told = Told()
    trainer = make(tmp_path, progress=told, save_every=1, steps=3)
    assert trainer.position.step == 0
    assert [line.split(":")[0].split(" is damaged")[0] for line in told.lines[:2]] == [
        "checkpoint step-00000008",
        "checkpoint step-00000006",
    ]
    assert "best-00000008 of the run before is kept as left-best-00000008" in told.lines[2]
    trainer.run()
    assert names(tmp_path) == [
        "damaged-step-00000006",
        "damaged-step-00000008",
        "left-best-00000008",
        "step-00000002",
        "step-00000003",
    ]
    assert make(tmp_path, steps=3).position.step == 3


def test_what_a_killed_run_did_not_delete_goes_when_it_is_resumed(tmp_path):
    options = {"steps": 6, "save_every": 2, "evaluate_every": 2, "keep": 2}
    trainer = make(tmp_path, evaluate=scored(1, 2, 3), **options)
    trainer.run()
    kept = names(tmp_path)
    assert kept == ["best-00000006", "step-00000004", "step-00000006"]
    for name, copy in (("best-00000006", "best-00000002"), ("step-00000004", "step-00000002")):
        shutil.copytree(tmp_path / "checkpoints" / name, tmp_path / "checkpoints" / copy)
    half = tmp_path / "checkpoints" / "step-00000001"  # its deletion was begun
    shutil.copytree(tmp_path / "checkpoints" / "step-00000004", half)
    (half / "state.json").unlink()
    make(tmp_path, evaluate=scored(4), **options).run()
    assert names(tmp_path) == kept


def test_twice_damaged_gets_a_name_of_its_own(tmp_path):
    for _ in range(2):
        make(tmp_path, steps=2, save_every=2, progress=Told()).run()
        flip(tmp_path / "checkpoints" / "step-00000002" / "optimizer.safetensors")
    make(tmp_path, steps=2, progress=Told())
    assert names(tmp_path) == ["damaged-step-00000002", "damaged-step-00000002-2"]


@pytest.mark.parametrize("name", ["step-abc", "best-abc", "step-", "step-00000009x", "step-²²²²²²²²"])
def test_folders_of_other_names_are_left_alone(tmp_path, name):
    make(tmp_path, save_every=2).run()
    strange = tmp_path / "checkpoints" / name
    strange.mkdir()
    (strange / "state.json").write_text("{}")
    trainer = make(tmp_path, steps=8, save_every=2)
    assert trainer.position.step == 6
    assert trainer.run().steps == 8
    assert strange.is_dir()
    assert Checkpoints(tmp_path / "checkpoints").lasting()[-1].name == "step-00000008"


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state["position"].update(step=5),
        lambda state: state["position"].update(examples=1),
        lambda state: state["position"].update(extra=[]),
        lambda state: state.update(files={}),
        lambda state: state.update(files=[]),
        lambda state: state.update(position=None),
        lambda state: state["files"].pop("optimizer.json"),
        lambda state: state["position"].update(step="6") or state.pop("crc32"),
        lambda state: state["position"].update(step=5) or state.pop("crc32"),
    ],
)
def test_a_changed_record_of_a_checkpoint_is_damage(tmp_path, change):
    make(tmp_path, save_every=2).run()
    file = tmp_path / "checkpoints" / "step-00000006" / "state.json"
    state = json.loads(file.read_text())
    change(state)
    file.write_text(json.dumps(state))
    told = Told()
    assert make(tmp_path, progress=told).position.step == 4
    assert "step-00000006 is damaged" in told.lines[0]


def test_a_record_without_a_checksum_of_its_own_is_taken(tmp_path):
    make(tmp_path, save_every=2).run()
    file = tmp_path / "checkpoints" / "step-00000006" / "state.json"
    state = json.loads(file.read_text())
    del state["crc32"]
    file.write_text(json.dumps(state))
    assert make(tmp_path).position.step == 6


def poison(trainer, step, value=math.nan):
    """Spoil one weight after the optimizer has made this step."""
    after = trainer._after_step

    def spoiled(ended):
        if trainer.position.step == step:
            with torch.no_grad():
                trainer.module.model.blocks[1].dense.weight[0, 0] = value
        after(ended)

    trainer._after_step = spoiled


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("evaluate", [None, losses])
def test_weights_that_are_no_numbers_are_never_written(tmp_path, value, evaluate):
    trainer = make(tmp_path, save_every=2, evaluate=evaluate, evaluate_every=2)
    poison(trainer, 6, value)
    with pytest.raises(VlcliError, match="not finite") as caught:
        trainer.run()
    assert caught.value.exit_code == 1
    assert "step 6" in caught.value.where
    assert "model.blocks.1.dense.weight: 1 of 256" in caught.value.got
    assert "step-00000004" in caught.value.hint
    for path in (tmp_path / "checkpoints").iterdir():
        assert read_state(path).step <= 4
        assert first_not_finite(Checkpoints(path.parent).weights(2, averaged=False)) is None


def test_the_step_after_names_the_first_weight(tmp_path):
    trainer = make(tmp_path, save_every=1)
    poison(trainer, 3)
    trainer.checkpoints.save = lambda *_: None
    with pytest.raises(VlcliError, match="loss is not finite") as caught:
        trainer.run()
    assert caught.value.where == "step 4, epoch 2"
    assert "the first weight that is not finite is model.blocks.1.dense.weight" in caught.value.got


def test_a_bundle_of_no_numbers_is_refused_and_the_one_before_stays(tmp_path):
    module = build_training_module("engine-tiny", ["engine-words"], DATA_SPEC)
    options = {"tokenizer": None, "data_spec": DATA_SPEC, "model_spec": {"name": "engine-tiny"}, "objectives_specs": []}
    save_bundle(tmp_path / "model", module, **options)
    before = (tmp_path / "model" / "model.safetensors").read_bytes()
    with torch.no_grad():
        module.model.words.weight[3] = math.nan
    with pytest.raises(VlcliError, match="not finite") as caught:
        save_bundle(tmp_path / "model", module, **options)
    assert "model.words.weight: 16 of 480" in caught.value.got
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_buffers_may_be_infinite_but_no_nan():
    mask = torch.tensor([0.0, -math.inf])
    refuse_not_finite({"mask": mask}, "here", {"mask"})
    with pytest.raises(VlcliError):
        refuse_not_finite({"mask": mask}, "here")
    with pytest.raises(VlcliError):
        refuse_not_finite({"mask": mask * 0}, "here", {"mask"})
    assert first_not_finite({"a": torch.tensor([1, 2]), "b": torch.full((9,), 3e38), "c": torch.empty(0)}) is None


@pytest.mark.parametrize("decay", [math.nan, -0.1, 1.5, math.inf])
def test_an_average_by_no_share_is_refused(decay):
    with pytest.raises(RecipeError):
        Ema(TinyModel(DATA_SPEC), SimpleNamespace(decay=decay, warmup=False))


def test_a_rate_that_is_no_number_is_refused(tmp_path):
    trainer = make(tmp_path)
    trainer.config = config().model_copy(update={"schedule": SimpleNamespace(name="linear", warmup=0, end=math.nan)})
    with pytest.raises((RecipeError, AttributeError)) as caught:
        trainer.run()
    assert caught.type is RecipeError


def test_a_score_that_is_no_number_is_never_the_best(tmp_path):
    told = Told()
    trainer = make(tmp_path, progress=told, evaluate=scored(math.nan, 2, math.nan), evaluate_every=2, steps=6)
    assert trainer.run().best == 4
    assert "step 2 is not a number" in told.lines[0]


def test_weights_get_the_permissions_of_other_files(tmp_path):
    for mask, mode in ((0o022, 0o644), (0o007, 0o660), (0o077, 0o600)):
        before = os.umask(mask)
        try:
            save_tensors(tmp_path / f"{mask}.safetensors", {"a": torch.ones(2)})
        finally:
            os.umask(before)
        assert stat.S_IMODE((tmp_path / f"{mask}.safetensors").stat().st_mode) == mode
    assert len(list(tmp_path.iterdir())) == 3


def test_what_was_moved_away_and_not_replaced_comes_back(tmp_path):
    for name in (".step-00000002.old-7", ".step-00000004.old-7", ".step-00000004.tmp-7", "step-00000004"):
        (tmp_path / name).mkdir()
    sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000002", "step-00000004"]


def test_what_an_exporter_wrote_for_its_owner_alone_follows_the_mask(tmp_path):
    (tmp_path / "model").mkdir()
    for name, mode in (("a.safetensors", 0o600), ("b.json", 0o640)):
        (tmp_path / "model" / name).touch()
        (tmp_path / "model" / name).chmod(mode)
    before = os.umask(0o022)
    try:
        follow_mask([tmp_path / "model", tmp_path / "nothing"])
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "model").iterdir()}
    assert modes == {"a.safetensors": 0o644, "b.json": 0o640}
