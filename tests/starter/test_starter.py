"""From a folder to a recipe: what is seen in pictures and tables, what is chosen, and what is refused."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file
from typer.testing import CliRunner

from tests.fixtures.rooms import write_rooms
from tests.fixtures.scenes import write_scenes
from vlcli.cli import app
from vlcli.data.recognition.tables import encoding_of
from vlcli.errors import DataError
from vlcli.recipe.load import load
from vlcli.starter.look import look, plan_for
from vlcli.starter.machine import Machine, seconds_a_picture
from vlcli.starter.recipe import recipe_text
from vlcli.starter.times import times_of

HERE = Machine(2, "")


def photographs(folder, names, size=(40, 30)):
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, (number * 7 % 255, 90, 30)).save(path)
    return folder


def table(file, rows, encoding="utf-8", delimiter=","):
    with file.open("w", newline="", encoding=encoding) as stream:
        csv.writer(stream, delimiter=delimiter).writerows(rows)


def said(folder, goal=None, machine=HERE):
    plan = plan_for(look(folder), goal, machine)
    return plan, recipe_text(plan, str(folder), "recipe.yaml")


def resolved(tmp_path, text):
    file = tmp_path / "recipe.yaml"
    file.write_text(text)
    return load(str(file))


NAMES = [f"images/p{number:03}.jpg" for number in range(40)]


@pytest.fixture(scope="module")
def rooms(tmp_path_factory):
    return write_rooms(tmp_path_factory.mktemp("rooms") / "rooms", 30)


def test_questions_named_without_an_ending_become_a_recipe_with_a_control(rooms, tmp_path):
    plan, text = said(rooms)
    assert plan.goal == "vqa"
    assert plan.source.entry == {
        "name": "csv",
        "file": "questions.csv",
        "image": "image_id",
        "text": "question",
        "answers": "answer",
    }
    assert plan.one_answer
    assert all(any(word in note for note in plan.notes) for word in ("underscores", "commas"))
    recipe = resolved(tmp_path, text).recipe
    beside = ["frequent", "question", "words", "words-by-image"]
    assert list(recipe.stages) == ["answer", "test", "answer-blind", "test-blind", *beside]
    assert recipe.stages["answer-blind"].task["only"] == "text"
    assert recipe.stages["answer"].data == [{**plan.source.entry, "take": "first:0.7"}]
    assert list(recipe.table.rows.values()) == ["test", "test-blind", *beside]


def test_a_busy_machine_expects_the_same_time():
    """Work is measured in processor time; another program takes turns, and does not make it slower."""
    alone = seconds_a_picture.__wrapped__("tiny-conv", 1)
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        busy = seconds_a_picture.__wrapped__("tiny-conv", 1)
    finally:
        other.kill()
        other.wait()
    assert busy < alone * 3


def test_words_of_questions_stay_whole(rooms, tmp_path):
    plan, _ = said(rooms)
    words = {word for example in plan_examples(plan, rooms) for word in example.text.split()}
    assert len(words) + 100 <= plan.vocabulary
    assert plan.epochs == 100


def test_parts_share_no_picture_and_lose_nothing(rooms):
    plan, _ = said(rooms)
    assert sum(part.pictures for part in plan.parts.values()) == 30
    assert sum(part.examples for part in plan.parts.values()) == 90


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_tables_of_any_encoding_and_separator(tmp_path, encoding, delimiter):
    photographs(tmp_path, NAMES)
    table(
        tmp_path / "all.csv",
        [["file", "caption"], *([n[7:], f"un café numéro {n}"] for n in NAMES)],
        encoding,
        delimiter,
    )
    plan, text = said(tmp_path)
    assert plan.goal == "retrieval"
    assert plan.source.entry.get("encoding", "utf-8") == encoding.removesuffix("-sig")
    assert ("not UTF-8" in text) is (encoding in ("utf-16", "latin-1"))
    assert "café" in plan_examples(plan, tmp_path)[0].text


def plan_examples(plan, root):
    from vlcli.starter.plan import read

    return read(plan.source, root)[1]


def test_windows_quotes_are_no_latin_1(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"image,text\na,\x93hello\x94\n")
    assert encoding_of(tmp_path / "a.csv") == "cp1252"


def test_a_column_of_parts_decides(tmp_path):
    photographs(tmp_path, NAMES)
    parts = ["train"] * 30 + ["test"] * 10
    rows = [
        [n[7:], "is it warm?", "yes" if i % 3 else "no", p] for i, (n, p) in enumerate(zip(NAMES, parts, strict=True))
    ]
    table(tmp_path / "all.csv", [["img", "question", "ans", "split"], *rows])
    plan, text = said(tmp_path)
    assert plan.parts["test"].options == {"only": {"split": "test"}}
    assert plan.parts["test"].pictures == 10
    assert plan.parts["train"].options == {"only": {"split": "train"}, "take": "first:0.9"}
    assert "the column split names the parts" in text
    assert resolved(tmp_path, text)


def test_a_file_for_each_part(tmp_path):
    photographs(tmp_path, NAMES)
    for part, names in (("train", NAMES[:24]), ("val", NAMES[24:32]), ("test", NAMES[32:])):
        words = ["cold", "warm"] * len(names)
        lines = [
            json.dumps({"image": n[7:], "text": f"a thing {n}", "label": w}) for n, w in zip(names, words, strict=False)
        ]
        (tmp_path / f"{part}.jsonl").write_text("\n".join(lines))
    plan, text = said(tmp_path)
    assert plan.goal == "classification"
    assert {part: found.options for part, found in plan.parts.items()} == {
        "train": {"split": "train"},
        "validation": {"split": "val"},
        "test": {"split": "test"},
    }
    recipe = resolved(tmp_path, text).recipe
    assert recipe.datasets["all"][0]["split"] == ["test", "train", "val"]
    assert recipe.stages["test"].data[0] | {} == {**plan.source.entry, "split": "test"}


def test_pairs_named_by_a_template(tmp_path):
    photographs(tmp_path, [f"images/dev-{i}-{side}.png" for i in range(30) for side in (0, 1)])
    verdicts = ["True" if i % 2 else "False" for i in range(30)]
    rows = [
        {"identifier": f"dev-{i}", "sentence": "both images show a dog", "label": v} for i, v in enumerate(verdicts)
    ]
    (tmp_path / "all.json").write_text(json.dumps(rows))
    plan, text = said(tmp_path)
    assert plan.goal == "pairs"
    assert plan.source.entry["image"] == ["{identifier}-0.png", "{identifier}-1.png"]
    assert plan.source.entry["labels"] == ["False", "True"]
    example = plan_examples(plan, tmp_path)[3]
    assert example.images == ["dev-3-0", "dev-3-1"]
    assert resolved(tmp_path, text).recipe.stages["judge"].task["images"] == 2


def test_numbers_with_zeros_before_them(tmp_path):
    photographs(tmp_path, [f"COCO_train2014_{i:012}.jpg" for i in range(5, 35)])
    table(tmp_path / "all.csv", [["image_id", "caption"], *([i, f"a photograph of {i} things"] for i in range(5, 35))])
    plan, _ = said(tmp_path)
    assert plan.source.entry["image"] == "COCO_train2014_{image_id:012}.jpg"
    assert plan.source.entry["images"] == "."
    assert plan_examples(plan, tmp_path)[0].images == ["COCO_train2014_000000000005"]


def test_weights_and_boxes_of_the_folder_are_used(tmp_path):
    photographs(tmp_path, NAMES)
    blocks = {f"layer3.{i}.conv{c}.weight": np.zeros(1, np.float32) for i in range(6) for c in (1, 2, 3)}
    save_file(blocks, tmp_path / "caffe_r50.safetensors")
    (tmp_path / "boxes.json").write_text(json.dumps([{"file_name": n[7:], "boxes": [[0, 0, 9, 9]]} for n in NAMES]))
    table(tmp_path / "all.csv", [["image", "question", "answer"], *([n[7:], "what is it?", "a dog"] for n in NAMES)])
    plan, text = said(tmp_path)
    regions = resolved(tmp_path, text).recipe.stages["regions"]
    assert regions.boxes == ["boxes.json"]
    assert (regions.extractor["arch"], regions.extractor["layout"]) == ("resnet50", "caffe")
    assert plan.features == "weights"


def test_larger_data_and_a_gpu_give_larger_models():
    from vlcli.starter.plan import size_for

    gpu = Machine(16, "a GPU")
    widths = [size_for(count, gpu, False).hidden for count in (1000, 20_000, 200_000, 2_000_000)]
    assert widths == [96, 192, 384, 768]
    assert size_for(2_000_000, HERE, False).hidden == 192
    assert "a GPU would allow 768" in size_for(2_000_000, HERE, False).why


def test_folders_of_classes(tmp_path):
    photographs(tmp_path, [f"{kind}/{kind}{i}.jpg" for kind in ("cat", "dog") for i in range(15)])
    plan, text = said(tmp_path)
    assert plan.goal == "image-classification"
    assert plan.source.entry == {"name": "folder", "images": ".", "label": True}
    assert resolved(tmp_path, text)


def init(*words, cwd):
    before = Path.cwd()
    os.chdir(cwd)
    try:
        return CliRunner().invoke(app, ["init", *map(str, words)])
    finally:
        os.chdir(before)


def test_the_command_writes_once_and_says_what_comes_next(rooms, tmp_path):
    ended = init(rooms, cwd=tmp_path)
    assert ended.exit_code == 0, ended.stderr
    assert "vlcli run recipe.yaml" in ended.stdout
    assert "<- chosen" in ended.stdout
    before = (tmp_path / "recipe.yaml").read_text()
    again = init(rooms, cwd=tmp_path)
    assert again.exit_code == 2
    assert "--force" in again.stderr
    assert (tmp_path / "recipe.yaml").read_text() == before
    document = json.loads(init(rooms, "--force", "--json", cwd=tmp_path).stdout)
    assert document["chosen"] == "vqa"
    assert document["parts"]["train"]["pictures"] > 0


def _empty(folder):
    folder.mkdir()


def _no_table(folder):
    photographs(folder, NAMES)


def _no_such_column(folder):
    photographs(folder, NAMES)
    table(folder / "all.csv", [["name", "caption"], *([f"x{i}.jpg", "a dog on a chair"] for i in range(20))])


def test_pictures_of_the_same_names_in_another_folder_are_told(tmp_path):
    photographs(tmp_path, [*NAMES, *(n.replace("images", "thumbs") for n in NAMES)])
    table(tmp_path / "all.csv", [["image", "caption"], *([n[7:], "a dog on a chair"] for n in NAMES)])
    plan, _ = said(tmp_path)
    assert any("pictures of the same names are in thumbs: those in images are read" in note for note in plan.notes)
    assert {path.parent.name for row in plan.rows for path in row.files} == {"images"}


def _two_of_one_name(folder):
    photographs(folder, [*NAMES, "other/p003.jpg"])
    table(folder / "all.csv", [["image", "caption"], *([n[7:-4], "a dog on a chair"] for n in NAMES)])


def _unreadable(folder):
    (folder / "images").mkdir(parents=True)
    for name in NAMES:
        (folder / name).write_bytes(b"no picture")


def _few(folder):
    photographs(folder, NAMES[:4])
    table(folder / "all.csv", [["image", "caption"], *([n[7:], "a dog on a chair"] for n in NAMES[:4])])


BAD = [
    (_empty, "holds no pictures", 5),
    (_no_table, "Nothing in this folder says", 5),
    (_no_such_column, "the column name names pictures such as 'x0.jpg', and fewer than half of them are in the", 5),
    (_two_of_one_name, "Several files fit the picture name p003", 5),
    (_unreadable, "No picture of the folder can be read", 5),
    (_few, "too few pictures", 5),
]


@pytest.mark.parametrize(("make", "says", "code"), BAD)
def test_folders_that_cannot_be_learnt_from(tmp_path, make, says, code):
    make(tmp_path / "folder")
    ended = init("folder", cwd=tmp_path)
    assert ended.exit_code == code
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "recipe.yaml").exists()


def test_no_folder_and_a_task_that_does_not_fit(rooms, tmp_path):
    assert init("nowhere", cwd=tmp_path).exit_code == 5
    assert init(rooms, "--task", "poetry", cwd=tmp_path).exit_code == 2
    assert "do not fit" in init(rooms, "--task", "detection", cwd=tmp_path).stderr


def test_unreadable_and_missing_pictures_are_told_and_left_out(rooms, tmp_path):
    folder = shutil.copytree(rooms, tmp_path / "rooms")
    (folder / "images/image3.png").write_bytes(b"cut")
    (folder / "images/image4.png").unlink()
    ended = init("rooms", cwd=tmp_path)
    assert ended.exit_code == 0, ended.stderr
    assert "cannot be read: images/image3.png" in ended.stdout
    assert "are not there, such as image4" in ended.stdout
    assert load(str(tmp_path / "recipe.yaml")).stages["answer"].missing == "drop"


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    return write_scenes(tmp_path_factory.mktemp("scenes") / "scenes", 200)


def test_expressions_with_a_box_become_a_recipe_of_referring_expressions(scenes, tmp_path):
    plan, text = said(scenes)
    assert plan.goal == "referring"
    assert plan.source.entry == {"name": "csv", "file": "expressions.csv", "box": "box"}
    assert plan.candidates == 3  # the labelled boxes, more than those that are spoken of
    recipe = resolved(tmp_path, text).recipe
    assert list(recipe.stages) == ["eyes", "regions", "refer", "test"]
    assert recipe.stages["regions"].boxes == ["instances.json"]
    assert recipe.stages["eyes"].data == [{"name": "coco-instances", "file": "instances.json", "take": "first:0.7"}]
    assert "3.0" in text


def test_expressions_without_anything_to_see_or_to_choose_say_what_is_missing(tmp_path):
    photographs(tmp_path, NAMES)
    table(tmp_path / "all.csv", [["image", "text", "box"], *([n[7:], "the dog", "[1, 2, 20, 20]"] for n in NAMES)])
    with pytest.raises(DataError, match="the folder has no weights") as met:
        said(tmp_path)
    assert "labelled boxes" in met.value.expected
    save_file({"conv1.weight": np.zeros((64, 3, 7, 7), np.float32)}, tmp_path / "resnet18.safetensors")
    found = look(tmp_path)
    notes = [] if found.weights is None else plan_for(found, None, HERE).notes
    assert found.weights is None or any("one box only" in note for note in notes)


@pytest.mark.parametrize(("goal", "measured"), [("referring", 109), ("captioning", 133)])
def test_the_expected_time_is_within_a_factor_of_three_of_a_run(scenes, tmp_path, goal, measured):
    """Processor seconds of whole runs on one core of the rate below; most of them train the network that sees."""
    plan = plan_for(look(scenes), goal, Machine(1, ""))
    expected = times_of(plan, resolved(tmp_path, recipe_text(plan, str(scenes), "recipe.yaml")).recipe).total
    assert measured / 3 < expected < 3 * measured


def test_pictures_without_a_row_and_few_test_pictures_are_told(tmp_path):
    photographs(tmp_path, NAMES)
    table(tmp_path / "all.csv", [["image", "caption"], *([n[7:], "a dog on a chair"] for n in NAMES[:30])])
    notes = said(tmp_path)[0].notes
    assert any("10 pictures of the folder are in none of these rows" in note for note in notes)
    assert any("test pictures are few" in note for note in notes)


def test_the_sheet_shows_twelve_examples_and_escapes_their_text(tmp_path):
    photographs(tmp_path / "data", NAMES)
    rows = [[n[7:], f"<script>a</script> thing number {n}", "warm" if i % 2 else "cold"] for i, n in enumerate(NAMES)]
    table(tmp_path / "data/all.csv", [["image", "sentence", "label"], *rows])
    ended = init("data", "--sheet", "sheet.html", cwd=tmp_path)
    assert ended.exit_code == 0, ended.stderr
    assert "images/p000.jpg: <script>a</script> thing number images/p000.jpg | cold" in ended.stdout
    page = (tmp_path / "sheet.html").read_text()
    assert page.count("<article") == page.count("data:image/jpeg") == 12
    assert ("&lt;script&gt;a&lt;/script&gt; thing" in page, "<script>a" in page) == (True, False)
    (tmp_path / "mine.html").write_text("mine")
    assert init("data", "-o", "second.yaml", "--sheet", "mine.html", cwd=tmp_path).exit_code == 2
    assert not (tmp_path / "second.yaml").exists()


def test_columns_that_the_user_names_decide_and_unknown_ones_are_told_with_near_ones(tmp_path):
    photographs(tmp_path / "data", NAMES)
    rows = [[n[7:], f"a thing of number {n}", "warm" if i % 2 else "cold", "red"[i % 3]] for i, n in enumerate(NAMES)]
    table(tmp_path / "data/all.csv", [["image", "sentence", "state", "letter"], *rows])
    ended = init("data", "--text", "sentense", "--label", "stat", cwd=tmp_path)
    assert ended.exit_code == 2
    assert "did you mean 'sentence' and 'state'?" in ended.stderr
    assert not (tmp_path / "recipe.yaml").exists()
    document = json.loads(init("data", "--label", "state", "--json", cwd=tmp_path).stdout)
    assert (document["chosen"], document["data"][0]["columns"]["label"]) == ("image-classification", "state")
    both = ("--label", "letter", "--text", "sentence", "--json", "--force")
    document = json.loads(init("data", *both, cwd=tmp_path).stdout)
    assert (document["chosen"], document["rows"][0]["target"]) == ("classification", "r")
