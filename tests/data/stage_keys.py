"""What a plan decides of a finished stage when the files that it read are written anew, or others."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vlcli import registry
from vlcli.recipe import keys, stage_record
from vlcli.recipe import plan as planning
from vlcli.recipe.digests import data_digests
from vlcli.recipe.load import from_mapping
from vlcli.recipe.locate import Resolved
from vlcli.recipe.stage_record import StageRecord


def resolved(root: Path, spec: dict[str, Any]) -> Resolved:
    stage = {"kind": "pretrain", "model": {"name": "lxmert"}, "data": [spec], "objectives": ["mlm"]}
    return from_mapping("kept", {"root": str(root), "text": {"vocabulary": "none"}, "stages": {"read": stage}})


def keys_of(root: Path, spec: dict[str, Any]) -> list[str]:
    """Of its examples."""
    return [example.key for example in registry.build("datasets", spec, root).examples()]


def planned(root: Path, spec: dict[str, Any], runs: Path) -> planning.PlannedStage:
    return planning.make(resolved(root, spec), planning.RunOptions(runs))[1][0]


def record(root: Path, spec: dict[str, Any], runs: Path) -> StageRecord:
    """Of a stage that has read the files of ``root`` as they are."""
    files = keys.data_files(resolved(root, spec).recipe, "read", root)
    return StageRecord("read", "pretrain", "done", planned(root, spec, runs).key, data=data_digests(files))


def check(root: Path, spec: dict[str, Any], runs: Path, change: Callable[[], object] | None = None) -> None:
    """A stage is skipped while its files hold the same bytes, wherever on the disk, and has another key after a change.

    Args:
        change: writes the same data in another form; None: a line end more in the first file.
    """
    before, folder = record(root, spec, runs), planned(root, spec, runs).folder
    folder.mkdir(parents=True)
    stage_record.write(folder, before)
    assert planned(root, spec, runs).action == "skip"
    for file in [file for file in root.rglob("*") if file.is_file()]:
        shutil.copyfile(file, file.with_name(file.name + ".new"))
        file.with_name(file.name + ".new").replace(file)  # another inode, another time
    assert record(root, spec, runs).fingerprint == before.fingerprint
    assert planned(root, spec, runs).action == "skip"
    first = Path(before.data[0]["path"])
    if change is not None:
        change()
    elif first.is_dir():
        (first / "more.txt").write_text("one more")
    else:
        first.write_bytes(first.read_bytes() + b"\n")
    assert record(root, spec, runs).fingerprint != before.fingerprint
    assert planned(root, spec, runs).action == "run"
