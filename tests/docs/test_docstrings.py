"""Docstrings of the base classes: who calls a method, and every argument, result and shape in its own line."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator

import pytest

from vlcli.registry.contract import CONTRACTS

BASES = sorted({base for contract in CONTRACTS.values() for base in contract.bases})
CALLED = re.compile(r"[Cc]alled|[Rr]ead (by|before|when)")


def load(base: str) -> type:
    module, name = base.split(":")
    return getattr(importlib.import_module(module), name)


def methods(kind: type) -> Iterator[tuple[str, inspect.Signature, str]]:
    for name, value in vars(kind).items():
        function = getattr(value, "__func__", value)
        if not name.startswith("_") and inspect.isfunction(function):
            yield name, inspect.signature(function), inspect.getdoc(function) or ""


def section(doc: str, title: str) -> str:
    found = re.search(rf"^{title}:\n((?:[ ]{{4}}.*\n?|\n)+)", doc, re.MULTILINE)
    return found[1] if found else ""


@pytest.mark.parametrize("base", BASES)
def test_methods_of_bases_document_caller_arguments_and_result(base):
    problems = []
    for name, signature, doc in methods(load(base)):
        given = [word for word in signature.parameters if word not in ("self", "cls")]
        documented = re.findall(r"^    (\w+):", section(doc, "Args"), re.MULTILINE)
        if documented != given:
            problems.append(f"{name}: Args {documented}, signature {given}")
        if signature.return_annotation not in ("None", None) and not section(doc, "Returns"):
            problems.append(f"{name}: no Returns")
    assert not problems


@pytest.mark.parametrize("base", BASES)
def test_hooks_say_who_calls_them(base):
    silent = [
        name for name, _, doc in methods(load(base)) if not CALLED.search(doc) and name not in ("require", "forget")
    ]
    assert not silent


@pytest.mark.parametrize("base", BASES)
def test_duties_raise_not_implemented(base):
    kind = load(base)
    duties = [name for contract in CONTRACTS.values() if base in contract.bases for name in contract.methods]
    for name in duties:
        function = inspect.getattr_static(kind, name)
        source = inspect.getsource(function.fget if isinstance(function, property) else function)
        assert "NotImplementedError" in source or "_cannot" in source or "abstractmethod" in source, name
