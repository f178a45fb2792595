"""Files are written whole or not at all, and nowhere else than in ``vlcli.files``."""

from __future__ import annotations

import ast
import errno
import json
import resource
import threading
from pathlib import Path

import pytest

import vlcli
from vlcli.errors import VlcliError
from vlcli.files import facts_of, is_whole, locked, new_folder, write_json, write_text, writing, written

PACKAGE = Path(vlcli.__file__).parent


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_fails_half_way_leaves_the_old_file_alone(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "a.json"
    write_json(file, {"b": "\u00e4"})

    def fail() -> None:
        with written(file) as beside:
            beside.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert json.loads(file.read_text(encoding="utf-8")) == {"b": "\u00e4"}
    assert left(file.parent) == ["a.json"]


def test_a_full_disk_is_one_message_and_other_faults_stay_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(VlcliError, match="The disk is full"), written(tmp_path / "a"):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(PermissionError), written(tmp_path / "a"):
        raise PermissionError(errno.EACCES, "Permission denied")
    assert left(tmp_path) == []


def test_line_ends_stay_as_they_are(tmp_path: Path) -> None:
    assert write_text(tmp_path / "a.csv", "a\r\nb\n").read_bytes() == b"a\r\nb\n"


def test_writers_of_one_file_do_not_meet(tmp_path: Path) -> None:
    file, texts = tmp_path / "a.txt", [str(number) * 50_000 for number in range(8)]
    threads = [threading.Thread(target=lambda text=text: [write_text(file, text) for _ in range(5)]) for text in texts]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert not file.exists() or file.read_text() in texts
    assert file.read_text() in texts
    assert left(tmp_path) == ["a.txt"]


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    for content in ("old", "new"):
        with new_folder(tmp_path / "model") as beside:
            (beside / f"{content}.txt").write_text(content)
    with pytest.raises(ZeroDivisionError), new_folder(tmp_path / "model") as beside:
        raise ZeroDivisionError
    assert left(tmp_path / "model") == ["new.txt"]
    assert left(tmp_path) == ["model"]


@pytest.mark.parametrize("change", [b"abd", b"ab", None])
def test_changed_files_are_told_by_size_and_checksum(tmp_path: Path, change: bytes | None) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"abc")
    facts = facts_of(file)
    assert facts == {"bytes": 3, "crc32": 0x352441C2}
    assert is_whole(file, facts)
    file.unlink() if change is None else file.write_bytes(change)
    assert not is_whole(file, facts)


def test_no_other_module_pushes_files_to_the_disk_by_itself() -> None:
    own = [path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "files.py"]
    calls = {
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in own
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "fsync"
    }
    assert calls == set()


def test_a_limit_on_the_size_of_files_is_not_told_as_a_full_disk(tmp_path):
    with pytest.raises(VlcliError) as caught, writing(tmp_path / "x"):
        raise OSError(errno.EFBIG, "File too large")
    assert "limit on its size" in caught.value.what
    assert "ulimit -f" in caught.value.hint


def test_a_folder_is_locked_on_a_full_disk(tmp_path):
    """A cache that is whole can be read where nothing can be written."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with locked(tmp_path):
            assert (tmp_path / ".lock").is_file()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
