"""Weights are found in whatever a tool wrapped around them, by what matches the model's names."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from vlcli_deit import DeiT

from vlcli.builders.training import read_source
from vlcli.engine.training_module import build_training_module
from vlcli.engine.weights import WeightLoader
from vlcli.errors import DataError
from vlcli.nn import DataSpec, load_tensors, read_weights

WRAPPERS = ("module.", "_orig_mod.", "model.", "ema_model.")
ORDERS = [order for size in range(4) for order in itertools.permutations(WRAPPERS, size)]
SIZES = {"name": "deit", "image_size": 16, "patch": 8, "hidden": 16, "heads": 2, "layers": 1, "classes": 2}


def network(fill: float | None = None) -> nn.Module:
    made = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    if fill is not None:
        for value in made.parameters():
            nn.init.constant_(value, fill)
    return made


def wrapped(state: dict[str, Tensor], order: tuple[str, ...]) -> dict[str, Tensor]:
    return {"".join(order) + name: value for name, value in state.items()}


@pytest.mark.parametrize("order", ORDERS, ids="".join)
def test_wrappers_of_any_order_are_taken_off(order: tuple[str, ...], tmp_path: Path) -> None:
    torch.save({"state_dict": wrapped(network(0.5).state_dict(), order), "epoch": 3}, tmp_path / "w.pth")
    target = network()
    report = load_tensors(target, read_weights(tmp_path / "w.pth"), tmp_path / "w.pth")
    assert report.matched == len(target.state_dict())
    assert all(bool((value == 0.5).all()) for value in target.parameters())


@pytest.mark.parametrize(
    ("content", "key", "value"),
    [
        ({"state_dict": 0.0, "state_dict_ema": 1.0}, None, 1.0),
        ({"model_ema": 1.0, "model": 0.0}, None, 1.0),
        ({"model": 0.0, "model_ema": 1.0}, "model", 0.0),
        ({"model": {"state_dict": 2.0}, "optimizer": {"state": 0.0}}, None, 2.0),
        ({"student": 0.0, "teacher": 1.0}, None, 1.0),
        ({"net": 3.0, "step": torch.tensor(3)}, None, 3.0),
        ({"state_dict": 0.0, "ema": {"module": 1.0}}, "ema.module", 1.0),
    ],
)
def test_averaged_weights_are_read_unless_a_key_says_otherwise(
    content: dict[str, Any], key: str | None, value: float, tmp_path: Path
) -> None:
    def filled(given: Any) -> Any:
        if isinstance(given, dict):
            return {name: filled(inner) for name, inner in given.items()}
        return network(given).state_dict() if isinstance(given, float) else given

    torch.save(filled(content), tmp_path / "w.pth")
    state = read_weights(tmp_path / "w.pth", key)
    assert bool((state["0.weight"] == value).all())


def test_an_unknown_key_names_those_that_are_there(tmp_path: Path) -> None:
    torch.save({"model": network().state_dict(), "model_ema": network().state_dict()}, tmp_path / "w.pth")
    with pytest.raises(DataError, match="no such state dict") as caught:
        read_weights(tmp_path / "w.pth", "mdoel")
    assert caught.value.expected == "model, model_ema"


def test_tensors_that_come_from_no_file_are_loaded() -> None:
    target = network()
    report = load_tensors(target, dict(network(0.25).state_dict()), "hf")
    assert (report.sha256, report.matched) == ("", len(target.state_dict()))
    assert "sha256" not in str(report)
    with pytest.raises(DataError, match="do not fit") as caught:
        load_tensors(target, {"other": torch.zeros(1)}, "hf")
    assert caught.value.where == "hf"


def module() -> Any:
    torch.manual_seed(0)
    return build_training_module(SIZES, [], DataSpec(vocab_size=10))


@pytest.fixture(scope="module")
def released() -> dict[str, Tensor]:
    torch.manual_seed(1)
    model = DeiT(DataSpec(vocab_size=10), **{key: value for key, value in SIZES.items() if key != "name"})
    return model.released_state(model.state_dict())


@pytest.mark.parametrize("order", ORDERS[:20], ids="".join)
def test_a_model_finds_the_names_that_its_own_rules_adapt(
    order: tuple[str, ...], released: dict[str, Tensor], tmp_path: Path
) -> None:
    extra = {"criterion.weight": torch.ones(2)} if "module." not in order else {}
    torch.save({"state_dict": wrapped(released, order) | extra}, tmp_path / "w.pth")
    loader = WeightLoader(module())
    loader.add_file(*read_source(tmp_path / "w.pth"))
    report = loader.finish()
    assert (report.new, report.mismatched) == ([], [])
    assert ("model." in "".join(order)) == any("taken off" in line for line in report.lines())


def test_prefixes_are_renamed_before_names_are_matched(released: dict[str, Tensor], tmp_path: Path) -> None:
    torch.save(
        {name.replace("blocks.", "trunk.") if "blocks" in name else f"stem.{name}": v for name, v in released.items()},
        tmp_path / "w.pth",
    )
    loader = WeightLoader(module())
    loader.add_file(*read_source(tmp_path / "w.pth"), rename={"trunk.": "blocks.", "stem.": ""})
    assert loader.finish().new == []
    with pytest.raises(DataError, match="begins so") as caught:
        WeightLoader(module()).add_file(*read_source(tmp_path / "w.pth"), rename={"trunks.": "blocks."})
    assert "rename" in caught.value.where


def test_the_log_says_which_of_two_state_dicts_was_read(released: dict[str, Tensor], tmp_path: Path) -> None:
    zeros = {name: torch.zeros_like(value) for name, value in released.items()}
    torch.save({"state_dict": zeros, "state_dict_ema": released}, tmp_path / "w.pth")
    loader = WeightLoader(module())
    loader.add_file(*read_source(tmp_path / "w.pth"))
    assert "state_dict_ema is read, not state_dict (state_dict=KEY chooses)" in loader.finish().lines()[0]


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"state_dict": {}},
        {"state_dict": [1], "model": 3},
        {"model": {"model": {"model": {"model": {"model": {"w": torch.ones(1)}}}}}},
        {"optimizer": {"state": {"w": torch.ones(1)}}},
        {"model": {1: torch.ones(1)}},
        {1: {"w": torch.ones(1)}},
        {"_orig_mod.": torch.ones(1), "module.": torch.ones(1)},
    ],
    ids=str,
)
def test_checkpoints_of_odd_forms_end_in_a_message(content: Any, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "w.pth")
    with pytest.raises(DataError):
        load_tensors(network(), read_weights(tmp_path / "w.pth"), tmp_path / "w.pth")


def test_a_file_without_tensors_or_of_text_is_no_weights(tmp_path: Path) -> None:
    torch.save({"epoch": 3}, tmp_path / "w.pth")
    with pytest.raises(DataError, match="no tensors"):
        read_weights(tmp_path / "w.pth")
    (tmp_path / "w.pth").write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(DataError) as caught:
        read_weights(tmp_path / "w.pth")
    assert "weights_only" not in caught.value.got
    assert "Git LFS" in caught.value.hint


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_shards_of_a_folder_are_read_by_their_index(name: str, tmp_path: Path) -> None:
    state = network(0.5).state_dict()
    files = {key: f"part{number % 2}.{name.rpartition('.')[2]}" for number, key in enumerate(state)}
    for file in sorted(set(files.values())):
        part = {key: value for key, value in state.items() if files[key] == file}
        save_file(part, tmp_path / file) if name.endswith("safetensors") else torch.save(part, tmp_path / file)
    (tmp_path / f"{name}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
    _, states = read_source(tmp_path)
    assert states[""].keys() == state.keys()
    assert all(torch.equal(states[""][key], value) for key, value in state.items())
    (tmp_path / file).unlink()
    with pytest.raises(DataError, match="cannot be read"):
        read_source(tmp_path)


@pytest.mark.parametrize("index", ["{}", "[]", '{"weight_map": {"a": 1}}', '{"weight_map": {"a": "../../x.bin"}}', "{"])
def test_an_index_that_names_no_shards_is_refused(index: str, tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin.index.json").write_text(index)
    with pytest.raises(DataError, match="cannot be read"):
        read_source(tmp_path)
