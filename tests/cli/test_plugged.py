"""Commands that packages add to a group of the command line."""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from vlcli import registry
from vlcli.cli import app
from vlcli.errors import DataError


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["vlcli.registry.entries"], "_session", {})

    def greet(name: Annotated[str, typer.Argument()], loud: Annotated[bool, typer.Option("--loud")] = False) -> None:
        """Greet somebody."""
        if name == "nobody":
            raise DataError("There is nobody.", where="greet")
        typer.echo(f"hello {name}{'!' if loud else ''}")

    registry.register("commands", "data.greet", greet)


@pytest.mark.usefixtures("added")
def test_a_package_adds_a_command_to_a_group() -> None:
    shell = CliRunner()
    assert "Greet somebody." in shell.invoke(app, ["data", "--help"]).stdout
    assert shell.invoke(app, ["data", "greet", "you", "--loud"]).stdout == "hello you!\n"
    failed = shell.invoke(app, ["data", "greet", "nobody"])
    assert (failed.exit_code, "There is nobody." in failed.stderr) == (5, True)


def test_a_broken_command_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = registry.Entry("commands", "data.broken", "no_such_package:command", "stranger", "1.0")
    monkeypatch.setattr(
        sys.modules["vlcli.registry.entries"], "_session", {("commands", "stranger:data.broken"): broken}
    )
    shell = CliRunner()
    listed = shell.invoke(app, ["data", "--help"])
    assert (listed.exit_code, "(broken)" in listed.stdout, "aggregate" in listed.stdout) == (0, True, True)
    failed = shell.invoke(app, ["data", "broken", "--any", "word"])
    assert (failed.exit_code, "no_such_package" in failed.stderr) == (4, True)


def test_the_commands_of_built_in_packages_import_no_torch() -> None:
    code = "import sys; from typer.testing import CliRunner; from vlcli.cli import app;"
    code += "print(CliRunner().invoke(app, ['data', '--help']).exit_code, 'torch' in sys.modules)"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.split() == ["0", "False"]
