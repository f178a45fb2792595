"""What README.md and docs/*.md show: their commands and the files they write out; and how a command is run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import forked

PROJECT = Path(__file__).parents[2]
INSTALLING = ("python3", ".venv/bin/pip", ".venv/bin/python", "python from_pixels.py")
"""First words of shown commands that install, test or run a page's program (test_onnx_page) rather than use vlcli."""


def pages() -> dict[str, str]:
    """The text of every page by its name."""
    files = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]
    return {str(file.relative_to(PROJECT)): file.read_text(encoding="utf-8") for file in files}


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.S | re.M)


def files(text: str) -> dict[str, str]:
    """The blocks that a comment gives a file name."""
    return dict(re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)^```", text, re.S | re.M))


def commands(text: str) -> list[str]:
    """Every command that uses vlcli, in ``sh`` blocks and between backticks, its path taken off."""
    lines = [line for block in blocks(text, "sh") for line in block.splitlines() if line.strip()]
    parts = [part.strip() for line in lines for part in line.split("&&")]
    used = [part.removeprefix(".venv/bin/") for part in parts if not part.startswith(INSTALLING)]
    return [*used, *re.findall(r"`(vlcli [^`\n]+)`", text)]


@dataclass
class Ended:
    """How a process ended.

    Attributes:
        code: exit code.
        out: stdout.
        err: stderr.
    """

    code: int
    out: str
    err: str


def environment(**more: str) -> dict[str, str]:
    """This process's, with one thread and nothing of the caller's that would change a run."""
    kept = {name: value for name, value in os.environ.items() if name not in ("VLCLI_SET", "PYTHONPATH")}
    return {**kept, "OMP_NUM_THREADS": "1", "COLUMNS": "120", **more}


def run(words: list[object], folder: Path, timeout: float = 900) -> Ended:
    """A process in ``folder``."""
    ended = subprocess.run(
        list(map(str, words)),
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment(),
        timeout=timeout,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def vlcli(
    folder: Path, *words: object, python: str | Path = sys.executable, site: Path | None = None, timeout: float = 900
) -> Ended:
    """``vlcli WORDS`` in a separate process.

    Args:
        folder: working folder.
        words: of the command line.
        python: of another installation.
        site: a folder with more packages.
        timeout: seconds after which the process is killed.
    """
    if python == sys.executable:
        more = {} if site is None else {"PYTHONPATH": str(site)}
        made = forked.run([*map(str, words)], folder, environment(**more), timeout)
        return Ended(made.returncode, made.stdout, made.stderr)
    return run([python, "-m", "vlcli", *words], folder, timeout)


def split(command: str) -> list[str]:
    """A shown command's words after ``vlcli``."""
    return shlex.split(command)[1:]
