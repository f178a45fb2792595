"""The public names of vlcli, written to docs/api.md from the source; and the names that the built-in packages import.

python scripts/public_api.py              # write docs/api.md
python scripts/public_api.py --imports    # how many names of how many modules plugins/ imports, private ones listed
python scripts/public_api.py --breaks     # what changed signatures break, compared with tests/docs/signatures.json
python scripts/public_api.py --accept     # write that copy anew
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from vlcli.registry import public

PROJECT = Path(__file__).parents[1]
PAGE = PROJECT / "docs" / "api.md"
HEAD = """# The names that packages import

After this page you know every name that a package may import from vlcli, and from which module. Everything else is
private and changes without notice. A package that imports a private name gets a warning when one of its components is
loaded, and `vlcli ls --check` and `vlcli doctor` list such imports, each with its public name.
[extending.md](extending.md) has an example, and [seams.md](seams.md) says what each base class is for.

```python
from vlcli.nn import Model
from vlcli.objectives import Objective
from vlcli.registry import component
```

`python scripts/public_api.py` writes this page from the source.
"""


def page() -> str:
    """The text of docs/api.md."""
    return HEAD + "".join(map(_section, public.PUBLIC))


def _section(module: str) -> str:
    about = ast.get_docstring(_tree(module)) or ""
    rows = [f"| `{name}` | {_about(module, name)} |" for name in sorted(public.public_names(module), key=str.lower)]
    return "\n".join([f"\n## {module}\n", about.split("\n")[0] + "\n", "| name | |", "| --- | --- |", *rows, ""])


def _about(module: str, name: str) -> str:
    """The first line of what the source says about a public name; empty where it says nothing."""
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) == name and node.module != module:
                    return _about(node.module, alias.name)
    found = next(_docstrings(_tree(module), name), "")
    line = found.strip().split("\n")[0].replace("``", "`").replace("|", "\\|")
    return line.replace(":class:", "").replace(":func:", "").replace(":mod:", "").replace(":data:", "")


def _docstrings(tree: ast.Module, name: str) -> Iterator[str]:
    """The docstring of a class or function, or the string behind an assignment."""
    for place, node in enumerate(tree.body):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            yield ast.get_docstring(node) or ""
        elif isinstance(node, ast.Assign | ast.AnnAssign) and name in _assigned(node):
            after = tree.body[place + 1] if place + 1 < len(tree.body) else None
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                yield str(after.value.value)


def _assigned(node: ast.Assign | ast.AnnAssign) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}


@cache
def _tree(module: str) -> ast.Module:
    stem = PROJECT.joinpath(*module.split("."))
    file = stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))


def imported() -> dict[str, set[str]]:
    """The names of vlcli that the built-in packages import, by module."""
    found: dict[str, set[str]] = {}
    for file in sorted((PROJECT / "plugins").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "vlcli":
                found.setdefault(node.module or "", set()).update(alias.name for alias in node.names)
    return found


def private() -> list[public.PrivateImport]:
    """The private names that the built-in packages import."""
    files = sorted((PROJECT / "plugins").rglob("*.py"))
    return [one for file in files for one in public.private_imports(file)]


def main() -> None:
    """Write the page or the copy of the signatures, or print figures or what breaks."""
    if sys.argv[1:] == ["--imports"]:
        found, hidden = imported(), private()
        print(f"{sum(map(len, found.values()))} names from {len(found)} modules, {len(hidden)} private imports")
        print("\n".join(f"{one.file}:{one.line}: {one}" for one in hidden), end="\n" if hidden else "")
    elif sys.argv[1:] in (["--breaks"], ["--accept"]):
        import signatures  # imports torch

        now = signatures.signatures()
        print("\n".join(signatures.breaks(signatures.stored(), now)) or "nothing breaks")
        if sys.argv[1] == "--accept":
            signatures.STORED.write_text(signatures.written(now), encoding="utf-8")
    else:
        PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
