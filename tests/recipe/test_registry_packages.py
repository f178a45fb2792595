"""A component whose packages nobody installed is refused before anything runs, with the line that installs them."""

import importlib

from vlcli import registry
from vlcli.export.base import Exporter

ENTRIES = importlib.import_module("vlcli.registry.entries")  # the name in the package is the function


class Lacking(Exporter):
    """Writes nothing here."""

    packages = ("json", "no_such_package_anywhere")
    install = "pip install 'no-such-package'"


def test_absent_packages_are_named_with_their_remedy(monkeypatch):
    monkeypatch.setattr(ENTRIES, "_session", {})
    registry.register("exporters", "lacking", Lacking)
    (problem,) = registry.check("exporters", "lacking", "stages.x.format")
    assert problem.code == 4
    assert problem.got == "missing: no_such_package_anywhere"
    assert problem.hint == "pip install 'no-such-package'"


def test_components_without_needs_are_not_asked():
    assert registry.check("exporters", "safetensors", "stages.x.format") == []


def test_hooks_of_base_classes_are_not_attribute_errors():
    """An AttributeError in a property or hook would be taken for a missing attribute, and its message lost."""
    import pytest

    from vlcli.nn import DataSpec, Model
    from vlcli.tasks.base import Task

    with pytest.raises(NotImplementedError, match="Model has no dim; its capabilities: none"):
        _ = Model(DataSpec()).dim
    for hook in ("objectives", "dataset"):
        with pytest.raises(NotImplementedError):
            getattr(Task(), hook)()


class Faulty:
    """A task whose data set is its author's mistake."""

    def dataset(self):
        """Fails."""
        return self.no_such_thing


def test_a_fault_of_a_plugins_own_is_not_swallowed(monkeypatch):
    import pytest

    from vlcli.errors import ComponentError
    from vlcli.recipe.resolve import resolve
    from vlcli.recipe.schema import Finetune, Recipe
    from vlcli.tasks.base import Task

    class Quiet(Task):
        """A task without a data set of its own."""

    monkeypatch.setattr(ENTRIES, "_session", {})
    registry.register("tasks", "faulty", Faulty)
    registry.register("tasks", "quiet", Quiet)

    def specs(task):
        stage = Finetune.model_validate({"kind": "finetune", "task": task, "steps": 1})
        return resolve(Recipe.model_validate({"schema": 1, "stages": {"one": stage}}), stage).data

    assert specs("quiet") == []
    with pytest.raises(ComponentError, match="The task 'faulty' fails with an error of its own") as caught:
        specs("faulty")
    assert caught.value.got == "AttributeError: 'Faulty' object has no attribute 'no_such_thing'"
    lines = open(__file__, encoding="utf-8").read().splitlines()  # noqa: SIM115, PTH123
    assert caught.value.where == f"{__file__}:{lines.index('        return self.no_such_thing') + 1}"


def test_a_packages_incomplete_component_is_one_message(monkeypatch, tmp_path):
    """The class of an installed package is checked when it is loaded: base class, then methods and capabilities."""
    import pytest

    from vlcli.errors import ComponentError
    from vlcli.nn import Model

    (tmp_path / "incomplete_package.py").write_text(
        "from vlcli.nn import Model\n"
        "class NoModel: pass\n"
        "class Half(Model):\n    capabilities = frozenset({'text'})\n    dim = 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    installed = {
        ("models", name): ENTRIES.Entry("models", name, f"incomplete_package:{value}", "incomplete", "1.0")
        for name, value in {"no-model": "NoModel", "half": "Half"}.items()
    }
    monkeypatch.setattr(ENTRIES, "_session", installed)
    for name, wanted in {
        "no-model": "its base class is not vlcli.nn.Model",
        "half": "it does not define encode_text, input_spec",
    }.items():
        with pytest.raises(ComponentError, match="is not what a model must be") as caught:
            registry.load("models", name)
        assert caught.value.got == wanted
        assert registry.check("models", name)[0].got == wanted
    assert issubclass(registry.load("models", "lxmert"), Model)


def test_a_component_that_takes_other_positional_parameters_is_refused(monkeypatch, tmp_path):
    import pytest

    from vlcli.errors import ComponentError

    file = tmp_path / "misfits.py"
    file.write_text(
        "from vlcli.data import Reader\nfrom vlcli.objectives import Objective\nfrom vlcli.registry import component\n"
        "@component('datasets', 'rootless')\nclass Rootless(Reader):\n    def __init__(self, *, file: str = 'x'): ...\n"
        "    def files(self): return []\n    def read(self): return []\n"
        "@component('objectives', 'greedy')\nclass Greedy(Objective):\n"
        "    def __init__(self, model, data_spec, scale): ...\n    def forward(self, step, others): ...\n"
        "@component('datasets', 'any')\nclass Any(Reader):\n    def __init__(self, *args, **options): ...\n"
        "    def files(self): return []\n    def read(self): return []\n"
    )
    monkeypatch.setattr(ENTRIES, "_session", {})
    registry.load_file(file)
    for kind, name, wanted in (
        ("datasets", "rootless", "its __init__ takes no positional parameter, and vlcli passes root"),
        ("objectives", "greedy", "its __init__ takes model, data_spec, scale, and vlcli passes model, data_spec"),
    ):
        with pytest.raises(ComponentError, match=f"is not what an? {kind[:-1]} must be") as caught:
            registry.load(kind, name)
        assert caught.value.got == wanted
        assert caught.value.where.startswith(f"{file}:")
    assert registry.load("datasets", "any")


def test_types_are_shown_as_a_person_writes_them():
    shown = {
        kind: {p.name: p.type_text for p in registry.parameters(registry.load(*kind)).values()}
        for kind in (("extractors", "backbone"), ("models", "lxmert"), ("datasets", "jsonl"))
    }
    assert shown["extractors", "backbone"]["short"] == "int | None"
    assert shown["models", "lxmert"]["init_std"] == "float | 'auto'"
    assert shown["datasets", "jsonl"]["split"] == "str | list[str]"


def test_a_plugin_files_incomplete_component_is_one_message(monkeypatch, tmp_path):
    """Checked like that of a package, so that no step on invented data fails with an error about something else."""
    import pytest

    from vlcli.errors import ComponentError

    file = tmp_path / "incomplete_file.py"
    file.write_text(
        "from torch import nn\nfrom vlcli.data import Reader\nfrom vlcli.registry import component\n"
        "@component('positions', 'no-encoding')\nclass NoEncoding(nn.Module): pass\n"
        "@component('datasets', 'no-examples')\nclass NoExamples(Reader):\n    def files(self): return []\n"
    )
    monkeypatch.setattr(ENTRIES, "_session", {})
    registry.load_file(file)
    for kind, name, wanted in (
        ("positions", "no-encoding", "its base class is not vlcli.nn.TokenPosition or vlcli.nn.PairwisePosition"),
        ("datasets", "no-examples", "it does not define read"),
    ):
        with pytest.raises(ComponentError, match="must be") as caught:
            registry.load(kind, name)
        assert caught.value.got == wanted
        assert str(file) in caught.value.where


def test_code_of_a_plugin_that_ends_the_program_is_a_fault_of_the_plugin():
    import sys

    import pytest

    from vlcli.cli.guard import as_vlcli
    from vlcli.errors import ComponentError
    from vlcli.registry.contract import blamed

    with pytest.raises(ComponentError, match="SystemExit: 3"), blamed("tasks", "faulty", Faulty):
        sys.exit(3)
    assert "The code ends the program." in str(as_vlcli(SystemExit(3)))


def test_an_error_of_a_strangers_hook_names_the_component(monkeypatch, tmp_path):
    """Wherever the hook was called: by the innermost component in the traceback, not by vlcli's code that called it."""
    import pytest

    from vlcli.cli.guard import as_vlcli
    from vlcli.errors import ComponentError

    file = tmp_path / "hooks.py"
    file.write_text(
        "from vlcli.registry import component\nfrom vlcli.objectives import Objective\n\n"
        "@component('objectives', 'first')\nclass First(Objective):\n    def forward(self, step, others): ...\n"
        "    def labels(self):\n        return {}['no label']\n\n"
        "@component('objectives', 'second')\nclass Second(First):\n    def constant_loss(self):\n        helper()\n\n"
        "def helper():\n    raise ValueError('no constant')\n"
    )
    monkeypatch.setattr(ENTRIES, "_session", {})
    registry.load_file(file)

    def told(name, hook):
        with pytest.raises((KeyError, ValueError)) as caught:
            getattr(registry.load("objectives", name), hook)(None)
        return as_vlcli(caught.value)

    for name, hook, who, line in (
        ("first", "labels", "first", 8),
        ("second", "labels", "first", 8),  # inherited
        ("second", "constant_loss", "second", 16),
    ):
        error = told(name, hook)
        assert isinstance(error, ComponentError)
        assert (error.what, error.where) == (
            f"The objective '{who}' fails with an error of its own.",
            f"{file}:{line}",
        )
    assert as_vlcli(ValueError("ours")).what == "Something unforeseen went wrong."
