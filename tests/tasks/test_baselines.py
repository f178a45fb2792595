"""Rows without a model beside the models': canonical correlation for retrieval, the nearest picture's caption."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from small_run import context
from typer.testing import CliRunner

from vlcli import registry
from vlcli.cli import app
from vlcli.data.shapes.config import ShapesConfig
from vlcli.data.shapes.make import make_shapes
from vlcli.errors import ComponentError, DataError, RecipeError
from vlcli.features import FeatureStore
from vlcli.features.schema import Record
from vlcli.features.writer import FeatureWriter
from vlcli.metrics.captions.measure import measure
from vlcli.metrics.ranking import both_ways
from vlcli.progress import Silent
from vlcli.stages import evaluate
from vlcli.tasks.cca_retrieval import CCARetrieval, FitSetting, fit
from vlcli.tasks.correlation import Axes, CountedWords, Moments, solve, unit
from vlcli.tasks.pooled import mean_features, sentences_by_picture

DIM = 24
FIT = {"name": "karpathy", "file": "karpathy/dataset_shapes.json", "split": "train"}
TEST = {**FIT, "split": "test"}


@dataclass
class World:
    """A world of shapes, and regions whose features show kind, colour and noise."""

    root: Path
    regions: Path

    @property
    def store(self) -> FeatureStore:
        return FeatureStore(self.regions / "features.h5")

    def reader(self, spec: dict[str, Any]) -> Any:
        return registry.build("datasets", spec, self.root)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("baselines")
    made = World(folder / "world", folder / "regions")
    made.regions.mkdir()
    make_shapes(made.root, ShapesConfig(images=300, size=64, parts=("coco", "karpathy")), Silent())
    boxes = made.reader({"name": "coco-instances", "split": ["train", "val", "test"]})
    given, draw = boxes.boxes(), np.random.default_rng(0)
    looks = draw.standard_normal((40, DIM))
    with FeatureWriter(made.regions / "features.h5", provenance={}, dtype="float32") as writer:
        for name, one in given.items():
            assert one.classes is not None
            seen = looks[one.classes] + looks[20 + one.attributes] if one.attributes is not None else looks[one.classes]
            features = seen + 0.3 * draw.standard_normal((len(one.classes), DIM))
            writer.append(Record(name, features.astype(np.float32), one.boxes, (64, 64)))
        writer.finish()
    return made


def stage(world: World, folder: Path, **config: Any) -> Any:
    given = {"kind": "evaluate", "task": "cca-retrieval", "fit": FIT, "data": TEST, "features": ["regions"], **config}
    return context(folder, world.root, {"regions": world.regions}, **{k: v for k, v in given.items() if v is not None})


def moments(rows: np.ndarray, means: np.ndarray) -> Moments:
    sums = Moments(rows.shape[1], means.shape[1])
    for start in range(0, len(rows), 7):
        sums.add(rows[start : start + 7], means[start : start + 7])
    return sums


def test_it_equals_generalised_eigenvalues():
    draw = np.random.default_rng(3)
    words, image = draw.standard_normal((200, 9)), draw.standard_normal((200, 14))
    image[:, :4] += 2 * words[:, :4]
    sums, ridge = moments(words, image), 0.07
    text = Axes.of(words.mean(0), sums.covariance("words"), "sentences")
    seen = Axes.of(image.mean(0), sums.covariance("image"), "features")
    found = solve(text, seen, text.axes.T @ sums.covariance("across") @ seen.axes, ridge, 9)

    both = np.cov(words.T, image.T, bias=True)
    regular = scipy.linalg.block_diag(both[:9, :9], both[9:, 9:])
    regular += ridge * np.diag([np.trace(both[:9, :9]) / 9] * 9 + [np.trace(both[9:, 9:]) / 14] * 14)
    across = both.copy()
    across[:9, :9], across[9:, 9:] = 0, 0
    values, vectors = scipy.linalg.eigh(across, regular)
    values, vectors = values[::-1][:9], vectors[:, ::-1][:, :9] * np.sqrt(2)
    np.testing.assert_allclose(found.correlations, values, rtol=1e-9)
    np.testing.assert_allclose(np.abs(found.words[1]), np.abs(vectors[:9]), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(np.abs(found.image[1]), np.abs(vectors[9:]), rtol=1e-6, atol=1e-9)
    signs = np.sign(found.words[1][0] * vectors[0])  # an axis turned round on both sides
    np.testing.assert_allclose(found.image[1] * signs, vectors[9:], rtol=1e-6, atol=1e-9)


def test_sums_of_parts_are_those_of_the_whole():
    draw = np.random.default_rng(5)
    words, image = draw.random((50, 4)), draw.random((50, 6))
    first, second = moments(words[:20], image[:20]), moments(words[20:], image[20:])
    first.merge(second)
    whole = np.cov(words.T, image.T, bias=True)
    np.testing.assert_allclose(first.covariance("words"), whole[:4, :4], atol=1e-12)
    np.testing.assert_allclose(first.covariance("across", 3), whole[:3, 4:], atol=1e-12)


def test_words_are_weighted_by_rarity():
    words = CountedWords.of(["a red circle", "a blue circle", "a red red square"], 3)
    assert list(words.columns) == ["a", "circle", "red"]  # the most frequent; of two alike, by the alphabet
    rows = words.rows(["a red red star", "nothing"])
    rarity = np.log(4 / np.array([4, 3, 3])) + 1
    np.testing.assert_allclose(rows[0], unit(np.array([[1, 0, 2]]) * rarity)[0])
    assert not rows[1].any()


def test_it_ranks_far_above_chance(world, tmp_path):
    found = evaluate.run(stage(world, tmp_path / "cca")).metrics
    assert found["chance/image/r@10"] == pytest.approx(10 / 30)
    assert found["chance/image/r@1"] == pytest.approx(1 / 30)
    assert found["image/r@10"] > 0.8
    assert found["r_mean"] > 2 * found["chance/r_mean"]
    rows = [json.loads(line) for line in (tmp_path / "cca/predictions.jsonl").read_text().splitlines()]
    assert len(rows) == found["texts"] + found["images"]
    again = evaluate.run(stage(world, tmp_path / "again")).metrics
    assert again == found


def test_the_rows_are_those_of_an_independent_computation(world, tmp_path):
    """Words, means, whitening by Cholesky factors and ranking once more, all at once."""
    task = {"name": "cca-retrieval", "dims": 12, "ridge": 0.2, "words": 20}
    found = evaluate.run(stage(world, tmp_path / "cca", task=task)).metrics
    texts = sentences_by_picture(world.reader(FIT).examples())
    every = [text for group in texts.values() for text in group]
    words = CountedWords.of(every, 20)
    x = words.rows(every)
    y = np.repeat(mean_features(world.store, list(texts)), [len(group) for group in texts.values()], axis=0)
    centre = x.mean(0), y.mean(0)
    a, b = x - centre[0], y - centre[1]
    left, right = (one.T @ one / len(one) for one in (a, b))
    roots = [np.linalg.cholesky(c + 0.2 * np.trace(c) / len(c) * np.eye(len(c))) for c in (left, right)]
    whitened = np.linalg.solve(roots[0], np.linalg.solve(roots[1], (a.T @ b / len(a)).T).T)
    u, strength, v = np.linalg.svd(whitened, full_matrices=False)
    sides = np.linalg.solve(roots[0].T, u), np.linalg.solve(roots[1].T, v.T)
    ways = [side[:, :12] * strength[:12] for side in sides]
    tested = sentences_by_picture(world.reader(TEST).examples())
    asked = list(dict.fromkeys(text for group in tested.values() for text in group))
    relevant = np.array([[text in group for group in tested.values()] for text in asked])
    near = unit((words.rows(asked) - centre[0]) @ ways[0])
    seen = unit((mean_features(world.store, list(tested)) - centre[1]) @ ways[1])
    truth = both_ways(near @ seen.T, relevant)
    assert {name: found[name] for name in truth} == pytest.approx(truth)
    assert (found["chosen/words"], found["chosen/dims"], found["chosen/ridge"]) == (20, 12, 0.2)


def test_what_is_left_open_is_chosen_on_the_fitted_pictures_alone(world):
    texts = sentences_by_picture(world.reader(FIT).examples())
    poor, good = FitSetting(20, 0.1, 1), FitSetting(20, 0.1, 16)
    assert fit(texts, world.store, [poor, good]).choice == good
    assert fit(texts, world.store, [good, poor]).choice == good
    every = fit(texts, world.store, [FitSetting(words, 0.1, 16) for words in (500, 1000)])
    assert every.choice.words == len(every.counted.columns) < 500  # no more than there are


def test_nearest_takes_what_was_said_of_the_most_alike(world, tmp_path):
    found = evaluate.run(stage(world, tmp_path / "near", task={"name": "nearest-caption", "metrics": ["cider_d"]}))
    rows = [json.loads(line) for line in (tmp_path / "near/predictions.jsonl").read_text().splitlines()]
    known = sentences_by_picture(world.reader(FIT).examples())
    tested = sentences_by_picture(world.reader(TEST).examples())
    near = mean_features(world.store, list(tested)) @ mean_features(world.store, list(known)).T
    said = [known[list(known)[place]][0] for place in near.argmax(1)]
    assert [row["prediction"] for row in rows] == said
    truth = measure(said, [tested[row["key"]] for row in rows], ["cider_d"]).metrics["cider_d"]
    assert found.metrics["cider_d"] == pytest.approx(truth)
    assert found.metrics["cider_d"] > found.metrics["baseline/cider_d"]
    assert (tmp_path / "near/captions.json").is_file()


def test_pictures_that_are_fitted_on_are_not_tested(world, tmp_path):
    for task in ("cca-retrieval", "nearest-caption"):
        with pytest.raises(DataError, match="30 of the pictures that are tested"):
            evaluate.run(stage(world, tmp_path / task, task=task, fit=TEST))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"task": "retrieval"}, "tasks that need no model"),
        ({"task": None}, "tasks that need no model"),
        ({"fit": None}, "no data are named to fit it on"),
        ({"from": "regions"}, "takes none"),
    ],
)
def test_fit_and_task_belong_together(world, tmp_path, config, said):
    with pytest.raises(RecipeError, match=said):
        evaluate.run(stage(world, tmp_path / "stage", **config))


def test_too_few_pictures_are_refused(world, tmp_path):
    with pytest.raises(DataError, match="too few pictures"):
        evaluate.run(stage(world, tmp_path / "few", fit={**FIT, "take": "first:5"}))


def test_options_are_numbers_above_zero():
    for options in ({"dims": 0}, {"ridge": []}, {"words": [500, 0]}):
        with pytest.raises(ComponentError, match="nothing to choose among"):
            registry.build("tasks", {"name": "cca-retrieval", **options})
    assert CCARetrieval(dims=[8, 16], ridge=1.0, words=30).choices == [FitSetting(30, 1.0, 8), FitSetting(30, 1.0, 16)]


RECIPE = """
root: {root}
model: {{name: lxmert, hidden: 16, heads: 2, text_layers: 1, image_layers: 1, cross_layers: 1}}
stages:
  words:
    kind: evaluate
    features: {features}
    task: {{name: cca-retrieval, dims: 8, ridge: 0.1, words: 30}}
    fit: {{name: karpathy, file: karpathy/dataset_shapes.json, split: train}}
    data: {{name: karpathy, file: karpathy/dataset_shapes.json, split: test}}
table:
  title: Retrieval
  rows: {{canonical correlation: words}}
  metrics: ["image/*", r_mean]
"""

LINE = "    fit: {name: karpathy, file: karpathy/dataset_shapes.json, split: train}\n"


def _recipe(world: World, folder: Path, change: tuple[str, str] = ("", "")) -> Path:
    text = RECIPE.format(root=world.root, features=world.regions / "features.h5").replace(*change)
    (folder / "rows.yaml").write_text(text)
    return folder / "rows.yaml"


def test_a_recipe_shows_the_row_with_chance(world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _recipe(world, tmp_path)
    shown = CliRunner().invoke(app, ["run", "rows.yaml"], prog_name="vlcli")
    assert shown.exit_code == 0, shown.stderr
    assert "(in brackets: chance)" in shown.stdout + shown.stderr
    as_json = CliRunner().invoke(app, ["run", "rows.yaml", "--json"], prog_name="vlcli")
    (row,) = json.loads(as_json.stdout)["table"]["rows"]
    assert set(row["metrics"]) == set(row["chance"])
    assert "most_frequent" not in row
    assert row["chance"]["image/r@1"] == pytest.approx(1 / 30)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("kind: evaluate", "kind: finetune\n    epochs: 1"), "unknown key 'fit'"),
        ((LINE, ""), "evaluate needs 'from'"),
        (("cca-retrieval, dims: 8, ridge: 0.1, words: 30", "vqa"), "`fit` is for tasks that need no model"),
        (("words: 30", "wrods: 30"), "wrods"),
        (("split: train}", "splt: train}"), "splt"),
    ],
)
def test_faults_of_a_recipe_are_told_before_it_runs(world, tmp_path, monkeypatch, change, said):
    monkeypatch.chdir(tmp_path)
    _recipe(world, tmp_path, change)
    ended = CliRunner().invoke(app, ["validate", "rows.yaml", "--deep"], prog_name="vlcli")
    assert ended.exit_code == 3, ended.stdout + ended.stderr
    assert said in ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr


def test_it_is_not_fine_tuned(world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = _recipe(world, tmp_path, (LINE, ""))
    path.write_text(path.read_text().replace("kind: evaluate", "kind: finetune"))
    ended = CliRunner().invoke(app, ["validate", "rows.yaml", "--deep"], prog_name="vlcli")
    assert ended.exit_code == 3, ended.stdout + ended.stderr
    assert "belongs to an evaluate stage" in ended.stdout + ended.stderr
