"""Reads the first sentence of a component's docstring from its source, without importing it."""

import inspect
import re
from contextlib import suppress
from functools import cache

from vlcli.registry.packages import Entry, package_folder

_ROLE = re.compile(r":[a-z:]+:`~?([^`<]+?)(?: <[^`]*>)?`")
_END = re.compile(r"(?<=[^.][.!?])(?<!\bEq[.])\s|(?<=:)\n|\n\s*\n")
_DOC = re.compile(r'[rR]?"""(.*?)"""', re.DOTALL)
_LAZY = "[\"']{name}[\"']: *[\"']([a-z_.]+)[\"']"
_MOVED = r"^\s*from +([.\w]+) +import +(?:\([^)]*|[^\n(]*)\b{name}\b"
_SHIFTS = 4  # the most imports that are followed to the module that defines a name


def summary(entry: Entry) -> str:
    """Returns the first sentence of a component's docstring on one line; empty if it is not found without an import.

    Follows the imports of a package's ``__init__``, also lazy ones.
    """
    if entry.loaded is not None:
        return first_sentence(inspect.getdoc(entry.loaded) or "")
    module, _, name = entry.value.partition(":")
    for _ in range(_SHIFTS):
        source = _source(module)
        if head := re.search(rf"^(?:class|(?:async +)?def) +{re.escape(name)}\b", source, re.MULTILINE):
            return first_sentence(_first_string(source[head.end() :]))
        moved = re.search(_MOVED.format(name=re.escape(name)), source, re.MULTILINE)
        lazy = re.search(_LAZY.format(name=re.escape(name)), source)
        if moved:
            target = moved[1].lstrip(".")
            dots = len(moved[1]) - len(target)
            base = module if dots == 1 else module.rsplit(".", max(dots - 1, 0))[0]
            module = f"{base}.{target}" if dots else target
        elif lazy:
            module = lazy[1] if lazy[1].startswith(module) else f"{module}.{lazy[1]}"
        else:
            return ""
    return ""


def first_sentence(text: str) -> str:
    """Returns the first sentence of a docstring (or up to a line's colon) on one line without markup."""
    sentence = " ".join(_END.split(text.strip(), maxsplit=1)[0].split())
    return _ROLE.sub(r"\1", sentence).replace("``", "").removesuffix(":")


def _first_string(source: str) -> str:
    # The string that follows a head, unless the next class or function begins before.
    head, _, rest = source.partition("\n")
    body = head + "\n" + re.split(r"^(?=[^\s)\]#])", rest, maxsplit=1, flags=re.MULTILINE)[0]
    doc = _DOC.search(body)
    inner = re.search(r"^\s+(?:def|class) ", body, re.MULTILINE)
    return doc[1] if doc and (inner is None or doc.start() < inner.start()) else ""


@cache
def _source(module: str) -> str:
    # Found without importing the packages above it; empty if there is none.
    path = package_folder(module)[1]
    for file in (path / "__init__.py", path.with_suffix(".py")):
        with suppress(OSError, UnicodeDecodeError):
            return file.read_text(encoding="utf-8")
    return ""
