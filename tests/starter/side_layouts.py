"""Layouts of public sets that say of each picture in a file of its own, and tables that are pickled."""

from __future__ import annotations

import pickle
from pathlib import Path

from tests.starter.layouts import ASKED, LAYOUTS, answer, layout, photos, sentence, write

BEFORE = set(LAYOUTS)


@layout("retrieval", "side-files", total=150, columns={"text": "text"})
def pascal_sentences(root: Path) -> None:
    """PASCAL sentences: folders of pictures and of texts side by side, a sentence a line."""
    for kind in ("dog", "bus"):
        photos(root, [f"dataset/{kind}/2008_{n:06}.jpg" for n in range(15)])
        for n in range(15):
            write(root, f"sentence/{kind}/2008_{n:06}.txt", "\n".join(f"{sentence(n)} {k}." for k in range(5)) + "\n")


@layout("retrieval", "side-files", total=60, columns={"text": "text"})
def texts_in_a_folder(root: Path) -> None:
    """Texts in folders of classes that the pictures are not in; a caption a line (Flowers' and birds' captions)."""
    photos(root, [f"jpg/image_{n:05}.jpg" for n in range(30)])
    for n in range(30):
        write(root, f"text_c10/class_{n % 3:05}/image_{n:05}.txt", f"{sentence(n)}\n{sentence(n)} again\n")


@layout("retrieval", "side-files", total=60, columns={"text": "text"})
def sentences_beside_pictures(root: Path) -> None:
    """A text file beside each picture, with a sentence a line."""
    photos(root, [f"pics/{n:03}.jpg" for n in range(30)])
    for n in range(30):
        write(root, f"pics/{n:03}.txt", f"{sentence(n)}\n{sentence(n)} again")


@layout("multi-label", "side-files", counts={"train": 30, "validation": 5, "test": 5}, columns={"label": ["genres"]})
def classes_beside_pictures(root: Path) -> None:
    """A JSON file beside each picture with several classes, and a document with a list for each part."""
    photos(root, [f"dataset/{n:07}.jpeg" for n in range(40)])
    for n in range(40):
        genres = [name for at, name in enumerate(("Drama", "Comedy", "War"), 1) if n % at == 0]
        write(root, f"dataset/{n:07}.json", {"genres": genres, "year": 1960 + n})
    bounds = {"train": (0, 30), "dev": (30, 35), "test": (35, 40)}
    write(root, "split.json", {part: [f"{n:07}" for n in range(*some)] for part, some in bounds.items()})


@layout("vqa", "pickle", counts={"train": 30, "test": 10}, columns={"text": "question", "answers": "answer"})
def path_vqa(root: Path) -> None:
    """PathVQA: pickled lists of questions."""
    for part, count in (("train", 30), ("test", 10)):
        photos(root, [f"images/{part}/{part}_{n:04}.jpg" for n in range(count)])
        rows = [{"image": f"{part}_{n:04}", "question": ASKED[n % 3], "answer": answer(n)} for n in range(count)]
        (root / f"qas/{part}").mkdir(parents=True)
        (root / f"qas/{part}/{part}_qa.pkl").write_bytes(pickle.dumps(rows))


@layout("referring", "side-files", total=60, columns={"text": "description"}, weights=True)
def dior_rsvg(root: Path) -> None:
    """DIOR-RSVG: Pascal VOC's XML, with a description in each object."""
    photos(root, [f"JPEGImages/{n:05}.jpg" for n in range(30)])
    corners = {"xmin": 2, "ymin": 3, "xmax": 9, "ymax": 8}
    sides = "".join(f"<{side}>{at}</{side}>" for side, at in corners.items())
    for n in range(30):
        said = (f"<description>{sentence(2 * n + k)}</description></object>" for k in range(2))
        objects = "".join(f"<object><name>ship</name><bndbox>{sides}</bndbox>{text}" for text in said)
        write(root, f"Annotations/{n:05}.xml", f"<annotation><filename>{n:05}.jpg</filename>{objects}</annotation>")


@layout("image-classification", "csv", total=30, columns={"image": "id", "label": "label"})
def cifar_of_kaggle(root: Path) -> None:
    """CIFAR-10 on Kaggle: numbers that name pictures of train/ and of test/."""
    photos(root, [f"{part}/{n}.png" for part in ("train", "test") for n in range(1, 31)])
    for file in ("trainLabels.csv", "sampleSubmission.csv"):
        write(root, file, "id,label\n" + "".join(f"{n},{answer(n)}\n" for n in range(1, 31)))


@layout("image-classification", "csv", counts={"train": 30, "test": 10}, columns={"label": "value"})
def places(root: Path) -> None:
    """Places365: classes by number, and a test without classes."""
    names = {part: [f"{part}_{n:08}.jpg" for n in range(30)] for part in ("train", "val", "test")}
    photos(root, [f"{part}/{name}" for part, some in names.items() for name in some])
    for part, some in names.items():
        lines = [name if part == "test" else f"{name} {n % 3}" for n, name in enumerate(some)]
        write(root, f"places365_{part}.txt", "\n".join(lines[: None if part == "train" else 10]))


@layout("image-classification", "imagenet", counts={"train": 30, "test": 10})
def imagenet_of_kaggle(root: Path) -> None:
    """ILSVRC on Kaggle: folders of classes, flat pictures of val, and tables of classes and boxes."""
    kinds = ("n01440764", "n01443537")
    tables = {"train": [f"{kinds[n % 2]}_{n}" for n in range(30)], "val": [f"ILSVRC2012_val_{n:08}" for n in range(10)]}
    for part, names in tables.items():
        homes = [f"{part}/{name.split('_')[0]}" if part == "train" else part for name in names]
        photos(root, [f"ILSVRC/Data/CLS-LOC/{home}/{n}.JPEG" for home, n in zip(homes, names, strict=True)])
        rows = [f"{name},{kinds[n % 2]} 1 2 9 8 " for n, name in enumerate(names)]
        write(root, f"LOC_{part}_solution.csv", "\n".join(["ImageId,PredictionString", *rows]))


SIDE = sorted(set(LAYOUTS) - BEFORE)
