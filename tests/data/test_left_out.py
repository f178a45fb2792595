"""Nothing is left out without a count and a line."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vlcli import registry
from vlcli.builders.readers import keep_answered
from vlcli.images.boxes import NO_AREA, BoxList, read_boxes


def instances(root: Path, boxes: list[list[float]], **more: Any) -> Path:
    notes = [{"id": n, "image_id": n // 2, "category_id": 1, "bbox": box} for n, box in enumerate(boxes)]
    images = [{"id": n, "file_name": f"{n}.jpg", "height": 20, "width": 30} for n in range(len(boxes) // 2)]
    file = root / "annotations/instances_train2017.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"images": images, "annotations": notes, "categories": [{"id": 1, "name": "a"}]}))
    return file


def test_a_bad_box_costs_itself_and_not_its_picture(tmp_path: Path) -> None:
    file = instances(tmp_path, [[1, 1, 5, 0], [2, 2, 4, 4], [3, 3, -2, 5], [0, 0, 9, 9], [1, 1, 0, 0], [1, 1, 2, -1]])
    reader = registry.build("datasets", {"name": "coco-instances"}, tmp_path)
    assert {name: found.boxes.tolist() for name, found in reader.boxes().items()} == {
        "0": [[2, 2, 6, 6]],
        "1": [[0, 0, 9, 9]],
    }
    assert reader.left_out == {NO_AREA: 4}
    found = read_boxes(file)
    assert (sorted(found), found.without_area) == (["0", "1"], 4)


def test_boxes_outside_their_picture_have_no_area() -> None:
    boxes = BoxList(np.array([[-9, -9, -1, -1], [-3, 2, 4, 9], [40, 0, 50, 9]], np.float32), classes=np.arange(3))
    kept = boxes.clipped((20, 30)).with_area()
    assert (kept.boxes.tolist(), kept.classes.tolist()) == ([[0, 2, 4, 9]], [1])


@pytest.mark.parametrize(("split", "count"), [("train", 2), (["train", "restval"], 0), ("val", 0)])
def test_restval_is_told_where_train_is_read_alone(split: Any, count: int, tmp_path: Path) -> None:
    rows = [("train", 1), ("restval", 2), ("val", 1)]
    names = [(part, f"{part}{number}.jpg") for part, most in rows for number in range(most)]
    images = [
        {"filename": name, "split": part, "sentences": [{"raw": name, "sentid": n}]}
        for n, (part, name) in enumerate(names)
    ]
    (tmp_path / "dataset_x.json").write_text(json.dumps({"images": images}))
    reader = registry.build("datasets", {"name": "karpathy", "split": split}, tmp_path)
    reader.examples()
    assert sum(reader.left_out.values()) == count
    assert ("restval" in " ".join(reader.notes())) == bool(count)


def test_names_with_further_dots_and_further_pictures_are_counted(tmp_path: Path) -> None:
    names = [
        "v/a 2.0.jpg",
        "v/a 2.0.txt",
        "v/b.1.jpg",
        "v/b.2.jpg",
        "c.jpg",
        "c.txt",
        "d.jpg",
        "d.png",
        "d.txt",
        "e.txt",
    ]
    with tarfile.open(tmp_path / "s.tar", "w") as archive:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = 4
            archive.addfile(info, io.BytesIO(b"text"))
    reader = registry.build("datasets", {"name": "webdataset", "shards": "s.tar"}, tmp_path)
    assert [one.key for one in reader.examples()] == ["a 2.0", "c", "d"]
    assert reader.left_out == {"without a caption": 2, "further pictures of one name": 1, "without a picture": 1}


def test_questions_and_cells_without_an_answer_are_counted(tmp_path: Path) -> None:
    answers = ["yes", None, "no", "perhaps", None]
    rows = [{"text": f"{place}?", "answers": answer} for place, answer in enumerate(answers)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    reader = registry.build("datasets", {"name": "jsonl"}, tmp_path)
    keep_answered(reader, ["yes", "no"])
    assert len(reader.examples()) == 2
    assert sorted(reader.left_out.values()) == [2, 3]
    assert any("empty" in line and "'answers'" in line for line in reader.notes())


def test_a_look_at_the_first_rows_leaves_the_counts_alone(tmp_path: Path) -> None:
    rows = [{"image": "", "text": "a"}] * 101 + [{"image": "a.jpg", "text": "a"}]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    reader = registry.build("datasets", {"name": "jsonl"}, tmp_path)
    assert len(reader.examples()) == 1
    counted = dict(reader.left_out)
    assert (reader.first_examples(1), list(counted.values()), reader.left_out) == ([], [101], counted)
