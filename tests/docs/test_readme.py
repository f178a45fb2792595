"""Every command, recipe and line of Python that README.md and docs/ show is tried on a reduced quickstart."""

from __future__ import annotations

import base64
import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from PIL import Image
from tiny_contrast import make_model
from typer.testing import CliRunner

from tests.docs.ways import LOOKING, PAGES, SHOWN, WAYS, Way
from tests.plugins.hf.models import build
from tests.plugins.hf.tiny import save, tower
from vlcli.cli import app
from vlcli.recipe.fields import EmaOptions, GroupOptions, OptimizerOptions, ScheduleOptions, StopOptions
from vlcli.recipe.load import from_mapping
from vlcli.recipe.schema import STAGES, Recipe, TextOptions
from vlcli.recipe.validate import shallow
from vlcli.recipe.yaml import parse

from .conftest import photographs
from .pages import PROJECT, Ended, blocks, environment, files, run, split, vlcli


@pytest.fixture(scope="session")
def desk(quickstart):
    """The quickstart's folder with everything else that the pages assume."""
    folder = quickstart.desk
    for text in PAGES.values():
        for name, content in files(text).items():
            reduced = content.replace("extends: quickstart\n", "extends: quickstart.yaml\n")
            (folder / name).write_text(reduced, encoding="utf-8")
    (folder / "mine.yaml").write_text("extends: quickstart.yaml\nname: mine\n")
    (folder / "copied").mkdir()
    _photos(folder / "photos")
    _table(folder / "features.tsv")
    photographs(folder / "photographs")
    _folders_of_transformers(folder / "photographs")
    _asked(folder / "asked")
    _classes(folder / "classes")
    make_model(folder / "contrast/pairs/model")
    (folder / "sentences.txt").write_text("a red wall\na blue wall\n")
    return folder


def _folders_of_transformers(folder: Path) -> None:
    """Tiny models in the folders that docs/backbones.md names, and a word list."""
    save(folder / "dinov2-base", *tower("dinov2"))
    build("detr", folder / "detr")
    build("siglip", folder / "siglip")
    (folder / "words.txt").write_text("red circle\ncat\ndog\ngreen bus\n")


def _classes(folder: Path) -> None:
    """Two classes of pictures, in ImageNet's folders."""
    for part, name, number in ((s, n, i) for s in ("train", "val") for n in ("n01", "n02") for i in range(3)):
        (folder / part / name).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 40), (number * 60, 90, 30)).save(folder / part / name / f"{name}_{number}.png")


def _asked(folder: Path) -> None:
    """A caption, a question and answer tables."""
    name = "COCO_train2014_000000000001"
    notes = {"images": [{"id": 1, "file_name": f"{name}.jpg"}], "annotations": [{"image_id": 1, "caption": "a net"}]}
    asked = [{"img_id": name, "label": {word: 1.0}, "question_id": word, "sent": "What?"} for word in ("net", "web")]
    content = {"annotations/captions_train2014": notes, "gqa/train": asked, "table": ["net", "web"]}
    for file, rows in {**content, "wanted": ["a net", "Web", "cat"]}.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / f"{file}.json").write_text(json.dumps(rows))


def _table(path: Path) -> None:
    """One picture in LXMERT's TSV."""
    arrays = [np.zeros(2, "<i8"), np.ones(2, "<f4"), np.zeros(2, "<i8"), np.ones(2, "<f4")]
    arrays += [np.array([[0, 0, 9, 9]] * 2, "<f4"), np.ones((2, 4), "<f4")]
    cells = [base64.b64encode(array.tobytes()).decode() for array in arrays]
    path.write_text("\t".join(["a", "20", "30", *cells[:4], "2", *cells[4:]]) + "\n")


def _photos(folder: Path) -> None:
    """Red and blue walls, as JSON lines and as a table."""
    (folder / "images").mkdir(parents=True)
    rows = []
    for part, count in (("train", 12), ("test", 4)):
        for number in range(count):
            warm = number % 2 == 0
            file = f"{part}{number}.png"
            Image.new("RGB", (96, 64), (200, 30, 30) if warm else (30, 30, 200)).save(folder / "images" / file)
            rows.append((part, file, f"a {'red' if warm else 'blue'} wall", "warm" if warm else "cold"))
        lines = [json.dumps({"image": i, "text": t, "label": c}) for p, i, t, c in rows if p == part]
        (folder / f"{part}.jsonl").write_text("\n".join(lines) + "\n")
    inside = [{"bytes": (folder / "images" / file).read_bytes(), "path": file} for _, file, *_ in rows]
    pq.write_table(pa.table({"image": inside, "text": [row[2] for row in rows]}), folder.parent / "photos.parquet")
    (folder / "all.csv").write_text("part,image,sentence,label\n" + "".join(",".join(row) + "\n" for row in rows))


def here(folder: Path, words: list[str]) -> Ended:
    """The command line in this process: torch is imported once for all of them."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        ended = CliRunner().invoke(app, words, prog_name="vlcli")
    finally:
        os.chdir(before)
    return Ended(ended.exit_code, ended.stdout, ended.stderr)


def words_of(command: str, way: Way) -> list[str]:
    words = list(way.instead) if way.instead is not None else [*split(command), *way.more]
    return words if way.instead else ["quickstart.yaml" if word == "quickstart" else word for word in words]


def test_every_command_that_is_shown_has_a_way():
    unknown = {command for command in SHOWN if not command.startswith(LOOKING)} - set(WAYS)
    assert not unknown, f"say in WAYS how these are tried: {sorted(unknown)}"
    assert not set(WAYS) - SHOWN, "these are shown no more"


@pytest.fixture(autouse=True)
def _registry_as_it_was(monkeypatch):
    """A plugin file that a command loads is forgotten after it."""
    module = importlib.import_module("vlcli.registry.entries")  # its name in the package is a function's
    monkeypatch.setattr(module, "_session", dict(module._session))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("vlcli_plugin_"):
            del sys.modules[name]


@pytest.mark.parametrize("command", [c for c in WAYS if not WAYS[c].slow])
def test_a_command_that_is_shown(desk, monkeypatch, command, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("bash", "/bin/bash"))  # no shell need have begun the tests
    way = WAYS[command]
    ended = here(desk, words_of(command, way))
    assert ended.code == 0, ended.err
    assert way.says in ended.out


@pytest.mark.parametrize("command", sorted(c for c in SHOWN if c.startswith(LOOKING) and len(split(c)) > 1))
def test_a_command_that_looks(desk, command, monkeypatch):
    registered = sys.modules["vlcli.registry.entries"]
    monkeypatch.setattr(registered, "_session", {})  # other tests of this process registered components
    ended = here(desk, split(command))
    assert ended.code == 0, ended.err
    assert ended.out


@pytest.mark.slow
@pytest.mark.parametrize("command", [c for c in WAYS if WAYS[c].slow])
def test_a_slow_command_that_is_shown(desk, tmp_path, command):
    """In a copy of the desk, whose finished stages hold there too; a small recipe in one process, with two seeds."""
    folder = shutil.copytree(desk, tmp_path / "desk")
    words = words_of(command, WAYS[command])
    words += ["jobs=1"] * command.startswith("vlcli run tiny/") + ["--seeds", "2"] * ("--seeds" in words)
    ranks = command.startswith("torchrun")
    ended = run([sys.executable, "-m", "torch.distributed.run", *words], folder) if ranks else vlcli(folder, *words)
    assert ended.code == 0, ended.err
    assert WAYS[command].says in ended.out


def test_the_reduced_quickstart_ran_every_stage_and_ends_in_its_table(quickstart):
    stages = {stage["stage"]: stage for stage in quickstart.document["stages"]}
    assert {stage["status"] for stage in stages.values()} == {"done"}
    assert {stage["kind"] for stage in stages.values()} >= {"extract", "pretrain", "finetune", "evaluate", "export"}
    rows = {row["label"]: row["metrics"] for row in quickstart.document["table"]["rows"]}
    assert {"with pre-training", "without", "language only"} <= set(rows)
    assert quickstart.document["report"] == "runs/quickstart/report.html"
    assert 200_000 < (quickstart.runs / "report.html").stat().st_size < 10_000_000
    kinds = [name for name in rows["without"] if name.startswith("accuracy/")]
    assert len(kinds) >= 5
    assert all(0 <= value <= 1 for metrics in rows.values() for value in metrics.values())
    assert rows["language only"]["accuracy"] == 0.5, "statements need the picture"
    assert quickstart.metrics("onnx")["max_difference"] < 1e-4
    assert (quickstart.runs / "onnx" / "model.onnx").stat().st_size > 0
    predictions = (quickstart.runs / "test" / "predictions.jsonl").read_text().splitlines()
    assert {"key", "prediction", "score", "correct"} <= set(json.loads(predictions[0]))


SKIPPING = """\
import sys
sys.modules["torch"] = None  # whoever imports it now fails
from vlcli.cli import main
main()
"""


def test_run_again_skips_every_stage_without_torch(quickstart):
    ended = run([sys.executable, "-c", SKIPPING, "run", "quickstart.yaml", "--json"], quickstart.desk)
    assert ended.code == 0, ended.err
    document = json.loads(ended.out)
    assert {stage["action"] for stage in document["stages"]} == {"skip"}
    assert document["table"] == quickstart.document["table"]


@pytest.mark.slow
def test_run_again_takes_less_than_three_seconds(quickstart):
    began = time.monotonic()
    assert vlcli(quickstart.desk, "run", "quickstart.yaml").code == 0
    assert time.monotonic() - began < 3


@pytest.mark.slow
def test_killed_in_pretrain_and_run_again_the_numbers_are_the_same(quickstart, tmp_path):
    """kill -9 between two checkpoints of the pre-training, then the same command."""
    (tmp_path / "quickstart.yaml").write_text((quickstart.desk / "quickstart.yaml").read_text())
    words = [sys.executable, "-m", "vlcli", "run", "quickstart.yaml", "--until", "test", "--json"]
    stage = tmp_path / "runs" / "quickstart" / "pretrain"
    for name in ("world", "detector", "regions"):  # what comes before is there
        shutil.copytree(quickstart.runs / name, stage.parent / name)
    with subprocess.Popen(
        words, cwd=tmp_path, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        while not any(stage.glob("checkpoints/step-*/state.json")) and process.poll() is None:
            time.sleep(0.005)
        process.kill()
    assert process.returncode == -signal.SIGKILL, "it ended before it could be killed"
    assert json.loads((stage / "stage.json").read_text())["status"] == "running"
    ended = run(words, tmp_path)
    assert ended.code == 0, ended.err
    stages = {row["stage"]: row for row in json.loads(ended.out)["stages"]}
    actions = {name: row["action"] for name, row in stages.items()}
    assert (actions["regions"], actions["pretrain"], actions["nlvr2"]) == ("skip", "resume", "run")
    assert "resuming at step" in ended.err
    for name in ("pretrain", "nlvr2", "test"):
        assert stages[name]["metrics"] == quickstart.metrics(name)
    assert (tmp_path / "runs/quickstart/test/predictions.jsonl").read_bytes() == (
        quickstart.runs / "test" / "predictions.jsonl"
    ).read_bytes()


def test_ones_own_data_without_the_weights_is_told_before_anything_runs(desk):
    ended = here(desk, ["run", "own.yaml"])
    assert ended.code == 5
    assert "photos/resnet50.pth" in ended.err
    assert not (desk / "runs" / "own").exists()


@pytest.mark.parametrize("page", ["README.md", "docs/features.md", "docs/objectives.md"])
def test_lines_of_python_that_are_shown(desk, monkeypatch, page):
    monkeypatch.chdir(desk)
    code = blocks(PAGES[page], "python")
    found: dict[str, object] = {}
    for block in code:
        exec(block, found)
    if page == "README.md":
        assert found["answer"] in (True, False)
    elif page == "docs/features.md":
        assert len(found["record"]) == len(found["record"].features)
        assert (desk / "mine.h5").stat().st_size > 0


def _recipes() -> list[str]:
    texts = [block for text in PAGES.values() for block in blocks(text, "yaml")]
    return [text for text in texts if "stages:" in text and not text.startswith("extends:")]  # those are run


@pytest.mark.parametrize("text", _recipes())
def test_recipes_that_are_shown_are_valid(text, monkeypatch, desk):
    monkeypatch.chdir(desk)
    value = parse(text, "page").value
    (desk / str(value.get("root", "."))).mkdir(exist_ok=True)
    plugins = value.pop("plugins", [])
    resolved = from_mapping("page", value)
    assert resolved.stages
    if not plugins:
        assert [str(problem) for problem in shallow(resolved)] == []


def test_every_key_of_a_recipe_is_explained():
    text = PAGES["docs/recipes.md"] + PAGES["docs/training.md"]
    models = (
        Recipe,
        *STAGES.values(),
        OptimizerOptions,
        ScheduleOptions,
        StopOptions,
        EmaOptions,
        GroupOptions,
        TextOptions,
    )
    keys = {field.alias or name for model in models for name, field in model.model_fields.items()}
    lacking = sorted(key for key in keys if not re.search(rf"\b{key}\b", text))
    assert lacking == []


def test_every_verb_and_option_is_explained():
    text = PAGES["docs/cli.md"]
    group = typer.main.get_command(app)
    verbs = dict(group.commands)
    for name in ("features", "data"):
        verbs |= {f"{name} {inner}": command for inner, command in verbs.pop(name).commands.items()}
    assert [name for name in verbs if f"`{name}`" not in text and f"vlcli {name}" not in text] == []
    verbs_that_run = ("run", "extract", "pretrain", "finetune", "export", "eval", "draw")
    options = {
        option
        for name in verbs_that_run
        for parameter in verbs[name].params
        for option in parameter.opts
        if option.startswith("--") and not getattr(parameter, "hidden", False)
    }
    assert sorted(option for option in options - {"--help"} if option not in text) == []


def test_ci_finds_the_two_commands():
    text = PAGES["README.md"]
    for name, word in (("quickstart", "vlcli run quickstart"), ("tests", "-m pytest")):
        block = text.split(f"<!-- command: {name} -->")[1].split("```")[1]
        assert word in block
        assert len(block.strip().splitlines()) == 2, "the fence's language and one line"
    assert "<!-- command: tests -->" in (PROJECT / ".ci" / "run").read_text()


@pytest.mark.slow("quickstart")
def test_the_whole_quickstart(tmp_path):
    """README's first command without its installation."""
    began = time.monotonic()
    ended = vlcli(tmp_path, "run", "quickstart", "--json", timeout=1800)
    assert ended.code == 0, ended.err
    rows = {row["label"]: row["metrics"] for row in json.loads(ended.out)["table"]["rows"]}
    found = rows["with pre-training"]
    assert found["accuracy"] >= 0.75
    assert all(found[f"accuracy/{kind}"] >= 0.9 for kind in ("any", "both", "has", "one"))
    assert found["accuracy/more"] + found["accuracy/relation"] >= 1.2  # .5 each by guessing
    assert rows["without"]["accuracy"] <= 0.6
    assert rows["language only"]["accuracy"] == pytest.approx(0.5, abs=0.02)
    assert time.monotonic() - began < 1800


@pytest.mark.slow("seeds")
def test_three_seeds_learn(tmp_path):
    """Seeds that no setting was chosen on, side by side, with the same eyes: every one learns, and their mean."""
    words = ("run", "quickstart", "~stages.rank", "~stages.found")
    eyes = vlcli(tmp_path, *words, "seed=11", "--until", "regions", timeout=1800)
    assert eyes.code == 0, eyes.err

    def learn(seed: int) -> Ended:
        return vlcli(tmp_path, *words, f"seed={seed}", "jobs=1", "--until", "test", timeout=5400)

    with ThreadPoolExecutor(3) as pool:
        for ended in pool.map(learn, (11, 12, 13)):
            assert ended.code == 0, ended.err
    found = [json.loads(file.read_text())["metrics"]["accuracy"] for file in tmp_path.glob("runs/*/test/stage.json")]
    assert len(found) == 3
    assert min(found) >= 0.75
    assert sum(found) / 3 >= 0.80
