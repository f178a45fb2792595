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

import h5py
import numpy as np
import pytest

from vlcli.errors import DataError, UsageError
from vlcli.features import FeatureStore, info, verify
from vlcli.features.concepts import ConceptStore
from vlcli.features.exporting import export_features
from vlcli.features.formats import FORMATS, tsv
from vlcli.features.importing import errors_file, import_features

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
        "number": "the height is 'forty'",
        "twice": "is there twice, first in",
        "nan": "not finite",
        "width": "other fields or widths",
        "outside": "leaves the image",
    }
    return [*lines[:2], b"\t".join(cells), *lines[3:]], ":3", words[kind]


@pytest.mark.parametrize("kind", ["cut", "cut early", "base64", "count", "number", "twice", "nan", "width", "outside"])
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
    monkeypatch.setattr(tsv.Table, "_decode", lambda *args: pytest.fail("decoded again"))
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
    decode = tsv.Table._decode

    def slow(self, cells):
        time.sleep(0.002)
        return decode(self, cells)

    tsv.Table._decode = slow
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


def _npz(path, number, **changes):
    row = _row(number)
    arrays = {"x": row["features"], "bbox": row["boxes"], "num_bbox": 4, "image_h": 40, "image_w": 60}
    arrays |= {"info": {"objects_id": row["objects_id"]}}  # numpy pickles it
    arrays |= changes
    path.parent.mkdir(exist_ok=True)
    np.savez_compressed(path, **{name: value for name, value in arrays.items() if value is not None})


def test_npz_folder(tmp_path):
    folder = tmp_path / "npz"
    _npz(folder / "COCO_1.npz", 1)
    _npz(folder / "COCO_2.npz", 2, x=np.ascontiguousarray(_row(2)["features"].T))
    padded = {"x": np.pad(_row(3)["features"], ((0, 2), (0, 0))), "bbox": np.pad(_row(3)["boxes"], ((0, 2), (0, 0)))}
    _npz(folder / "COCO_3.npz", 3, **padded, objects_id=np.arange(6), objects_conf=np.ones(6))
    with pytest.raises(DataError, match="cannot be imported") as caught:
        import_features("npz", folder, tmp_path / "f.h5", dtype="float32")
    assert "other fields" in str(caught.value)  # the third has labels
    (folder / "COCO_3.npz").unlink()
    _npz(folder / "COCO_3.npz", 3, **padded)
    assert import_features("npz", folder, tmp_path / "f.h5", dtype="float32").images == 3
    store = FeatureStore(tmp_path / "f.h5")
    for number in (1, 2, 3):
        record = store.read(f"COCO_{number}")
        assert np.array_equal(record.features, _row(number)["features"])
        assert np.array_equal(record.boxes, _row(number)["boxes"])
        assert record.size == (40, 60)


def test_npz_labels_boxes_alone_and_damage(tmp_path):
    folder = tmp_path / "npz"
    _npz(folder / "a.npz", 1, objects_id=np.arange(4), attrs_conf=np.ones(4))
    import_features("npz", folder / "a.npz", tmp_path / "f.h5")
    assert FeatureStore(tmp_path / "f.h5").read("a").classes.tolist() == [0, 1, 2, 3]
    _npz(folder / "a.npz", 1, x=None, image_h=None)
    import_features("npz", folder, tmp_path / "g.h5")
    store = FeatureStore(tmp_path / "g.h5")
    assert (store.dim, store.count("a")) == (0, 4)
    assert verify(tmp_path / "g.h5") == []
    reach = _row(1)["boxes"].max(0)
    assert store.size("a") == (int(np.ceil(reach[3])), int(np.ceil(reach[2])))
    for content in (b"", b"PK" + b"x" * 50, (folder / "a.npz").read_bytes()[:-30]):
        (folder / "b.npz").write_bytes(content)
        with pytest.raises(DataError, match="cannot be imported") as caught:
            import_features("npz", folder, tmp_path / "g.h5")
        assert "b.npz" in caught.value.where
    _npz(folder / "b.npz", 1, x=np.zeros((3, 3)))
    with pytest.raises(DataError) as caught:
        import_features("npz", folder, tmp_path / "g.h5")
    assert "x has shape (3, 3) for 4 boxes" in str(caught.value)
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match="no npz"):
        import_features("npz", tmp_path / "none", tmp_path / "g.h5")


def _vlp(folder, names, dtype="f4"):
    prefix = folder / "feat" / "coco_trainval"
    prefix.parent.mkdir(parents=True)
    arrays = {}
    with h5py.File(folder / "coco_bbox.h5", "w") as places:
        for number, name in enumerate(names):
            row = _row(number)
            table = np.concatenate([row["boxes"], np.arange(4)[:, None], row["objects_conf"][:, None]], 1)
            arrays[name] = (row["features"], np.random.default_rng(number).random((4, 1601)), table)
            places[name] = table.astype(np.float32)
            for kind, value in (("feat", arrays[name][0]), ("cls", arrays[name][1])):
                with h5py.File(f"{prefix}_{kind}{name[-3:]}.h5", "a") as file:
                    file[name] = value.astype(dtype)
    return prefix, arrays


def test_vlp_shards(tmp_path):
    names = ["COCO_val2014_000000391895", "COCO_val2014_000000000895", "COCO_val2014_000000000042"]
    prefix, arrays = _vlp(tmp_path / "vlp", names)
    sizes = [{"id": int(name[-12:]), "file_name": f"{name}.jpg", "width": 60, "height": 40} for name in names]
    (tmp_path / "sizes.json").write_text(json.dumps({"images": sizes}))
    report = import_features("vlp", prefix, tmp_path / "f.h5", dtype="float32", pictures=tmp_path / "sizes.json")
    assert report.images == 3
    store = FeatureStore(tmp_path / "f.h5")
    assert (store.classes_count, store.provenance["sizes"]) == (1601, "pictures")
    for name, (features, probs, table) in arrays.items():
        record = store.read(name)
        assert np.array_equal(record.features, features)
        assert np.array_equal(record.class_probs, probs.astype(np.float32))
        columns = [record.boxes, record.classes + 1, record.scores]  # their background is class 0
        assert np.array_equal(np.column_stack(columns), table.astype(np.float32))
        assert record.size == (40, 60)
    import_features("vlp", tmp_path / "vlp" / "feat", tmp_path / "g.h5")  # the folder; sizes by the boxes
    lean = FeatureStore(tmp_path / "g.h5")
    assert lean.provenance["sizes"] == "extent of the boxes"
    assert verify(tmp_path / "g.h5") == []


def test_vlp_says_what_is_missing(tmp_path):
    prefix, _ = _vlp(tmp_path / "vlp", ["a001", "b002"], "f2")
    with h5py.File(tmp_path / "vlp" / "coco_bbox.h5", "a") as file:
        del file["b002"]
    with pytest.raises(DataError) as caught:
        import_features("vlp", prefix, tmp_path / "f.h5")
    assert "has no boxes of it" in str(caught.value)
    assert "[b002]" in caught.value.where
    (tmp_path / "vlp" / "coco_bbox.h5").unlink()
    with pytest.raises(DataError, match="which file holds the boxes"):
        import_features("vlp", prefix, tmp_path / "f.h5")
    with pytest.raises(DataError, match="not found"):
        import_features("vlp", tmp_path, tmp_path / "f.h5")
    with pytest.raises(DataError, match="no such file"):
        import_features("vlp", tmp_path / "vlp" / "feat" / "nothing", tmp_path / "f.h5")


def test_concept_lists(tmp_path):
    """As the list of MIA's authors; with scores; by image."""
    (tmp_path / "mia.json").write_text(
        json.dumps(
            [{"image_id": 42, "image_concepts": ["dog", "grass", "red"]}, {"image_id": 7, "image_concepts": ["grass"]}]
        )
    )
    report = import_features("concepts", tmp_path / "mia.json", tmp_path / "f.h5", ids="{:012d}")
    assert (report.set, report.images) == ("concepts", 2)
    store = ConceptStore(tmp_path / "f.h5")
    assert store.words == ("grass", "dog", "red")
    assert store.named("000000000042") == [("dog", 1.0), ("grass", 1.0), ("red", 1.0)]
    (tmp_path / "words.txt").write_text("man, NN, 51456\ngrass, NN, 9\ndog, NN, 7\n")
    lines = [{"file_name": "x/b.jpg", "concepts": ["dog", "grass"], "scores": [0.25, 0.75]}, {"id": "c", "words": []}]
    (tmp_path / "list.jsonl").write_text("\n".join(map(json.dumps, lines)))
    import_features("concepts", tmp_path / "list.jsonl", tmp_path / "g.h5", vocabulary=tmp_path / "words.txt")
    store = ConceptStore(tmp_path / "g.h5")
    assert store.words == ("man", "grass", "dog")
    assert store.named("b") == [("grass", 0.75), ("dog", 0.25)]
    assert store.named("c") == []
    assert verify(tmp_path / "g.h5") == []
    (tmp_path / "by.json").write_text(json.dumps({"b": [["dog", 0.5]], "c": [["wolf", 0.5]]}))
    with pytest.raises(DataError) as caught:
        import_features("concepts", tmp_path / "by.json", tmp_path / "h.h5", vocabulary=tmp_path / "words.txt")
    assert "outside the vocabulary: wolf" in str(caught.value)
    (tmp_path / "no.json").write_text("[1, 2")
    with pytest.raises(DataError, match="no list of concepts"):
        import_features("concepts", tmp_path / "no.json", tmp_path / "h.h5")


def test_mattnet_detections(tmp_path):
    dets = [
        {"det_id": 0, "h5_id": 0, "box": [10, 5, 21, 11], "image_id": 9, "category_id": 18, "score": 0.9},
        {"det_id": 1, "h5_id": 1, "box": [0, 0, 60, 40], "image_id": 8, "category_id": 1, "score": 0.7},
        {"det_id": 2, "h5_id": 2, "box": [0, 0, 1, 1], "image_id": 9, "category_id": 1, "score": 0.8},
    ]
    (tmp_path / "dets.json").write_text(json.dumps(dets))
    sizes = [{"id": n, "file_name": f"COCO_train2014_{n:012d}.jpg", "width": 60, "height": 40} for n in (8, 9)]
    (tmp_path / "instances.json").write_text(json.dumps({"images": sizes, "annotations": []}))
    import_features("mattnet", tmp_path / "dets.json", tmp_path / "f.h5", pictures=tmp_path / "instances.json")
    store = FeatureStore(tmp_path / "f.h5")
    assert store.ids == ["COCO_train2014_000000000009", "COCO_train2014_000000000008"]
    record = store.read(store.ids[0])
    assert record.boxes.tolist() == [[10, 5, 30, 15], [0, 0, 0, 0]]
    assert (record.box_ids.tolist(), record.classes.tolist()) == (["0", "2"], [16, 0])  # COCO's 18 and 1
    assert store.provenance["classes"][16] == "dog"
    assert (record.size, store.dim) == ((40, 60), 0)
    import_features("mattnet", tmp_path / "dets.json", tmp_path / "g.h5")
    assert FeatureStore(tmp_path / "g.h5").size("9") == (16, 31)


def test_wrong_words_are_told(tmp_path):
    source = _write(tmp_path / "a.tsv", [_row(1)])
    with pytest.raises(UsageError, match="no such format"):
        import_features("tsv", source, tmp_path / "f.h5")
    with pytest.raises(DataError, match="no such file"):
        import_features("obj36", tmp_path / "no.tsv", tmp_path / "f.h5")
    with pytest.raises(DataError, match="is a folder"):
        import_features("obj36", tmp_path, tmp_path / "f.h5")
    for ids in ("{} {}", "{x}", "fixed", "{:q}", "{"):
        with pytest.raises(UsageError, match="pattern"):
            import_features("obj36", source, tmp_path / "f.h5", ids=ids)
    with pytest.raises(DataError, match="cannot be read"):
        import_features("vlp", source, tmp_path / "f.h5", pictures=source)
    assert set(FORMATS) == {"obj36", "butd", "npz", "vlp", "concepts", "mattnet"}
