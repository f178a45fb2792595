"""Writes a package to begin with: ``vlcli plugin new`` fills the files of ``package_template`` with a name."""

import importlib.util
import keyword
import re
from pathlib import Path

from vlcli.errors import UsageError, VlcliError
from vlcli.files import new_folder, write_text
from vlcli.registry import entries

TEMPLATE = Path(__file__).parent / "package_template"
FILES = {
    "pyproject.toml.txt": "pyproject.toml",
    "README.md.txt": "README.md",
    **{f"{part}.py.txt": f"{{module}}/{part}.py" for part in ("model", "objective", "position", "reader", "task")},
    "init.py.txt": "{module}/__init__.py",
    "small.yaml.txt": "{module}/small.yaml",
    "test.py.txt": "tests/test_{module}.py",
}
"""Path in the package by file of the template."""


def write_package(name: str, folder: Path) -> list[Path]:
    """Write a package with a model, an objective, a position encoding, a reader, a task and tests, whole or not at all.

    Args:
        name: of the distribution and of its components: lower-case words joined by hyphens.

    Returns:
        The files, relative to ``folder``.

    Raises:
        UsageError: the name cannot be one, or it is taken.
        VlcliError: the folder exists.
    """
    module = _checked_name(name)
    if folder.exists():
        raise VlcliError("The folder exists.", where=str(folder), expected="a new folder", hint="--out OTHER")
    words = {"name": name, "module": module, "Class": "".join(part.capitalize() for part in name.split("-"))}
    paths = {file: Path(path.format(**words)) for file, path in FILES.items()}
    with new_folder(folder) as scratch:
        for file, path in paths.items():
            (scratch / path).parent.mkdir(parents=True, exist_ok=True)
            text = (TEMPLATE / file).read_text(encoding="utf-8")
            write_text(scratch / path, re.sub(r"\{\{(\w+)\}\}", lambda word: words[word[1]], text))
    return list(paths.values())


def _checked_name(name: str) -> str:
    """Return the Python name of a package."""
    module = name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name) or keyword.iskeyword(module):
        expected = "lower-case letters and digits, words joined by hyphens: my-paper"
        raise UsageError("This is no name for a package.", got=repr(name), expected=expected)
    users = [f"Python module {module}"] if importlib.util.find_spec(module) is not None else []
    for entry in entries():
        if entry.name == name or entry.name.startswith((f"{name}-", f"{name}/")):
            users.append(f"{entry.kind[:-1]} {entry.name} of {entry.distribution}")
    users += [f"distribution {name}"] if any(entry.distribution == name for entry in entries()) else []
    if users:
        hint = "choose another name, or remove that package: pip uninstall"
        raise UsageError("This name is taken.", got=users[0], expected="a name that nothing installed has", hint=hint)
    return module
