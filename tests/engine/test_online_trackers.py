"""Trackers of services through accelerate's classes: what arrives, offline, and services that fail."""

from __future__ import annotations

import importlib.util
import json
import sys
from types import ModuleType, SimpleNamespace

import pytest

from vlcli import registry
from vlcli.engine import processes
from vlcli.engine.trackers import JsonLines, Tracker, read_log
from vlcli.errors import ComponentError
from vlcli.recipe.load import from_mapping
from vlcli.recipe.validate import shallow

from .test_trainer import Told, make

NAMES = ("wandb", "mlflow", "comet", "trackio")


class Library:
    """The part of the four libraries that accelerate's trackers call; keeps what it is told."""

    __version__ = "3.49.0"

    def __init__(self) -> None:
        self.begun, self.rows, self.settings, self.said = {}, [], {}, []
        self.config = SimpleNamespace(update=self._keep)
        limits = SimpleNamespace(MAX_PARAM_VAL_LENGTH=6000, MAX_PARAMS_TAGS_PER_BATCH=100)
        self.utils = SimpleNamespace(validation=limits)
        self.fault: dict[str, Exception] = {}

    def _call(self, what: str) -> None:
        self.said.append(what)
        if what in self.fault:
            raise self.fault[what]

    def _keep(self, values, **_) -> None:
        self.settings |= values

    def init(self, **options):  # wandb, trackio
        self._call("begin")
        assert sys.stdin.read() == ""  # nobody can be asked for a login
        self.begun |= options
        return self

    def start(self, **options):  # comet_ml
        return self.init(**options)

    def search_experiments(self, filter_string):  # mlflow
        return []

    def set_tracking_uri(self, uri) -> None:
        self.begun["uri"] = uri

    def create_experiment(self, name, **_) -> str:
        self.begun["project"] = name
        return "1"

    def start_run(self, run_name, **options):
        return self.init(run_name=run_name)

    def log_params(self, values) -> None:
        self._keep(values)

    log_parameters = log_params

    def log(self, values, step=None, **_) -> None:
        self._call("log")
        self.rows.append((step, values))

    def log_metrics(self, values, step=None) -> None:
        self.log(values, step)

    def log_metric(self, name, value, step=None) -> None:
        self.log({name: value}, step)

    def set_step(self, step) -> None:
        self.said.append("step")

    def set_name(self, name) -> None:
        self.begun["name"] = name

    def finish(self) -> None:
        self._call("finish")

    end = end_run = finish


@pytest.fixture
def library(monkeypatch):
    """The same library under the four names."""
    found = Library()
    for name in ("wandb", "mlflow", "comet_ml", "trackio"):
        module = ModuleType(name)
        module.__dict__.update({key: getattr(found, key) for key in dir(found) if not key.startswith("__")})
        module.__version__, module.__spec__ = found.__version__, SimpleNamespace(name=name)
        monkeypatch.setitem(sys.modules, name, module)
    processes.start("cpu")  # accelerate's trackers ask which process they are in
    return found


def tracker_of(name, folder, **options) -> Tracker:
    return registry.of(Tracker).build({"name": name, **options}, folder)


@pytest.mark.parametrize("name", NAMES)
def test_a_service_gets_the_configuration_and_every_line_of_the_log(library, tmp_path, name):
    folder = tmp_path / "study" / "learn"
    folder.mkdir(parents=True)
    (folder / "stage.json").write_text(json.dumps({"config": {"steps": 4, "optimizer": {"lr": 1e-3}}}))
    trainer = make(folder, objectives=["engine-words"], steps=4)
    trainer.trackers.append(tracker_of(name, folder, project="mine"))
    trainer.run()
    told: dict[int, dict[str, float]] = {}
    for step, values in library.rows:
        told.setdefault(step, {}).update(values)
    assert [{"step": step, **values} for step, values in told.items()] == read_log(folder / "log.jsonl")
    assert library.settings["optimizer"] == {"lr": 1e-3}
    assert "mine" in library.begun.values() or library.begun.get("project_name") == "mine"
    assert "study/learn" in library.begun.values()
    assert library.said[-1] == "finish"


OFFLINE = {
    "wandb": lambda begun, folder: (begun["mode"], begun["dir"]) == ("offline", str(folder)),
    "mlflow": lambda begun, folder: begun["uri"] == f"sqlite:///{folder}/mlflow.db",
    "comet": lambda begun, folder: begun["online"] is False,
    "trackio": lambda begun, folder: begun["space_id"] is None,
}


@pytest.mark.parametrize("name", NAMES)
def test_offline_sends_nothing(library, tmp_path, name, monkeypatch):
    monkeypatch.delenv("COMET_OFFLINE_DIRECTORY", raising=False)
    tracker = tracker_of(name, tmp_path, offline=True, options={"space_id": "me/here"} if name == "trackio" else {})
    tracker.resume(0)
    assert OFFLINE[name](library.begun, tmp_path)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("what", ["begin", "log", "finish"])
def test_a_service_that_fails_ends_in_one_line_and_never_the_training(library, tmp_path, name, what):
    library.fault[what] = ConnectionError("no network\nand a long story")
    told = Told()
    trainer = make(tmp_path, objectives=["engine-words"], steps=4, progress=told)
    trainer.trackers.append(tracker_of(name, tmp_path))
    assert trainer.run().steps == 4
    assert [line["step"] for line in read_log(tmp_path / "log.jsonl")] == [2, 4]
    (line,) = [line for line in told.lines if "tracker" in line]
    assert line.endswith("ended, training goes on without it: ConnectionError: no network")
    assert library.said.count(what) == 1


def test_a_log_on_this_disk_that_fails_ends_the_training(tmp_path):
    trainer = make(tmp_path, objectives=["engine-words"], steps=4)
    full = JsonLines(tmp_path)
    full.log = lambda step, values: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    trainer.trackers.append(full)
    with pytest.raises(OSError, match="No space left"):
        trainer.run()


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_without_the_library_is_told_the_command(name, monkeypatch, tmp_path):
    library = {"comet": "comet_ml"}.get(name, name)
    usual = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda one, *more: None if one == library else usual(one, *more))
    stages = {
        "learn": {
            "kind": "pretrain",
            "data": {"name": "plain-text"},
            "objectives": ["mlm"],
            "trackers": ["jsonl", name],
            "steps": 1,
        }
    }
    recipe = from_mapping("r", {"root": str(tmp_path), "model": "lxmert", "stages": stages})
    (problem,) = [one for one in shallow(recipe) if "trackers" in one.key]
    assert problem.hint == f"pip install 'vlcli[{name}]'"
    with pytest.raises(ComponentError, match="needs packages that are not installed"):
        tracker_of(name, tmp_path)
