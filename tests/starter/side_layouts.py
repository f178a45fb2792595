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


SIDE = sorted(set(LAYOUTS) - BEFORE)
