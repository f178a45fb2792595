"""Which Python files of recipes may run: a recipe is only text until somebody trusts what it names under ``plugins:``.

A file may run where it was named on the command line (``--plugin FILE``), lies in a folder of the user's list
(``vlcli trust FOLDER``), or comes with an installed package. The list is one JSON file in the user's configuration
folder.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from pathlib import Path

from vlcli.errors import ComponentError, DataError, UsageError
from vlcli.files import write_text
from vlcli.registry import is_loaded

SCHEMA_VERSION = 1


def list_file() -> Path:
    """Where the list is kept: ``vlcli/trusted.json`` under ``XDG_CONFIG_HOME``, or what the platform has for it."""
    from typer import get_app_dir

    return Path(get_app_dir("vlcli")) / "trusted.json"


def trusted() -> list[Path]:
    """The folders (and single files) of the list, in the order they were added.

    Raises:
        DataError: the list cannot be read.
    """
    file = list_file()
    try:
        places = json.loads(file.read_text(encoding="utf-8"))["trusted"]
        # A text would be read letter by letter, and its first letter is the root of all files.
        if not isinstance(places, list) or not all(isinstance(place, str) for place in places):
            raise TypeError("'trusted' is not a list of paths")
        return [Path(place) for place in places]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        got = f"{type(error).__name__}: {error}"
        hint = "delete it, then trust again: vlcli trust FOLDER"
        raise DataError("The list of trusted folders cannot be read.", where=str(file), got=got, hint=hint) from error


def trust(place: str | Path) -> Path:
    """Add a folder, or one Python file, to the list; returns it as it is kept.

    Raises:
        UsageError: it is not there.
        DataError: the list cannot be read or written.
    """
    path = Path(place).expanduser().resolve()
    if not path.exists():
        raise UsageError("There is nothing here to trust.", where=str(path), expected="a folder, or a Python file")
    known = trusted()
    if path not in known:
        _write([*known, path])
    return path


def forget(place: str | Path) -> Path:
    """Take a folder or a file from the list; it need not be there any more.

    Raises:
        UsageError: the list does not have it.
        DataError: the list cannot be read or written.
    """
    path = Path(place).expanduser().resolve()
    known = trusted()
    if path not in known:
        raise UsageError(
            "This is not on the list.",
            got=str(path),
            expected=", ".join(map(str, known)) or "an empty list",
            hint="see it: vlcli trust --list",
        )
    _write([other for other in known if other != path])
    return path


def may_run(file: Path, package: Path | None = None) -> bool:
    """Whether a recipe's plugin file may run without being asked for; links count as what they point to.

    Args:
        file: the plugin file.
        package: the folder of the installed package that the recipe comes from, if any.
    """
    path = file.resolve()
    if is_loaded(path) or (package is not None and path.is_relative_to(package.resolve())):
        return True
    return any(path == place or path.is_relative_to(place) for place in trusted())


def refusal(files: Iterable[tuple[Path, str]]) -> ComponentError:
    """The message for plugin files that may not run.

    Args:
        files: each with the place (``file:line``) that names it.
    """
    found = list(files)
    folders = list(dict.fromkeys(str(file.resolve().parent) for file, _ in found))
    return ComponentError(
        "The recipe runs Python that you have not said you trust.",
        where=", ".join(place for _, place in found),
        got=", ".join(str(file) for file, _ in found),
        expected="a file you have read: it can do whatever you can do",
        hint=f"vlcli trust {shlex.join(folders)}; or for this command alone: --trust",
    )


def _write(places: list[Path]) -> None:
    file = list_file()
    text = json.dumps({"schema_version": SCHEMA_VERSION, "trusted": [str(place) for place in places]}, indent=2)
    try:
        write_text(file, text + "\n")
    except OSError as error:
        raise DataError("The list of trusted folders cannot be written.", where=str(file), got=str(error)) from error
