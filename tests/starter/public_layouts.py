"""Layouts of further public sets: classes with lists of their parts, VQA v1's names, Visual Genome, Stanford Cars."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.starter.layouts import ASKED, LAYOUTS, answer, jpeg, layout, pack, photos, rows_of, sentence, write

BEFORE = set(LAYOUTS)
CLASSES = ("apple_pie", "beignets", "sushi")


def by_class(each: int) -> dict[str, list[str]]:
    """Names CLASS/NUMBER, with the same numbers in every class."""
    return {kind: [f"{kind}/{number:04}" for number in range(each)] for kind in CLASSES}


@layout("image-classification", "folder", counts={"train": 60, "test": 30}, columns={"label": "folder"})
def classes_with_lists(root: Path) -> None:
    """Food-101: lists of CLASS/NUMBER without an ending, as text and as JSON."""
    named = by_class(30)
    photos(root, [f"images/{name}.jpg" for names in named.values() for name in names])
    for part, (start, end) in {"train": (0, 20), "test": (20, 30)}.items():
        chosen = {kind: names[start:end] for kind, names in named.items()}
        write(root, f"meta/{part}.txt", "\n".join(name for names in chosen.values() for name in names))
        write(root, f"meta/{part}.json", chosen)
    write(root, "meta/classes.txt", "\n".join(CLASSES))


@layout("image-classification", "folder", counts={"train": 30, "validation": 30, "test": 30})
def several_lists(root: Path) -> None:
    """DTD: ten divisions into parts; the first is taken."""
    names = [f"{name}.jpg" for some in by_class(30).values() for name in some]
    photos(root, [f"images/{name}" for name in names])
    for version in (1, 2):
        for at, part in enumerate(("train", "val", "test")):
            write(root, f"labels/{part}{version}.txt", "\n".join(names[(at + version) % 3 :: 3]))


@layout("vqa", "vqa", counts={"train": 40, "validation": 20}, columns={"text": "question"})
def vqa_v1(root: Path) -> None:
    """OK-VQA and VQA v1: the names have no ``v2_``."""
    for part, start, count in (("train", 0, 40), ("val", 500, 20)):
        rows = range(start, start + count)
        photos(root, [f"{part}2014/COCO_{part}2014_{n:012d}.jpg" for n in rows])
        asked = [{"image_id": n, "question_id": 10 * n, "question": ASKED[n % 3]} for n in rows]
        answers: Any = [
            [{"answer_id": i, "answer": answer(n), "raw_answer": answer(n)} for i in range(10)] for n in rows
        ]
        notes = [{"image_id": n, "question_id": 10 * n, "answers": ten} for n, ten in zip(rows, answers, strict=True)]
        head = {"data_type": "mscoco", "data_subtype": f"{part}2014"}
        write(root, f"OpenEnded_mscoco_{part}2014_questions.json", {**head, "questions": asked})
        write(root, f"mscoco_{part}2014_annotations.json", {**head, "annotations": notes})


@layout("vqa", "vg-qa", total=80, columns={"text": "question", "answers": "answer"})
def visual_genome(root: Path) -> None:
    """Questions and region descriptions, each below its picture."""
    numbers = range(1, 41)
    photos(root, [f"VG_100K/{n}.jpg" for n in numbers])
    qas = {
        n: [{"image_id": n, "qa_id": 9 * n + i, "question": ASKED[i], "answer": answer(n)} for i in (0, 1)]
        for n in numbers
    }
    write(root, "question_answers.json", [{"id": n, "qas": rows} for n, rows in qas.items()])
    phrases = {n: [{"region_id": 9 * n + i, "image_id": n, "phrase": sentence(n)} for i in (0, 1)] for n in numbers}
    write(root, "region_descriptions.json", [{"id": n, "regions": rows} for n, rows in phrases.items()])
    write(root, "image_data.json", [{"image_id": n, "width": 24, "height": 18} for n in numbers])


@layout("image-classification", "stanford-cars", total=30, columns={"label": "class"})
def stanford_cars(root: Path) -> None:
    """The devkit's MATLAB files; those of the test pictures hold no classes."""
    from scipy.io import savemat

    for part, count in (("train", 30), ("test", 12)):
        names = [f"{n:05}.jpg" for n in range(1, count + 1)]
        photos(root, [f"cars_{part}/{name}" for name in names])
        fields = ["bbox_x1", "fname"] + (["class"] if part == "train" else [])
        rows = np.zeros(count, dtype=[(field, object) for field in fields])
        for row, (n, name) in zip(rows, enumerate(names), strict=True):
            row["bbox_x1"], row["fname"] = 1, name
            if part == "train":
                row["class"] = n % 3 + 1
        (root / "devkit").mkdir(exist_ok=True)
        savemat(root / f"devkit/cars_{part}_annos.mat", {"annotations": rows})
    savemat(root / "devkit/cars_meta.mat", {"class_names": np.array(["Hummer", "Acura", "BMW"], object)})


@layout("retrieval", "csv", total=120, columns={"image": "image_name", "text": "comment"})
def bars_and_blanks(root: Path) -> None:
    """Flickr30k's captions as a table whose cells are divided by a bar and a blank."""
    names = photos(root, [f"flickr30k_images/{1000 + n}.jpg" for n in range(40)])
    rows = [[Path(name).name, f" {i}", f" {sentence(3 * n + i)} ."] for n, name in enumerate(names) for i in range(3)]
    rows_of(root, "results.csv", ["image_name", " comment_number", " comment"], rows, "|")


@layout("vqa", "text-columns", counts={"train": 60, "test": 20}, columns={"image": "img_ids", "text": "questions"})
def coco_qa(root: Path) -> None:
    """COCO-QA: a text file a column; pictures by COCO's number, those of the test part from another folder."""
    for part, folder, start, count in (("train", "train2014", 100, 30), ("test", "val2014", 500, 10)):
        photos(root, [f"{folder}/COCO_{folder}_{n:012d}.jpg" for n in range(start, start + count)])
        numbers = [start + n // 2 for n in range(2 * count)]
        columns: dict[str, list[Any]] = {"img_ids": numbers, "types": [n % 2 for n in numbers]}
        columns["questions"] = [ASKED[row % 2] for row in range(2 * count)]
        columns["answers"] = [answer(n) for n in numbers]
        for name, cells in columns.items():
            write(root, f"{part}/{name}.txt", "\n".join(map(str, cells)) + "\n")


@layout("vqa", "rsvqa", counts={"train": 40, "validation": 12, "test": 12}, columns={"image": "img_id"})
def rsvqa(root: Path) -> None:
    """RSVQA: every file has all rows, and those of other parts are not active; answers lie in a file beside."""
    photos(root, [f"Images_LR/{n}.tif" for n in range(32)])
    bounds = {"train": range(40), "val": range(40, 52), "test": range(52, 64)}
    for part, active in bounds.items():
        for name, make in (
            ("questions", lambda n: {"img_id": n // 2, "type": "count", "question": ASKED[n % 2], "answers_ids": [n]}),
            ("answers", lambda n: {"question_id": n, "answer": answer(n)}),
        ):
            rows = [{"id": n, "active": n in active} | (make(n) if n in active else {}) for n in range(64)]
            write(root, f"LR_split_{part}_{name}.json", {name: rows})


@layout("image-classification", "oxford-pets", counts={"train": 45, "test": 45}, columns={"label": "second word"})
def oxford_pets(root: Path) -> None:
    """Oxford-IIIT Pet: lists of PICTURE CLASS SPECIES BREED."""
    names = [
        (f"{kind}_{n}", at) for n in range(1, 31) for at, kind in enumerate(("Abyssinian", "great_dane", "pug"), 1)
    ]
    photos(root, [f"images/{name}.jpg" for name, _ in names])
    lines = [f"{name} {at} {2 - (at == 1)} {at}" for name, at in names]
    write(root, "annotations/list.txt", "\n".join(["#Image CLASS-ID SPECIES BREED ID", *lines]))
    write(root, "annotations/trainval.txt", "\n".join(lines[::2]) + "\n")
    write(root, "annotations/test.txt", "\n".join(lines[1::2]) + "\n")


@layout("image-classification", "oxford-flowers", counts={"train": 20, "validation": 20, "test": 30})
def oxford_flowers(root: Path) -> None:
    """Oxford 102 Flowers: numbered pictures, MATLAB files of their classes and parts."""
    from scipy.io import savemat

    photos(root, [f"jpg/image_{n:05}.jpg" for n in range(1, 71)])
    savemat(root / "imagelabels.mat", {"labels": np.array([[1 + n % 3 for n in range(70)]], np.uint8)})
    order = np.arange(1, 71)[None, ::-1]
    savemat(root / "setid.mat", {"trnid": order[:, :20], "valid": order[:, 20:40], "tstid": order[:, 40:]})


@layout("vqa", "json", counts={"train": 30, "validation": 10, "test": 10}, columns={"image": "img_name"})
def slake(root: Path) -> None:
    """SLAKE: each picture's folder repeats its questions; they are not read a second time."""
    bounds = {"train": (0, 30), "validate": (30, 40), "test": (40, 50)}
    for part, (start, end) in bounds.items():
        photos(root, [f"imgs/xmlab{n}/source.jpg" for n in range(start, end)])
        rows = [
            {"img_name": f"xmlab{n}/source.jpg", "qid": n, "question": ASKED[n % 3], "answer": answer(n)}
            for n in range(start, end)
        ]
        write(root, f"{part}.json", rows)
        for row in rows:
            write(root, f"imgs/{Path(row['img_name']).parent}/question.json", [row])


@layout("image-classification", "class-shards", counts={"train": 60, "test": 20}, columns={"image": "the picture"})
def clip_benchmark(root: Path) -> None:
    """CLIP_benchmark's export: shards of .jpg and .cls, the names of the classes beside them."""
    for part, shards in (("train", 3), ("test", 1)):
        for shard in range(shards):
            numbers = range(20 * shard, 20 * shard + 20)
            pictures = {f"s{n:07d}.jpg": jpeg(n) for n in numbers}
            classes = {f"s{n:07d}.cls": str(n % 4).encode() for n in numbers}
            pack(root, f"{part}/{shard}.tar", dict(sorted((pictures | classes).items())))
        write(root, f"{part}/nshards.txt", str(shards))
    write(root, "classnames.txt", "cat\ndog\nbird\nfish\n")


@layout("classification", "nlvr", counts={"train": 40, "validation": 10, "test": 10}, columns={"text": "sentence"})
def nlvr(root: Path) -> None:
    """NLVR: a drawing lies there six times, its boxes in other orders."""
    for part, count in (("train", 40), ("dev", 10), ("test", 10)):
        rows = []
        for n in range(count):
            below = {"directory": str(n % 4)} if part == "train" else {}
            names = [f"{part}-{n}-0-{order}.png" for order in range(6)]
            photos(root, [str(Path(part, "images", *below.values(), name)) for name in names])
            row = {"sentence": sentence(n), "identifier": f"{n}-0", "label": str(n % 3 == 0).lower()}
            rows.append(row | {"structured_rep": [[], [], []], "evals": {"r0": "true"}} | below)
        write(root, f"{part}/{part}.json", "\n".join(map(json.dumps, rows)))


@layout("retrieval", "json", counts={"train": 90, "test": 30}, columns={"image": "filename"})
def nwpu_captions(root: Path) -> None:
    """NWPU-Captions: a list for each class, and a column a caption."""
    document: dict[str, list[dict[str, Any]]] = {}
    for kind in ("airplane", "beach"):
        names = photos(root, [f"NWPU_images/{kind}/{kind}_{n:03d}.jpg" for n in range(1, 21)])
        captions = [[sentence(7 * n + i) for i in range(3)] for n in range(20)]
        document[kind] = [
            {
                "filename": Path(name).name,
                "raw": one,
                "raw_1": two,
                "raw_2": three,
                "split": "train" if n < 15 else "test",
            }
            for n, (name, (one, two, three)) in enumerate(zip(names, captions, strict=True))
        ]
    write(root, "dataset_nwpu.json", document)


@layout("vqa", "json", counts={"train": 75, "validation": 15, "test": 30}, columns={"answers": "answer"})
def visual7w(root: Path) -> None:
    """Visual7W: an entry a picture, which holds its questions."""
    photos(root, [f"images/v7w_{n}.jpg" for n in range(40)])
    entries = [
        {
            "filename": f"v7w_{n}.jpg",
            "split": "train" if n < 25 else "val" if n < 30 else "test",
            "qa_pairs": [{"qa_id": 3 * n + i, "question": ASKED[i], "answer": answer(n + i)} for i in range(3)],
        }
        for n in range(40)
    ]
    write(root, "dataset_v7w_telling.json", {"dataset": "v7w_telling", "images": entries})


@layout("vqa", "json", counts={"train": 60, "test": 20}, columns={"image": "img"})
def parts_in_one_document(root: Path) -> None:
    """One document with a list for each part."""
    photos(root, [f"images/{n}.png" for n in range(40)])
    rows = [{"img": f"{n}.png", "question": ASKED[i], "answer": answer(n + i)} for n in range(40) for i in range(2)]
    write(root, "qa.json", {"train": rows[:60], "test": rows[60:]})


@layout("image-classification", "folder", total=80, columns={"label": "folder"})
def classes_below_letters(root: Path) -> None:
    """SUN397: folders of classes lie in folders of their first letters."""
    for kind in ("a/abbey", "a/airfield", "b/bar", "b/beach"):
        photos(root, [f"SUN397/{kind}/sun_{Path(kind).name}{n}.jpg" for n in range(20)])


@layout("image-classification", "csv", total=60, columns={"image": "id", "label": "label"})
def numbered_in_two_folders(root: Path) -> None:
    """Kaggle: train.csv numbers the pictures of train/, whose names those of test/ have too."""
    photos(root, [f"train/{n}.jpg" for n in range(60)] + [f"test/{n}.jpg" for n in range(20)])
    rows_of(root, "train.csv", ["id", "label"], [[n, ("cat", "dog")[n % 2]] for n in range(60)])
    rows_of(root, "sample_submission.csv", ["id", "label"], [[n, "cat"] for n in range(20)])


@layout("multi-label", "csv", counts={"train": 60, "test": 20}, columns={"label": ["Finding Labels"]})
def chest_x_rays(root: Path) -> None:
    """ChestX-ray14: one table of labels, two lists of the parts, pictures in several folders."""
    names = photos(root, [f"images_00{1 + n % 2}/images/{n:08d}_000.png" for n in range(80)])
    findings = ("No Finding", "Mass|Edema", "Mass")
    rows = [[Path(name).name, findings[n % 3], n // 2] for n, name in enumerate(names)]
    rows_of(root, "Data_Entry_2017.csv", ["Image Index", "Finding Labels", "Patient ID"], rows)
    for name, some in (("train_val_list.txt", rows[:60]), ("test_list.txt", rows[60:])):
        write(root, name, "\n".join(str(row[0]) for row in some))


@layout("image-classification", "folder", total=60, columns={"label": "folder"})
def from_a_mac(root: Path) -> None:
    """An archive of macOS, with its shadows of folders and pictures, and a notebook's hidden copies."""
    names = photos(root, [f"pets/{kind}/{kind}{n}.png" for kind in ("cat", "dog", "猫") for n in range(20)])
    photos(root, ["pets/cat/.ipynb_checkpoints/cat0-checkpoint.png"])
    for name in names:
        write(root, f"__MACOSX/{Path(name).parent}/._{Path(name).name}", "Mac OS X")
        write(root, f"{Path(name).parent}/._{Path(name).name}", "Mac OS X")


@layout("detection", "csv", total=40, columns={"boxes": ["xmin", "ymin", "xmax", "ymax"], "box_labels": "class"})
def one_box_a_row(root: Path) -> None:
    """The table that many detection tutorials use: a row a box, corners in columns."""
    photos(root, [f"images/{n}.jpg" for n in range(40)])
    header = ["filename", "width", "height", "class", "xmin", "ymin", "xmax", "ymax"]
    rows = [[f"{n // 2}.jpg", 24, 18, ("cat", "dog")[n % 2], 1 + n % 2, 2, 15, 12] for n in range(80)]
    rows_of(root, "train_labels.csv", header, rows)


@layout("referring", "csv", total=40, columns={"boxes": ["x", "y", "w", "h"]}, weights=True)
def expressions_with_sizes(root: Path) -> None:
    """Expressions, each with corner, width and height of its box in columns."""
    photos(root, [f"images/{n}.jpg" for n in range(40)])
    rows = [[f"{n}.jpg", f"the left dog {n % 7}", 2, 3, 10, 8] for n in range(40)]
    rows_of(root, "expressions.csv", ["image", "expression", "x", "y", "w", "h"], rows)


@layout("pairs", "csv", total=40, columns={"image": ["left", "right"], "text": "statement"})
def two_columns_of_files(root: Path) -> None:
    """Two columns of file names whose titles say nothing of pictures."""
    photos(root, [f"images/{n}.jpg" for n in range(80)])
    rows = [[f"{2 * n}.jpg", f"{2 * n + 1}.jpg", "Both show a dog.", ("true", "false")[n % 2]] for n in range(40)]
    rows_of(root, "statements.csv", ["left", "right", "statement", "label"], rows)


PUBLIC = sorted(set(LAYOUTS) - BEFORE)
