"""Features of others in and out; the files here are written as their authors' code writes them, not by ours."""

from __future__ import annotations

import base64
import csv
import json
import multiprocessing
import os
import signal
import sys
import time

import numpy as np
import pytest

from vlcli.errors import DataError
from vlcli.features import FeatureStore, FeatureWriter, Record, info, verify
from vlcli.features.formats import tsv
from vlcli.features.importing import errors_file, export_features, import_features

OBJ36 = [
    "img_id",
    "img_h",
    "img_w",
    "objects_id",
    "objects_conf",
    "attrs_id",
    "attrs_conf",
    "num_boxes",
    "boxes",
    "features",
]
BUTD = ["image_id", "image_w", "image_h", "num_boxes", "boxes", "features"]


def _row(number, rows=4, dim=6):
    rng = np.random.default_rng(number)
    boxes = np.sort(rng.random((rows, 2, 2)) * [60, 40], axis=1).reshape(rows, 4).astype(np.float32)
    return {
        "img_id": f"COCO_val2014_{number:012d}",
        "img_h": 40,
        "img_w": 60,
        "objects_id": rng.integers(0, 1600, rows),
        "objects_conf": rng.random(rows, dtype=np.float32),
        "attrs_id": rng.integers(0, 400, rows),
        "attrs_conf": rng.random(rows, dtype=np.float32),
        "num_boxes": rows,
        "boxes": boxes,
        "features": rng.standard_normal((rows, dim), dtype=np.float32),
    }


def _write(path, rows, names=OBJ36):
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, names, delimiter="\t", extrasaction="ignore")
        for row in rows:
            cells = {
                k: base64.b64encode(v.tobytes()).decode() if isinstance(v, np.ndarray) else v for k, v in row.items()
            }
            table.writerow(cells)
    return path


@pytest.fixture(autouse=True)
def _same_csv_limit():
    limit = csv.field_size_limit()
    yield
    csv.field_size_limit(limit)


def _read(path):
    """As LXMERT reads it: by csv, with fixed types."""
    csv.field_size_limit(sys.maxsize)
    types = {"objects_id": np.int64, "attrs_id": np.int64}
    rows = []
    with path.open(newline="") as file:
        for item in csv.DictReader(file, OBJ36, delimiter="\t"):
            boxes = int(item["num_boxes"])
            for key in ("objects_id", "objects_conf", "attrs_id", "attrs_conf", "boxes", "features"):
                flat = np.frombuffer(base64.b64decode(item[key]), types.get(key, np.float32))
                item[key] = flat.reshape(boxes, -1) if key in ("boxes", "features") else flat.reshape(boxes)
            rows.append(item)
    return rows


def test_lxmert_file_gives_its_known_facts(tmp_path, shared):
    """The facts were measured with the authors' code (reference section D)."""
    source = shared / "data" / "annotations" / "lxmert" / "train2014_obj36.tsv"
    report = import_features("obj36", source, tmp_path / "f.h5", dtype="float32")
    assert report.counts == {"images": 10, "written": 10, "resumed": 0, "errors": 0}
    store = FeatureStore(tmp_path / "f.h5")
    numbers = [132417, 573195, 578174, 494628, 207647, 84002, 306661, 387267, 131486, 201446]
    assert store.ids == [f"COCO_train2014_{number:012d}" for number in numbers]
    sizes = [
        "333x500",
        "428x640",
        "394x640",
        "513x640",
        "391x408",
        "480x640",
        "427x640",
        "360x640",
        "640x407",
        "438x640",
    ]
    assert ["{}x{}".format(*store.size(name)) for name in store.ids] == sizes
    sums = [float(store.read(name).features.astype(np.float64).sum()) for name in (store.ids[0], store.ids[-1])]
    assert [round(value, 3) for value in sums] == [39949.252, 58688.729]
    vocabularies = source.parents[1] / "visual_genome" / "1600-400-20"
    objects = [line.split(",")[0] for line in (vocabularies / "objects_vocab.txt").read_text().splitlines()]
    attributes = [line.split(",")[0] for line in (vocabularies / "attributes_vocab.txt").read_text().splitlines()]
    first = store.read(store.ids[0])
    assert [objects[i] for i in first.classes[:3]] == ["sky", "tree", "tree"]
    assert [attributes[i] for i in first.attributes[:3]] == ["blue", "white", "green"]
    records = [store.read(name) for name in store.ids]
    reach = max(float((r.boxes / np.array([r.size[1], r.size[0]] * 2)).max()) for r in records)
    assert round(reach, 5) == 0.99936
    zeros = [float((r.features == 0).mean()) for r in records]
    assert all(0.24 <= share < 0.4 for share in zeros)
    assert min(float(r.features.min()) for r in records) == 0
    assert round(min(float(r.class_scores.min()) for r in records), 3) == 0.069
    export_features("obj36", store, tmp_path / "back.tsv")
    assert (tmp_path / "back.tsv").read_bytes() == source.read_bytes()
    assert verify(tmp_path / "f.h5") == []


def test_obj36_out_is_read_by_the_field(tmp_path):
    rows = [_row(number, rows=number) for number in (3, 1, 5)]
    import_features("obj36", _write(tmp_path / "a.tsv", rows), tmp_path / "f.h5", dtype="float32")
    store = FeatureStore(tmp_path / "f.h5")
    export_features("obj36", store, tmp_path / "b.tsv", images=[store.ids[2], store.ids[0]])
    found = _read(tmp_path / "b.tsv")
    assert [row["img_id"] for row in found] == [rows[2]["img_id"], rows[0]["img_id"]]
    for row, expected in zip(found, (rows[2], rows[0]), strict=True):
        for key, value in expected.items():
            assert np.array_equal(row[key], value) if isinstance(value, np.ndarray) else row[key] == str(value)


def test_labels_that_are_lacking_weigh_nothing(tmp_path):
    butd = [{**_row(n), "image_id": n, "image_w": 60, "image_h": 40} for n in (7, 8)]
    import_features("butd", _write(tmp_path / "a.tsv", butd, BUTD), tmp_path / "f.h5", ids="COCO_val2014_{:012d}")
    store = FeatureStore(tmp_path / "f.h5")
    assert store.ids == ["COCO_val2014_000000000007", "COCO_val2014_000000000008"]
    assert store.size(store.ids[0]) == (40, 60)  # width comes first in this file
    assert store.fields == ("features", "boxes")
    assert np.array_equal(store.read(store.ids[1]).features, butd[1]["features"].astype(np.float16))
    report = export_features("obj36", store, tmp_path / "b.tsv")
    assert "objects_id, objects_conf, attrs_id, attrs_conf" in report.notes[0]
    assert "float16" in report.notes[1]
    row = _read(tmp_path / "b.tsv")[0]
    assert not row["objects_conf"].any()
    assert row["features"].dtype == np.float32
    export_features("butd", store, tmp_path / "c.tsv")
    assert (tmp_path / "c.tsv").read_bytes().split(b"\t")[:4] == [b"COCO_val2014_000000000007", b"60", b"40", b"4"]


def _broken(lines, kind):
    cells = lines[2].split(b"\t")
    if kind == "cut":
        return [*lines[:2], lines[2][:-40]], ":3", "features"
    if kind == "cut early":
        return [*lines[:2], b"\t".join(cells[:7])], ":3", "7 columns, expected 10; the line is cut short"
    if kind == "base64":
        cells[9] = b"?" + cells[9][1:]
    elif kind == "count":
        cells[7] = b"5"
    elif kind == "none":
        cells[7] = b"0"
    elif kind == "number":
        cells[1] = b"forty"
    elif kind == "twice":
        cells = lines[0].split(b"\t")
    elif kind == "nan":
        cells[9] = base64.b64encode(np.full((4, 6), np.nan, np.float32).tobytes()) + b"\r\n"
    elif kind == "width":
        cells[9] = base64.b64encode(np.ones((4, 3), np.float32).tobytes()) + b"\r\n"
    elif kind == "outside":
        cells[8] = base64.b64encode(np.full((4, 4), 99, np.float32).tobytes())
    words = {
        "base64": "features is not base64",
        "count": "bytes, expected",
        "none": "the number of boxes is '0'",
        "number": "the height is 'forty'",
        "twice": "is there twice, first in",
        "nan": "not finite",
        "width": "other fields or widths",
        "outside": "leaves the image",
    }
    return [*lines[:2], b"\t".join(cells), *lines[3:]], ":3", words[kind]


KINDS = ["cut", "cut early", "base64", "count", "none", "number", "twice", "nan", "width", "outside"]


@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_told_with_its_line(tmp_path, kind):
    whole = _write(tmp_path / "whole.tsv", [_row(n) for n in range(5)])
    lines, place, words = _broken(whole.read_bytes().splitlines(keepends=True), kind)
    source = tmp_path / "bad.tsv"
    source.write_bytes(b"".join(lines))
    out = tmp_path / "f.h5"
    with pytest.raises(DataError) as caught:
        import_features("obj36", source, out)
    assert f"bad.tsv{place}" in str(caught.value)
    assert words in str(caught.value)
    assert not out.exists()
    source.write_bytes(whole.read_bytes())  # mended: what came before was kept
    report = import_features("obj36", source, out)
    assert (report.resumed, report.written) == (2, 3)
    source.write_bytes(b"".join(lines))
    report = import_features("obj36", source, tmp_path / "g.h5", skip_bad=True)
    assert [bad.where for bad in report.errors] == [f"{source}:3"]
    listed = [json.loads(line) for line in errors_file(tmp_path / "g.h5").read_text().splitlines()]
    assert words in listed[0]["reason"]
    assert report.images == len(lines) - 1


def test_boxes_may_be_clipped(tmp_path):
    row = _row(1)
    row["boxes"] = np.array([[-3, 5, 70, 44]] * 4, np.float32)
    import_features("obj36", _write(tmp_path / "a.tsv", [row]), tmp_path / "f.h5", clip=True)
    store = FeatureStore(tmp_path / "f.h5")
    assert store.read(store.ids[0]).boxes.tolist() == [[0, 5, 60, 40]] * 4
    assert store.provenance["clipped"] is True


def test_what_is_there_is_not_decoded_again_and_a_store_grows(tmp_path, monkeypatch):
    first, second = _write(tmp_path / "a.tsv", [_row(1), _row(2)]), _write(tmp_path / "b.tsv", [_row(3)])
    import_features("obj36", first, tmp_path / "f.h5")
    before = (tmp_path / "f.h5").read_bytes()
    monkeypatch.setattr(tsv.TSVFormat, "_decode", lambda *args: pytest.fail("decoded again"))
    assert import_features("obj36", first, tmp_path / "f.h5").counts["resumed"] == 2
    assert (tmp_path / "f.h5").read_bytes() == before
    monkeypatch.undo()
    report = import_features("obj36", second, tmp_path / "f.h5")
    assert (report.images, report.written) == (3, 1)
    assert FeatureStore(tmp_path / "f.h5").provenance["sources"] == ["a.tsv", "b.tsv"]
    with pytest.raises(DataError, match="another extraction"):
        import_features("obj36", second, tmp_path / "f.h5", clip=True)


def test_several_sets_by_import(tmp_path):
    import_features("obj36", _write(tmp_path / "a.tsv", [_row(1)]), tmp_path / "f.h5", set="detected")
    import_features("obj36", _write(tmp_path / "b.tsv", [_row(1, rows=2)]), tmp_path / "f.h5", set="ground-truth")
    assert set(info(tmp_path / "f.h5")["sets"]) == {"detected", "ground-truth"}


def test_headers_and_python_bytes_are_understood(tmp_path):
    source = _write(tmp_path / "a.tsv", [_row(1)])
    cells = source.read_bytes().rstrip(b"\r\n").split(b"\t")
    cells = [b"b'" + cell + b"'" if number in (3, 4, 5, 6, 8, 9) else cell for number, cell in enumerate(cells)]
    source.write_bytes("\t".join(OBJ36).encode() + b"\n" + b"\t".join(cells) + b"\n")
    assert import_features("obj36", source, tmp_path / "f.h5", dtype="float32").images == 1
    record = FeatureStore(tmp_path / "f.h5").read("COCO_val2014_000000000001")
    assert np.array_equal(record.features, _row(1)["features"])


def test_a_mark_of_utf8_is_no_part_of_the_first_name(tmp_path):
    source = _write(tmp_path / "a.tsv", [_row(1)])
    source.write_bytes(b"\xef\xbb\xbf" + source.read_bytes())
    import_features("obj36", source, tmp_path / "f.h5")
    assert FeatureStore(tmp_path / "f.h5").ids == [_row(1)["img_id"]]


def test_an_image_without_features_is_not_exported(tmp_path):
    with FeatureWriter(tmp_path / "f.h5") as writer:
        writer.append(Record("a", np.zeros((0, 3)), np.zeros((0, 4)), (4, 4)))
    with pytest.raises(DataError, match="cannot be exported") as caught:
        export_features("obj36", FeatureStore(tmp_path / "f.h5"), tmp_path / "a.tsv")
    assert "image 'a' has no features" in str(caught.value)
    assert not (tmp_path / "a.tsv").exists()


def test_an_endless_line_is_not_swallowed(tmp_path, monkeypatch):
    monkeypatch.setattr(tsv, "LONGEST", 1000)
    (tmp_path / "a.tsv").write_bytes(b"")
    with pytest.raises(DataError, match="holds no image"):
        import_features("obj36", tmp_path / "a.tsv", tmp_path / "f.h5")
    (tmp_path / "a.tsv").write_bytes(b"x" * 5000)
    with pytest.raises(DataError, match="cannot be imported") as caught:
        import_features("obj36", tmp_path / "a.tsv", tmp_path / "f.h5")
    assert "longer than" in str(caught.value)


def _slow_import(source, out):
    decode = tsv.TSVFormat._decode

    def slow(self, cells):
        time.sleep(0.002)
        return decode(self, cells)

    tsv.TSVFormat._decode = slow
    writing = sys.modules["vlcli.features.importing"].FeatureWriter
    sys.modules["vlcli.features.importing"].FeatureWriter = lambda *a, **k: writing(*a, flush_every=3, **k)
    import_features("obj36", source, out)


def test_killed_import_goes_on(tmp_path):
    source = _write(tmp_path / "a.tsv", [_row(n) for n in range(60)])
    context = multiprocessing.get_context("fork")
    out = tmp_path / "f.h5"
    for number in range(4):
        process = context.Process(target=_slow_import, args=(source, out))
        process.start()
        time.sleep(0.03 * (number + 1))
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    report = import_features("obj36", source, out)
    assert report.images == 60
    import_features("obj36", source, tmp_path / "whole.h5")
    assert out.read_bytes() == (tmp_path / "whole.h5").read_bytes()
