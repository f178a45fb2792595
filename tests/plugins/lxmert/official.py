"""Small annotations in the official formats, for the tests of LXMERT's data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vlcli import registry
from vlcli.data.reader import Reader

MINI = "COCO_val2014_000000000043"
LXMERT = {"name": "lxmert", "hidden": 16, "heads": 2, "text_layers": 1, "image_layers": 1, "cross_layers": 1}


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def captions(root: Path, split: str, numbers: list[int]) -> None:
    images = [{"id": n, "file_name": f"COCO_{split}2014_{n:012d}.jpg"} for n in numbers]
    notes = [{"id": 10 * n + k, "image_id": n, "caption": f" caption {k} of {n} "} for n in numbers for k in range(2)]
    write(root / f"annotations/captions_{split}2014.json", {"images": images, "annotations": notes})


def vqa(root: Path, split: str, asked: dict[int, list[str]]) -> None:
    form = f"mscoco_{split}2014"
    questions = [{"image_id": n, "question": f"What of {n}?", "question_id": 1000 * n} for n in asked]
    notes = [
        {
            "question_id": 1000 * n,
            "image_id": n,
            "answers": [{"answer": word, "answer_id": place} for place, word in enumerate(words)],
            "multiple_choice_answer": words[0],
            "question_type": "what",
            "answer_type": "other",
        }
        for n, words in asked.items()
    ]
    head = {"data_subtype": f"{split}2014"}
    write(root / f"vqa/v2_OpenEnded_{form}_questions.json", {**head, "questions": questions})
    write(root / f"vqa/v2_{form}_annotations.json", {**head, "annotations": notes})


@pytest.fixture
def official(tmp_path: Path) -> Path:
    """COCO 1 (train), 42 and 43 (val, 43 in minival); Visual Genome 7 = COCO 42, 8 = COCO 43, 9 alone."""
    captions(tmp_path, "train", [1])
    captions(tmp_path, "val", [42, 43])
    vqa(tmp_path, "train", {1: ["Net"] * 7 + ["web"] * 3})
    vqa(tmp_path, "val", {42: ["yes"] * 10, 43: ["no"] * 10})
    images = [{"image_id": 7, "coco_id": 42}, {"image_id": 8, "coco_id": 43}, {"image_id": 9, "coco_id": None}]
    write(tmp_path / "vg/image_data.json", images)
    regions = [{"id": n, "regions": [{"region_id": 10 * n, "phrase": f"region of {n}"}]} for n in (7, 8, 9)]
    write(tmp_path / "vg/region_descriptions.json", regions)
    asked = [{"id": 9, "qas": [{"qa_id": 90, "question": "Where?", "answer": "In the park."}]}]
    write(tmp_path / "vg/question_answers.json", asked)
    row = {"question": "Is it?", "answer": "pipe", "types": {"structural": "query"}, "entailed": ["x"]}
    write(
        tmp_path / "gqa/train_balanced_questions.json", {"07": {**row, "imageId": "7"}, "09": {**row, "imageId": "9"}}
    )
    write(tmp_path / "gqa/val_balanced_questions.json", {"08": {**row, "imageId": "8"}})
    write(tmp_path / "lxmert/minival.txt", f"{MINI}\n")
    return tmp_path


def read(name: str, root: Path, **keys: Any) -> Reader:
    reader: Reader = registry.build("datasets", {"name": name, **keys}, root)
    return reader
