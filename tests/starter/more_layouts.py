"""Further layouts: DAQUAR, boxes of VOC and YOLO, workbooks, lists without a header, several labels, lists of BLIP."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.starter.layouts import ASKED, LAYOUTS, answer, layout, photos, rows_of, sentence, write

BEFORE = set(LAYOUTS)


@layout("vqa", "daquar", counts={"train": 40, "test": 20}, columns={"text": "first line", "answers": "second line"})
def daquar(root: Path) -> None:
    """Two lines a question, in both versions, with the lists of pictures."""
    names = [f"image{n}" for n in range(100, 130)]
    photos(root, [f"images/{name}.jpg" for name in names])
    asked = ["what is on the table", "what colour is the wall on the left side"]
    for part, some in (("train", names[:20]), ("test", names[20:])):
        lines = [
            f"{question} in the {name} ?\n{answer(n)}{', night_stand' if n % 7 == 0 else ''}\n"
            for n, name in enumerate(some)
            for question in asked
        ]
        write(root, f"annotations/qa.894.raw.{part}.txt", "".join(lines))
        write(root, f"annotations/qa.37.raw.{'reduced.' if part == 'test' else ''}{part}.txt", "".join(lines[:10]))
        write(root, f"annotations/{part}.txt", "\n".join(some))


def annotation(name: str, kind: str) -> str:
    """An annotation of one object in Pascal VOC's XML."""
    box = "<bndbox><xmin>2</xmin><ymin>3</ymin><xmax>12</xmax><ymax>13</ymax></bndbox>"
    item = f"<object><name>{kind}</name><difficult>0</difficult>{box}</object>"
    return f"<annotation>\n<folder>VOC</folder>\n<filename>{name}</filename>\n{item}</annotation>\n"


@layout("detection", "voc", counts={"train": 20, "validation": 5, "test": 5})
def voc(root: Path) -> None:
    """VOC2007 as it is unpacked."""
    base = "VOCdevkit/VOC2007"
    names = [f"{n:06d}" for n in range(30)]
    photos(root, [f"{base}/JPEGImages/{name}.jpg" for name in names])
    for n, name in enumerate(names):
        write(root, f"{base}/Annotations/{name}.xml", annotation(f"{name}.jpg", answer(n)))
    parts = {"train": names[:20], "val": names[20:25], "trainval": names[:25], "test": names[25:]}
    for part, some in parts.items():
        write(root, f"{base}/ImageSets/Main/{part}.txt", "\n".join(some))
        write(root, f"{base}/ImageSets/Main/red_{part}.txt", "".join(f"{name}  1\n" for name in some))


@layout("detection", "voc", total=30)
def labelled_by_hand(root: Path) -> None:
    """XML files beside the pictures, as LabelImg writes them."""
    for n, name in enumerate(photos(root, [f"p{n}.png" for n in range(30)])):
        write(root, f"p{n}.xml", annotation(name, answer(n)))


YOLO_NAMES = "nc: 2\nnames: ['cat', 'dog']\n"


@layout("detection", "yolo", counts={"train": 20, "validation": 5, "test": 5})
def yolo_roboflow(root: Path) -> None:
    """data.yaml with paths from a folder that is not there."""
    for part, numbers in (("train", range(20)), ("valid", range(20, 25)), ("test", range(25, 30))):
        photos(root, [f"{part}/images/{n}.jpg" for n in numbers])
        for n in numbers:
            write(root, f"{part}/labels/{n}.txt", f"{n % 2} 0.5 0.5 0.25 0.5\n")
    paths = "train: ../train/images\nval: ../valid/images\ntest: ../test/images\n"
    write(root, "data.yaml", paths + YOLO_NAMES)
    write(root, "README.roboflow.txt", "x v1\n\nThis dataset was exported via roboflow.com\n")


@layout("detection", "yolo", total=30)
def yolo_flat(root: Path) -> None:
    """images, labels and classes.txt, as Label Studio exports them."""
    photos(root, [f"images/{n}.jpg" for n in range(30)])
    for n in range(30):
        write(root, f"labels/{n}.txt", f"{n % 2} 0.5 0.5 0.25 0.5\n1 0.1 0.1 0.1 0.1\n")
    write(root, "classes.txt", "cat\ndog\n")


@layout("detection", "yolo", counts={"train": 20, "validation": 10})
def yolo_of_another_name(root: Path) -> None:
    """images/PART, labels/PART and a YAML file called as the data set is, as ultralytics writes them."""
    for part, numbers in (("train", range(20)), ("val", range(20, 30))):
        photos(root, [f"images/{part}/{n}.jpg" for n in numbers])
        for n in numbers:
            write(root, f"labels/{part}/{n}.txt", f"{n % 2} 0.5 0.5 0.25 0.5\n")
    places = "path: ../datasets/my_animals\ntrain: images/train\nval: images/val\n"
    write(root, "my_animals.yaml", places + YOLO_NAMES)


@layout("vqa", "json", total=60, columns={"image": "image", "text": "question", "answers": "answer"})
def conversations(root: Path) -> None:
    """Turns as LLaVA writes them: a mark for the picture, several questions, the last without an answer."""
    photos(root, [f"images/{n}.jpg" for n in range(30)])
    rows = []
    for n in range(30):
        turns = [("human", f"<image>\n{ASKED[0]}"), ("gpt", answer(n)), ("human", ASKED[1]), ("gpt", answer(n + 1))]
        said = [{"from": who, "value": text} for who, text in [*turns, ("human", "Why?")]]
        rows.append({"id": f"{n}", "image": f"{n}.jpg", "conversations": said})
    write(root, "llava_v1.json", rows)


@layout("vqa", "jsonl", total=30, columns={"image": "images", "text": "question", "answers": "answer"})
def messages(root: Path) -> None:
    """Turns of chat templates, whose content has parts, in JSON lines; a text of the system before them."""
    photos(root, [f"images/{n}.jpg" for n in range(30)])
    lines = []
    for n in range(30):
        asked = [{"type": "image"}, {"type": "text", "text": ASKED[0]}]
        turns = [("system", "Be short."), ("user", asked), ("assistant", [{"type": "text", "text": answer(n)}])]
        said = [{"role": who, "content": content} for who, content in turns]
        lines.append({"images": [f"images/{n}.jpg"], "messages": said})
    write(root, "data.jsonl", lines)


@layout("retrieval", "json", total=30, columns={"text": "caption"})
def one_document_called_lines(root: Path) -> None:
    """A JSON list in a file whose name says lines."""
    photos(root, [f"images/{n}.jpg" for n in range(30)])
    rows = [{"image": f"images/{n}.jpg", "caption": sentence(n)} for n in range(30)]
    (root / "captions.jsonl").write_text(json.dumps(rows, indent=1))


@layout("retrieval", "json", total=30, columns={"image": "image", "text": "caption"})
def label_studio_sentences(root: Path) -> None:
    """Label Studio's JSON-MIN of sentences."""
    photos(root, [f"images/{n}.jpg" for n in range(30)])
    facts = {
        "annotator": 1,
        "created_at": "2024-01-01T00:00:00Z",
        "updated_at": "2024-01-01T00:00:00Z",
        "lead_time": 3.1,
    }
    rows = [
        {"image": f"/data/upload/1/{n}.jpg", "id": n, "caption": sentence(n), "annotation_id": n + 5, **facts}
        for n in range(30)
    ]
    write(root, "project-1-at-2024-01-01.json", rows)


@layout("vqa", "xlsx", total=60, columns={"image": "Bild", "text": "Frage", "answers": "Antwort"})
def workbook(root: Path) -> None:
    """A workbook of questions."""
    openpyxl = pytest.importorskip("openpyxl")
    photos(root, [f"images/{n}.jpg" for n in range(30)])
    book = openpyxl.Workbook()
    for row in [
        ["Nr.", "Bild", "Frage", "Antwort"],
        *([2 * n + i, f"{n}.jpg", ASKED[i], answer(n)] for n in range(30) for i in range(2)),
    ]:
        book.active.append(row)
    book.save(root / "fragen.xlsx")


@layout("image-classification", "csv", counts={"train": 20, "validation": 10}, columns={"label": "value"})
def list_without_header(root: Path) -> None:
    """Lists of paths and class numbers as Caffe and timm read them."""
    for part, numbers in (("train", range(20)), ("val", range(20, 30))):
        photos(root, [f"{part}/IMG {n}.JPEG" for n in numbers])
        write(root, f"{part}.txt", "".join(f"{part}/IMG {n}.JPEG {n % 4}\n" for n in numbers))
    write(root, "classes.txt", "hen\ncat\ndog\ncow\n")


@layout("retrieval", "csv", total=30, columns={"text": "value"})
def csv_without_header(root: Path) -> None:
    """A comma-separated table whose first line is data."""
    names = photos(root, [f"images/{n}.jpg" for n in range(30)])
    write(root, "captions.csv", "".join(f"{Path(name).name},{sentence(n)}\n" for n, name in enumerate(names)))


@layout("multi-label", "csv", counts={"train": 20, "test": 10}, columns={"label": ["cat", "dog", "hen"]})
def flags(root: Path) -> None:
    """A column for each class."""
    for part, numbers in (("train", range(20)), ("test", range(20, 30))):
        photos(root, [f"images/{n}.jpg" for n in numbers])
        rows = [[f"{n}.jpg", n % 2, int(n % 3 == 0), int(n % 5 == 0)] for n in numbers]
        rows_of(root, f"{part}.csv", ["filename", "cat", "dog", "hen"], rows)


@layout("multi-label", "csv", total=30, columns={"label": ["tags"]})
def tags(root: Path) -> None:
    """A column of words."""
    photos(root, [f"images/{n}.jpg" for n in range(30)])
    rows = [
        [f"{n}.jpg", "|".join(kind for k, kind in enumerate(["cat", "dog", "hen"], 2) if n % k == 0)] for n in range(30)
    ]
    rows_of(root, "tags.csv", ["image", "tags"], rows)


@layout("retrieval", "captions", counts={"train": 40, "validation": 20}, columns={"image": "image", "text": "caption"})
def blip(root: Path) -> None:
    """Lists of BLIP with paths of another machine: a row a caption for training, lists of captions else."""
    for part, numbers in (("train", range(20)), ("val", range(20, 30))):
        photos(root, [f"images/{part}2014/{n}.jpg" for n in numbers])
        rows = []
        for n in numbers:
            row = {"image": f"/export/share/coco/images/{part}2014/{n}.jpg", "image_id": f"coco_{n}"}
            texts = [sentence(n), f"{sentence(n)} again"]
            rows += [{**row, "caption": text} for text in texts] if part == "train" else [{**row, "caption": texts}]
        write(root, f"coco_karpathy_{part}.json", rows)


@layout("retrieval", "jsonl", counts={"train": 20, "test": 10}, columns={"text": "text"})
def imagefolder(root: Path) -> None:
    """metadata.jsonl beside the pictures of each part, whose names are the same."""
    for part, count in (("train", 20), ("test", 10)):
        photos(root, [f"{part}/{n:04d}.png" for n in range(count)])
        write(
            root, f"{part}/metadata.jsonl", [{"file_name": f"{n:04d}.png", "text": sentence(n)} for n in range(count)]
        )


@layout(
    "vqa", "json", counts={"train": 20, "validation": 10}, columns={"text": "question", "answers": "direct_answers"}
)
def a_okvqa(root: Path) -> None:
    """Questions with choices, direct answers and rationales."""
    for part, numbers in (("train", range(20)), ("val", range(20, 30))):
        photos(root, [f"{part}2017/{n:012d}.jpg" for n in numbers])
        rows = [
            {
                "split": part,
                "image_id": n,
                "question_id": f"q{n}",
                "question": ASKED[n % 3],
                "choices": ["red", "green", "blue", "yellow"],
                "correct_choice_idx": n % 4,
                "direct_answers": [answer(n)] * 8 + ["grey"] * 2,
                "difficult_direct_answer": False,
                "rationales": ["It looks so."] * 3,
            }
            for n in numbers
        ]
        write(root, f"aokvqa_v1p0_{part}.json", rows)


MORE = sorted(set(LAYOUTS) - BEFORE)


@layout("image-classification", "csv", counts={"train": 20, "test": 10}, columns={"label": "species"})
def tsv_tables(root: Path) -> None:
    """Tab-separated tables of two parts with numbers of rows."""
    for part, numbers in (("train", range(20)), ("test", range(20, 30))):
        photos(root, [f"photos/p{n}.jpg" for n in numbers])
        rows = [[i, f"p{n}.jpg", answer(n)] for i, n in enumerate(numbers)]
        rows_of(root, f"{part}.tsv", ["", "file", "species"], rows, "\t")


@layout("vqa", "json", counts={"train": 40, "test": 20}, columns={"answers": "answer"})
def sets_of_questions(root: Path) -> None:
    """``trainset.json`` and ``testset.json`` with the same fields."""
    photos(root, [f"images/{n}.jpg" for n in range(30)])
    for part, numbers in (("train", range(20)), ("test", range(20, 30))):
        rows = [
            {"qid": f"{part}{n}{i}", "image_name": f"{n}.jpg", "question": ASKED[i], "answer": answer(n)}
            for n in numbers
            for i in range(2)
        ]
        write(root, f"{part}set.json", rows)


@layout("retrieval", "csv", total=60, columns={"image": "image", "text": "caption"})
def captions_txt(root: Path) -> None:
    """Flickr8k as Kaggle has it: ``captions.txt`` with a header and commas."""
    names = [Path(name).name for name in photos(root, [f"Images/{n}_f.jpg" for n in range(30)])]
    rows_of(root, "captions.txt", ["image", "caption"], [[n, f"{sentence(i)}, again"] for i, n in enumerate(names * 2)])


@layout("image-classification", "csv", counts={"train": 20, "test": 10}, columns={"label": "label"})
def ids_of_rows(root: Path) -> None:
    """Tables of two parts whose ids begin anew."""
    for part, numbers in (("train", range(20)), ("test", range(20, 30))):
        names = photos(root, [f"{part}/p{n}.jpg" for n in numbers])
        rows_of(root, f"{part}.csv", ["id", "image", "label"], [[i, n, answer(i)] for i, n in enumerate(names)])
