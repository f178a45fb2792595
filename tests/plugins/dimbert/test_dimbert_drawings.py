"""DiMBERT's pictures: what they are drawn from is what the model's attention holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from small_run import context

from vlcli.data.shapes import ShapesConfig, make_shapes
from vlcli.errors import UsageError
from vlcli.features.concepts import CONCEPTS, WORDS, concept_record
from vlcli.features.schema import Record
from vlcli.features.writer import FeatureWriter
from vlcli.nn import Recorder
from vlcli.progress import Silent
from vlcli.stages import draw
from vlcli.stages.training import run_training

COLOURS = ("red", "green", "blue")
SIZES = {"hidden": 16, "heads": 2, "layers": 2, "dropout": 0.0, "init_std": 0.2}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Shapes, a store of regions and concepts, and two models of one step each: with and without concepts."""
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("drawings")
    make_shapes(root, ShapesConfig(images=20, parts=("coco",), colours=COLOURS), Silent())
    document = json.loads((root / "coco/annotations/instances_test.json").read_text())
    train = json.loads((root / "coco/annotations/instances_train.json").read_text())
    notes: dict[int, list[Any]] = {}
    for note in document["annotations"] + train["annotations"]:
        notes.setdefault(note["image_id"], []).append(note)
    store, rng = root / "regions", np.random.default_rng(0)
    store.mkdir()
    images = [row for part in (document, train) for row in part["images"]]
    with FeatureWriter(store / "features.h5", {}, dtype="float32") as writer:
        for image in images:
            corners = np.array([note["bbox"] for note in notes[image["id"]]], np.float32)
            corners[:, 2:] += corners[:, :2]
            rows = rng.standard_normal((len(corners), 6)).astype(np.float32)
            writer.append(Record(Path(image["file_name"]).stem, rows, corners, (112, 112)))
        writer.finish()
    with FeatureWriter(store / "concepts.h5", {WORDS: [*COLOURS, "starlight"]}, set=CONCEPTS) as writer:
        for image in images:
            name = Path(image["file_name"]).stem
            writer.append(concept_record(name, np.array([3, 0, 2]), np.array([0.9, 0.5, 0.4]), (112, 112)))
        writer.finish()
    made = {"root": root, "regions": store}
    for name, most in (("full", 3), ("plain", 0)):
        made[name] = root / name
        run_training(stage(made, made[name], **training(most, store)))
    return made


def training(most: int, store: Path) -> dict[str, Any]:
    return {
        "kind": "finetune",
        "task": {"name": "captioning"},
        "model": {"name": "dimbert", "concepts": most, **SIZES},
        "data": {"name": "coco-captions", "split": "train"},
        "text": {"vocabulary": {"train": [{"name": "coco-captions"}], "size": 60}, "length": 16},
        "features": ["regions", str(store / "concepts.h5")],
        "objectives": [{"name": "s2slm"}],
        "steps": 1,
        "batch_size": 8,
    }


def stage(world: dict[str, Path], folder: Path, **config: Any) -> Any:
    inputs = {name: path for name, path in world.items() if name != "root"}
    config.setdefault("features", ["regions", str(world["regions"] / "concepts.h5")])
    return context(folder, world["root"], inputs, **config)


def drawn(world: dict[str, Path], folder: Path, drawing: Any, sources: list[str]) -> Any:
    data = {"name": "coco-captions", "split": "test"}
    return draw.run(stage(world, folder, kind="draw", drawing=drawing, data=data, **{"from": sources}))


def test_grounding_shows_the_last_layer_s_weights(world: dict[str, Path], tmp_path: Path) -> None:
    from vlcli_dimbert.drawings import grounding

    drawn(world, tmp_path / "sheet", {"name": "dimbert-grounding", "count": 2}, ["full", "plain"])
    for number in (1, 2):
        with Image.open(tmp_path / f"sheet/grounding-{number}.png") as sheet:
            assert sheet.width > 4 * 320  # (a) to (d)
    told = json.loads((tmp_path / "sheet/grounding.json").read_text())
    assert len(told) == 2
    assert {"full", "plain", "full, no sentence", "word", "regions"} <= set(told[0])
    assert not any("(concept)" in name for name in told[0]["plain"])
    assert all("(concept)" in name for name in told[0]["full, no sentence"])

    scene = draw.StageScene(
        stage(
            world,
            tmp_path / "x",
            kind="draw",
            drawing={"name": "curve"},
            task={"name": "captioning"},
            data={"name": "coco-captions", "split": "test"},
            **{"from": ["full"]},
        )
    )
    bundle = scene.bundle()
    runner = scene.runner(bundle, limit=1)
    own = grounding(runner, bundle, 0, "cpu")
    record = Recorder()
    batch = runner.data.batch([0])
    runner.step(batch, record=record).fused()
    weights = record.attention["fuse.1"][0].mean(0)
    regions = len(own.boxes)
    spoken = [word for word, kind in own.words if kind == "sentence"]
    assert " ".join(spoken).startswith(batch.clean.text.raw[0].lower().split()[0])
    assert [word for word, kind in own.words if kind == "concept"] == ["starlight", "red", "blue"]
    # [CLS] regions [SEP] concepts [SEP] words: a concept of several pieces is summed, the rest lies where it is
    pieces = len(bundle.data_spec.concept_pieces[3])
    assert pieces > 1
    first = 1 + regions + 1
    torch.testing.assert_close(own.named[:, len(spoken)], weights[1 : 1 + regions, first : first + pieces].sum(1))
    torch.testing.assert_close(own.named[:, len(spoken) + 1], weights[1 : 1 + regions, first + pieces])
    whole = own.named.sum(1) + weights[1 : 1 + regions, : 1 + regions].sum(1)
    assert (whole < 1).all()  # the separators have the rest
    alone = grounding(runner, bundle, 0, "cpu", sentence=False)
    assert {kind for _, kind in alone.words} == {"concept"}


def test_a_word_that_is_not_there_is_refused(world: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such word"):
        drawn(world, tmp_path / "sheet", {"name": "dimbert-grounding", "word": "zebra"}, ["full"])


def test_captions_stand_side_by_side(world: dict[str, Path], tmp_path: Path) -> None:
    drawing = {"name": "dimbert-captions", "count": 2, "names": ["full", "w/o ViCo"]}
    drawn(world, tmp_path / "sheet", drawing, ["full", "plain"])
    told = json.loads((tmp_path / "sheet/captions.json").read_text())
    assert [sorted(row) for row in told] == [["full", "key", "w/o ViCo"]] * 2
    assert (tmp_path / "sheet/captions.png").is_file()
    with pytest.raises(UsageError, match="go together"):
        drawn(world, tmp_path / "other", {**drawing, "names": ["one"]}, ["full", "plain"])


def test_a_model_of_another_store_may_have_fewer_regions() -> None:
    from types import SimpleNamespace

    from vlcli_dimbert.drawings import GroundedWords, Grounding

    def shown(count: int) -> Grounding:
        weights = torch.linspace(0.1, 0.9, count)
        return Grounding(torch.rand(count, 4).sort().values, [("dog", "sentence")], weights[None], weights[:, None])

    example = SimpleNamespace(key="1", text="dog", images=["1"])
    album: Any = SimpleNamespace(open=lambda _: Image.new("RGB", (40, 40)))
    cells, facts = GroundedWords()._panels(example, {"one": shown(5), "two": shown(2)}, shown(5), album)
    assert len(cells) == 4
    assert list(facts["regions"]) == ["4", "3", "2"]
