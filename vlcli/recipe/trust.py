"""Decides which Python files of ``plugins:`` may run: of ``--plugin``, of trusted folders, of installed packages."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from vlcli.errors import ComponentError, DataError, UsageError
from vlcli.files import write_text
from vlcli.registry import is_loaded

SCHEMA_VERSION = 1


def list_file() -> Path:
    """Returns the file of the list: ``vlcli/trusted.json`` in the platform's folder for configuration."""
    from typer import get_app_dir

    return Path(get_app_dir("vlcli")) / "trusted.json"


def trusted() -> list[Path]:
    """Returns the folders (and single files) of the list, oldest first. Raises DataError: it cannot be read."""
    file = list_file()
    try:
        paths = json.loads(file.read_text(encoding="utf-8"))["trusted"]
        # A text would be read letter by letter, and its first letter is the root of all files.
        if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
            raise TypeError("'trusted' is not a list of paths")
        return list(map(Path, paths))
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        got = f"{type(error).__name__}: {error}"
        hint = "delete it, then trust again: vlcli trust FOLDER"
        raise DataError("The list of trusted folders cannot be read.", where=str(file), got=got, hint=hint) from error


def trust(folder: str | Path) -> Path:
    """Adds a folder, or one Python file, to the list; returns its absolute path.

    Raises UsageError: it is not there; DataError: the list cannot be read or written.
    """
    path = Path(folder).expanduser().resolve()
    if not path.exists():
        raise UsageError("The path to trust does not exist.", where=str(path), expected="a folder, or a Python file")
    known = trusted()
    if path not in known:
        _write([*known, path])
    return path


def forget(folder: str | Path) -> Path:
    """Takes a folder or a file from the list; it need not exist.

    Raises UsageError: the list does not have it; DataError: the list cannot be read or written.
    """
    path, known = Path(folder).expanduser().resolve(), trusted()
    if path not in known:
        expected, hint = ", ".join(map(str, known)) or "an empty list", "see it: vlcli trust --list"
        raise UsageError("This is not on the list.", got=str(path), expected=expected, hint=hint)
    _write([other for other in known if other != path])
    return path


def may_run(file: Path, package: Path | None = None) -> bool:
    """Returns True if a plugin file may run; ``package`` is the folder of the package that the recipe comes from."""
    path = file.resolve()
    packaged = package is not None and path.is_relative_to(package.resolve())
    return packaged or is_loaded(path) or any(path.is_relative_to(other) for other in trusted())


def refusal(files: Sequence[tuple[Path, str]]) -> ComponentError:
    """Returns the error for plugin files that may not run, each with the ``file:line`` that names it."""
    folders = dict.fromkeys(str(file.resolve().parent) for file, _ in files)
    what, where = "The recipe runs Python that you have not said you trust.", ", ".join(line for _, line in files)
    got, expected = ", ".join(str(file) for file, _ in files), "a file you have read: it can do whatever you can do"
    hint = f"vlcli trust {shlex.join(folders)}; or for this command alone: --trust"
    return ComponentError(what, where=where, got=got, expected=expected, hint=hint)


def _write(paths: list[Path]) -> None:
    file = list_file()
    text = json.dumps({"schema_version": SCHEMA_VERSION, "trusted": list(map(str, paths))}, indent=2)
    try:
        write_text(file, text + "\n")
    except OSError as error:
        raise DataError("The list of trusted folders cannot be written.", where=str(file), got=str(error)) from error
