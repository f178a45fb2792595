"""Bad annotation files: cut, of wrong types, with texts that are none, packed without end."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz.harness import Content, Trial

RECIPE = "root: .\nstages: {train: {kind: pretrain, model: lxmert, data: %s, objectives: [mlm]}}\n"
GOOD = '{"text": "a red dog", "image": "a.jpg"}\n'

LINES: dict[str, str | bytes] = {
    "empty": "",
    "blank": "\n\n  \n",
    "text-nan": GOOD + '{"text": NaN, "image": "a.jpg"}\n',
    "text-infinity": GOOD + '{"text": -Infinity}\n',
    "text-number": GOOD + '{"text": 3}\n',
    "text-true": GOOD + '{"text": true}\n',
    "text-list": GOOD + '{"text": ["a", "b"]}\n',
    "text-object": GOOD + '{"text": {"a": 1}}\n',
    "text-null": GOOD + '{"text": null}\n',
    "text-surrogate": GOOD + '{"text": "\\ud800"}\n',
    "text-long": GOOD + json.dumps({"text": "word " * 2_100_000}) + "\n",
    "no-text": '{"words": "a", "image": 3}\n',
    "no-columns": '{"a": 1}\n',
    "integer-5000": '{"text": "a", "label": ' + "7" * 5000 + "}\n",
    "integer-first": "7" * 5000 + "\n",
    "deep": "[" * 100_000 + "]" * 100_000 + "\n",
    "deep-in": '{"text": ' + "[" * 50_000 + "]" * 50_000 + "}\n",
    "array": "[1, 2]\n",
    "document": json.dumps([{"text": "a"}], indent=1),
    "cut": GOOD + '{"text": "a red d',
    "nul": GOOD + '{"text": "a\x00b"}\n',
    "not-utf8": b'{"text": "\xff\xfe"}\n',
    "utf16": '{"text": "a"}\n'.encode("utf-16"),
    "gzip-cut": gzip.compress(GOOD.encode() * 100)[:-20],
    "gzip-bad": b"\x1f\x8b" + b"\x00" * 40,
    "gzip-flipped": b"".join((gzip.compress(GOOD.encode() * 100)[:30], b"\xff\xff", b"\x00" * 50)),
    "image-number": '{"text": "a", "image": 3}\n',
    "image-object": '{"text": "a", "image": {"a": 1}}\n',
    "image-nul": '{"text": "a", "image": "a\\u0000b.jpg"}\n',
    "image-long": json.dumps({"text": "a", "image": "i" * 300 + ".jpg"}) + "\n",
    "image-out": '{"text": "a", "image": "../../../../../../../../etc/passwd"}\n',
    "image-surrogate": '{"text": "a", "image": "\\udc80.jpg"}\n',
    "id-list": '{"text": "a", "id": [1]}\n',
    "id-surrogate": '{"text": "a", "id": "\\ud800"}\n',
    "label-list": '{"text": "a", "label": [1]}\n{"text": "b", "label": "x"}\n',
    "label-nan": '{"text": "a", "label": NaN}\n',
    "label-object": '{"text": "a", "label": {"x": 1}}\n',
    "answers-number-list": '{"text": "a", "answers": [[1], {"b": 2}]}\n',
    "answers-nan": '{"text": "a", "answers": {"yes": NaN}}\n',
    "answers-null": '{"text": "a", "answers": {"yes": null}}\n',
    "boxes-word": '{"text": "a", "image": "a.jpg", "boxes": "x"}\n',
    "boxes-nan": '{"text": "a", "image": "a.jpg", "boxes": [[NaN, 0, 1, 1]]}\n',
    "boxes-five": '{"text": "a", "image": "a.jpg", "boxes": [[0, 0, 1, 1, 1]]}\n',
    "boxes-ragged": '{"text": "a", "image": "a.jpg", "boxes": [[0, 0], [1]]}\n',
    "boxes-object": '{"text": "a", "image": "a.jpg", "boxes": {"a": 1}}\n',
    "boxes-huge": '{"text": "a", "image": "a.jpg", "boxes": [[1e400, 0, 1, 1]]}\n',
    "box-labels-long": '{"text": "a", "image": "a.jpg", "boxes": [[0,0,1,1]], "box_labels": ["a", "b"]}\n',
    "box-labels-list": '{"text": "a", "image": "a.jpg", "boxes": [[0,0,1,1]], "box_labels": [[1]]}\n',
    "id-twice": '{"text": "a", "id": 1}\n{"text": "b", "id": "1"}\n',
    "key-twice": '{"text": "a", "text": "b"}\n',
    "label-mixed": '{"text": "a", "label": 1}\n{"text": "b", "label": {"1": 2}}\n',
    "same-name": '{"text": "a", "image": "a/x.jpg"}\n{"text": "b", "image": "b/x.jpg"}\n',
}
MAY_BE_RIGHT = {
    "no-text", "image-number", "image-long", "label-nan", "id-list", "nul", "box-labels-list", "boxes-nan",
    "boxes-huge", "answers-number-list", "answers-nan", "image-nul", "id-surrogate", "text-list", "same-name",
}  # fmt: skip

TABLES: dict[str, str | bytes] = {
    "empty": "",
    "header": "text,image\n",
    "no-text": "a,b\n1,2\n",
    "short-row": "text,image\na\n",
    "long-row": "text,image\na,b,c\n",
    "open-quote": 'text,image\n"a,b\n',
    "nul": "text,image\na\x00,b\n",
    "not-utf8": b"text,image\n\xff,b\n",
    "field": "text\n" + "x" * 200_000 + "\n",
    "text-long": "text\n" + "word " * 2_100_000 + "\n",
    "label": "text,label\na,9" + "9" * 5000 + "\n",
    "boxes": "text,image,boxes\na,b.jpg,[[1]]\n",
    "boxes-deep": "text,image,boxes\na,b.jpg," + "[" * 50_000 + "\n",
    "answers-integer": "text,answers\na," + "9" * 5000 + "\n",
    "twice": "text,text\na,b\n",
    "id-twice": "text,id\na,7\nb,7\n",
    "signs": "text,label,answers\na,1.0,null\nb,007,[1]\nc,NA,1e3\nd,,\n",
    "labels-deep": "text,box_labels\na," + "[" * 50_000 + "\n",
}
SOUND = {"twice", "nul", "answers-integer", "label", "field", "signs", "labels-deep"}

WEIRD = ("NaN", "null", "true", "[]", "{}", "-1", "1e400", '""', '"\\ud800"', "[[[]]]", '"x"', "3.5", '{"a": []}')
WEIRD += ("7" * 5000,)

FILES = {
    "captions": ('{"a.jpg": ["a dog"], "b.jpg": [%s]}', "{name: captions, file: a.json}"),
    "captions-object": ('{"a.jpg": %s}', "{name: captions, file: a.json}"),
    "captions-image": ('[{"image": %s, "captions": ["a dog"]}]', "{name: captions, file: a.json}"),
    "coco-caption": (
        '{"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": [{"image_id": 1, "id": 1, "caption": %s}]}',
        "{name: coco-captions, file: a.json}",
    ),
    "coco-images": ('{"images": %s, "annotations": []}', "{name: coco-captions, file: a.json}"),
    "coco-box": (
        '{"images": [{"id": 1, "file_name": "a.jpg", "width": 9, "height": 9}], "categories": [{"id": 1, "name": "x"}],'
        ' "annotations": [{"image_id": 1, "id": 1, "category_id": 1, "iscrowd": 0, "area": 1, "bbox": [0, 0, %s, 1]}]}',
        "{name: coco-instances, file: a.json}",
    ),
    "coco-id": (
        '{"images": [{"id": 1, "file_name": "a.jpg"}, {"id": %s, "file_name": "b.jpg"}], "annotations": []}',
        "{name: coco-captions, captions: none, file: a.json}",
    ),
    "coco-box-id": (
        '{"images": [{"id": 1, "file_name": "a.jpg"}], "categories": [{"id": 1}], "annotations": ['
        '{"image_id": 1, "id": 1, "category_id": 1, "bbox": [0, 0, 0, 1]},'
        '{"image_id": 1, "id": %s, "category_id": 1, "bbox": [0, 0, -1, 1]}]}',
        "{name: coco-instances, file: a.json}",
    ),
    "karpathy-split": (
        '{"images": [{"filename": "a.jpg", "split": "train", "sentences": []}, {"filename": "b.jpg", "split": %s}]}',
        "{name: karpathy, file: a.json}",
    ),
    "csv-cell": (
        "text,label,answers,box_labels\na,1.0,null,[1]\nb,%s,%s,%s\n",
        "{name: csv, file: a.csv}",
    ),
    "vqa-question": (
        '{"questions": [{"question_id": 1, "image_id": 1, "question": %s}]}',
        "{name: vqa, split: test, questions: a.json}",
    ),
    "vqa-list": (
        '[{"question_id": 1, "img_id": "a", "sent": %s, "label": {"yes": 1}}]',
        "{name: vqa, questions: a.json}",
    ),
    "gqa-question": (
        '{"1": {"imageId": "a", "question": %s, "answer": "yes"}}',
        "{name: gqa, questions: a.json}",
    ),
    "nlvr2-sentence": (
        '[{"identifier": "a-0-0", "sent": %s, "label": 1, "uid": "u", "img0": "a", "img1": "b"}]',
        "{name: nlvr2, file: a.json}",
    ),
    "karpathy-sentence": (
        '{"images": [{"filename": "a.jpg", "split": "train", "sentences": [{"raw": %s, "tokens": ["a"]}]}]}',
        "{name: karpathy, file: a.json}",
    ),
    "snli-ve-sentence": (
        '{"Flickr30K_ID": "a", "sentence2": %s, "gold_label": "neutral", "pairID": "p"}',
        "{name: snli-ve, file: a.jsonl}",
    ),
    "vg-region": (
        '[{"id": 1, "regions": [{"region_id": 1, "phrase": %s, "image_id": 1}]}]',
        "{name: vg-regions, file: a.json}",
    ),
    "vg-question": (
        '[{"id": 1, "qas": [{"qa_id": 1, "question": %s, "answer": "a", "image_id": 1}]}]',
        "{name: vg-qa, file: a.json}",
    ),
    "pretrain": (
        '[{"img_id": "a", "sentf": {"mscoco": [%s]}, "labelf": {}}]',
        "{name: lxmert-pretrain, file: a.json}",
    ),
}  # fmt: skip


def _bomb(path: Path, valid: Path) -> None:
    """40 MB of zero bytes a hundred times over, packed; 4 MB on disk."""
    piece = gzip.compress(b" " * 40_000_000)
    with path.open("wb") as file:
        for _ in range(100):
            file.write(piece)


def _stats(name: str, spec: str, file: str, content: Content, codes: tuple[int, ...], quick: bool = False) -> Trial:
    files = {"r.yaml": RECIPE % spec, file: content}
    return Trial("annotation", name, ("data", "stats", "r.yaml"), files, codes, quick=quick)


def trials() -> Iterator[Trial]:
    """Every bad annotation file."""
    for number, (name, line) in enumerate(LINES.items()):
        codes = (0, 5) if name in MAY_BE_RIGHT else (5,)
        yield _stats(f"lines-{name}", "jsonl", "train.jsonl", line, codes, number % 3 == 0 or name.startswith("text-"))
    for number, (name, table) in enumerate(TABLES.items()):
        codes = (0, 5) if name in SOUND else (5,)
        yield _stats(f"table-{name}", "csv", "train.csv", table, codes, number % 4 == 0)
    for name, (form, spec) in FILES.items():
        file = next(name for name in ("a.jsonl", "a.csv", "a.json") if name in spec)
        for number, value in enumerate(WEIRD):
            codes = (0, 4, 5)
            yield _stats(f"{name}-{number}", spec, file, form.replace("%s", value), codes, quick=number == 0)
    yield _stats("lines-bomb", "jsonl", "train.jsonl", _bomb, (5,), quick=True)
    for name, text in {"long": "word " * 2_100_000, "surrogate": b"a \xed\xa0\x80 b", "empty": ""}.items():
        spec = "{name: plain-text, files: [a.txt]}"
        yield _stats(f"plain-{name}", spec, "a.txt", text, (5,), quick=name == "long")
    yield _stats("folder-for-file", "jsonl", "train.jsonl/x", "", (5,), quick=True)
    words = ("data", "stats", "r.yaml", "root=r.yaml")
    yield Trial("annotation", "root-is-a-file", words, {"r.yaml": RECIPE % "jsonl"}, (3, 5))
    for name in ("no-text", "text-nan", "text-surrogate"):
        words, files = ("validate", "r.yaml", "--deep"), {"r.yaml": RECIPE % "jsonl", "train.jsonl": LINES[name]}
        yield Trial("annotation", f"deep-{name}", words, files, (5,), says="train.jsonl:", quick=name == "no-text")
