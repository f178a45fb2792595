"""One bad input, run through the command line: how it must end, and what it must leave as it was."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import forked
from typer.testing import CliRunner

from vlcli.cli import app

REFUSED = (2, 3, 4, 5)
"""Exit codes of an input that is wrong."""
ANY = (0, 2, 3, 4, 5)
"""Of one that may happen to be right."""
Content = bytes | str | Callable[[Path, Path], None]
"""What a file holds, or what makes it: called with its path and the folder of valid files."""
_LITTER = re.compile(r"\.partial|\.tmp|\.old-\d|^\.stage\.json\.\d|\.part\b|~$")
_OWN = re.compile(r"(\.lock|\.pyc)$")


@dataclass(frozen=True)
class Trial:
    """A bad input.

    Attributes:
        kind: recipe, annotation, image, store, bundle, record or command.
        name: of the trial, unique in its kind.
        words: the command line; ``{valid}`` is the folder of valid files, relative paths are in a folder of its own.
        files: what lies in that folder.
        codes: exit codes that are right.
        says: what the message holds.
        alone: run in a process of its own, where the fault may end the process.
        quick: also run without the slow marker.
        env: environment variables.
        verdict: whether the command's product says what is wrong, in place of a message.
    """

    kind: str
    name: str
    words: tuple[str, ...]
    files: Mapping[str, Content] = field(default_factory=dict)
    codes: tuple[int, ...] = REFUSED
    says: str = ""
    alone: bool = False
    quick: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    verdict: bool = False

    @property
    def id(self) -> str:
        """How pytest calls it."""
        return f"{self.kind}-{self.name}"


@dataclass
class Tally:
    """What all trials of a session came to."""

    inputs: Counter[str] = field(default_factory=Counter)
    unforeseen: int = 0
    signals: int = 0

    def line(self) -> str:
        """The summary."""
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.inputs.items()))
        total = sum(self.inputs.values())
        return f"fuzz: {total} inputs ({kinds}), {self.unforeseen} unforeseen, {self.signals} signals"


def fault_of(trial: Trial, folder: Path, valid: Path, tally: Tally) -> str:
    """Run a trial in ``folder``; say what did not end as documented, or nothing."""
    work = folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    for name, content in trial.files.items():
        _write(work / name, content, valid)
    words = [word.replace("{valid}", str(valid)) for word in trial.words]
    before, untouched = _content(work), _stamps(valid)
    code, out, err = (_alone if trial.alone else _inside)(words, work, trial)
    tally.inputs[trial.kind] += 1
    tally.signals += code < 0 or code > 128
    tally.unforeseen += "unforeseen" in err or "Traceback" in out + err
    messages = len(re.findall(r"^error: ", err, re.MULTILINE)) or err.count("Usage: ")
    messages = messages or int(trial.verdict and bool(out.strip()))
    after = _content(work)
    changed = [name for name, mark in before.items() if after.get(name) != mark]
    litter = [name for name in after if name not in before and _LITTER.search(Path(name).name)]
    faults = {
        "an unforeseen error": "unforeseen" in err,
        "a traceback": "Traceback" in out + err,
        f"exit code {code}": code not in trial.codes,
        f"{messages} messages": code != 0 and messages != 1,
        f"{trial.says!r} is not said": trial.says not in err + out,
        f"changed {changed[:5]}": bool(changed),
        "valid files changed": _stamps(valid) != untouched,
        f"left over {litter[:5]}": bool(litter),
    }
    told = f"{' '.join(words)[:400]}\nexit {code}\n{err[-3000:]}\n{out[-500:]}"
    return next((f"{fault}\n{told}" for fault, there in faults.items() if there), "")


def _inside(words: list[str], work: Path, trial: Trial) -> tuple[int, str, str]:
    here = Path.cwd()
    os.chdir(work)
    try:
        ended = CliRunner().invoke(app, words, env=dict(trial.env), prog_name="vlcli")
    finally:
        os.chdir(here)
    fault = ended.exception
    crash = "" if fault is None or isinstance(fault, SystemExit) else f"\nTraceback: {type(fault).__name__}: {fault}"
    return ended.exit_code, ended.stdout, ended.stderr + crash


def _alone(words: list[str], work: Path, trial: Trial) -> tuple[int, str, str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120", **trial.env}
    ended = forked.run(words, work, environment, 120)
    return ended.returncode, ended.stdout, ended.stderr


def _write(path: Path, content: Content, valid: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if callable(content):
        content(path, valid)
    elif isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content, encoding="utf-8")


def _content(folder: Path) -> dict[str, str]:
    """A mark of every file's content, links as what they point at."""
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            if _OWN.search(name):
                continue
            whole = str(path.readlink()) if path.is_symlink() else hashlib.sha256(path.read_bytes()).hexdigest()
            found[str(path.relative_to(folder))] = whole
    return found


def _stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of every file; enough where nothing should be written at all."""
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            if not _OWN.search(name):
                status = Path(place, name).stat()
                found[str(Path(place, name))] = (status.st_size, status.st_mtime_ns)
    return found
