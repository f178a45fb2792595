"""The extract stage from the command line: folders and lists of pictures, box sets, given boxes from a store."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.features._world import make_images
from vlcli.cli import app
from vlcli.features import FeatureStore, FeatureWriter, Record, info

RECIPE = """\
name: pictures
root: {root}
stages:
  regions:
    kind: extract
    extractor: {{name: backbone, arch: tiny-conv, short: 32, boxes: {boxes}, grid: [2, 2]}}
    images: {images}
"""


def _recipe(folder, images, boxes="grid"):
    (folder / "pictures.yaml").write_text(RECIPE.format(root=folder, images=images, boxes=boxes))
    return folder / "pictures.yaml"


@pytest.fixture
def pictures(tmp_path):
    return make_images(tmp_path / "images", 6)


@pytest.fixture
def stage(tmp_path):
    """Runs the stage in this process."""

    def run(images, *words, boxes="grid"):
        from vlcli.recipe.load import load
        from vlcli.recipe.plan import RunOptions
        from vlcli.runner.run import run_recipe

        resolved = load(str(_recipe(tmp_path, images, boxes)), list(words))
        (outcome,) = run_recipe(resolved, RunOptions(output=tmp_path / "runs"))
        if outcome.error:
            raise outcome.error
        return outcome.folder / "features.h5"

    return run


def test_a_folder_and_a_list_of_pictures(tmp_path, pictures, stage):
    assert FeatureStore(stage("images")).ids == [name for name, _ in pictures]
    chosen = ["images/im004.png", str(pictures[1][1]), "", "images/im002.png"]
    (tmp_path / "list.txt").write_text("\n".join(chosen) + "\n", encoding="utf-8-sig")  # as editors on Windows write
    assert FeatureStore(stage("list.txt")).ids == ["im004", "im001", "im002"]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["../outside.png"], "stay inside"),
        (["", " "], "names no picture"),
    ],
)
def test_a_list_that_cannot_be_used(tmp_path, pictures, stage, lines, words):
    (tmp_path / "list.txt").write_text("\n".join(lines))
    with pytest.raises(Exception, match=words) as caught:
        stage("list.txt")
    assert "list.txt" in str(caught.value)


def test_listed_pictures_of_one_name_have_their_paths_for_ids(tmp_path, pictures, stage):
    copied = tmp_path / "other/im001.png"
    copied.parent.mkdir()
    copied.write_bytes((tmp_path / "images/im001.png").read_bytes())
    (tmp_path / "list.txt").write_text("images/im001.png\nother/im001.png\nimages/im002.png\n")
    assert FeatureStore(stage("list.txt")).ids == ["images/im001", "other/im001", "images/im002"]


def test_a_listed_picture_that_is_not_there_is_counted(tmp_path, pictures, stage):
    (tmp_path / "list.txt").write_text("images/im001.png\nimages/gone.png\n")
    path = stage("list.txt")
    assert FeatureStore(path).ids == ["im001"]
    (row,) = [json.loads(line) for line in path.with_name("errors.jsonl").read_text().splitlines()]
    assert (row["id"], row["reason"]) == ("gone", "the file does not exist")


def test_set_and_compression(pictures, stage):
    facts = info(stage("images", "stages.regions.set=grid", "stages.regions.compression=gzip"))
    assert list(facts["sets"]) == ["grid"]
    assert facts["sets"]["grid"]["mapped"] is False


def test_boxes_of_a_store(tmp_path, pictures, stage):
    """As imported detections: boxes and names without features."""
    with FeatureWriter(tmp_path / "dets.h5") as writer:
        for number, (name, _) in enumerate(pictures[:4]):
            box = np.array([[0, 0, 9, 4 + number]], np.float32)
            size = [(20, 30), (30, 20), (24, 24)][number % 3]
            writer.append(Record(name, np.zeros((1, 0)), box, size, box_ids=np.array([f"d{number}"])))
    store = FeatureStore(stage("images", "stages.regions.boxes=[dets.h5]", boxes="given"))
    assert store.ids == ["im000", "im001", "im002", "im003"]
    record = store.read("im003")
    assert (record.boxes.tolist(), record.box_ids.tolist(), store.dim) == ([[0, 0, 9, 7]], ["d3"], 128)


def test_strict_fails_the_command(tmp_path, pictures, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pictures[2][1].write_bytes(b"")
    words = ["extract", "--recipe", str(_recipe(tmp_path, "images"))]
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 0
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("warning: 1 of ")]
    assert "errors.jsonl); the first: " in line
    assert line.endswith("im002.png: the file is empty")
    ended = CliRunner().invoke(app, [*words, "--strict"])
    assert ended.exit_code == 5
    assert "im002.png" in ended.stderr
    assert "the file is empty" in ended.stderr


def test_the_batch_size_is_the_extractors_unless_the_stage_names_one(tmp_path, pictures, stage, monkeypatch):
    from vlcli.detection import extraction

    sizes = []
    real = extraction._Run.plan
    monkeypatch.setattr(
        extraction._Run, "plan", lambda self, jobs, done, size: sizes.append(size) or real(self, jobs, done, size)
    )
    stores = [
        stage("images"),
        stage("images", "stages.regions.extractor.batch_size=3"),
        stage("images", "stages.regions.extractor.batch_size=3", "stages.regions.batch_size=2"),
    ]
    assert sizes == [4, 3, 2]
    assert len({store.read_bytes() for store in stores}) == 1


def test_linked_folders_inside_the_root_are_followed(tmp_path, pictures):
    from vlcli.errors import DataError
    from vlcli.stages.extract import under

    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    root.mkdir()
    elsewhere.mkdir()
    (elsewhere / "w.safetensors").write_bytes(b"w")
    (root / "weights").symlink_to(elsewhere, target_is_directory=True)
    assert under(root, "weights/w.safetensors") == root / "weights" / "w.safetensors"
    assert under(root, "weights/../weights/w.safetensors") == root / "weights" / "w.safetensors"
    assert under(root, str(elsewhere / "w.safetensors")) == elsewhere / "w.safetensors"
    for bad in ("../elsewhere/w.safetensors", "weights/../../elsewhere/w.safetensors"):
        with pytest.raises(DataError, match="stay inside") as caught:
            under(root, bad)
        assert caught.value.got == bad


def test_weights_and_pictures_through_linked_folders(tmp_path, stage):
    from safetensors.torch import save_file

    from vlcli.detection.backbone import RegionBackbone

    elsewhere = tmp_path.parent / f"{tmp_path.name}-elsewhere"
    make_images(elsewhere / "images", 3)
    save_file(RegionBackbone(arch="tiny-conv").body.state_dict(), elsewhere / "tiny.safetensors")
    (tmp_path / "linked").symlink_to(elsewhere, target_is_directory=True)
    (tmp_path / "list.txt").write_text("linked/images/im001.png\n")
    store = stage("list.txt", "stages.regions.extractor.weights=linked/tiny.safetensors")
    assert FeatureStore(store).ids == ["im001"]


def test_a_grid_stands_beside_given_boxes_with_labels(tmp_path, pictures, stage):
    """COCO's instances name a class and an id for each box, and some pictures have no box."""
    notes = [{"id": n, "image_id": n, "category_id": 1, "bbox": [0, 0, 8, 8 + n]} for n in (1, 2)]
    outside = {"id": 3, "image_id": 3, "category_id": 1, "bbox": [900, 900, 8, 8]}
    images = [{"id": n, "file_name": f"im{n:03d}.png"} for n in range(6)]
    classes = [{"id": 1, "name": "cat"}]
    (tmp_path / "boxes.json").write_text(
        json.dumps({"images": images, "annotations": [*notes, outside], "categories": classes})
    )
    file = stage("images", "stages.regions.boxes=boxes.json", boxes="given-or-grid")
    store = FeatureStore(file)
    assert store.ids == ["im000", "im001", "im002", "im004", "im005"]
    assert [store.count(name) for name in store.ids] == [4, 1, 1, 4, 4]
    assert "classes" not in store.fields
    assert "classes" not in store.provenance
    assert "none of its boxes lies inside" in (file.parent / "errors.jsonl").read_text()
    labelled = FeatureStore(stage("images", "stages.regions.boxes=boxes.json", boxes="given"))
    assert (labelled.ids, labelled.provenance["classes"]) == (["im001", "im002"], ["cat"])
