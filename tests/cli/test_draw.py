"""``vlcli draw`` and the stage kind ``draw``, on a small model with random weights and pictures of one colour each."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from small_run import PAIRS, make_bundle, make_nlvr2, make_store
from typer.testing import CliRunner

from vlcli.cli import app
from vlcli.data.readers.generic import JsonLines
from vlcli.recipe import stage_record
from vlcli.recipe.stage_record import StageRecord
from vlcli.report.sheet import GAP, Cell, contact_sheet

NLVR2 = [{"name": "classification", "classes": 2, "images": 2}]


@dataclass
class Desk:
    """Where a test works.

    Attributes:
        folder: holds ``runs/small/nlvr2``, its features and its data.
        vlcli: runs a command line there.
    """

    folder: Path
    vlcli: Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("draw")
    names = make_nlvr2(folder / "data")
    store = make_store(folder / "runs/small/regions", names)
    (folder / "data/nlvr2/images").mkdir()
    for number, name in enumerate(names):
        Image.new("RGB", (100, 100), (10 * number % 256, 200, 90)).save(folder / f"data/nlvr2/images/{name}.png")
    stage = make_bundle(folder / "runs/small/nlvr2", {"name": "nlvr2"}, NLVR2)
    record = StageRecord("nlvr2", "finetune", "done", "key", root=str(folder / "data"), features=[str(store)])
    record.metrics = {"accuracy": 0.5}
    stage_record.write(stage, record)
    return folder


@pytest.fixture
def desk(made, monkeypatch) -> Desk:
    monkeypatch.chdir(made)

    def vlcli(*words: str) -> tuple[int, str]:
        ended = CliRunner().invoke(app, [*words])
        return ended.exit_code, ended.stdout if "--json" in words else ended.output

    return Desk(made, vlcli)


def picture(path: str | Path) -> np.ndarray:
    return np.asarray(Image.open(path).convert("RGB"))


def test_drawings_are_listed(desk):
    code, said = desk.vlcli("ls", "drawings")
    assert code == 0
    assert all(name in said for name in ("attention", "predictions", "curve", "irpe-buckets"))


def test_attention_of_a_pair_has_a_sheet_a_picture(desk, tmp_path):
    code, said = desk.vlcli("draw", "attention", "--stage", "small/nlvr2", "--out", str(tmp_path), "count=1", "words=2")
    assert code == 0, said
    sheets = sorted(tmp_path.glob("*.png"))
    assert [sheet.name for sheet in sheets] == ["attention-1.png", "attention-2.png"]
    assert picture(sheets[0]).shape[1] > 4 * 240  # the boxes, all words, two words
    assert not list(tmp_path.glob(".*"))


def test_attention_follows_the_recorded_probabilities(made, tmp_path):
    """The brightest region of a panel is the one that the model attends to most."""
    from vlcli.drawings.attention import Attention
    from vlcli.stages.draw import StageScene

    scene = StageScene(scene_context(made, tmp_path, {"name": "attention"}))
    drawing, bundle = Attention(count=1), scene.bundle()
    runner = scene.runner(bundle, limit=1)
    batch = runner.data.batch([0])
    with torch.no_grad():
        seen = drawing._look(runner, batch)
    assert seen.name == "cross.0.text_to_image"
    regions = batch.clean.images.regions
    places = np.arange(int(regions.mask[0].sum()))
    rows = drawing._rows(seen, 0, places)
    assert np.allclose(rows, seen.attention[0].mean(0)[:, places], atol=1e-7)
    (label, mean), *words = drawing._panels(bundle, batch, seen, rows)
    special = batch.clean.text.special[0].numpy()
    assert "all words" in label
    assert np.allclose(mean, rows[~special[: len(rows)]].mean(0), atol=1e-6)
    assert len(words) == (~special).sum()


def scene_context(made: Path, folder: Path, drawing: dict, **more):
    from small_run import context

    inputs = {"nlvr2": made / "runs/small/nlvr2", "regions": made / "runs/small/regions"}
    return context(folder / "stage", made / "data", inputs, kind="draw", drawing=drawing, **{"from": "nlvr2"}, **more)


def test_predictions_say_what_the_model_says(desk, tmp_path):
    words = ("--stage", "runs/small/nlvr2", "--out", str(tmp_path), "count=3", "columns=3")
    code, said = desk.vlcli("draw", "predictions", *words, "--json")
    assert code == 0, said
    document = json.loads(said)
    assert document["files"] == [str(tmp_path / "predictions.png")]
    assert picture(document["files"][0]).shape[1] == GAP + 3 * (240 + GAP)


def test_predictions_are_paired_with_their_examples(made, tmp_path):
    from vlcli.drawings.predictions import paired
    from vlcli.stages.draw import StageScene

    scene = StageScene(scene_context(made, tmp_path, {"name": "predictions"}))
    bundle = scene.bundle()
    runner = scene.runner(bundle)
    rows = scene.task(bundle).evaluate(runner).predictions
    pairs = paired(runner.data, list(reversed(rows)))
    assert len(pairs) == 2 * PAIRS
    assert [example.key for example, _ in pairs] == [row["key"] for row in rows]
    assert all(example.key == row["key"] for example, row in pairs)


def test_a_drawing_is_made_once(desk):
    words = ("draw", "irpe-buckets", "method=cross", "grid=[4, 5]")
    first, again = desk.vlcli(*words, "--json"), desk.vlcli(*words, "--json")
    assert first[0] == 0, first[1]
    assert (json.loads(first[1])["stages"][0]["action"], json.loads(again[1])["stages"][0]["action"]) == ("run", "skip")
    forced = json.loads(desk.vlcli(*words, "--json", "--force")[1])
    assert forced["stages"][0]["action"] == "run"
    assert all(Path(file).is_file() for file in forced["files"])


def test_a_recipe_draws(desk):
    recipe = desk.folder / "pictures.yaml"
    recipe.write_text(
        "root: data\nstages:\n"
        "  buckets: {kind: draw, drawing: {name: irpe-buckets, grid: [3, 3]}}\n"
        "  looks: {kind: draw, drawing: {name: attention, count: 1}, from: runs/small/nlvr2,\n"
        "          features: runs/small/regions, split: dev}\n"
    )
    code, said = desk.vlcli("draw", "--recipe", "pictures.yaml", "--json")
    assert code == 0, said
    assert [stage["status"] for stage in json.loads(said)["stages"]] == ["done", "done"]
    assert (desk.folder / "runs/pictures/looks/attention-1.png").is_file()
    again = json.loads(desk.vlcli("run", "pictures.yaml", "--json")[1])
    assert [stage["action"] for stage in again["stages"]] == ["skip", "skip"]
    skipping = "import sys; sys.modules['torch'] = None; from vlcli.cli import main; main()"
    words = [sys.executable, "-c", skipping, "run", "pictures.yaml"]
    assert subprocess.run(words, cwd=desk.folder, check=False, capture_output=True).returncode == 0  # nothing to draw
    with (desk.folder / "data/nlvr2/dev.json").open("a") as file:
        file.write("\n")
    changed = json.loads(desk.vlcli("run", "pictures.yaml", "--json", "--dry-run")[1])
    assert [stage["action"] for stage in changed["stages"]] == ["reuse", "run"]  # the task's own data were drawn


def test_a_curve_over_stages(desk):
    for number, score in ((9, 0.5), (25, 0.75), (49, 0.875)):
        record = StageRecord(f"b{number}", "evaluate", "done", "key", metrics={"accuracy": score})
        stage_record.write(desk.folder / f"runs/sweep/b{number}", record)
    sources = [word for number in (9, 25, 49) for word in ("--stage", f"sweep/b{number}")]
    words = ("draw", "curve", "at={b9: 9, b25: 25, b49: 49}", "x=buckets", *sources, "--json")
    code, said = desk.vlcli(*words)
    assert code == 0, said
    numbers = json.loads(Path(json.loads(said)["files"][1]).read_text())
    assert numbers["series"][""] == [[9, 0.5], [25, 0.75], [49, 0.875]]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["draw"], 2, "vlcli ls drawings"),
        (["draw", "attnetion"], 4, "attention"),
        (["draw", "attention"], 2, "--stage"),
        (["draw", "attention", "--stage", "small/none"], 5, "RECIPE/STAGE"),
        (["draw", "attention", "--stage", "small/nlvr"], 5, "make it: vlcli run"),
        (["draw", "attention", "--stage", "sma/nlvr2"], 5, "vlcli run"),
        (["draw", "attention", "--stage", "small/nlvr2", "layer=zzz"], 2, "objects.0"),
        (["draw", "attention", "--stage", "small/nlvr2", "count=many"], 3, "count"),
        (["draw", "attention", "--stage", "small/nlvr2", "colour=red"], 3, "colour"),
        (["draw", "attention", "--stage", "small/nlvr2", "layer=self.*"], 2, "cross.0.text_to_image"),
        (["draw", "attention", "--stage", "small/nlvr2", "head=9"], 2, "0 to 1"),
        (["draw", "irpe-buckets", "at=[[20, 0]]"], 2, "rows 0 to 13"),
        (["draw", "irpe-terms", "--stage", "small/nlvr2"], 2, "no encoding"),
        (["draw", "curve", "at={nlvr2: 1}", "metric=recall", "--stage", "small/nlvr2"], 5, "accuracy"),
        (["draw", "attention", "--recipe", "quickstart"], 2, "not both"),
    ],
)
def test_faults_are_told(desk, words, code, says):
    ended, said = desk.vlcli(*words)
    assert ended == code, said
    assert says in said
    assert "Traceback" not in said


def test_matplotlib_is_asked_for_before_anything_runs(desk, monkeypatch):
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "matplotlib" else real(name, *a))
    code, said = desk.vlcli("draw", "irpe-buckets", "grid=[2, 2]")
    assert code == 4
    assert "vlcli[plots]" in said


def test_a_sheet_puts_cells_in_rows():
    cells = [
        Cell(Image.new("RGB", (10, 20), colour), [(f"number {colour}", "black")]) for colour in ("red", "blue", "lime")
    ]
    sheet = np.asarray(contact_sheet(cells, columns=2, width=50))
    assert sheet.shape[1] == GAP + 2 * (50 + GAP)
    for (row, column), colour in zip([(0, 0), (0, 1), (1, 0)], [(255, 0, 0), (0, 0, 255), (0, 255, 0)], strict=True):
        top = GAP + row * (sheet.shape[0] - GAP) // 2
        assert tuple(sheet[top + 40, GAP + column * (50 + GAP) + 25]) == colour


def test_the_stages_own_data_are_drawn(made, desk):
    record = stage_record.read(made / "runs/small/nlvr2")
    assert record is not None
    own = {"name": "jsonl", "file": "mine.jsonl", "images": "nlvr2/images"}
    names = sorted(path.stem for path in (made / "data/nlvr2/images").iterdir())[:2]
    row = {"image": names, "text": "mine", "label": 1}
    (made / "data/mine.jsonl").write_text(json.dumps(row) + "\n")
    stage = make_bundle(made / "runs/small/own", {"name": "nlvr2"}, NLVR2)
    record.stage, record.config = "own", {"data": [own]}
    stage_record.write(stage, record)
    code, out = desk.vlcli("draw", "predictions", "--stage", "small/own", "--json")
    assert code == 0, out
    drawn = Path(json.loads(out)["files"][0]).parent
    kept = stage_record.read(drawn)
    assert kept is not None
    assert [spec["name"] for spec in kept.config["data"]] == ["jsonl"]


def test_pictures_named_without_an_extension_are_found(tmp_path):
    (tmp_path / "images/deep").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(tmp_path / "images/deep/a.png")
    (tmp_path / "train.jsonl").write_text('{"image": "a", "text": "x"}\n{"image": "b.jpg", "text": "x"}\n')
    reader = JsonLines(tmp_path)
    assert reader.image_files() == {"a": tmp_path / "images/deep/a.png", "b": tmp_path / "images/b.jpg"}


def test_other_pictures_are_not_replaced_unasked(desk, tmp_path):
    words = ("draw", "attention", "--stage", "small/nlvr2", "count=1", "--out", str(tmp_path))
    assert desk.vlcli(*words)[0] == 0
    assert desk.vlcli(*words)[0] == 0, "the same pictures"
    first = tmp_path / "attention-1.png"
    Image.new("RGB", (9, 9)).save(first)
    code, out = desk.vlcli(*words)
    assert code == 2
    assert "Other pictures lie here" in out
    assert Image.open(first).size == (9, 9)
    assert desk.vlcli(*words, "--force")[0] == 0
    assert Image.open(first).size != (9, 9)
