"""Files that a reader finds by looking into folders belong to what a stage has read."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from tests.data import stage_keys


def picture(path: Path, shade: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), (shade, 0, 0)).save(path)


def classes(root: Path) -> None:
    for place, name in enumerate(("cat/a", "cat/b", "dog/c")):
        picture(root / f"train/{name}.png", 40 * place)


def shards(root: Path) -> None:
    classes(root)
    for file in sorted(root.rglob("*.png")):
        file.with_suffix(".txt").write_text(f"said of {file.stem}")


def scenes(root: Path) -> None:
    for kind in ("images", "annotations"):
        picture(root / kind / "training/s1.png")


def boxes(root: Path) -> None:
    picture(root / "images/train/a.png")
    (root / "labels/train").mkdir(parents=True)
    (root / "labels/train/a.txt").write_text("0 .5 .5 .2 .2")
    (root / "classes.txt").write_text("cat")


FOLDER, SHARDS = {"name": "folder", "images": "train", "label": True}, {"name": "webdataset", "shards": "train"}
LAYOUTS = {
    "imagenet": ({"name": "imagenet"}, classes, lambda root: picture(root / "train/dog/d.png", 9)),
    "a new class": ({"name": "imagenet"}, classes, lambda root: picture(root / "train/fox/d.png", 9)),
    "one less": ({"name": "imagenet"}, classes, lambda root: (root / "train/cat/a.png").unlink()),
    "folder": (FOLDER, classes, lambda root: picture(root / "train/x/d.png")),
    "pictures": ({"name": "folder", "images": "."}, classes, lambda root: picture(root / "train/dog/d.png", 9)),
    "webdataset": (SHARDS, shards, lambda root: picture(root / "train/dog/d.png", 9)),
    "its text": (SHARDS, shards, lambda root: (root / "train/cat/a.txt").write_text("said of b")),  # as long as before
    "ade20k": ({"name": "ade20k"}, scenes, lambda root: picture(root / "images/training/s2.png")),
    "its labels": ({"name": "ade20k"}, scenes, lambda root: picture(root / "annotations/training/s2.png")),
    "yolo": ({"name": "yolo"}, boxes, lambda root: picture(root / "images/train/b.png")),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_file_more_or_less_in_a_folder_is_a_change(layout: str, tmp_path: Path) -> None:
    spec, lay, change = LAYOUTS[layout]
    root = tmp_path / "data"
    lay(root)
    stage_keys.check(root, spec, tmp_path / "runs", lambda: change(root))


def test_a_run_inside_the_data_is_no_part_of_them(tmp_path: Path) -> None:
    classes(tmp_path)
    spec, runs = {"name": "folder", "images": "."}, tmp_path / "runs"
    before = stage_keys.record(tmp_path, spec, runs).fingerprint
    picture(runs / "r/test/drawn/p.png")
    (runs / "r/test/stage.json").write_text("{}")
    (runs / "r/recipe.yaml").write_text("stages: {}")
    picture(runs / "r/page.png")
    assert stage_keys.record(tmp_path, spec, runs).fingerprint == before
    assert stage_keys.keys_of(tmp_path, spec) == ["a", "b", "c"]
