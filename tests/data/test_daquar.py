"""DAQUAR's two-line files: pictures, sets of answers, the published counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tiny_batches import SMALL, make_batch

from vlcli import registry
from vlcli.data.readers.questions import DAQUAR
from vlcli.errors import DataError

TWO = """what is on the desk in the image3 ?
cup, garbage_bin
how many chairs are there in the image12 ?
2
what is on the left side of the image12 ?
garbage_bin, cup
"""


def write(root: Path, text: str, name: str = "qa.894.raw.train.txt") -> Path:
    (root / name).write_text(text)
    return root


def test_questions_name_their_pictures_and_several_answers_are_a_set(tmp_path: Path) -> None:
    examples = DAQUAR(write(tmp_path, TWO)).examples()
    assert [example.images for example in examples] == [["image3"], ["image12"], ["image12"]]
    texts = ["what is on the desk ?", "how many chairs are there ?", "what is on the left side of the image ?"]
    assert [example.text for example in examples] == texts
    assert examples[0].targets["answers"] == examples[2].targets["answers"] == {"cup, garbage bin": 1.0}
    assert [example.targets["answer_type"] for example in examples] == ["set", "single", "set"]
    whole = DAQUAR(tmp_path, whole=True).examples()
    assert whole[0].text == "what is on the desk in the image3 ?"
    write(tmp_path, TWO, "qa.37.raw.reduced.test.txt")
    assert len(DAQUAR(tmp_path, version="reduced", split="test").examples()) == 3


def test_a_predicted_set_is_right_in_any_order(tmp_path: Path) -> None:
    examples = DAQUAR(write(tmp_path, TWO)).examples()
    targets = {name: [one.targets[name] for one in examples] for name in ("answers", "answer_type")}
    task = registry.build("tasks", "vqa")
    task.attach(replace(SMALL, answers=("2",)))
    batch = replace(make_batch(), targets=targets)
    given = ["garbage_bin, cup", "3", "cup"]
    rows = task.judge([{"prediction": answer} for answer in given], batch)
    assert [row["accuracy"] for row in rows] == [1.0, 0.0, 0.0]
    scores = task.score(rows)
    assert (scores["accuracy"], scores["accuracy/single"]) == pytest.approx((1 / 3, 0.0))


def test_pictures_are_found_whatever_their_ending(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images/image3.png").write_bytes(b"")
    assert DAQUAR(write(tmp_path, TWO)).image_files()["image3"] == tmp_path / "images/image3.png"


@pytest.mark.parametrize(
    ("text", "what", "line"),
    [
        ("what is in the image1 ?\n", "no answer", 2),
        ("what is in the image1 ?\nlamp\nwhat is this ?\nlamp\n", "names no picture", 3),
        ("what is in the image1 ?\nwhat is in the image2 ?\nlamp\n", "no answer", 2),
        ("what is in the image1 ?\nlamp\n\nwhat is in the image2 ?\nlamp\n", "names no picture", 3),
    ],
)
def test_a_lost_line_is_named(tmp_path: Path, text: str, what: str, line: int) -> None:
    with pytest.raises(DataError, match=what) as caught:
        DAQUAR(write(tmp_path, text)).examples()
    assert caught.value.where.endswith(f"qa.894.raw.train.txt:{line}")


@pytest.mark.parametrize(
    ("version", "split", "count", "single", "pictures"),
    [
        ("full", "train", 6795, 6149, 794),
        ("full", "test", 5673, 5076, 653),
        ("reduced", "train", 3876, 3825, 781),
        ("reduced", "test", 297, 290, 25),
    ],
)
def test_the_official_files_have_the_published_counts(
    shared: Path, version: str, split: str, count: int, single: int, pictures: int
) -> None:
    root = shared / "data/real/daquar"
    if not root.is_dir():
        pytest.skip("the official files are not here")
    reader = registry.build("datasets", {"name": "daquar", "version": version, "split": split}, root)
    examples = reader.examples()
    kinds = [example.targets["answer_type"] for example in examples]
    assert (len(examples), kinds.count("single"), len(reader.image_files())) == (count, single, pictures)
    assert len({example.key for example in examples}) == count


def test_pictures_that_the_published_list_lacks_are_counted(tmp_path: Path) -> None:
    root = write(tmp_path, TWO)
    (root / "train.txt").write_text("image12\nimage7\n")
    with pytest.raises(DataError, match="1 of 2 pictures are not in the published list") as caught:
        DAQUAR(root).examples()
    assert (caught.value.got, caught.value.expected) == ("image3", f"pictures of {root / 'train.txt'}")
    (root / "train.txt").write_text("image12\nimage3\n")
    assert len(DAQUAR(root).examples()) == 3
    (root / "train.txt").write_text("not a list of pictures\n")
    assert len(DAQUAR(root).examples()) == 3


def test_a_picture_that_two_files_have_is_told(tmp_path: Path) -> None:
    for name in ("image3.png", "more/image3.jpg", "image12.png"):
        (tmp_path / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "images" / name).write_bytes(b"")
    with pytest.raises(DataError, match="Several files fit the picture name image3") as caught:
        DAQUAR(write(tmp_path, TWO)).image_files()
    assert "more/image3.jpg" in caught.value.got
