"""Bad stage records and run folders, and command lines that ask for what cannot be."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.fuzz.harness import Content, Trial

ODD: tuple[Any, ...] = (3, "x", [], {}, None, [3], {"a": 1})


def _runs(change: Callable[[Path], None]) -> Callable[[Path, Path], None]:
    """A copy of the valid run, changed."""

    def make(path: Path, valid: Path) -> None:
        shutil.copytree(valid / "runs", path)
        change(path / "valid")

    return make


def _record(stage: str, key: str, value: Any) -> Callable[[Path, Path], None]:
    def change(run: Path) -> None:
        file = run / stage / "stage.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), key: value}))

    return _runs(change)


def _bytes(name: str, data: bytes) -> Callable[[Path, Path], None]:
    def change(run: Path) -> None:
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_bytes(data)

    return _runs(change)


def _recipe(path: Path, valid: Path) -> None:
    shutil.copy(valid / "valid.yaml", path)


CHANGES: dict[str, Content] = {
    "empty": _bytes("train/stage.json", b""),
    "cut": _bytes("train/stage.json", b'{"stage": "train", "kind":'),
    "list": _bytes("train/stage.json", b"[]"),
    "binary": _bytes("train/stage.json", b"\xff\xfe\x00"),
    "deep": _bytes("train/stage.json", b"[" * 50_000 + b"]" * 50_000),
    "integer": _bytes("train/stage.json", b'{"seconds": ' + b"7" * 5000 + b"}"),
    "surrogate": _bytes("train/stage.json", b'{"stage": "\\ud800", "kind": "x", "status": "done", "key": "k"}'),
    "folder": _bytes("train/stage.json.d/x", b""),
    "step-abc": _bytes("train/checkpoints/step-abc/x", b""),
    "best-abc": _bytes("train/checkpoints/best-abc/x", b""),
    "recipe": _bytes("recipe.yaml", b"\xff"),
    "world": _bytes("world/stage.json", b"{}"),
    "store": _bytes("regions/features.h5", b""),
    "metrics": _bytes("train/metrics.json", b"["),
}
FIELDS = ("stage", "kind", "status", "key", "config", "inputs", "data", "files", "artifact", "facts", "metrics")
FIELDS += ("seconds", "seed", "versions", "notes", "schema_version", "root", "features")

LINES: dict[str, tuple[str, ...]] = {
    "unknown-verb": ("fly",),
    "unknown-option": ("run", "quickstart", "--fast"),
    "unknown-recipe": ("run", "quickstrat"),
    "long": ("run", "q" * 5000),
    "long-path": ("validate", "q" * 5000 + ".yaml"),
    "dots": ("validate", "../" * 3000 + "r.yaml"),
    "folder": ("validate", "."),
    "device": ("validate", "/dev/null"),
    "empty-word": ("validate", ""),
    "surrogate": ("validate", "\udcff.yaml"),
    "surrogate-show": ("show", "\udcff"),
    "jobs": ("run", "quickstart", "--jobs", "0"),
    "jobs-huge": ("run", "quickstart", "jobs=100000", "--dry-run"),
    "seed-word": ("run", "quickstart", "--seed", "x"),
    "seed-negative": ("run", "quickstart", "--seed=-5", "--dry-run"),
    "seed-huge": ("run", "quickstart", "--seed", str(2**70), "--dry-run"),
    "seeds": ("run", "quickstart", "--seeds", "-3", "--dry-run"),
    "override-path": ("validate", "quickstart", "a..b=3"),
    "override-equals": ("validate", "quickstart", "=3"),
    "override-yaml": ("validate", "quickstart", "seed={"),
    "override-digits": ("validate", "quickstart", "seed=" + "9" * 5000),
    "override-deep": ("validate", "quickstart", "seed=" + "[" * 3000),
    "override-file": ("validate", "quickstart", "seed=@nothing.yaml"),
    "override-self": ("validate", "quickstart", "stages=3"),
    "override-null": ("validate", "quickstart", "stages=~"),
    "override-remove": ("validate", "quickstart", "~stages"),
    "override-remove-all": ("validate", "quickstart", "~nothing"),
    "override-surrogate": ("validate", "quickstart", "about=\udcff"),
    "override-long-key": ("validate", "quickstart", "s" * 4000 + "=1"),
    "override-many-keys": ("validate", "quickstart", ".".join(["stages"] + ["a"] * 2000) + "=1"),
    "only": ("run", "quickstart", "--only", "nothing", "--dry-run"),
    "only-long": ("run", "quickstart", "--only", "x" * 300, "--dry-run"),
    "plugin": ("run", "quickstart", "--plugin", "nothing.py", "--dry-run"),
    "plugin-folder": ("run", "quickstart", "--plugin", ".", "--dry-run"),
    "ask-nothing": ("ask", "nothing", "a", "b"),
    "ask-file": ("ask", "file", "a", "b"),
    "ask-long": ("ask", "m" * 400, "a", "b"),
    "search-nothing": ("search", "nothing", "a", "."),
    "search-file": ("search", "file", "a", "file"),
    "eval-nothing": ("eval", "nothing"),
    "export-nothing": ("export", "nothing"),
    "draw-nothing": ("draw", "nothing"),
    "draw-loss": ("draw", "loss", "--stage", "file"),
    "show-nothing": ("show", "nothing"),
    "show-long": ("show", "n" * 5000),
    "ls-nothing": ("ls", "nothing"),
    "cp-nothing": ("cp", "nothing", "x.yaml"),
    "cp-over": ("cp", "quickstart", "file"),
    "cp-into-file": ("cp", "quickstart", "file/x.yaml"),
    "count-nothing": ("count", "nothing"),
    "info-nothing": ("features", "info", "nothing"),
    "info-folder": ("features", "info", "."),
    "info-long": ("features", "info", "n" * 400),
    "merge-none": ("features", "merge", "nothing", "--out", "x.h5"),
    "join-none": ("features", "join", "nothing", "--out", "x.h5"),
    "import-format": ("features", "import", "nothing", "file", "x.h5"),
    "import-file": ("features", "import", "tsv", "file", "x.h5"),
    "import-into-file": ("features", "import", "tsv", "file", "file/x.h5"),
    "export-format": ("features", "export", "nothing", "file", "x"),
    "stats-nothing": ("data", "stats", "nothing"),
    "stats-root": ("data", "stats", "--root", "nothing"),
    "make-mars": ("data", "make", "mars", "x"),
    "make-over-file": ("data", "make", "shapes", "file", "--images", "20"),
    "make-key": ("data", "make", "shapes", "x", "nothing=3"),
    "make-number": ("data", "make", "shapes", "x", "objects=.nan"),
    "make-parts": ("data", "make", "shapes", "x", "parts=[mars]"),
    "answers-nothing": ("data", "answers", "nothing"),
    "aggregate-nothing": ("data", "aggregate", "nothing"),
    "concepts-nothing": ("data", "concepts", "nothing"),
    "output-file": ("run", "r.yaml", "--output", "file"),
    "output-in-file": ("run", "r.yaml", "--output", "file/runs"),
    "output-long": ("run", "r.yaml", "--output", "o" * 300),
    "output-dry": ("run", "r.yaml", "--output", "file", "--dry-run"),
}
WELL = {"output-dry", "override-surrogate", "device", "folder", "draw-nothing", "surrogate-show"}


def trials() -> Iterator[Trial]:
    """Every bad record and command line."""
    changes = dict(CHANGES)
    for field in FIELDS:
        changes |= {f"{field}-{number}": _record("train", field, value) for number, value in enumerate(ODD)}
    for number, (name, content) in enumerate(changes.items()):
        files: dict[str, Content] = {"valid.yaml": _recipe, "runs": content}
        words = ("run", "valid.yaml", "--dry-run")
        yield Trial("record", name, words, files, (0, 2, 3, 5), quick=number % 12 == 0)
    tiny = "stages: {world: {kind: make, world: {name: shapes, images: 20, parts: [coco]}}}"
    for number, (name, words) in enumerate(LINES.items()):
        codes = (0, 2, 3, 4, 5) if name in WELL else (2, 3, 4, 5)
        quick = number % 5 == 0 or name == "output-file"
        yield Trial("command", name, words, {"file": "a file", "r.yaml": tiny}, codes, quick=quick)
    for name, env in {
        "set-quotes": {"VLCLI_SET": "'"},
        "set-word": {"VLCLI_SET": "nothing"},
        "set-bounds": {"VLCLI_SET": "jobs=0"},
    }.items():
        yield Trial("command", name, ("validate", "quickstart"), env=env, quick=True)
    for name in ("surrogate", "override-digits", "make-over-file"):
        yield Trial("command", f"alone-{name}", LINES[name], {"file": "a file"}, alone=True, quick=name == "surrogate")
