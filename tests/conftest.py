"""Fixtures that the whole suite shares."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import forked
import pytest
import typer.testing
from hypothesis import settings

# One thread a worker: the suite runs a worker a core, and threads that wait for one another spin.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Processes that tests start would compile the same modules again and again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# A runner would build all commands anew for each that it invokes.
typer.testing._get_command = cache(typer.testing._get_command)

# The same inputs in every run, without a limit of time: no change is blamed for what chance or a busy machine finds.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("new", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


GROUPS = {"docs": "pages", "fuzz": "fuzz", "papers": "papers", "plugins": "papers"}
"""The group of slow tests by folder; ``core`` where a folder has none, and the argument of the mark before either."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--group``: which slow tests run."""
    names = ["core", "quickstart", "seeds", "rehearsals", *sorted(set(GROUPS.values()))]
    parser.addoption("--group", choices=names, help="with -m slow: one group of slow tests")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Spread the slow tests of one file over the workers: some of them take minutes."""
    if config.getoption("--group", None) and config.getoption("dist", "no") != "no":
        config.option.dist = "worksteal"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave only the slow tests of ``--group``."""
    wanted = config.getoption("--group")
    if wanted is None:
        return
    other = [item for item in items if group_of(item) != wanted]
    config.hook.pytest_deselected(items=other)
    items[:] = [item for item in items if group_of(item) == wanted]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Skip a test that ends in the line that installs an extra, where this environment lacks it (docs/support.md)."""
    outcome = yield
    report = outcome.get_result()
    said = str(call.excinfo.value) if report.failed and call.excinfo else ""
    lacking = [extra for extra in re.findall(r"pip install 'vlcli\[(\w+)\]'", said) if not installed(extra)]
    if lacking:
        report.outcome, report.longrepr = "skipped", (str(item.path), item.location[1], f"no extra {lacking[0]}")


def installed(extra: str) -> bool:
    """Whether this environment has the packages of an extra."""
    from vlcli.cli.doctor import EXTRAS

    return all(find_spec(name) for name in EXTRAS.get(extra, ()))


def group_of(item: pytest.Item) -> str | None:
    """The group of a slow test; None of a fast one."""
    mark = item.get_closest_marker("slow")
    if mark is None:
        return None
    folder = item.path.relative_to(Path(__file__).parent).parts[0]
    return mark.args[0] if mark.args else GROUPS.get(folder, "core")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference data beside the project, or where ``VLCLI_SHARED`` says; skips where there is none."""
    folder = Path(os.environ.get("VLCLI_SHARED") or Path(__file__).resolve().parents[2] / "shared")
    if not folder.is_dir():
        pytest.skip("no reference data: set VLCLI_SHARED")
    return folder


@dataclass
class Ended:
    """How a command line ended.

    Attributes:
        code: exit code.
        out: stdout.
        err: stderr.
    """

    code: int
    out: str
    err: str


@pytest.fixture
def cli(tmp_path: Path) -> Callable[..., Ended]:
    """Runs ``vlcli WORDS`` in a separate process, in ``tmp_path``."""

    def run(*words: object, env: dict[str, str] | None = None, timeout: float = 300) -> Ended:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120", **(env or {})}
        ended = forked.run([*map(str, words)], tmp_path, environment, timeout)
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    return run


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium for the tests of a module; skips them where none is installed."""
    from browsers import open_browser

    with open_browser() as opened:
        yield opened
