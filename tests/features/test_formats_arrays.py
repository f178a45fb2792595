"""Formats of arrays and pickles: NumPy folders, VLP's shards, concept lists, MAttNet's detections."""

from __future__ import annotations

import json

import h5py
import numpy as np
import pytest

from tests.features.test_formats import _row, _write
from vlcli import registry
from vlcli.errors import DataError, UsageError
from vlcli.features import FeatureStore, verify
from vlcli.features.concepts import ConceptStore
from vlcli.features.importing import import_features
from vlcli.files import flocked


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
    _npz(folder / "b.npz", 1, bbox=None)
    with pytest.raises(DataError, match="cannot be imported") as caught:
        import_features("npz", folder, tmp_path / "g.h5")
    assert caught.value.got == "the file has no array bbox"
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match="no npz"):
        import_features("npz", tmp_path / "none", tmp_path / "g.h5")


def test_npz_as_other_tools_write_it(tmp_path):
    folder = tmp_path / "npz"
    _npz(folder / "COCO_1.jpg.npz", 1, image_h=np.array([40]), num_bbox=np.array([4]))  # as MCAN's are called
    _npz(folder / "im.v2.npz", 2)
    (folder / "._im.v2.npz").write_bytes(b"x")  # macOS writes such files on other disks
    import_features("npz", folder, tmp_path / "f.h5")
    assert FeatureStore(tmp_path / "f.h5").ids == ["COCO_1", "im.v2"]
    for odd in ({"objects_id": np.array(3)}, {"image_h": np.array(np.inf)}):
        _npz(folder / "odd.npz", 3, **odd)
        report = import_features("npz", folder / "odd.npz", tmp_path / "g.h5", skip_bad=True)
        assert [bad.id for bad in report.errors] == ["odd"]


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
    prefix, _ = _vlp(tmp_path / "[1]", ["a001"])
    for file in prefix.parent.iterdir():
        file.rename(file.with_name(file.name.replace("coco", "[1]")))
    prefix = prefix.with_name("[1]_trainval")
    with h5py.File(tmp_path / "[1]" / "coco_bbox.h5", "a") as file:
        file["a001"][0, 4] = np.nan
    with pytest.raises(DataError, match="cannot be imported") as caught:
        import_features("vlp", prefix, tmp_path / "g.h5")
    assert "classes of image 'a001' are no whole numbers" in str(caught.value)


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
    (tmp_path / "words.txt").write_text("man, NN, 51456\ngrass, NN, 9\ndog, NN, 7\n", encoding="utf-8-sig")
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
    (tmp_path / "odd.json").write_text(json.dumps({"b": ["dog", ["grass", 0.5]]}))
    for vocabulary in (None, tmp_path / "words.txt"):
        with pytest.raises(DataError, match="no list of concepts") as caught:
            import_features("concepts", tmp_path / "odd.json", tmp_path / "h.h5", vocabulary=vocabulary)
        assert "image b has words that are no text" in caught.value.got


@pytest.mark.parametrize("words", ['"dog"', '["\\ud800"]', "[" * 100_000])
def test_words_that_cannot_be_read_are_one_message(tmp_path, words):
    (tmp_path / "a.json").write_text(f'[{{"image_id": 1, "concepts": {words}}}]')
    with pytest.raises(DataError, match="no list of concepts"):
        import_features("concepts", tmp_path / "a.json", tmp_path / "f.h5")


def test_a_number_that_two_pictures_end_in_names_none(tmp_path):
    (tmp_path / "dets.json").write_text(json.dumps([{"box": [0, 0, 9, 9], "image_id": 1}]), encoding="utf-8-sig")
    sizes = [{"file_name": f"{part}_1.jpg", "width": 60, "height": 40} for part in ("train", "val")]
    (tmp_path / "sizes.json").write_text(json.dumps({"images": sizes}))
    with pytest.raises(DataError, match="cannot be imported") as caught:
        import_features("mattnet", tmp_path / "dets.json", tmp_path / "f.h5", pictures=tmp_path / "sizes.json")
    assert "no such picture, or several" in str(caught.value)
    (tmp_path / "sizes.json").write_text('{"images": [{"file_name": "1.jpg", "width": Infinity, "height": 4}]}')
    with pytest.raises(DataError, match="sizes of the pictures cannot be read"):
        import_features("mattnet", tmp_path / "dets.json", tmp_path / "f.h5", pictures=tmp_path / "sizes.json")


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
    assert set(registry.names("formats")) == {"obj36", "butd", "npz", "vlp", "concepts", "mattnet"}


def test_two_imports_do_not_write_one_store_at_once(tmp_path):
    _npz(tmp_path / "npz" / "a.npz", 1)
    with flocked(tmp_path / ".f.h5.lock"), pytest.raises(DataError, match="Another import writes this store"):
        import_features("npz", tmp_path / "npz", tmp_path / "f.h5")
    assert import_features("npz", tmp_path / "npz", tmp_path / "f.h5").images == 1
    assert not (tmp_path / ".f.h5.lock").exists()
