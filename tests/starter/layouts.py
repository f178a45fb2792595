"""Small folders in the forms in which authors distribute data sets, each with what ``vlcli init`` is to see in it.

A function with ``@layout`` writes one; the decorator says what is expected. Every layout has pictures enough to divide.
"""

from __future__ import annotations

import csv
import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image

Make = Callable[[Path], None]


@dataclass
class Layout:
    """What init is to see in a folder.

    Attributes:
        make: writes the folder.
        goal: the task.
        reader: the reader's name.
        counts: examples of each part that the data name; empty: parts are drawn by picture.
        columns: some of the columns by role.
        total: examples in all, where parts are drawn.
        weights: whether the task needs a backbone's weights in the folder.
    """

    make: Make
    goal: str
    reader: str
    counts: dict[str, int] = field(default_factory=dict)
    columns: dict[str, Any] = field(default_factory=dict)
    total: int = 0
    weights: bool = False


LAYOUTS: dict[str, Layout] = {}


def layout(goal: str, reader: str, **rest: Any) -> Callable[[Make], Make]:
    """Register a function that writes a folder."""

    def add(make: Make) -> Make:
        LAYOUTS[make.__name__] = Layout(make, goal, reader, **rest)
        return make

    return add


def photos(root: Path, names: list[str], size: tuple[int, int] = (24, 18)) -> list[str]:
    """Write pictures, each of a colour of its own."""
    for number, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, (number * 37 % 256, number * 11 % 256, number * 5 % 256)).save(path)
    return names


def write(root: Path, name: str, content: Any) -> None:
    """Write a text, JSON lines (a list of objects in a .jsonl) or a JSON document."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix in (".jsonl", ".lines"):
        content = "\n".join(json.dumps(row) for row in content)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


def jpeg(n: int) -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (24, 18), (n * 8 % 256, 9, 9)).save(content, "JPEG")
    return content.getvalue()


def pack(root: Path, name: str, members: dict[str, bytes]) -> None:
    """Write a tar file."""
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(root / name, "w") as tar:
        for inner, content in members.items():
            member = tarfile.TarInfo(inner)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def rows_of(root: Path, name: str, header: list[str], rows: list[list[Any]], delimiter: str = ",") -> None:
    """Write a table with a header."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=delimiter).writerows([header, *rows])


COLOURS = ["red", "green", "blue", "yellow"]
ASKED = ["what colour is it?", "is it large?", "what is on the left of the table?"]


def answer(number: int) -> str:
    """One of four answers."""
    return COLOURS[number % 4]


def sentence(number: int) -> str:
    """A sentence about a picture."""
    return f"a {answer(number)} thing on a table near number {number}"


@layout(
    "retrieval", "karpathy", counts={"train": 60, "validation": 15, "test": 15}, columns={"text": "sentences[].raw"}
)
def karpathy(root: Path) -> None:
    """``dataset_NAME.json``; the pictures were converted from TIFF since."""
    photos(root, [f"images/{n}.jpg" for n in range(30)])
    images = []
    for n in range(30):
        said = [{"raw": f"{sentence(n)} {i}", "tokens": sentence(n).split(), "sentid": 3 * n + i} for i in range(3)]
        split = "train" if n < 16 else "restval" if n < 20 else "val" if n < 25 else "test"
        images.append({"filename": f"{n}.tif", "imgid": n, "split": split, "sentences": said})
    write(root, "dataset_birds.json", {"images": images, "dataset": "birds"})


@layout("vqa", "vqa", counts={"train": 36, "validation": 24}, columns={"text": "question"})
def vqa_v2(root: Path) -> None:
    """Official questions and annotations of two splits, and questions of the test split."""
    first = 0
    for split, count in (("train2014", 18), ("val2014", 12), ("test2015", 4)):
        numbers = range(first, first + count)
        first += count
        photos(root, [f"{split}/COCO_{split}_{n:012d}.jpg" for n in numbers])
        asked = [{"image_id": n, "question": ASKED[i], "question_id": n * 1000 + i} for n in numbers for i in range(2)]
        questions = {"info": {}, "task_type": "Open-Ended", "data_type": "mscoco", "data_subtype": split}
        write(root, f"v2_OpenEnded_mscoco_{split}_questions.json", {**questions, "questions": asked})
        if split.startswith("test"):
            continue
        notes = []
        for row in asked:
            people = [
                {"answer": answer(row["image_id"]), "answer_id": i, "answer_confidence": "yes"} for i in range(10)
            ]
            said = {"question_type": "what", "answer_type": "other", "multiple_choice_answer": answer(row["image_id"])}
            notes.append({"image_id": row["image_id"], "question_id": row["question_id"], "answers": people, **said})
        write(root, f"v2_mscoco_{split}_annotations.json", {"data_subtype": split, "annotations": notes})


@layout("vqa", "vqa", counts={"train": 40, "validation": 20})
def lxmert_lists(root: Path) -> None:
    """LXMERT's joined lists of VQA."""
    for part, numbers in (("train", range(20)), ("minival", range(20, 30))):
        photos(root, [f"images/COCO_val2014_{n:012d}.jpg" for n in numbers])
        rows = [
            {
                "answer_type": "other",
                "img_id": f"COCO_val2014_{n:012d}",
                "label": {answer(n): 1.0, "grey": 0.3},
                "question_id": n * 10 + i,
                "question_type": "what",
                "sent": ASKED[i],
            }
            for n in numbers
            for i in range(2)
        ]
        write(root, f"{part}.json", rows)


@layout("vqa", "gqa", counts={"train": 40, "validation": 20})
def gqa(root: Path) -> None:
    """Balanced questions by id."""
    first = 0
    for part, count in (("train", 20), ("val", 10)):
        numbers = range(first, first + count)
        first += count
        photos(root, [f"images/{2000 + n}.jpg" for n in numbers])
        rows = {
            f"{n:05d}{i}": {
                "semantic": [],
                "entailed": [],
                "equivalent": [f"{n:05d}{i}"],
                "question": ASKED[i],
                "imageId": str(2000 + n),
                "isBalanced": True,
                "groups": {"global": "colour", "local": "x"},
                "answer": answer(n),
                "semanticStr": "query",
                "annotations": {},
                "types": {"detailed": "a", "semantic": "attr", "structural": "query"},
                "fullAnswer": f"It is {answer(n)}.",
            }
            for n in numbers
            for i in range(2)
        }
        write(root, f"questions1.2/{part}_balanced_questions.json", rows)


@layout("vqa", "json", counts={"train": 20, "validation": 10}, columns={"text": "question", "answers": "answers"})
def vizwiz(root: Path) -> None:
    """Official annotations of two parts, with the folders of pictures."""
    for part, numbers in (("train", range(20)), ("val", range(20, 30))):
        photos(root, [f"{part}/VizWiz_{part}_{n:08d}.jpg" for n in numbers])
        people = [{"answer": "x", "answer_confidence": "yes"}] * 2
        rows = [
            {
                "image": f"VizWiz_{part}_{n:08d}.jpg",
                "question": ASKED[0],
                "answers": [*people, *[{"answer": answer(n), "answer_confidence": "maybe"}] * 8],
                "answer_type": "other",
                "answerable": 1,
            }
            for n in numbers
        ]
        write(root, f"Annotations/{part}.json", rows)


@layout("pairs", "nlvr2", counts={"train": 24, "validation": 12}, columns={"text": "sentence", "label": "label"})
def nlvr2(root: Path) -> None:
    """JSON lines in files that end in .json; pictures in folders of the parts."""
    for part, numbers in (("train", range(12)), ("dev", range(12, 18))):
        photos(root, [f"images/{part}/{part}-{n}-0-img{i}.png" for n in numbers for i in (0, 1)])
        rows = [
            {
                "validation": {"1": "True"},
                "sentence": f"both images show a {answer(n)} thing",
                "left_url": "http://x/a.jpg",
                "right_url": "http://x/b.jpg",
                "writer": 1,
                "label": str(n % 2 == s).title(),
                "identifier": f"{part}-{n}-0-{s}",
                "query": "thing",
                "synset": "thing",
            }
            for n in numbers
            for s in range(2)
        ]
        write(root, f"data/{part}.json", "\n".join(map(json.dumps, rows)))


@layout(
    "classification",
    "snli-ve",
    counts={"train": 30, "validation": 15, "test": 15},
    columns={"text": "sentence2", "label": "gold_label"},
)
def snli_ve(root: Path) -> None:
    """JSON lines of three parts; a pair without agreement."""
    first = 0
    for part, count in (("train", 10), ("dev", 5), ("test", 5)):
        numbers = range(first, first + count)
        first += count
        photos(root, [f"flickr30k_images/{10000 + n}.jpg" for n in numbers])
        rows = []
        for n in numbers:
            for i, label in enumerate(("entailment", "neutral", "contradiction")):
                image = {"Flickr30K_ID": str(10000 + n), "captionID": f"{10000 + n}.jpg#0", "pairID": f"{n}#0r{i}"}
                said = {"sentence1": sentence(n), "sentence2": f"there is a {answer(n + i)} thing", "gold_label": label}
                rows.append({"annotator_labels": [label], **image, **said})
        if part == "train":
            rows.append({**rows[0], "gold_label": "-", "pairID": "none"})
        write(root, f"snli_ve_{part}.jsonl", rows)


@layout("referring", "refcoco", counts={"train": 40, "validation": 10, "test": 10}, weights=True)
def refcoco(root: Path) -> None:
    """``refs(unc).p`` and ``instances.json`` of the refer toolkit."""
    import pickle

    names = [f"COCO_train2014_{n:012d}.jpg" for n in range(30)]
    photos(root, [f"images/train2014/{name}" for name in names], (60, 60))
    box = {"category_id": 1, "area": 400, "iscrowd": 0}
    numbers = [(n, i) for n in range(30) for i in range(2)]
    boxes = [{"id": 2 * n + i, "image_id": n, "bbox": [5 + 25 * i, 5, 20, 20], **box} for n, i in numbers]
    images = [{"id": n, "file_name": name, "width": 60, "height": 60} for n, name in enumerate(names)]
    content = {"images": images, "annotations": boxes, "categories": [{"id": 1, "name": "thing"}], "licenses": []}
    write(root, "refcoco/instances.json", content)
    refs = [
        {
            "ref_id": box["id"],
            "ann_id": box["id"],
            "image_id": box["image_id"],
            "file_name": f"COCO_train2014_{box['image_id']:012d}_{box['id']}.jpg",
            "split": "train" if box["image_id"] < 20 else "val" if box["image_id"] < 25 else "testA",
            "sentences": [{"sent_id": box["id"], "sent": f"the {answer(box['id'])} one", "tokens": [], "raw": ""}],
            "sent_ids": [box["id"]],
            "category_id": 1,
        }
        for box in boxes
    ]
    (root / "refcoco/refs(unc).p").write_bytes(pickle.dumps(refs, protocol=2))


@layout("retrieval", "flickr", counts={"train": 100, "validation": 25, "test": 25})
def flickr30k(root: Path) -> None:
    """The token file of Flickr30k with lists of ids."""
    names = [f"{10000 + n}.jpg" for n in range(30)]
    photos(root, [f"flickr30k-images/{name}" for name in names])
    lines = [f"{name}#{i}\t{sentence(n)} ." for n, name in enumerate(names) for i in range(5)]
    write(root, "results_20130124.token", "\n".join(lines) + "\n")
    for part, some in (("train", names[:20]), ("val", names[20:25]), ("test", names[25:])):
        write(root, f"{part}.txt", "\n".join(name[:-4] for name in some))


@layout("retrieval", "flickr", counts={"train": 100, "validation": 25, "test": 25})
def flickr8k(root: Path) -> None:
    """Flickr8k's text folder, lemmas and judgements beside the captions."""
    names = [f"{10000 + n}_f{n}.jpg" for n in range(30)]
    photos(root, [f"Flicker8k_Dataset/{name}" for name in names])
    lines = [f"{name}#{i}\t{sentence(n)} ." for n, name in enumerate(names) for i in range(5)]
    write(root, "Flickr8k_text/Flickr8k.token.txt", "\n".join(lines) + "\n")
    write(root, "Flickr8k_text/Flickr8k.lemma.token.txt", "\n".join(lines).lower() + "\n")
    for part, some in (("train", names[:20]), ("dev", names[20:25]), ("test", names[25:])):
        write(root, f"Flickr8k_text/Flickr_8k.{part}Images.txt", "\n".join(some) + "\n")


def coco_images(names: list[str]) -> list[dict[str, Any]]:
    """The ``images`` of a file in COCO's format."""
    return [{"id": n, "file_name": Path(name).name, "width": 24, "height": 18} for n, name in enumerate(names)]


@layout("retrieval", "coco-captions", counts={"train": 40, "validation": 20}, columns={"text": "caption"})
def coco_captions(root: Path) -> None:
    """Captions of two parts, pictures in a folder each."""
    for part, numbers in (("train", range(20)), ("val", range(20, 30))):
        names = photos(root, [f"{part}2017/{n:012d}.jpg" for n in numbers])
        notes = [
            {"id": 2 * m + i, "image_id": n, "caption": sentence(m)} for n, m in enumerate(numbers) for i in range(2)
        ]
        content = {"info": {}, "licenses": [], "images": coco_images(names), "annotations": notes}
        write(root, f"annotations/captions_{part}2017.json", content)


@layout("detection", "coco-instances", counts={"train": 20, "validation": 10})
def coco_instances(root: Path) -> None:
    """Labelled boxes of two parts."""
    for part, numbers in (("train", range(20)), ("val", range(20, 30))):
        names = photos(root, [f"{part}2017/{n:012d}.jpg" for n in numbers])
        box = {"bbox": [1, 1, 9, 9], "area": 81, "iscrowd": 0}
        notes = [{"id": n, "image_id": n, "category_id": 1 + n % 2, **box} for n, _ in enumerate(numbers)]
        kinds = [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}]
        content = {"images": coco_images(names), "annotations": notes, "categories": kinds}
        write(root, f"annotations/instances_{part}2017.json", content)


@layout("image-classification", "folder", total=30, columns={"label": "folder"})
def class_folders(root: Path) -> None:
    """A folder for each class."""
    photos(root, [f"{kind}/{kind}{n:02d}.jpg" for kind in ("forest", "river", "beach") for n in range(10)])


@layout("image-classification", "folder", counts={"train": 20, "test": 10})
def class_folders_in_parts(root: Path) -> None:
    """A folder for each class in folders for the parts; names repeat from class to class."""
    for part, count in (("train", 10), ("test", 5)):
        photos(root, [f"{part}/{kind}/{part}{kind}{n:04d}.jpg" for kind in ("cat", "dog") for n in range(count)])


@layout("image-classification", "cub-200", counts={"train": 20, "test": 10})
def cub(root: Path) -> None:
    """CUB's four lists, with attributes beside them."""
    kinds = ["001.Black_footed_Albatross", "002.Laysan_Albatross", "003.Sooty_Albatross"]
    names = [f"{kind}/Bird_{n:04d}_{k}.jpg" for k, kind in enumerate(kinds) for n in range(10)]
    photos(root, [f"CUB_200_2011/images/{name}" for name in names])
    folder = "CUB_200_2011"
    write(root, f"{folder}/images.txt", "".join(f"{n} {name}\n" for n, name in enumerate(names, 1)))
    write(root, f"{folder}/classes.txt", "".join(f"{k} {kind}\n" for k, kind in enumerate(kinds, 1)))
    labels = "".join(f"{n} {1 + (n - 1) // 10}\n" for n in range(1, 31))
    write(root, f"{folder}/image_class_labels.txt", labels)
    write(root, f"{folder}/train_test_split.txt", "".join(f"{n} {int(n % 3 != 0)}\n" for n in range(1, 31)))
    write(root, f"{folder}/bounding_boxes.txt", "".join(f"{n} 1.0 1.0 9.0 9.0\n" for n in range(1, 31)))


@layout("retrieval", "webdataset", total=30)
def text_beside_pictures(root: Path) -> None:
    """A text file with the name of each picture."""
    photos(root, [f"{n:04d}.png" for n in range(30)])
    for n in range(30):
        write(root, f"{n:04d}.txt", sentence(n))


@layout("retrieval", "webdataset", total=30)
def webdataset(root: Path) -> None:
    """Tar shards as img2dataset writes them."""
    for shard in range(3):
        members: dict[str, bytes] = {}
        for n in range(10 * shard, 10 * shard + 10):
            caption = json.dumps({"caption": sentence(n), "url": "http://x"}).encode()
            members |= {f"{n:09d}.jpg": jpeg(n), f"{n:09d}.txt": sentence(n).encode(), f"{n:09d}.json": caption}
        pack(root, f"{shard:05d}.tar", members)


@layout("vqa", "csv", total=60, columns={"image": "image_id", "text": "question", "answers": "answer"})
def csv_table(root: Path) -> None:
    """A comma-separated table of questions."""
    photos(root, [f"images/image{n}.png" for n in range(30)])
    rows = [[f"image{n}", ASKED[i], answer(n)] for n in range(30) for i in range(2)]
    rows_of(root, "questions.csv", ["image_id", "question", "answer"], rows)
