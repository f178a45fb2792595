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
