"""Readers: the real files parse to their known counts, own data need no class, and faults are named."""

from __future__ import annotations

import gzip
import json
import pkgutil
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import vlcli.data.readers
from vlcli import registry
from vlcli.data import Example, Reader
from vlcli.data.readers.captions import Captions, Karpathy
from vlcli.data.readers.coco import CocoCaptions, CocoInstances
from vlcli.data.readers.generic import Csv, JsonLines
from vlcli.data.readers.picture_folder import ImageFolder
from vlcli.data.readers.statements import NLVR2
from vlcli.data.readers.vqa import VQA, soft_scores
from vlcli.data.shapes import ShapesConfig, make_shapes
from vlcli.errors import DataError
from vlcli.progress import Silent


def write(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def lines(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_real_nlvr2(shared: Path) -> None:
    examples = NLVR2(shared / "data/annotations", split="dev", file="nlvr2/dev.json").examples()
    assert Counter(example.targets["label"] for example in examples) == {1: 3551, 0: 3431}
    fields = [example.key.split("-") for example in examples]
    assert len({(split, number, sentence) for split, number, _, sentence in fields}) == 2018
    assert examples[0].images == ["dev-850-0-img0", "dev-850-0-img1"]


def test_real_vqa(shared: Path) -> None:
    places = {
        "questions": "vqa/nlp1_subset/v2_questions_{split}.json.gz",
        "annotations": "vqa/nlp1_subset/v2_annotations_{split}.json.gz",
    }
    examples = VQA(shared / "data/annotations", split=["train", "valid", "test"], **places).examples()
    assert len(examples) == 60_000
    rule = [0, 0.3, 0.6, 0.9, 1]
    for example in examples[::97]:
        counts = Counter(example.targets["raw_answers"])
        assert example.targets["answers"] == {word: rule[min(count, 4)] for word, count in counts.items()}
        assert sum(counts.values()) == 10


def test_real_captions(shared: Path) -> None:
    coco = CocoCaptions(shared / "data", file="annotations/coco_subset/captions.json", images="images/coco")
    assert len(coco.examples()) == 1805
    assert len(coco.image_files()) == 361
    flickr = Captions(shared / "data", file="annotations/flickr8k/captions_1000.json", images="images/flickr8k_1000")
    assert (len(flickr.examples()), len(flickr.image_files())) == (5000, 1000)
    assert all(path.is_file() for path in [*coco.image_files().values(), *flickr.image_files().values()])
    thirty = Captions(shared / "data/annotations", file="flickr30k/validation.json")
    assert len(thirty.examples()) == 5000  # the sixth "caption" of each image is a path


def test_real_instances(shared: Path) -> None:
    reader = CocoInstances(shared / "data", file="annotations/coco_subset/instances.json", images="images/coco")
    boxes = reader.boxes()
    assert (len(boxes), sum(map(len, boxes.values()))) == (335, 2934)  # 34 crowds are left out
    everything = CocoInstances(shared / "data", file="annotations/coco_subset/instances.json", crowds=True)
    assert sum(map(len, everything.boxes().values())) == 2968
    assert boxes["000000000025"].boxes[0] == pytest.approx([385.53, 60.03, 600.5, 357.19])
    assert reader.class_names()[int(boxes["000000000025"].classes[0])] == "giraffe"


def test_real_csv(shared: Path) -> None:
    columns = {"image": "Flickr30kID", "text": "hypothesis", "label": "gold_label", "id": "pairID"}
    reader = Csv(shared / "data/annotations", file="snli_ve/esnlive_dev.csv", extra=["explanation"], **columns)
    assert len(reader.examples()) == 14_339
    assert reader.label_names() == ["contradiction", "entailment", "neutral"]
    assert reader.examples()[0].images == ["4465359505"]
    assert reader.examples()[0].targets["explanation"] == "Hair and tree are two different things."


def test_real_jsonl(shared: Path) -> None:
    reader = JsonLines(shared / "data/annotations", file="coco_subset/vsr.jsonl", text="caption")
    assert reader.examples()[0].text == "The cat is under the car."
    assert reader.examples()[0].targets == {"label": 0}


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "world"
    config = ShapesConfig(
        images=40, nlvr2_train=24, nlvr2_dev=24, nlvr2_test=24, parts=("coco", "vqa", "nlvr2", "karpathy")
    )
    make_shapes(folder, config, Silent())
    return folder


@pytest.mark.parametrize("name", ["coco-captions", "coco-instances", "karpathy", "vqa", "nlvr2"])
def test_every_reader_finds_the_world_by_its_defaults(world: Path, name: str) -> None:
    reader = registry.build("datasets", {"name": name, "split": "train"}, world)
    assert reader.examples()
    assert all(path.is_file() for path in reader.image_files().values())
    assert reader.label == f"{name} (train)"


def test_attributes_are_one_number_a_box(world: Path) -> None:
    reader = CocoInstances(world)
    content = json.loads((world / "coco/annotations/instances_train.json").read_text())
    words = {row["id"]: row["name"] for row in content["attribute_categories"]}
    names = [" ".join(words[number] for number in row["attributes"]) for row in content["annotations"]]
    found = [reader.attribute_names()[n] for boxes in reader.boxes().values() for n in boxes.attributes]
    assert sorted(found) == sorted(names)


def test_given_boxes_of_nlvr2_are_numbered_as_those_of_coco(world: Path) -> None:
    reader = NLVR2(world, split="dev")
    boxes = reader.boxes()
    assert set(boxes) == set(reader.image_files())
    assert min(int(found.classes.min()) for found in boxes.values()) == 0
    assert reader.class_names() == CocoInstances(world).class_names()


def test_vqa_test_split_has_no_answers(world: Path) -> None:
    example = VQA(world, split="test").examples()[0]
    assert set(example.targets) == {"question_id"}


def test_several_splits_are_read_one_after_another(world: Path) -> None:
    parts = [[e.key for e in CocoCaptions(world, split=split).examples()] for split in ("train", "val")]
    both = CocoCaptions(world, split=["train", "val"])
    assert [e.key for e in both.examples()] == parts[0] + parts[1]
    assert both.label == "CocoCaptions (train+val)"
    fixed = "coco/annotations/captions_val.json"  # one file for two splits is read once
    assert len(CocoCaptions(world, split=["train", "val"], file=fixed).examples()) == len(parts[1])


def test_official_vqa_names(tmp_path: Path) -> None:
    asked = {"data_subtype": "val2014", "questions": [{"image_id": 42, "question": "What?", "question_id": 42000}]}
    answers = [{"answer": word, "answer_id": place} for place, word in enumerate(["net"] * 3 + ["web"] * 7)]
    noted = {
        "annotations": [{"question_id": 42000, "answers": answers, "question_type": "what", "answer_type": "other"}]
    }
    file = tmp_path / "vqa/v2_OpenEnded_mscoco_val2014_questions.json"
    write(file, asked)
    write(tmp_path / "vqa/v2_mscoco_val2014_annotations.json", noted)
    example = VQA(tmp_path, split="val").examples()[0]
    assert example.images == ["COCO_val2014_000000000042"]
    assert example.targets["answers"] == {"web": 1.0, "net": 0.9}
    row = {"img_id": "COCO_val2014_000000000042", "label": {"net": 1}, "question_id": 7, "sent": "What?"}
    write(tmp_path / "vqa/minival.json", [row | {"question_type": "what", "answer_type": "other"}])
    joined = VQA(tmp_path, split="minival").examples()[0]
    assert joined.targets["answers"] == {"net": 1.0}
    assert joined.images == example.images


def test_lxmert_list_of_nlvr2_equals_the_published_lines(tmp_path: Path) -> None:
    published = {"identifier": "train-7-0-1", "sentence": "Two dogs.", "label": "True", "kind": "count"}
    joined = {"identifier": "train-7-0-1", "sent": "Two dogs.", "label": 1, "uid": "nlvr2_train_0"}
    joined |= {"img0": "train-7-0-img0", "img1": "train-7-0-img1"}
    write(tmp_path / "nlvr2/train.json", lines(published))
    write(tmp_path / "list.json", [joined])
    one, other = NLVR2(tmp_path).examples()[0], NLVR2(tmp_path, file="list.json").examples()[0]
    assert one.targets.pop("kind") == "count"
    assert one == other


def karpathy(root: Path) -> Path:
    def image(number: int, split: str) -> dict[str, object]:
        sentences = [{"raw": f"caption {number}{c}", "sentid": number * 2 + c, "imgid": number} for c in (0, 1)]
        return {"filename": f"{number}.jpg", "split": split, "sentences": sentences, "imgid": number}

    rows = [image(number, split) for number, split in enumerate(["train", "restval", "val", "test", "train"])]
    return write(root / "dataset_flickr8k.json", {"images": rows, "dataset": "flickr8k"})


def test_karpathy_splits_and_captions(tmp_path: Path) -> None:
    karpathy(tmp_path)
    assert [e.key for e in Karpathy(tmp_path, split=["train", "restval"]).examples()] == ["0", "1", "8", "9", "2", "3"]
    assert [e.text for e in Karpathy(tmp_path, split="val", captions="first").examples()] == ["caption 20"]
    drawn = Karpathy(tmp_path, split="train", captions="sample").examples()
    assert (drawn[0].key, drawn[0].text, drawn[0].choices) == ("0", "caption 00", ["caption 01"])
    with pytest.raises(DataError, match="no such split") as caught:
        Karpathy(tmp_path, split="dev").examples()
    assert caught.value.expected == "restval, test, train, val"


def test_jsonl_serves_every_task(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "image": "x/1.png", "text": "one", "label": "cat", "boxes": [[0, 1, 2, 3]], "box_labels": ["dog"]},
        {"id": "b", "image": ["1.png", "2.png"], "text": "two", "label": "ant", "answers": ["no", "no", "yes"]},
        {"id": "c", "image": "3.png", "text": "three", "answers": {"no": 0.6}},
    ]
    write(tmp_path / "train.jsonl", lines(rows[0]))
    write(tmp_path / "rest.jsonl", "\n" + lines(rows[1]) + lines(rows[2]))
    first = JsonLines(tmp_path)
    assert first.boxes()["1"].boxes.tolist() == [[0, 1, 2, 3]]
    assert first.class_names() == ["dog"]
    assert first.image_files() == {"1": tmp_path / "images/x/1.png"}
    rest = JsonLines(tmp_path, file="rest.jsonl", labels=["cat", "ant"], extra=["id"])
    assert [example.images for example in rest.examples()] == [["1", "2"], ["3"]]
    assert rest.examples()[0].targets["label"] == 1
    assert rest.examples()[0].targets["answers"] == soft_scores(["no", "no", "yes"]) == {"no": 0.6, "yes": 0.3}
    assert rest.examples()[1].targets["id"] == "c"


def test_csv_serves_every_task(tmp_path: Path) -> None:
    write(
        tmp_path / "d.csv",
        'file\tsaid\tlabel\tboxes\tpart\na.png;b.png\t"one, two"\t3\t"[[0,0,1,1]]"\tx\nc.png\tno\t4\t\ty\n',
    )
    reader = Csv(tmp_path, file="d.csv", separator="tab", image="file", text="said", only={"part": "x"})
    example = reader.examples()[0]
    assert (example.images, example.text, example.targets["label"]) == (["a", "b"], "one, two", 3)
    assert len(reader.examples()) == 1
    assert len(reader.boxes()["a"]) == 1


def picture(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(path)


def test_folder_of_classes(tmp_path: Path) -> None:
    for name in ("val/b/2.png", "val/a/1.png", "val/b/deep/3.PNG", "val/notes.txt"):
        picture(tmp_path / name) if name.lower().endswith("png") else write(tmp_path / name, "x")
    reader = ImageFolder(tmp_path, split="val", images="{split}", label=True)
    assert [(e.key, e.targets["label"]) for e in reader.examples()] == [("1", 0), ("2", 1), ("3", 1)]
    assert reader.label_names() == ["a", "b"]
    with pytest.raises(DataError, match="folder of pictures is missing"):
        ImageFolder(tmp_path, images="nowhere").examples()


def test_two_files_of_one_name_have_their_paths_for_ids_where_paths_are_known(tmp_path: Path) -> None:
    for name in ("images/a/1.png", "images/b/1.png", "images/b/2.png"):
        picture(tmp_path / name)
    reader = ImageFolder(tmp_path)
    assert {name: path.relative_to(tmp_path).as_posix() for name, path in reader.image_files().items()} == {
        "images/a/1": "images/a/1.png",
        "images/b/1": "images/b/1.png",
        "images/b/2": "images/b/2.png",
    }
    picture(tmp_path / "images/b/2.jpg")
    assert list(ImageFolder(tmp_path).image_files())[-2:] == ["images/b/2.jpg", "images/b/2.png"]
    write(tmp_path / "nlvr2/train.json", lines({"identifier": "train-1-0-0", "sentence": "s", "label": "True"}))
    picture(tmp_path / "nlvr2/images/train/1/train-1-0-img0.png")
    picture(tmp_path / "nlvr2/images/train/2/train-1-0-img0.png")
    with pytest.raises(DataError, match="train-1-0-img0"):
        NLVR2(tmp_path).image_files()


def test_a_column_holds_the_box_that_a_sentence_speaks_of(tmp_path: Path) -> None:
    rows = [
        'a.png,the dog,"[1, 2, 30, 40]"',
        'a.png,the cat,"[5, 5, 9, 9]"',
        'a.png,a dog,"[1, 2, 30, 40]"',
        "b.png,a hen,",
    ]
    (tmp_path / "c.csv").write_text("\n".join(["image,text,box", *rows]) + "\n")
    reader = registry.build("datasets", {"name": "csv", "file": "c.csv", "box": "box"}, tmp_path)
    targets = [example.targets.get("pixel_box") for example in reader.examples()]
    assert targets == [[1, 2, 30, 40], [5, 5, 9, 9], [1, 2, 30, 40], None]
    assert {name: found.boxes.tolist() for name, found in reader.boxes().items()} == {"a": [targets[0], targets[1]]}
    plain = registry.build("datasets", {"name": "csv", "file": "c.csv"}, tmp_path)
    assert plain.boxes() == {}
    assert all(not example.targets for example in plain.examples())


BAD_BOX = {"images": [{"id": 1}], "categories": [], "annotations": [{"image_id": 1, "bbox": [1]}]}
ASKED = {"questions": "c.json", "annotations": ""}
FAULTS = [
    ("coco-captions", {"file": "c.json"}, "[1", "malformed", "c.json:1"),
    ("coco-captions", {"file": "c.json"}, [], "something else", "c.json"),
    ("coco-captions", {"file": "c.json"}, {"images": []}, "'annotations' is missing", "c.json"),
    ("coco-captions", {"file": "c.json"}, {"images": [], "annotations": []}, "is empty", "c.json"),
    ("coco-captions", {"file": "c.json"}, {"images": [], "annotations": [{"image_id": 4}]}, "does not list", "[0]"),
    ("coco-captions", {"file": "c.json"}, {"images": [{"id": [1]}], "annotations": []}, "wrong type", "images[0]"),
    ("nlvr2", {"file": "c.json"}, '{"identifier": "dev-1-0-0", "sentence": "s"}\n{oops\n', "malformed", "c.json:2"),
    ("nlvr2", {"file": "c.json"}, '{"identifier": 4}\n', "wrong type", "c.json:1"),
    ("nlvr2", {"file": "c.json"}, '{"identifier": "d-1-0-0", "sentence": "s", "label": "maybe"}\n', "neither", ":1"),
    ("jsonl", {"file": "c.json"}, '{"image": "a.png"}\n[1]\n', "no object", "c.json:2"),
    ("jsonl", {"file": "c.json", "text": "caption"}, '{"image": "a.png"}\n', "lacks a column", ":1"),
    ("jsonl", {"file": "c.json"}, '{"image": "../../a.png"}\n', "leaves the data root", ""),
    ("csv", {"file": "c.json"}, "image,text\na.png\n", "does not fit the header", "c.json:2"),
    ("csv", {"file": "c.json"}, "image,text\na.png," + "x" * 200_000 + "\n", "too long", "c.json:2"),
    ("csv", {"file": "c.json", "encoding": "utf-16"}, "image,text\na.png,a hen.\n", "lacks a column", "c.json:1"),
    ("csv", {"file": "c.json", "box": "place"}, 'image,text,place\na.png,x,"[1, 2, 1, 4]"\n', "no area", "c.json:2"),
    ("csv", {"file": "c.json", "box": "place"}, "image,text,place\na.png,x,left\n", "not understood", "c.json:2"),
    ("jsonl", {"file": "c.json", "box": "place"}, '{"image": "a.png"}\n', "lacks a column", "c.json:1"),
    ("vqa", ASKED, {"questions": [{"image_id": 1}]}, "is missing", "[0]"),
    ("captions", {"file": "c.json"}, [{"image": "a.png", "captions": [1]}], "no text", "[0]"),
    ("karpathy", {"file": "c.json"}, {"images": [{"filename": "a.jpg"}]}, "'split' is missing", "images[0]"),
    ("coco-instances", {"file": "c.json"}, BAD_BOX, "four numbers", "[0]"),
    ("coco-captions", {"take": "most"}, None, "missing", "captions_train.json"),
    ("coco-captions", {"file": "../c.json"}, None, "leaves the data root", ""),
]  # fmt: skip


@pytest.mark.parametrize(("name", "keys", "content", "what", "where"), FAULTS)
def test_faults_say_what_and_where(
    tmp_path: Path, name: str, keys: dict, content: object, what: str, where: str
) -> None:
    if content is not None:
        write(tmp_path / "c.json", content)
    with pytest.raises(DataError) as caught:
        registry.build("datasets", {"name": name, **keys}, tmp_path).examples()
    assert what in caught.value.what
    assert where in caught.value.where
    assert caught.value.exit_code == 5


def test_truncated_gzip_is_named(tmp_path: Path) -> None:
    data = gzip.compress(json.dumps({"questions": list(range(1000))}).encode())
    (tmp_path / "q.json.gz").write_bytes(data[: len(data) // 2])
    with pytest.raises(DataError, match="cannot be read") as caught:
        VQA(tmp_path, questions="q.json.gz", annotations="").examples()
    assert caught.value.where.endswith("q.json.gz")


def test_readers_need_no_torch() -> None:
    modules = [module.name for module in pkgutil.iter_modules(vlcli.data.readers.__path__)]
    assert {"coco", "captions", "vqa", "statements", "generic"} <= set(modules)
    code = ";".join(f"import vlcli.data.readers.{name}" for name in modules)
    code += ";import vlcli.data, vlcli.data.vocabulary, sys; vlcli.data.Tokenizer; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_null_sentence_is_no_sentence(tmp_path):
    from vlcli.data.readers.generic import JsonLines

    rows = ['{"text": null, "image": "a.jpg"}', '{"text": "a dog", "image": "b.jpg"}', '{"image": "c.jpg"}']
    (tmp_path / "train.jsonl").write_text("\n".join(rows))
    assert [example.text for example in JsonLines(tmp_path).examples()] == [None, "a dog", None]
    for wrong in ("NaN", "3", "true", "[3]"):
        (tmp_path / "train.jsonl").write_text(f'{rows[0]}\n{{"text": {wrong}, "image": "a.jpg"}}')
        with pytest.raises(DataError) as caught:
            JsonLines(tmp_path).examples()
        assert "train.jsonl:2" in str(caught.value)


class Careless(Reader):
    """A reader whose code fails on files that are right."""

    def files(self):
        return [self.root / "rows.jsonl"]

    def read(self):
        return [Example("one", targets={"label": self.splits[0]})]


def test_a_reader_that_stops_is_named_with_its_line(tmp_path):
    (tmp_path / "rows.jsonl").touch()
    with pytest.raises(DataError) as fault:
        Careless(tmp_path).examples()
    line = Careless.read.__code__.co_firstlineno + 1
    assert f"{__file__}:{line}" in str(fault.value)


@pytest.mark.parametrize("kind", ["datasets", "extractors", "worlds"])
def test_show_has_a_line_for_every_option(kind):
    for name in (entry.name for entry in registry.entries(kind) if entry.distribution == "vlcli"):  # not other tests'
        described = registry.describe(kind, name)
        documented = set(re.findall(r"^    (\w+):", described["doc"], re.MULTILINE))
        assert {option["name"] for option in described["parameters"]} <= documented, name
