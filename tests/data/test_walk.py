"""Folders of pictures: links are followed, loops are not."""

from __future__ import annotations

from pathlib import Path

from vlcli.data.files import index_images
from vlcli.files import walk


def test_links_are_followed_and_loops_are_not(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "far.jpg").touch()
    (tmp_path / "here" / "inner").mkdir(parents=True)
    (tmp_path / "here" / "near.png").touch()
    (tmp_path / "here" / "linked").symlink_to(tmp_path / "there")
    (tmp_path / "here" / "inner" / "back").symlink_to(tmp_path / "here")
    (tmp_path / "here" / "inner" / "itself").symlink_to(tmp_path / "here" / "inner")
    assert [place.name for place, _ in walk(tmp_path / "here")] == ["here", "inner", "linked"]
    found = index_images(tmp_path / "here")
    assert {name: len(paths) for name, paths in found.items()} == {"near": 1, "far": 1}
