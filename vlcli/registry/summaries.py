"""What a component is in one line: the first sentence of its docstring, read from the source without importing it."""

from __future__ import annotations

import importlib.util
import inspect
import re
from functools import cache
from pathlib import Path

from vlcli.registry.entries import Entry

_ROLE = re.compile(r":[a-z:]+:`~?([^`<]+?)(?: <[^`]*>)?`")
_END = re.compile(r"(?<=[^.][.!?])(?<!\bEq[.])\s|(?<=:)\n|\n\s*\n")
_DOC = re.compile(r'[rR]?"""(.*?)"""', re.DOTALL)
_LAZY = "[\"']{name}[\"']: *[\"']([a-z_.]+)[\"']"
_MOVED = r"^\s*from +([.\w]+) +import +(?:\([^)]*|[^\n(]*)\b{name}\b"
_SHIFTS = 4
"""How often a name is followed to the module that it is imported from."""


def summary(entry: Entry) -> str:
    """The first sentence of a component's docstring.

    Args:
        entry: any but a recipe, which has ``about``.

    Returns:
        One line; empty where there is no docstring, or where it cannot be found without importing the component.
    """
    if entry.loaded is not None:
        return first_sentence(inspect.getdoc(entry.loaded) or "")
    module, _, name = entry.value.partition(":")
    return first_sentence(_docstring(module, name))


def first_sentence(text: str) -> str:
    """The first sentence of a docstring, on one line, without markup; cut behind the line that ends in a colon."""
    sentence = " ".join(_END.split(text.strip(), maxsplit=1)[0].split())
    return _ROLE.sub(r"\1", sentence).replace("``", "").removesuffix(":")


def _docstring(module: str, name: str) -> str:
    """The docstring of a class or function; follows the imports of a package's ``__init__``, also lazy ones."""
    for _ in range(_SHIFTS):
        source = _source(module)
        found = re.search(rf"^(?:class|(?:async +)?def) +{re.escape(name)}\b", source, re.MULTILINE)
        if found:
            return _first_string(source[found.end() :])
        moved = _moved(module, name, source)
        if moved is None:
            return ""
        module = moved
    return ""


def _first_string(source: str) -> str:
    """The string that follows a head, unless the next class or function begins before."""
    head, _, rest = source.partition("\n")
    body = head + "\n" + re.split(r"^(?=[^\s)\]#])", rest, maxsplit=1, flags=re.MULTILINE)[0]
    found = _DOC.search(body)
    inner = re.search(r"^\s+(?:def|class) ", body, re.MULTILINE)
    return found[1] if found and (inner is None or found.start() < inner.start()) else ""


def _moved(module: str, name: str, source: str) -> str | None:
    """The module that a name is imported from."""
    found = re.search(_MOVED.format(name=re.escape(name)), source, re.MULTILINE)
    lazy = re.search(_LAZY.format(name=re.escape(name)), source)
    if found:
        dots = len(found[1]) - len(found[1].lstrip("."))
        base = module if dots == 1 else module.rsplit(".", max(dots - 1, 0))[0]
        return f"{base}.{found[1].lstrip('.')}" if dots else found[1]
    return None if lazy is None else lazy[1] if lazy[1].startswith(module) else f"{module}.{lazy[1]}"


@cache
def _source(module: str) -> str:
    """The text of a module, found without importing the packages above it; empty where there is none."""
    top, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return ""
    if spec is None:
        return ""
    folder = Path(next(iter(spec.submodule_search_locations or [str(Path(spec.origin or "").parent)])))
    path = folder.joinpath(*rest)
    single = [Path(spec.origin)] if spec.origin and not spec.submodule_search_locations and not rest else []
    for file in (*single, path / "__init__.py", path.with_suffix(".py")):
        try:
            return file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
    return ""
