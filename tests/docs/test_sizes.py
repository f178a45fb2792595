"""Files and functions stay small: no file over 400 lines, median function under 8, nine of ten under 20."""

from __future__ import annotations

import ast
from pathlib import Path
from statistics import median

import pytest

from .pages import PROJECT

ROOMS = ("vlcli", "plugins", "tests", "benchmarks", "scripts")
MOST = 400
LONGEST = 80
"""Lines of a function, its signature and docstring included: constructors of models have many options."""


def sources(*rooms: str) -> dict[Path, str]:
    files = (file for room in rooms for file in (PROJECT / room).rglob("*.py"))
    return {file.relative_to(PROJECT): file.read_text(encoding="utf-8") for file in files}


def lengths(text: str) -> dict[str, int]:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
    return {f"{node.lineno} {node.name}": node.end_lineno - node.lineno + 1 for node in found}


def test_no_file_is_over_400_lines():
    long = {str(file): count for file, text in sources(*ROOMS).items() if (count := len(text.splitlines())) > MOST}
    assert not long


@pytest.mark.parametrize("rooms", [("vlcli", "plugins"), ("tests",)])
def test_functions_are_short(rooms):
    found = {f"{file}:{name}": count for file, text in sources(*rooms).items() for name, count in lengths(text).items()}
    counts = sorted(found.values())
    assert median(counts) < 8
    assert counts[int(0.9 * len(counts))] < 20
    assert {name: count for name, count in found.items() if count > LONGEST} == {}
