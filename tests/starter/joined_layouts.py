"""Layouts whose tables need a second look: rows without pictures, answers by place, official parts beside folders."""

from __future__ import annotations

from pathlib import Path

from tests.starter.layouts import ASKED, LAYOUTS, answer, layout, photos, rows_of, write

BEFORE = set(LAYOUTS)
KINDS = ("Crop", "Forest", "River")


@layout("vqa", "json", counts={"train": 30, "validation": 10, "test": 10}, columns={"choices": "choices"})
def choices_by_place(root: Path) -> None:
    """ScienceQA: an object by key; answers are places of choices; a third of the questions have no picture."""
    document = {}
    for n in range(75):
        part = "train" if n < 45 else "val" if n < 60 else "test"
        document[str(n)] = {
            "question": ASKED[n % 3],
            "choices": ["red", "green", "blue"][: 2 + n % 2],
            "answer": n % 2,
            "image": None if n % 3 == 0 else "image.png",
            "split": part,
        }
        photos(root, [f"{part}/{n}/image.png"] if n % 3 else [])
    write(root, "problems.json", document)


@layout("vqa", "json", total=120, columns={"image": "image_name", "text": "question"})
def a_few_pictures_asked_often(root: Path) -> None:
    """VQA-RAD in little: 24 pictures, of which a hash may hold none out."""
    photos(root, [f"VQA_RAD Image Folder/synpic{n * 7919}.jpg" for n in range(24)])
    rows = [
        {"qid": n, "image_name": f"synpic{n % 24 * 7919}.jpg", "question": ASKED[n % 3], "answer": answer(n)}
        for n in range(120)
    ]
    write(root, "VQA_RAD Dataset Public.json", rows)


@layout("image-classification", "csv", counts={"train": 45, "test": 15}, columns={"image": "Path", "label": "ClassId"})
def tables_beside_class_folders(root: Path) -> None:
    """GTSRB: folders of the training classes, tables of both parts, a table of the classes."""
    train = photos(root, [f"Train/{n % 3}/{n % 3:05}_{n:05}.png" for n in range(45)])
    test = photos(root, [f"Test/{n:05}.png" for n in range(15)])
    photos(root, [f"Meta/{k}.png" for k in range(3)])
    for name, files in (("Train", train), ("Test", test)):
        rows_of(root, f"{name}.csv", ["Width", "ClassId", "Path"], [[24, n % 3, f] for n, f in enumerate(files)])
    rows_of(root, "Meta.csv", ["Path", "ClassId", "ShapeId"], [[f"Meta/{k}.png", k, k] for k in range(3)])


@layout(
    "image-classification", "csv", counts={"train": 30, "validation": 15, "test": 15}, columns={"label": "ClassName"}
)
def numbers_and_names(root: Path) -> None:
    """EuroSAT: each class as a number and as a word."""
    files = photos(root, [f"{KINDS[n % 3]}/{KINDS[n % 3]}_{n}.jpg" for n in range(60)])
    for part, start, end in (("train", 0, 30), ("validation", 30, 45), ("test", 45, 60)):
        rows = [[n, files[n], n % 3, KINDS[n % 3]] for n in range(start, end)]
        rows_of(root, f"{part}.csv", ["", "Filename", "Label", "ClassName"], rows)
    write(root, "label_map.json", {kind: n for n, kind in enumerate(KINDS)})


JOINED = sorted(set(LAYOUTS) - BEFORE)
