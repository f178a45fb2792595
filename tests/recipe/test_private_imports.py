"""A package that imports private names of vlcli is warned once, with the public names."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import forked
import pytest

from vlcli.registry import public

PLUGIN = """
from vlcli.nn.attention import StandardAttention
from vlcli.nn import Model
from vlcli.engine.trainer import Trainer as Hidden
from vlcli.objectives.mlm import MARK
import vlcli.runner
from vlcli.registry import component
from vlcli.export import Exporter


@component("exporters", "stranger")
class Stranger(Exporter):
    def export(self, trained, folder, progress):
        return None
"""


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    file = tmp_path / "stranger.py"
    file.write_text(PLUGIN.replace("from vlcli.engine.trainer import Trainer as Hidden\n", ""))
    return file


def test_private_names_are_found_with_their_public_ones(tmp_path: Path) -> None:
    file = tmp_path / "plugin.py"
    file.write_text(PLUGIN)
    assert [(one.line, one.name, one.public) for one in public.private_imports(file)] == [
        (2, "vlcli.nn.attention.StandardAttention", "vlcli.nn.StandardAttention"),
        (4, "vlcli.engine.trainer.Trainer", ""),
        (5, "vlcli.objectives.mlm.MARK", "vlcli.objectives.MASKED_WORDS"),
        (6, "vlcli.runner", ""),
    ]


def test_a_file_that_cannot_be_parsed_has_none(tmp_path: Path) -> None:
    file = tmp_path / "plugin.py"
    file.write_text("def (")
    assert public.private_imports(file) == []


def test_loading_warns_at_the_line_of_the_import(plugin: Path) -> None:
    code = f"from vlcli import registry; from vlcli.registry import load_file; load_file({str(plugin)!r});"
    code += "registry.load('exporters', 'stranger'); registry.load('exporters', 'stranger')"
    made = _python(code, plugin.parent)
    assert made.returncode == 0, made.stderr
    wanted = f"{plugin}:2: PrivateImportWarning: vlcli.nn.attention.StandardAttention is private: "
    assert wanted + "import vlcli.nn.StandardAttention instead" in made.stderr
    assert made.stderr.count("PrivateImportWarning") == 3


def test_ls_and_doctor_show_them(plugin: Path) -> None:
    words = ["ls", "exporters", "--check", "--json", "--plugin", str(plugin)]
    made = forked.run(words, plugin.parent, os.environ, 300)
    assert made.returncode == 0, made.stderr
    (row,) = [row for row in json.loads(made.stdout)["components"] if row["name"] == "stranger"]
    assert row["private"][0].endswith("import vlcli.nn.StandardAttention instead")
    from vlcli.cli.doctor import component_findings

    (finding,) = [one for one in component_findings(0, made.stdout, "") if one.what == "package stranger.py"]
    assert finding.state == "note"
    assert "vlcli.objectives.MASKED_WORDS" in finding.detail


def test_vlcli_itself_is_not_warned_of(tmp_path: Path) -> None:
    code = "import warnings; warnings.simplefilter('always'); from vlcli import registry\n"
    made = _python(code + "registry.load('models', 'lxmert'); registry.load('positions', 'irpe')", tmp_path)
    assert made.returncode == 0, made.stderr
    assert "PrivateImportWarning" not in made.stderr


def _python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """``python SCRIPT`` in a process of its own."""
    (folder / "script.py").write_text(code)
    return forked.run([], folder, os.environ, 300, folder / "script.py")
