"""From captions to concepts in a store: learning, scoring, extracting, joining."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from small_run import context

from vlcli.builders.readers import open_stores, require_stores
from vlcli.data.pipeline import Pipeline
from vlcli.data.readers.captions import Captions
from vlcli.engine.bundle import load_bundle
from vlcli.errors import DataError, UsageError
from vlcli.features import FeatureStore, FeatureWriter, Record, info, merge, verify
from vlcli.features.concepts import CONCEPTS, ConceptStore, concept_record, sort_files
from vlcli.nn.model import DataSpec, InputSpec
from vlcli.stages import evaluate, extract, finetune

COLOURS = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (30, 40, 220), "yellow": (230, 220, 20)}
CORNERS = np.array([[0, 0, 20, 16], [20, 0, 40, 16], [0, 16, 20, 32], [20, 16, 40, 32]], np.float32)
NEVER = (128, 128, 128)
DATA = {"name": "captions", "file": "captions.json"}
TASK = {"name": "concepts", "top": [1, 2], "sheet": 2}


def make_world(root: Path, count: int = 48) -> dict[str, list[str]]:
    """Pictures of four quarters, some coloured, captions that name the colours; regions whose feature is the colour."""
    rng = np.random.default_rng(0)
    (root / "images").mkdir(parents=True)
    rows, looks = [], {}
    with FeatureWriter(root / "regions/features.h5", {"extractor": "colour"}, dtype="float32") as writer:
        for number in range(count):
            chosen = rng.permutation(list(COLOURS))[: rng.integers(1, 4)].tolist()
            quarters = rng.permutation([*chosen, *["grey"] * (4 - len(chosen))]).tolist()
            pixels = np.zeros((32, 40, 3), np.uint8)
            for look, (left, top, right, bottom) in zip(quarters, CORNERS.astype(int), strict=True):
                pixels[top:bottom, left:right] = COLOURS.get(look, NEVER)
            name = f"{number:03d}"
            Image.fromarray(pixels).save(root / f"images/{name}.png")
            features = np.array([COLOURS.get(look, NEVER) for look in quarters], np.float32) / 128 - 1
            writer.append(Record(name, features, CORNERS, (32, 40)))
            rows.append({"image": f"{name}.png", "captions": [f"The box is {look}." for look in chosen]})
            looks[name] = quarters
    (root / "captions.json").write_text(json.dumps(rows))
    return looks


LEARNING = {
    "model": {"name": "noisy-or", "dropout": 0.0},
    "task": {**TASK, "pos": ["JJ"]},
    "objectives": [{"name": "concepts", "bias": -2.0}],
    "data": [{**DATA, "take": "first:40"}],
    "steps": 150,
    "batch_size": 16,
    "optimizer": {"lr": 0.1},
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("world")
    looks = make_world(root)
    inputs = {"regions": root / "regions", "learn": root / "learn"}
    found = finetune.run(context(root / "learn", root, {"regions": inputs["regions"]}, kind="finetune", **LEARNING))
    return root, inputs, looks, found


def extracted(world, folder, **changes):
    root, inputs, _, _ = world
    config = {"extractor": {"name": "concepts", "top": 3}, "features": "regions", "data": [DATA], "from": "learn"}
    return extract.run(context(folder, root, inputs, kind="extract", **{**config, **changes}))


@pytest.fixture(scope="module")
def concepts(world, tmp_path_factory):
    folder = tmp_path_factory.mktemp("out") / "concepts"
    extracted(world, folder)
    return folder / "features.h5"


def test_words_are_learnt_from_captions_and_scored_beside_the_baseline(world, tmp_path):
    root, inputs, looks, _ = world
    held_out = {"data": [{**DATA, "take": "after:40"}], "from": "learn", "features": "regions"}
    result = evaluate.run(context(tmp_path / "test", root, inputs, kind="evaluate", **held_out))
    assert result.metrics["f1@own"] == 1.0
    assert result.metrics["map"] == 1.0
    assert result.metrics["baseline/f1@own"] < 0.9
    assert result.metrics["pooled/recall@2"] < result.metrics["recall@2"] <= 1
    rows = [json.loads(line) for line in (tmp_path / "test/predictions.jsonl").read_text().splitlines()]
    assert len(rows) == 8
    for row in rows:
        assert set(row["words"]) == set(looks[row["key"]]) - {"grey"}
        assert sorted(row["ranks"]) == list(range(len(row["words"])))
    listed = json.loads((tmp_path / "test/concepts.json").read_text())
    assert listed[0] == {"image_id": rows[0]["key"], "image_concepts": rows[0]["prediction"]}
    with Image.open(tmp_path / "test/concepts.png") as sheet:
        assert sheet.width > 400


def test_words_are_ordered_by_how_many_training_pictures_have_them(world):
    root, inputs, looks, _ = world
    words = load_bundle(inputs["learn"]).data_spec.answers
    kept = {row.images[0] for row in Captions(root, file="captions.json", take="first:40").examples()}
    counts = [sum(word in looks[name] for name in kept) for word in words]
    assert sorted(words) == sorted(COLOURS)
    assert counts == sorted(counts, reverse=True)


def test_extraction_says_what_is_seen_and_where(world, concepts):
    _, _, looks, _ = world
    store = ConceptStore(concepts)
    assert verify(concepts) == []
    assert info(concepts)["sets"][CONCEPTS]["images"] == len(store) == 48
    for name, quarters in looks.items():
        named = store.named(name)
        assert len(named) == 3
        assert [p for _, p in named] == sorted((p for _, p in named), reverse=True)
        sure = {word: place for place, (word, p) in enumerate(named) if p > 0.5}
        assert set(sure) == set(quarters) - {"grey"}
        boxes = FeatureStore(concepts).read(name).boxes
        assert all(boxes[place].tolist() == CORNERS[quarters.index(word)].tolist() for word, place in sure.items())


def test_extraction_goes_on_where_it_stopped(world, concepts, tmp_path):
    extracted(world, tmp_path / "half", limit=17)
    again = extracted(world, tmp_path / "half")
    assert again.metrics["images"] == 48
    ours, theirs = FeatureStore(tmp_path / "half/features.h5"), FeatureStore(concepts)
    for name in theirs.ids:
        assert np.array_equal(ours.read(name).classes, theirs.read(name).classes)
        assert np.allclose(ours.read(name).class_scores, theirs.read(name).class_scores, atol=1e-6)


@pytest.mark.parametrize("merged", [False, True])
def test_reader_joins_concepts_to_regions(world, concepts, tmp_path, merged):
    root, inputs, _, _ = world
    files = [inputs["regions"] / "features.h5", concepts]
    if merged:
        files = [merge(files, tmp_path / "all.h5")]
        assert [len(found) for found in sort_files(files)] == [1, 1]
    needs = InputSpec(regions=True, concepts=True)
    stores = open_stores(files, needs)
    data_spec = DataSpec(region_dim=3, concepts=stores.concepts.words)
    data = Pipeline(
        [Captions(root, file="captions.json", captions="first")],
        needs=needs,
        data_spec=data_spec,
        store=stores.regions,
        concepts=stores.concepts,
    )
    batch = next(iter(data.loader(48)))
    found = batch.clean.images.concepts
    assert found.ids.shape == found.scores.shape == (48, 3)
    assert found.ranks[0].tolist() == [0, 1, 2]
    assert found.mask.all()
    assert batch.clean.images.regions.features.shape == (48, 4, 3)
    for row, name in enumerate(batch.clean.images.keys):
        own = stores.concepts.read(name)
        assert found.ids[row].tolist() == own["ids"].tolist()
        assert found.scores[row].tolist() == own["scores"].tolist()


def test_other_words_than_the_model_knows_are_refused(world, concepts):
    root = world[0]
    source = ConceptStore(concepts)
    readers = [Captions(root, file="captions.json")]
    wrong = DataSpec(concepts=tuple(reversed(source.words)))
    with pytest.raises(DataError, match="numbered in another way"):
        Pipeline(readers, needs=InputSpec(concepts=True), data_spec=wrong, concepts=source)


def test_stores_of_different_vocabularies_do_not_join(tmp_path):
    for name in ("a", "b"):
        with FeatureWriter(tmp_path / f"{name}.h5", {"words": [name]}, set=CONCEPTS) as writer:
            writer.append(concept_record(name, [0], [0.5], (4, 4)))
    with pytest.raises(DataError, match="cannot be named"):
        _ = ConceptStore([tmp_path / "a.h5", tmp_path / "b.h5"]).words


def test_a_model_of_concepts_needs_a_store_of_them(world):
    needs = InputSpec(concepts=True)
    stores = open_stores([world[1]["regions"] / "features.h5"], needs)
    assert stores.regions is None
    with pytest.raises(DataError, match="reads visual concepts"):
        require_stores(stores, needs, "pretrain")


def test_extraction_from_pixels_equals_evaluation(world, tmp_path):
    root = world[0]
    config = {
        "model": {"name": "noisy-or", "instances": "pixels", "arch": "tiny-conv", "image_size": 48, "fit": "inside"},
        "task": {**TASK, "keep": 4},
        "data": [DATA],
        "steps": 4,
        "optimizer": {"lr": 0.01},
    }
    finetune.run(context(tmp_path / "learn", root, {}, kind="finetune", **config))
    made = {"learn": tmp_path / "learn"}
    evaluate.run(context(tmp_path / "test", root, made, kind="evaluate", data=[DATA], **{"from": "learn"}))
    config = {"extractor": "concepts", "data": [DATA], "from": "learn", "batch_size": 5}
    extract.run(context(tmp_path / "concepts", root, made, kind="extract", **config))
    store = ConceptStore(tmp_path / "concepts/features.h5")
    for line in (tmp_path / "test/predictions.jsonl").read_text().splitlines():
        row = json.loads(line)
        words, scores = zip(*store.named(row["key"])[:4], strict=True)
        assert scores == pytest.approx(row["scores"], abs=2e-5)
        assert set(words) == set(row["prediction"][:4]) or len(set(scores)) < 4


def test_cells_of_a_transformer_say_where_a_word_is(world, tmp_path):
    root = world[0]
    sizes = {"size": "base", "hidden": 16, "layers": 1, "heads": 2, "fused_layers": 0, "image_size": 32, "patch": 16}
    words = {"vocabulary": {"train": [DATA], "size": 60}}
    config = {"model": {"name": "vlmo", **sizes}, "text": words, "task": TASK, "data": [DATA], "steps": 1}
    finetune.run(context(tmp_path / "learn", root, {}, kind="finetune", **config))
    config = {"extractor": "concepts", "data": [{**DATA, "take": "first:2"}], "from": "learn"}
    extract.run(context(tmp_path / "concepts", root, {"learn": tmp_path / "learn"}, kind="extract", **config))
    store = FeatureStore(tmp_path / "concepts/features.h5")
    boxes = store.read(store.ids[0]).boxes
    assert len(boxes)
    assert {tuple(box) for box in boxes.tolist()} <= {tuple(box) for box in CORNERS.tolist()}


def test_what_a_user_gets_wrong_is_named(world, tmp_path):
    with pytest.raises(DataError, match="names no store"):
        extracted(world, tmp_path / "a", features=[])
    with pytest.raises(UsageError, match="needs a trained model"):
        extracted(world, tmp_path / "b", **{"from": []})
    root, inputs, _, _ = world
    (root / "words.txt").write_text("red\nunheard\n")
    config = {
        "model": {"name": "noisy-or"},
        "task": {"name": "concepts", "vocabulary": "../words.txt"},
        "data": [DATA],
        "steps": 1,
        "features": "regions",
    }
    with pytest.raises(DataError, match="leaves the data root"):
        finetune.run(context(tmp_path / "c", root, inputs, kind="finetune", **config))
    config["task"] = {"name": "concepts", "vocabulary": "words.txt"}
    finetune.run(context(tmp_path / "c", root, inputs, kind="finetune", **config))
    assert load_bundle(tmp_path / "c").data_spec.answers == ("red", "unheard")


def test_the_objective_stands_on_other_models(world, tmp_path):
    root, inputs, _, _ = world
    config = {
        "model": {"name": "lxmert", "hidden": 16, "heads": 2, "image_layers": 1, "cross_layers": 1},
        "text": {"vocabulary": {"train": [DATA], "size": 60}},
        "task": TASK,
        "data": [DATA],
        "steps": 2,
        "features": "regions",
    }
    result = finetune.run(context(tmp_path / "lxmert", root, inputs, kind="finetune", **config))
    assert 0 < result.metrics["train/loss/concepts"] < 10


def test_half_precision_learns_the_same(world, tmp_path):
    root, inputs, _, found = world
    config = {**LEARNING, "features": "regions", "precision": "bf16"}
    half = finetune.run(context(tmp_path / "half", root, inputs, kind="finetune", **config))
    assert half.metrics["train/loss/concepts"] == pytest.approx(found.metrics["train/loss/concepts"], abs=0.02)
