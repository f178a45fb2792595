"""Packages by strangers, installed for real: a virtual environment that sees this one's packages, and pip."""

from __future__ import annotations

import sys
import venv
from pathlib import Path

from .pages import run


def environment(folder: Path, *, plain: bool = False) -> Path:
    """A new virtual environment over this one; returns its Python.

    Args:
        folder: where it goes.
        plain: see this one's packages without its ``.pth`` files, so that nothing installed editable is seen.
    """
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    python = folder / "bin" / "python"
    site = run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], folder).out.strip()
    # This one's packages may lie in several folders: a virtual environment over another one's.
    here = dict.fromkeys(path for path in sys.path if Path(path).name in ("site-packages", "dist-packages"))
    lines = [path if plain else f"import site; site.addsitedir({path!r})" for path in here]
    (Path(site) / "beneath.pth").write_text("".join(f"{line}\n" for line in lines))
    return python


def install(python: Path, *packages: Path) -> None:
    """Install folders or wheels with pip, from nothing but themselves."""
    alone = ["--no-deps", "--no-build-isolation", "--no-index", "--no-cache-dir", "--quiet"]
    words = [sys.executable, "-m", "pip", "--python", python, "install", "--ignore-installed", *alone, *packages]
    ended = run(words, python.parent)
    assert ended.code == 0, ended.err


def package(folder: Path, name: str, module: str, code: str, points: dict[str, dict[str, str]]) -> Path:
    """Write a package of one module with entry points ``{kind: {name: attribute}}``."""
    folder.mkdir(parents=True)
    (folder / f"{module}.py").write_text(code, encoding="utf-8")
    lines = ["[build-system]", 'requires = ["setuptools"]', 'build-backend = "setuptools.build_meta"', "[project]"]
    lines += [f'name = "{name}"', 'version = "2.0"', "[tool.setuptools]", f'py-modules = ["{module}"]']
    for kind, entries in points.items():
        lines += [f'[project.entry-points."vlcli.{kind}"]']
        lines += [f'{entry} = "{module}:{attribute}"' for entry, attribute in entries.items()]
    (folder / "pyproject.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder
