"""Each extra, taken away: one message, with the line that installs it."""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
from pathlib import Path

import pytest
import torch

from vlcli.cli import doctor
from vlcli.errors import VlcliError
from vlcli.registry.entries import entries
from vlcli.registry.lookup import load
from vlcli.registry.packages import FILES

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = set(PROJECT["optional-dependencies"]) - {"all", "browser", "test", "docs", "dev"}


def average_precision(folder):
    from vlcli.metrics.detection import average_precision as precision

    precision({"images": [], "annotations": [], "categories": []}, [])


def nearest(folder):
    from vlcli.metrics.search import search_faiss

    search_faiss(torch.ones(1, 4), torch.ones(2, 4), 1)


def low_rank(folder):
    from vlcli_two_tower.towers import tune

    tune(torch.nn.Linear(2, 2), "lora", {"targets": ["weight"], "rank": 1, "alpha": 1, "dropout": 0.0}, "text")


def plot(folder):
    from vlcli.tables.outputs import write_plot
    from vlcli.tables.summary import Summary

    write_plot(Summary.__new__(Summary), folder / "plot.svg")


def tensorboard(folder):
    from vlcli.engine.trackers import TensorBoard

    TensorBoard(folder)


def parquet(folder):
    from vlcli.data.recognition.tables import _parquet

    _parquet(folder / "rows.parquet")


def sheet(folder):
    from vlcli.data.recognition.tables import _sheet

    _sheet(folder / "rows.xlsx")


def ray(folder):
    from vlcli_ray.cluster import RayCluster

    from vlcli.progress import Silent

    RayCluster(1, 1, "cpu", Silent())


USES = {
    "coco": average_precision,
    "faiss": nearest,
    "lora": low_rank,
    "plots": plot,
    "tensorboard": tensorboard,
    "parquet": parquet,
    "xlsx": sheet,
    "ray": ray,
}
"""What uses an extra's package by itself; the packages of the other extras are declared by components."""


@pytest.fixture
def without(monkeypatch):
    """Takes the modules of an extra away: neither found nor imported."""

    def take(extra):
        modules, find = doctor.EXTRAS[extra], importlib.util.find_spec
        for name in [name for name in sys.modules if {*name.split(".")} & {*modules}]:  # torch.utils.tensorboard, too
            monkeypatch.delitem(sys.modules, name)
        for name in modules:
            monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.setattr(
            importlib.util,
            "find_spec",
            lambda name, *more: None if name.split(".")[0] in modules else find(name, *more),
        )

    return take


def test_doctor_looks_for_every_extra():
    assert set(doctor.EXTRAS) == EXTRAS
    for extra, modules in doctor.EXTRAS.items():
        assert all(name in " ".join(PROJECT["optional-dependencies"][extra]) for name in modules), extra


@pytest.mark.parametrize("extra", USES)
def test_an_extra_that_is_missing_is_one_message_with_its_line(extra, tmp_path, without):
    without(extra)
    with pytest.raises(VlcliError) as met:
        USES[extra](tmp_path)
    assert met.value.hint == f"pip install 'vlcli[{extra}]'"
    assert "not installed" in str(met.value) or re.search(r" needs? ", str(met.value))


def test_a_component_names_the_extra_that_has_its_packages():
    every = {entry.name: load(entry.kind, entry.name) for entry in entries() if entry.kind not in FILES}
    declared = {name: component for name, component in every.items() if getattr(component, "packages", ())}
    assert {"onnx", "parquet", "xlsx", "wandb", "mlflow", "comet", "trackio"} <= set(declared)
    extras = {f"pip install 'vlcli[{extra}]'": set(modules) for extra, modules in doctor.EXTRAS.items()}
    for name, component in declared.items():
        known = extras.get(component.install, {"detectron2"} if "detectron2.git" in component.install else set())
        assert set(component.packages) <= known, name
