"""Packages to begin with: ``vlcli plugin new`` fills the files of the template with a name."""

from __future__ import annotations

import importlib.util
import keyword
import re
from pathlib import Path

from vlcli.errors import UsageError, VlcliError
from vlcli.files import new_folder, write_text
from vlcli.registry import entries

TEMPLATE = Path(__file__).parent / "package_template"
PLACES = {
    "pyproject.toml.txt": "pyproject.toml",
    "README.md.txt": "README.md",
    "init.py.txt": "{module}/__init__.py",
    "model.py.txt": "{module}/model.py",
    "objective.py.txt": "{module}/objective.py",
    "position.py.txt": "{module}/position.py",
    "reader.py.txt": "{module}/reader.py",
    "task.py.txt": "{module}/task.py",
    "small.yaml.txt": "{module}/small.yaml",
    "test.py.txt": "tests/test_{module}.py",
}
"""Where each file of the template goes."""


def write_package(name: str, folder: Path) -> list[Path]:
    """Write a package with a model, an objective, a position encoding, a reader, a task and tests, whole or not at all.

    Args:
        name: of the distribution and of its components: lower-case words joined by hyphens.
        folder: where to; must not exist.

    Returns:
        The files, relative to ``folder``.

    Raises:
        UsageError: the name cannot be one, or it is taken.
        VlcliError: the folder exists.
    """
    module = checked_name(name)
    if folder.exists():
        raise VlcliError("The folder exists.", where=str(folder), expected="a new folder", hint="--folder OTHER")
    words = {"name": name, "module": module, "Class": "".join(part.capitalize() for part in name.split("-"))}
    placed = [(TEMPLATE / source, Path(place.format(**words))) for source, place in PLACES.items()]
    with new_folder(folder) as beside:
        for source, place in placed:
            (beside / place).parent.mkdir(parents=True, exist_ok=True)
            write_text(beside / place, filled(source.read_text(encoding="utf-8"), words))
    return [place for _, place in placed]


def filled(text: str, words: dict[str, str]) -> str:
    """A file of the template with its placeholders ``{{word}}`` replaced."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: words[found[1]], text)


def checked_name(name: str) -> str:
    """The Python name of a package.

    Raises:
        UsageError: it is none, or it is taken.
    """
    module = name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name) or keyword.iskeyword(module):
        expected = "lower-case letters and digits, words joined by hyphens: my-paper"
        raise UsageError("This is no name for a package.", got=repr(name), expected=expected)
    found = [f"Python module {module}"] if importlib.util.find_spec(module) is not None else []
    found += [
        f"{entry.kind[:-1]} {entry.name} of {entry.distribution}" for entry in entries() if taken(entry.name, name)
    ]
    found += [f"distribution {name}"] if any(entry.distribution == name for entry in entries()) else []
    if found:
        hint = "choose another name, or remove that package: pip uninstall"
        raise UsageError("This name is taken.", got=found[0], expected="a name that nothing installed has", hint=hint)
    return module


def taken(component: str, name: str) -> bool:
    """Whether a registered component has a name that the package would give."""
    return component == name or component.startswith((f"{name}-", f"{name}/"))
