"""Writes a package to begin with: ``vlcli plugin new`` fills the files of ``package_template`` with a name."""

import importlib.util
import keyword
import re
from collections.abc import Sequence
from pathlib import Path

from vlcli.errors import UsageError, VlcliError
from vlcli.files import new_folder, write_text
from vlcli.registry import entries

# Components of a package, in words
PARTS = {
    "model": "a model",
    "objective": "an objective",
    "position": "a position encoding",
    "reader": "a reader",
    "task": "a task",
}
# Path in the package by file of the template.
_FILES = {
    "pyproject.toml.txt": "pyproject.toml",
    "README.md.txt": "README.md",
    **{f"{part}.py.txt": f"{{module}}/{part}.py" for part in PARTS},
    "init.py.txt": "{module}/__init__.py",
    "small.yaml.txt": "{module}/small.yaml",
    "test.py.txt": "tests/test_{module}.py",
}


def write_package(name: str, folder: Path, only: Sequence[str] = ()) -> list[Path]:
    """Write a package with components, a recipe and tests, whole or not at all; return its files below ``folder``.

    Args:
        name: of the distribution and of its components: lower-case words joined by hyphens.
        only: some of :data:`PARTS`; empty: all.

    Raises:
        UsageError: the name cannot be one, or it is taken, or ``only`` has something else.
        VlcliError: the folder exists.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    module = _checked_name(name)
    if unknown := [part for part in only if part not in PARTS]:
        raise UsageError("A package has no such part.", where="--only", got=repr(unknown[0]), expected=", ".join(PARTS))
    if folder.exists():
        raise VlcliError("The folder exists.", where=str(folder), expected="a new folder", hint="--out OTHER")
    chosen = {part: not only or part in only for part in PARTS}
    words = {"name": name, "module": module, "Class": "".join(part.capitalize() for part in name.split("-"))}
    words["parts"] = ", ".join(text for part, text in PARTS.items() if chosen[part])
    files = {file: Path(path.format(**words)) for file, path in _FILES.items() if chosen.get(file.split(".")[0], True)}
    loader = PackageLoader("vlcli.plugin_kit", "package_template")
    templates = Environment(  # noqa: S701 (no HTML)
        loader=loader, undefined=StrictUndefined, keep_trailing_newline=True, trim_blocks=True, lstrip_blocks=True
    )
    with new_folder(folder) as scratch:
        for file, path in files.items():
            (scratch / path).parent.mkdir(parents=True, exist_ok=True)
            write_text(scratch / path, templates.get_template(file).render(**words, **chosen))
    return list(files.values())


def _checked_name(name: str) -> str:
    module = name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name) or keyword.iskeyword(module):
        expected = "lower-case letters and digits, words joined by hyphens: my-paper"
        raise UsageError("This is no name for a package.", got=repr(name), expected=expected)
    users = [f"Python module {module}"] if importlib.util.find_spec(module) is not None else []
    named = [entry for entry in entries() if entry.name == name or entry.name.startswith((f"{name}-", f"{name}/"))]
    users += [f"{entry.kind[:-1]} {entry.name} of {entry.distribution}" for entry in named]
    users += [f"distribution {name}" for entry in entries() if entry.distribution == name]
    if users:
        hint = "choose another name, or remove that package: pip uninstall"
        raise UsageError("This name is taken.", got=users[0], expected="a name that nothing installed has", hint=hint)
    return module
