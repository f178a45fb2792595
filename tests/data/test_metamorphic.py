"""The same data in another layout, order, encoding, number format, split, shard, compression or folder are the same.

Each case is a pair: the plain form of some data beside one that a few transformations were combined to.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.data import stage_keys
from vlcli import registry
from vlcli.data.reader import Reader
from vlcli.recipe.digests import data_digests

pytestmark = pytest.mark.slow

Row = dict[str, Any]
ROWS: list[Row] = [
    {"id": f"q{place}", "image": f"p{place % 4}.png", "text": text, "label": label, "answers": answer, "boxes": boxes}
    for place, (text, label, answer, boxes) in enumerate(
        [
            ("what is it?", 1, "null", [[0, 0, 4, 4]]),
            ("whöse café, \"quoted\"?", 2, "1e3", [[1, 1, 5, 6]]),
            ("a, b; c", 10, "007", [[0, 0, 8, 8]]),
            ("naïve\tNA", 1, "two words", [[2, 2, 3, 3]]),
            ("last", 3, "None", [[0, 1, 2, 3], [1, 1, 2, 2]]),
            ("ünder", 2, "3.0", [[0, 0, 1, 1]]),
        ]
    )
]  # fmt: skip
NUMBERS: dict[str, Callable[[int], Any]] = {"int": int, "float": float, "text": str, "float text": lambda n: f"{n}.0"}
ORDERS: dict[str, Callable[[list[Row]], list[Row]]] = {"as is": list, "reversed": lambda rows: rows[::-1]}
FIELDS: dict[str, Callable[[list[str]], list[str]]] = {"as is": list, "reversed": lambda names: names[::-1]}


def as_csv(rows: list[Row], separator: str = ",") -> str:
    content = io.StringIO()
    writer = csv.DictWriter(content, list(rows[0]), delimiter=separator)
    writer.writeheader()
    writer.writerows({k: v if isinstance(v, str) else json.dumps(v) for k, v in row.items()} for row in rows)
    return content.getvalue()


TABLES: dict[str, tuple[dict[str, Any], Callable[[list[Row]], str]]] = {
    "csv": ({"name": "csv", "file": "{split}.csv"}, as_csv),
    "tsv": ({"name": "csv", "file": "{split}.tsv", "separator": "tab"}, lambda rows: as_csv(rows, "\t")),
    "jsonl": ({"name": "jsonl"}, lambda rows: "".join(json.dumps(row) + "\n" for row in rows)),
    "json": ({"name": "json"}, lambda rows: json.dumps(rows, ensure_ascii=False)),
    "json object": ({"name": "json"}, lambda rows: json.dumps({"version": 1, "rows": rows}, indent=1)),
    "json by id": ({"name": "json"}, lambda rows: json.dumps({row["id"]: row for row in rows})),
}


def changed(rows: list[Row], number: str, order: str, fields: str) -> list[Row]:
    names = FIELDS[fields](list(rows[0]))
    return [
        {name: NUMBERS[number](row[name]) if name == "label" else row[name] for name in names}
        for row in ORDERS[order](rows)
    ]


def write(root: Path, table: str, rows: list[Row], split: str, encoding: str = "utf-8", packed: bool = False) -> None:
    spec, form = TABLES[table]
    file = root / spec.get("file", f"{{split}}.{spec['name']}").replace("{split}", split)
    content = form(rows).encode(encoding)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(content) if packed else content)


def examples(reader: Reader) -> dict[str, tuple[Any, ...]]:
    names, boxes = reader.label_names(), reader.boxes()
    return {
        one.key: (
            one.text,
            one.images,
            names[one.targets["label"]] if names else str(one.targets["label"]),
            one.targets["answers"],
            one.targets["raw_answers"],
            [boxes[image].boxes.tolist() for image in one.images],
        )
        for one in reader.examples()
    }


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, ...]]:
    root = tmp_path_factory.mktemp("plain")
    write(root, "jsonl", distinct(ROWS), "train")
    return examples(registry.build("datasets", {"name": "jsonl"}, root))


def distinct(rows: list[Row]) -> list[Row]:
    """With a picture of its own for each row, so that boxes do not hang on the order of rows."""
    return [{**row, "image": f"{row['id']}.png"} for row in rows]


TABLE_PAIRS = [
    (table, number, order, fields, how)
    for table, number, order, (fields, how) in itertools.product(
        TABLES,
        NUMBERS,
        ORDERS,
        [("as is", "utf-16"), ("reversed", "packed"), ("reversed", "split"), ("as is", "moved")],
    )
]


@pytest.mark.parametrize("pair", TABLE_PAIRS, ids="-".join)
def test_a_table_in_another_form(pair: tuple[str, ...], tmp_path: Path, plain: dict[str, tuple[Any, ...]]) -> None:
    table, number, order, fields, how = pair
    rows, spec = changed(distinct(ROWS), number, order, fields), dict(TABLES[table][0])
    encoding = "utf-16" if how == "utf-16" and "json" not in table[-4:] else "utf-8-sig" if how == "utf-16" else "utf-8"
    spec |= {"encoding": encoding} if encoding == "utf-16" else {}
    root = tmp_path / "a b" / "ü" if how == "moved" else tmp_path
    if how == "split":
        write(root, table, rows[:2], "train")
        write(root, table, rows[2:], "val")
        spec["split"] = ["train", "val"]
    else:
        write(root, table, rows, "train", encoding, how == "packed")
    assert examples(registry.build("datasets", spec, root)) == plain

    def in_another_form() -> None:
        other, sort = ("int", "reversed") if order == "as is" else ("float text", "as is")
        write(root, table, changed(distinct(ROWS), other, sort, "as is"), "train", encoding, how == "packed")

    stage_keys.check(root, spec, tmp_path / "runs", in_another_form)


@pytest.mark.parametrize("number", ["int", "float"])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", ["parquet", "hf-datasets"])
def test_a_table_with_types(
    name: str, order: str, number: str, tmp_path: Path, plain: dict[str, tuple[Any, ...]]
) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = changed(distinct(ROWS), number, order, "as is")
    if name == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "train.parquet")
    else:
        for place, part in enumerate((rows[:3], rows[3:])):
            pq.write_table(pa.Table.from_pylist(part), tmp_path / f"train-0000{place}-of-00002.parquet")
    assert examples(registry.build("datasets", {"name": name}, tmp_path)) == plain
    stage_keys.check(tmp_path, {"name": name}, tmp_path / "runs")


@pytest.mark.parametrize(("first", "second"), itertools.product(NUMBERS, NUMBERS), ids="-".join)
@pytest.mark.parametrize("table", ["csv", "jsonl"])
def test_splits_of_other_number_formats_have_the_same_classes(
    table: str, first: str, second: str, tmp_path: Path
) -> None:
    found = []
    for split, number in (("train", first), ("test", second)):
        write(tmp_path, table, changed(ROWS, number, "as is", "as is"), split)
    for split in ("train", "test"):
        reader = registry.build("datasets", {**TABLES[table][0], "split": split}, tmp_path)
        names = reader.label_names()
        found.append([names[one.targets["label"]] if names else str(one.targets["label"]) for one in reader.examples()])
    assert found[0] == found[1]


CAPTIONS = {f"p{place}": [f"picture {place}", f"no. {place}, again"] for place in range(5)}


def coco(root: Path, pairs: list[tuple[str, str]]) -> dict[str, Any]:
    names = list(dict.fromkeys(image for image, _ in pairs))
    images = [{"id": 10 + place, "file_name": f"{name}.png"} for place, name in enumerate(names)]
    notes = [
        {"id": place, "image_id": 10 + names.index(image), "caption": text} for place, (image, text) in enumerate(pairs)
    ]
    dump(root / "annotations/captions_train2017.json", {"annotations": notes, "images": images})
    return {"name": "coco-captions"}


def karpathy(root: Path, pairs: list[tuple[str, str]]) -> dict[str, Any]:
    sentences = [
        [{"raw": text, "sentid": place} for place, (one, text) in enumerate(pairs) if one == name]
        for name in grouped(pairs)
    ]
    images = [
        {"filename": f"{name}.png", "split": "train", "sentences": found}
        for name, found in zip(grouped(pairs), sentences, strict=True)
    ]
    dump(root / "dataset_mine.json", {"images": images, "dataset": "mine"})
    return {"name": "karpathy"}


def plain_list(root: Path, pairs: list[tuple[str, str]]) -> dict[str, Any]:
    dump(
        root / "captions_train.json",
        [{"image": f"{name}.png", "captions": texts} for name, texts in grouped(pairs).items()],
    )
    return {"name": "captions"}


def plain_object(root: Path, pairs: list[tuple[str, str]]) -> dict[str, Any]:
    dump(root / "captions_train.json", {f"{name}.png": texts for name, texts in grouped(pairs).items()})
    return {"name": "captions"}


def lines(root: Path, pairs: list[tuple[str, str]]) -> dict[str, Any]:
    dump(root / "train.jsonl", *[{"image": f"{name}.png", "text": text} for name, text in pairs])
    return {"name": "jsonl"}


def shards(
    count: int, folders: bool = False, rich: bool = False
) -> Callable[[Path, list[tuple[str, str]]], dict[str, Any]]:
    def write_shards(root: Path, pairs: list[tuple[str, str]]) -> dict[str, Any]:
        samples = list(grouped(pairs).items())
        for number in range(count):
            files = {}
            for name, texts in samples[number::count]:
                files[f"{name}.png"] = picture()
                files[f"{name}.json"] = json.dumps({"caption": texts}).encode()
                if rich:  # parts that no reader knows
                    files |= {f"{name}.cls": b"3", f"{name}.npy": b"\0"}
            lay(root / "train" / f"{number:03d}", files, folders)
        return {
            "name": "webdataset",
            "shards": "train/*" if folders else "{split}/{000.." + f"{count - 1:03d}" + "}.tar",
        }

    return write_shards


def lay(place: Path, files: dict[str, bytes], folder: bool) -> None:
    (place if folder else place.parent).mkdir(parents=True, exist_ok=True)
    if folder:
        for name, content in files.items():
            (place / name).write_bytes(content)
        return
    with tarfile.open(place.with_suffix(".tar"), "w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(f"./{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def picture() -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (8, 8)).save(content, "PNG")
    return content.getvalue()


def grouped(pairs: list[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, text in pairs:
        found.setdefault(name, []).append(text)
    return found


def dump(file: Path, *rows: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(map(json.dumps, rows)))


LAYOUTS: dict[str, Callable[[Path, list[tuple[str, str]]], dict[str, Any]]] = {
    "coco": coco,
    "karpathy": karpathy,
    "list": plain_list,
    "object": plain_object,
    "jsonl": lines,
    "one shard": shards(1),
    "three shards": shards(3, rich=True),
    "two folders": shards(2, folders=True),
}


@pytest.mark.parametrize("how", ["as is", "reversed", "packed", "linked"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_captions_in_another_layout(layout: str, how: str, tmp_path: Path) -> None:
    pairs = [(name, text) for name, texts in CAPTIONS.items() for text in texts]
    root = tmp_path / "data"
    root.mkdir()
    spec = LAYOUTS[layout](root, pairs[::-1] if how == "reversed" else pairs)
    if how == "packed":
        for file in root.rglob("*.json*"):
            if "shard" not in layout and "folder" not in layout:
                file.write_bytes(gzip.compress(file.read_bytes()))
    if how == "linked":
        (tmp_path / "link").symlink_to(root)
        root = tmp_path / "link"
    reader = registry.build("datasets", spec, root)
    found = [(image, one.text) for one in reader.examples() for image in one.images]
    assert sorted(found) == sorted(pairs)
    assert len({one.key for one in reader.examples()}) == len(pairs)
    stage_keys.check(root, spec, tmp_path / "runs")


@pytest.mark.parametrize("table", TABLES)
def test_digests_are_of_contents(table: str, tmp_path: Path) -> None:
    rows = changed(ROWS, "int", "as is", "as is")
    file = TABLES[table][0].get("file", f"{{split}}.{TABLES[table][0]['name']}").replace("{split}", "train")

    def digest(folder: str, rows: list[Row]) -> str:
        write(tmp_path / folder, table, rows, "train")
        return str(data_digests([tmp_path / folder / file], [])[0]["digest"])

    assert digest("a", rows) == digest("b", rows)
    for other in (
        rows[::-1],
        rows[:-1],
        [{**rows[0], "answers": "Null"}, *rows[1:]],
        changed(ROWS, "text", "as is", "as is"),
    ):
        assert (digest("c", other) == digest("a", rows)) == (TABLES[table][1](other) == TABLES[table][1](rows))
