"""What ``vlcli init`` sees in folders as authors distribute them: task, reader, columns, parts, counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from typer.testing import CliRunner

from tests.starter.joined_layouts import JOINED
from tests.starter.layouts import LAYOUTS, coco_instances, photos, write
from tests.starter.list_layouts import LISTS
from tests.starter.more_layouts import MORE
from tests.starter.public_layouts import PUBLIC
from tests.starter.side_layouts import SIDE
from vlcli.builders.readers import build_reader
from vlcli.cli import app
from vlcli.data.files import IMAGE_SUFFIXES
from vlcli.errors import DataError
from vlcli.recipe.digests import read_files
from vlcli.recipe.load import load
from vlcli.starter.look import look, plan_for
from vlcli.starter.machine import Machine
from vlcli.starter.recipe import recipe_text

HERE = Machine(2, "")


def backbone(root: Path) -> None:
    """The names of a ResNet-50's tensors, with nothing in them."""
    blocks = {f"layer3.{i}.conv{c}.weight": np.zeros(1, np.float32) for i in range(6) for c in (1, 2, 3)}
    save_file(blocks, root / "resnet50.safetensors")


assert {*MORE, *PUBLIC, *LISTS, *SIDE, *JOINED} <= set(LAYOUTS)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_in_its_official_form_is_recognised(name, tmp_path):
    layout, root = LAYOUTS[name], tmp_path / "data"
    layout.make(root)
    if layout.weights:
        backbone(root)
    plan = plan_for(look(root), None, HERE)
    found = plan.source
    assert (plan.goal, found.entry["name"]) == (layout.goal, layout.reader)
    assert {role: found.columns.get(role) for role in layout.columns} == layout.columns
    counts = {part: one.examples for part, one in plan.parts.items()}
    if layout.counts and "validation" not in layout.counts:  # cut from the training part
        counts = {"train": counts["train"] + counts["validation"], "test": counts["test"]}
    elif layout.counts and "test" not in layout.counts:
        counts = {"train": counts["train"] + counts["validation"], "validation": counts["test"]}
    expected = layout.counts or {"total": layout.total}
    assert (counts if layout.counts else {"total": sum(counts.values())}) == expected
    file = tmp_path / "recipe.yaml"
    file.write_text(recipe_text(plan, str(root), "recipe.yaml"))
    stages = load(str(file)).recipe.stages.values()
    tasks = [one for stage in stages if (one := getattr(stage, "task", None)) is not None]
    specs = [{"name": one} if isinstance(one, str) else dict(one) for one in tasks]
    beside = {spec["task"]["name"] for spec in specs if spec["name"] == "baseline" and "task" in spec}
    assert beside <= {spec["name"] for spec in specs}, "rows beside solve another task than the model"


EXPORTS = {
    "LabelMe": ("a.json", {"version": "5.4", "flags": {}, "shapes": [{"label": "cat"}], "imagePath": "0.jpg"}),
    "VIA": ("via_region_data.json", {"0.jpg9": {"filename": "0.jpg", "size": 9, "regions": [], "file_attributes": {}}}),
    "CVAT": (
        "annotations.xml",
        "<?xml version='1.0'?>\n<annotations>\n<version>1.1</version>\n<meta></meta></annotations>",
    ),
    "Label Studio": ("project-1.json", [{"id": 1, "data": {"image": "/data/0.jpg"}, "annotations": [{"result": []}]}]),
    "FiftyOne": ("samples.json", {"samples": [{"filepath": "data/0.jpg", "tags": []}]}),
    "Create ML": ("a.json", [{"image": "0.jpg", "annotations": [{"label": "cat", "coordinates": {"x": 4, "y": 4}}]}]),
    "Supervisely": ("ann/0.jpg.json", {"description": "", "tags": [], "size": {"height": 9}, "objects": []}),
    "Labelbox": ("export.ndjson", '{"data_row": {"external_id": "0.jpg"}, "projects": {}}'),
    "Argilla": ("records.json", [{"id": 1, "status": "completed", "fields": {"image": "0.jpg"}, "responses": {}}]),
    "Roboflow": ("_annotations.txt", "0.jpg 1,1,4,4,0\n"),
}


@pytest.mark.parametrize("tool", EXPORTS)
def test_an_export_of_a_tool_is_told_how_to_come_in(tool, tmp_path):
    photos(tmp_path, [f"{n}.jpg" for n in range(12)])
    write(tmp_path, *EXPORTS[tool])
    with pytest.raises(DataError, match=f"export of {tool}") as caught:
        look(tmp_path)
    assert "COCO" in caught.value.hint
    assert EXPORTS[tool][0] in caught.value.got
    coco_instances(tmp_path)
    seen = look(tmp_path)
    assert [one.entry["name"] for one in seen.sources] == ["coco-instances"]
    assert any(tool in line for line in seen.aside)


def cut(root: Path) -> None:
    """Half of every annotation file; of a layout without any, of every picture."""
    files = [path for path in sorted(root.rglob("*")) if path.is_file()]
    notes = [path for path in files if path.suffix.lower() not in (*IMAGE_SUFFIXES, ".safetensors")]
    for path in notes or files:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def gone(root: Path) -> None:
    """All pictures but four; shards are empty."""
    pictures = [path for path in sorted(root.rglob("*")) if path.suffix.lower() in IMAGE_SUFFIXES]
    for path in pictures[4:]:
        path.unlink()
    for shard in root.rglob("*.tar"):
        shard.write_bytes(b"")


READ_IN_PART = {
    *(("cut", name) for name in ("flickr30k", "flickr8k", "cub", "webdataset", "text_beside_pictures", "daquar")),
    *(("cut", name) for name in ("classes_with_lists", "several_lists", "bars_and_blanks")),
    *(
        ("cut", name)
        for name in (
            "fgvc_aircraft",
            "sun397",
            "lists_of_numbers",
            "lists_of_flags",
            "tiny_imagenet",
            "numbered_in_two_folders",
        )
    ),
    *(("cut", name) for name in ("a_list_for_each_class", "lists_with_signs", "lists_of_numbers_for_each_class")),
    ("cut", "csv_table"),
    ("cut", "tables_beside_class_folders"),
    *(("cut", name) for name in ("pascal_sentences", "texts_in_a_folder", "sentences_beside_pictures")),
    *(
        ("cut", name)
        for name in ("captions_txt", "csv_without_header", "list_without_header", "tags", "yolo_flat", "flags", "yolo")
    ),
    *(("cut", name) for name in ("yolo_of_another_name", "cifar_of_kaggle", "imagenet_of_kaggle", "places")),
    *(("cut", name) for name in ("captions_in_text_and_table", "flickr8k_cn")),
}
"""Lists of which the first half is as good a list; what is missing shows in the counts that init prints."""


@pytest.mark.parametrize("damage", [cut, gone], ids=["cut", "gone"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_damaged_layout_ends_in_words(name, damage, tmp_path, monkeypatch):
    layout, root = LAYOUTS[name], tmp_path / "data"
    layout.make(root)
    if layout.weights:
        backbone(root)
    damage(root)
    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(app, ["init", "data"])
    assert ended.exit_code in (2, 5) or (damage.__name__, name) in READ_IN_PART, ended.stdout
    assert "Traceback" not in ended.stderr + ended.stdout
    if ended.exit_code:
        assert ended.stderr.startswith("error: ")
        assert not (tmp_path / "recipe.yaml").exists()


def test_label_maps_of_pixels_are_no_classes(tmp_path):
    for part, count in (("training", 20), ("validation", 6)):
        photos(tmp_path, [f"images/{part}/{n}.jpg" for n in range(count)])
        photos(tmp_path, [f"annotations/{part}/{n}.png" for n in range(count)])
    with pytest.raises(DataError) as caught:
        look(tmp_path)
    assert "tiny/segmentation" in caught.value.got


def test_a_list_of_pictures_is_part_of_a_stage_s_key(tmp_path):
    LAYOUTS["classes_with_lists"].make(tmp_path)
    reader = build_reader(
        {"name": "folder", "label": True, "ids": "path", "take": "in:meta/train.txt & first:0.5"}, tmp_path
    )
    assert tmp_path / "meta/train.txt" in read_files(reader)
    listed = set((tmp_path / "meta/train.txt").read_text().split())
    taken = {"/".join(name.split("/")[-2:]) for example in reader.examples() for name in example.images}
    assert taken < listed
    assert 10 < len(taken) < 50


def test_parts_whose_folders_are_no_classes_are_left_aside(tmp_path):
    """Tiny ImageNet: train/CLASS/images, but val/images with a list and test/images without one."""
    kinds = ("n01", "n02", "n03")
    photos(tmp_path, [f"train/{kind}/images/{kind}_{n}.JPEG" for kind in kinds for n in range(12)])
    photos(tmp_path, [f"{part}/images/{part}_{n}.JPEG" for part in ("val", "test") for n in range(6)])
    plan = plan_for(look(tmp_path, fallback=True), "image-classification", HERE)
    assert plan.source.entry["images"] == "train"
    assert sum(part.examples for part in plan.parts.values()) == 36
    assert any("test, val lie in no folder of a class" in note for note in plan.notes)
