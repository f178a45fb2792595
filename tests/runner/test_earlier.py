"""What commit 7f74e70 wrote is read, skipped and continued: feature store, bundle, checkpoint, stage records, keys."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
import torch

from vlcli.engine.bundle import load_bundle
from vlcli.errors import RecipeError
from vlcli.features import FeatureStore, verify
from vlcli.recipe import keys, wiring
from vlcli.recipe.load import load
from vlcli.recipe.plan import RunOptions
from vlcli.recipe.schema import Recipe
from vlcli.recipe.table import is_table, load_table
from vlcli.runner.run import run_recipe

EARLIER = Path(__file__).parents[1] / "fixtures" / "earlier"
KEYS = json.loads((EARLIER / "stage_keys.json").read_text())

# What the same commit measured where nothing was killed.
TRAINED = {"train/loss": 1.3809579114119213, "train/matching/accuracy": 0.625}
SCORES = {"image/r@1": 0.5, "image/median_rank": 1.5, "text/r@1": 0.5, "text/median_rank": 2.0, "r_mean": 5 / 6}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run folder that the earlier commit left, in the working directory."""
    with tarfile.open(EARLIER / "earlier.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    return tmp_path / "runs" / "earlier"


def test_a_feature_store_is_read_and_sound(run: Path) -> None:
    assert verify(run / "regions" / "features.h5") == []
    store = FeatureStore(run / "regions" / "features.h5")
    assert len(store) == 18
    assert sum(len(store.read(name).boxes) for name in store.ids) == 65


def test_a_bundle_is_loaded(run: Path) -> None:
    bundle = load_bundle(run / "pretrain", torch.device("cpu"))
    assert bundle.tokenizer is not None
    assert bundle.text_options["length"] == 12
    assert sum(parameter.numel() for parameter in bundle.model.parameters()) > 3000


def test_a_killed_run_is_continued_and_ends_with_the_same_numbers(run: Path) -> None:
    with pytest.raises(RecipeError, match="call it 'text_layers'"):
        run_recipe(load("earlier.yaml"), RunOptions(device="cpu"))
    recipe = Path("earlier.yaml")
    rate = "keep: 1\n    optimizer: {lr: 1.0e-4}"  # what a recipe that states no rate meant then
    text = recipe.read_text().replace("language_layers", "text_layers").replace("object_layers", "image_layers")
    recipe.write_text(text.replace("keep: 1", rate))
    outcomes = {one.name: one for one in run_recipe(load("earlier.yaml"), RunOptions(device="cpu"))}
    assert {name: one.action for name, one in outcomes.items()} == {
        "world": "skip", "regions": "skip", "pretrain": "skip", "tune": "resume", "test": "run",
    }  # fmt: skip
    assert {one.status for one in outcomes.values()} == {"done"}
    tuned, scored = outcomes["tune"].metrics, outcomes["test"].metrics
    assert {name: tuned[name] for name in TRAINED} == pytest.approx(TRAINED, abs=1e-5)
    assert {name: scored[name] for name in SCORES} == pytest.approx(SCORES)
    again = run_recipe(load("earlier.yaml"), RunOptions(device="cpu"))
    assert {one.action for one in again} == {"skip"}


def test_the_copy_of_the_recipe_in_the_run_folder_is_converted(run: Path) -> None:
    options = load("runs/earlier/recipe.yaml").recipe.model
    assert (options["text_layers"], options["image_layers"], options["cross_layers"]) == (1, 1, 1)


ROWS = json.loads((EARLIER / "recipe_keys.json").read_text())
"""Keys of the recipes of commit 30544f1, when every row of a table was a recipe; inputs count by their keys."""


WORDS_OF_VLMO = [r"^model\.(text|types|idle_positions|pooler|positions)\b", r"experts\.text\."]
"""What the text stage of VLMo allowed not to match then; `stack.norm` has been added since, for BEiT's final norm."""


SLOW_STEPS = "optimizer={lr: 1e-3, betas: [0.9, 0.98]}"
NLVR2 = ["~stages.nlvr2.optimizer.groups", f"stages.nlvr2.{SLOW_STEPS}", "~stages.nlvr2.schedule"]
LXMERT = [
    "model.init_std=0.06",
    "stages.world.world.questions=1",
    *("stages.pretrain.optimizer={lr: 2e-3, betas: [0.9, 0.98]}", "~stages.pretrain.schedule"),
    *NLVR2,
]
VQA = ["~stages.vqa.optimizer.groups", f"stages.vqa.{SLOW_STEPS}", "~stages.vqa.schedule"]
BERT = ["stages.bert.optimizer={lr: 2e-3, betas: [0.9, 0.98]}", "~stages.bert.schedule"]
FORMER_SETTINGS = {
    "tiny/lxmert": [*LXMERT, *VQA],
    "tiny/lxmert-table2": [*LXMERT, *VQA],
    "tiny/lxmert-table3": [*LXMERT, *BERT],
    "tiny/lxmert-table4": [*LXMERT, *VQA],
    "tiny/lxmert-table5": [*LXMERT, *VQA],
    "tiny/vlmo": [*NLVR2, "stages.nlvr2.epochs=5"],
}
"""Former settings of recipes that did not learn with them (CHANGELOG): they find finished stages as before."""


def whole_keys(recipe: Recipe) -> dict[str, str]:
    """Keys that do not depend on the names of stages: an input counts by its own key."""
    text = recipe.stages.get("text")
    if text is not None and any("stack" in pattern for pattern in text.allow_unmatched):
        recipe.stages["text"] = text.model_copy(update={"allow_unmatched": WORDS_OF_VLMO})
    graph, made = wiring.inputs(recipe), {}
    for one in recipe.stages:
        made[one] = keys.stage_key(recipe, one, made, graph[one].implied, list(graph))
    return {name: key[:10] for name, key in made.items()}


@pytest.mark.parametrize("name", sorted(ROWS))
def test_rows_of_tables_keep_the_keys_of_their_stages(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A former row of a table has all its stages under their names; a table has in its rows what it had in one run."""
    monkeypatch.chdir("/")
    words = FORMER_SETTINGS.get(name, [])
    if is_table(name):
        table = load_table(name, words)
        made = {key for label in table.rows for key in whole_keys(table.member(label).recipe).values()}
        assert set(ROWS[name].values()) <= made
    else:
        assert whole_keys(load(name, words).recipe) == ROWS[name]


TABLES = sorted(name for name in KEYS if is_table(name))
"""Recipes that have become tables: the test before this one compares what they run."""


def test_few_recipes_have_become_tables() -> None:
    small = ["ace-rpe", "dimbert-ablation", "irpe", "lxmert-table2", "lxmert-table3", "lxmert-table4", "lxmert-table5"]
    assert [*(f"tiny/{name}" for name in [*small, "vlmo"]), "vlmo/table5"] == TABLES


@pytest.mark.parametrize("name", sorted(KEYS.keys() - {"quickstart", *TABLES}))  # the first has changed since
def test_stage_keys_stay(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that changes makes everybody's finished stage be made again."""
    monkeypatch.chdir("/")
    recipe = load(name, FORMER_SETTINGS.get(name, [])).recipe
    graph, prints = wiring.inputs(recipe), {other: other for other in recipe.stages}
    made = {one: keys.stage_key(recipe, one, prints, graph[one].implied, list(graph))[:10] for one in recipe.stages}
    assert made == KEYS[name]
