"""LXMERT's pre-training data: the authors' layout, the official files, images that are held out, its objective."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from vlcli_lxmert.aggregate import composition
from vlcli_lxmert.pretraining import table_one, write_answers, write_pretraining

from tests.plugins.lxmert.official import MINI, read, vqa, write
from vlcli.builders.context import StageContext
from vlcli.builders.readers import refuse_held_out
from vlcli.data.answers import read_answers
from vlcli.data.leakage import Identity, held_out, listed_images
from vlcli.errors import DataError, RecipeError
from vlcli.progress import Silent
from vlcli.recipe.schema import Recipe

TRAIN, VAL = "COCO_train2014_000000000001", "COCO_val2014_000000000042"


def test_official_files_are_grouped_by_image_under_cocos_names(official: Path) -> None:
    made = write_pretraining(official, official / "out", Silent())
    names = [Path(file).name for file in made["files"]]
    assert names == [
        "mscoco_train.json",
        "mscoco_nominival.json",
        "mscoco_minival.json",
        "vgnococo.json",
        "minival.txt",
    ]
    (val,) = json.loads((official / "out/mscoco_nominival.json").read_text())
    assert val == {
        "img_id": VAL,
        "sentf": {
            "mscoco": ["caption 0 of 42", "caption 1 of 42"],
            "vqa": ["What of 42?"],
            "vg": ["region of 7"],
            "gqa": ["Is it?"],
        },
        "labelf": {"vqa": [{"yes": 1.0}], "gqa": [{"pipe": 1.0}]},
    }
    (train,) = json.loads((official / "out/mscoco_train.json").read_text())
    assert train["labelf"] == {"vqa": [{"Net": 1.0, "web": 0.9}]}
    (alone,) = json.loads((official / "out/vgnococo.json").read_text())
    assert alone["img_id"] == "9"
    assert alone["labelf"]["visual7w"] == [{"In the park.": 1.0}]
    assert (official / "out/minival.txt").read_text() == f"{MINI}\n"


def test_table_one(official: Path) -> None:
    rows = {(row["split"], row["part"]): row for row in table_one(official, Silent())}
    assert rows["all", "COCO - VG"] | {"split": "", "part": ""} == {
        "split": "", "part": "", "images": 1, "mscoco": 2, "vg": 0, "vqa": 1, "gqa": 0, "visual7w": 0, "all": 3,
    }  # fmt: skip
    assert rows["all", "COCO and VG"]["images"] == 2
    assert rows["vgnococo", "VG - COCO"]["all"] == rows["all", "VG - COCO"]["all"] == 3
    assert rows["all", "all"]["all"] == sum(
        rows["all", "all"][name] for name in ("mscoco", "vg", "vqa", "gqa", "visual7w")
    )
    write_pretraining(official, official / "lxmert", Silent())
    assert {(row["split"], row["part"]): row for row in table_one(official, Silent())} == rows


def test_both_readers_give_the_same_examples(official: Path) -> None:
    write_pretraining(official, official / "lxmert", Silent())
    one, other = read("lxmert-pretrain", official), read("lxmert-sources", official)
    assert one.examples() == other.examples()
    assert Counter(example.targets["set"] for example in one.examples()) == {
        "mscoco": 4, "vg": 2, "vqa": 2, "gqa": 2, "visual7w": 1,
    }  # fmt: skip
    first = next(example for example in one.examples() if example.key == f"{TRAIN}_vqa_000")
    assert (first.text, first.images, first.targets["answers"]) == ("What of 1?", [TRAIN], {"Net": 1.0, "web": 0.9})
    assert "answers" not in one.examples()[0].targets
    held = read("lxmert-pretrain", official, split="mscoco_minival").examples()
    assert {example.images[0] for example in held} == {MINI}
    assert composition(read("lxmert-sources", official, split="vgnococo").data())[-1]["images"] == 1


def test_sets_and_known_answers_choose_sentences(official: Path) -> None:
    assert {e.targets["set"] for e in read("lxmert-sources", official, sets=["gqa"]).examples()} == {"gqa"}
    write(official / "table.json", ["web", "park"])
    (known,) = read("lxmert-sources", official, known="table.json").examples()
    assert (known.text, known.targets) == ("What of 1?", {"set": "vqa", "answers": {"web": 0.9}})
    changed = {"vqa": None, "mscoco": {"split": "train"}}
    assert {e.targets["set"] for e in read("lxmert-sources", official, sources=changed).examples()} == {
        "mscoco", "gqa", "vg", "visual7w",
    }  # fmt: skip


def test_all_of_cocos_validation_is_held_out_without_a_list(official: Path) -> None:
    (official / "lxmert/minival.txt").unlink()
    assert {e.images[0] for e in read("lxmert-sources", official).examples()} == {TRAIN, "9"}
    held = read("lxmert-sources", official, split="mscoco_minival")
    assert {e.images[0] for e in held.examples()} == {VAL, MINI}


def test_minival_is_the_first_of_the_authors_features(tmp_path: Path) -> None:
    lines = "".join(f"COCO_val2014_{number:012d}\t3\t4\r\n" for number in range(7))
    file = write(tmp_path / "val2014_obj36.tsv", lines)
    assert list(listed_images(file, 2)) == ["COCO_val2014_000000000000", "COCO_val2014_000000000001"]
    assert len(list(listed_images(file, 5000))) == 7


def pretraining(root: Path, split: str, *images: str) -> None:
    rows = [{"img_id": name, "sentf": {"vqa": ["What?"]}, "labelf": {"vqa": [{"net": 1}]}} for name in images]
    write(root / f"lxmert/{split}.json", rows)


@pytest.mark.parametrize(("file", "content", "image"), [
    ("vqa/minival.json", [{"img_id": MINI}], MINI),
    ("lxmert/mscoco_minival.json", [{"img_id": MINI}], MINI),
    ("vqa/test.json", [{"img_id": "COCO_test2015_000000000043"}], MINI),
    ("vqa/v2_OpenEnded_mscoco_test2015_questions.json", {"questions": [{"image_id": 43, "question_id": 1}]}, MINI),
    ("gqa/testdev_balanced_questions.json", {"1": {"imageId": "n43"}}, "n43"),
    ("annotations/image_info_test2015.json", {"images": [{"file_name": f"{MINI}.jpg"}]}, MINI),
])  # fmt: skip
def test_held_out_images_are_refused_by_name(tmp_path: Path, file: str, content: Any, image: str) -> None:
    pretraining(tmp_path, "mscoco_train", TRAIN)
    reader = read("lxmert-pretrain", tmp_path, split="mscoco_train")
    assert len(reader.examples()) == 1
    pretraining(tmp_path, "mscoco_train", TRAIN, image)
    write(tmp_path / file, content)
    with pytest.raises(DataError, match="test or minival split") as caught:
        read("lxmert-pretrain", tmp_path, split="mscoco_train").examples()
    assert f"1 image: {image} ({tmp_path / file})" in caught.value.got
    assert "mscoco_train.json" in caught.value.where
    assert len(read("lxmert-pretrain", tmp_path, split="mscoco_train", held_out=[]).examples()) == 2


def test_a_test_split_is_not_aggregated(official: Path) -> None:
    vqa(official, "test", {44: ["yes"] * 10})
    changes = {"vqa": {"split": ["train", "test"]}}
    with pytest.raises(DataError, match="made of a test split") as caught:
        write_pretraining(official, official / "out", Silent(), changes)
    assert "test2014_questions.json" in caught.value.where
    with pytest.raises(DataError, match="made of a test split"):
        read("lxmert-sources", official, sources=changes).examples()
    assert not (official / "out").exists()


def test_a_fixed_file_is_of_one_split(official: Path) -> None:
    rows = table_one(official, Silent(), {"mscoco": {"file": "annotations/captions_train2014.json"}})
    assert rows[-1]["mscoco"] == 2


def test_a_held_out_image_is_known_by_its_other_name(official: Path) -> None:
    pretraining(official, "vgnococo", "9", "8")  # 8 is COCO's 43
    with pytest.raises(DataError, match="minival") as caught:
        read("lxmert-pretrain", official, split="vgnococo").examples()
    assert caught.value.got.startswith("1 image: 8 (")
    assert Identity.under(official).key("8") == Identity().key("000000000043") == "coco:43"
    assert set(held_out(official)) == {MINI}


def test_test_images_and_minival_itself_are_never_trained_on(tmp_path: Path) -> None:
    pretraining(tmp_path, "mscoco_train", "COCO_test2015_000000000009")
    with pytest.raises(DataError, match="test or minival"):
        read("lxmert-pretrain", tmp_path, split="mscoco_train").examples()
    pretraining(tmp_path, "mscoco_train", TRAIN)
    pretraining(tmp_path, "mscoco_minival", TRAIN)
    assert read("lxmert-pretrain", tmp_path, split="mscoco_minival").examples()
    with pytest.raises(DataError, match="test or minival"):
        read("lxmert-pretrain", tmp_path, split=["mscoco_train", "mscoco_minival"]).examples()


def test_pretraining_on_a_validation_split_is_refused(tmp_path: Path) -> None:
    data = [{"name": "lxmert-pretrain", "split": "mscoco_minival"}, {"name": "vqa", "split": ["train", "minival"]}]
    recipe = Recipe(name="r", stages={"pretrain": {"kind": "pretrain", "data": data}})
    context = StageContext(recipe, "pretrain", None, tmp_path, {}, tmp_path)
    with pytest.raises(RecipeError) as caught:
        refuse_held_out(context, data)
    keys = [problem.key for problem in caught.value.problems]
    assert keys == ["stages.pretrain.data[0].split", "stages.pretrain.data[1].split"]
    refuse_held_out(context, [{"name": "lxmert-pretrain"}, {"name": "vqa", "split": "nominival"}])


def test_vqa_divides_val_by_the_list(official: Path) -> None:
    found = {
        split: [e.images for e in read("vqa", official, split=split).examples()] for split in ("nominival", "minival")
    }
    assert found == {"nominival": [[VAL]], "minival": [[MINI]]}
    both = read("vqa", official, split=["train", "nominival"])
    assert [e.images[0] for e in both.examples()] == [TRAIN, VAL]
    assert official / "lxmert/minival.txt" in both.files()
    joined = {"img_id": MINI, "label": {"no": 1}, "question_id": 5, "sent": "Is it?"}
    write(official / "vqa/minival.json", [joined])
    assert read("vqa", official, split="minival").examples()[0].key == "5"
    assert read("vqa", official, split="nominival").examples()[0].images == [VAL]
    (official / "vqa/minival.json").unlink()
    (official / "lxmert/minival.txt").unlink()
    with pytest.raises(DataError, match="missing"):
        read("vqa", official, split="minival").examples()


@pytest.mark.parametrize(("row", "what"), [
    ({"img_id": "1"}, "'sentf' is missing"),
    ({"img_id": "1", "sentf": {"vqa": ["a"]}, "labelf": {"vqa": []}}, "differ in number"),
    ({"img_id": "1", "sentf": {"vqa": [3]}}, "malformed"),
    ({"img_id": "1", "sentf": {"vqa": ["a"]}, "labelf": [{}]}, "'labelf' has a wrong type"),
])  # fmt: skip
def test_malformed_pretraining_data_are_named(tmp_path: Path, row: dict, what: str) -> None:
    write(tmp_path / "lxmert/mscoco_train.json", [row])
    with pytest.raises(DataError, match=what) as caught:
        read("lxmert-pretrain", tmp_path, split="mscoco_train").examples()
    assert "mscoco_train.json[0]" in caught.value.where


def test_nothing_to_aggregate_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no annotation files to aggregate"):
        table_one(tmp_path, Silent())
    with pytest.raises(DataError, match="no such source"):
        table_one(tmp_path, Silent(), {"flickr": None})


def test_an_answer_table_is_built_of_the_official_files(official: Path) -> None:
    vqa(
        official, "train", {number: ["The Net"] * 10 for number in range(1, 10)}
    )  # nine questions: enough for VQA's own table
    made = write_answers(official, official / "made.json", Silent())
    table = read_answers(official / "made.json")
    assert table.strings == ("in the park", "net", "pipe")
    assert table.sets == (("visual7w",), ("vqa",), ("gqa",))
    assert made["questions"] == {"vqa": 9 / 11, "gqa": 1.0, "visual7w": 1.0}
