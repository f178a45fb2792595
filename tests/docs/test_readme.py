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
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import typer
from PIL import Image
from tiny_contrast import make_model
from typer.testing import CliRunner

from vlcli.cli import app
from vlcli.recipe.load import from_mapping
from vlcli.recipe.schema import (
    STAGES,
    EmaOptions,
    GroupOptions,
    OptimizerOptions,
    Recipe,
    ScheduleOptions,
    TextOptions,
)
from vlcli.recipe.validate import shallow
from vlcli.recipe.yaml import parse

from .conftest import photographs
from .pages import PROJECT, Ended, blocks, commands, environment, files, pages, run, split, vlcli

PAGES = pages()
SHOWN = {command for text in PAGES.values() for command in commands(text)}


@dataclass(frozen=True)
class Way:
    """How a shown command is run.

    Attributes:
        says: a word of its stdout.
        more: words added to those shown.
        instead: words in place of those shown; the recipe ``quickstart`` is always the reduced one.
        slow: only in the slow tests.
    """

    says: str = ""
    more: tuple[str, ...] = ()
    instead: tuple[str, ...] | None = None
    slow: bool = False


TINY = (
    "stages.regions.extractor.arch=tiny-conv",
    "~stages.regions.extractor.weights",
    "stages.pretrain.epochs=1",
)
LITTLE = ("stages.world.world.images=30", *(f"stages.world.world.nlvr2_{n}=8" for n in ("train", "dev", "test")))
DRY = ("--dry-run",)
WALLS = (
    *(
        "run",
        "tiny/photo-concepts",
        "root=photos",
        "stages.grid.extractor={name: backbone, arch: tiny-conv, boxes: grid}",
    ),
    *(f"stages.{stage}.data={{name: jsonl, split: train}}" for stage in ("grid", "learn", "concepts", "test")),
    *("stages.learn.task.min_count=1", "stages.learn.epochs=2", "stages.learn.model.width=8"),
)
FEW_SHAPES = ("stages.world.world.images=40", "stages.eyes.steps=1", "text.length=24")
FEW_EPOCHS = tuple(f"stages.{stage}.epochs=1" for stage in ("words", "pretrain", "caption"))
NEAR = (("fit", "first"), ("data", "after"))
SAID_WALLS = (
    *("run", "tiny/dimbert-photos", "root=photos", "table=~"),
    "stages.grid.extractor={name: backbone, arch: tiny-conv, boxes: grid}",
    "text.vocabulary={train: {name: jsonl, split: train}, size: 100}",
    *(f"stages.{stage}.data={{name: jsonl, split: train}}" for stage in ("grid", "learn", "concepts", "pretrain")),
    *(f"stages.{stage}.data={{name: jsonl, split: train}}" for stage in ("test", "caption", "said", "sheet")),
    *(f"stages.nearest.{key}={{name: jsonl, split: train, take: {take}:8}}" for key, take in NEAR),
    *("stages.learn.task.min_count=1", "stages.learn.epochs=2", "stages.learn.model.width=8"),
    *(
        "stages.pretrain.epochs=1",
        "stages.caption.epochs=1",
        "model.hidden=32",
        "stages.said.task.metrics=[cider_d]",
    ),
)
WORLD = "runs/quickstart/world/world"
LITTLE_DIMBERT = (
    *("pretrain", "--recipe", "dimbert", "--only", "pretrain", f"root={WORLD}", "model.concepts=0"),
    *("model.hidden=16", "model.heads=2", "model.layers=1", "stages.pretrain.from=[]", "stages.pretrain.epochs=1"),
    *("stages.pretrain.features=runs/quickstart/regions", "stages.pretrain.batch_size=4", "stages.pretrain.workers=0"),
    "stages.pretrain.data={name: coco-captions, split: train, limit: 8}",
    "text.vocabulary={train: {name: coco-captions, split: train}, size: 200}",
)
SMALL_DETECTOR = (
    *("extractor.depth=50", "extractor.short=48", "extractor.long=64", "extractor.proposals=5"),
    "limit=2",
)
WALLS_SEEN = ("--from", "contrast/pairs", "--images", "photos/images")
CONCEPTS = ("data", "concepts", f"{WORLD}/coco/annotations/captions_train.json", "--out", "words.txt")
SHORT = tuple(
    f"stages.{name}.steps=2" for name in ("eyes", "image", "text", "pairs", "scratch", "nlvr2", "nlvr2-scratch")
)
POSITIONS = ("none", "ape", "rpe", "ape-rpe", "uniform", "ace-rpe", "anchor")
METHODS = ("none", "euclidean", "quantization", "cross", "product")
SMALL_DEIT = (
    *("model.hidden=16", "model.layers=1", "model.heads=2", "model.image_size=32", "stages.train.epochs=1"),
    *("stages.train.batch_size=4", "stages.train.precision=float32"),
)
PICTURE = "runs/quickstart/world/world/images/train/000000000001.png"
WAYS: dict[str, Way] = {
    "vlcli --help": Way("Pre-train"),
    "vlcli run --help": Way("--seeds"),
    "vlcli --install-completion": Way("installed", ("bash",)),
    "vlcli run quickstart": Way("without"),
    "vlcli run quickstart --dry-run": Way("unchanged"),
    "vlcli run quickstart root=photographs": Way("pretrain", DRY),  # run in earnest by test_photographs
    "vlcli validate quickstart": Way("valid (shallow)"),
    "vlcli validate quickstart --deep": Way("valid (deep)"),
    "vlcli count quickstart": Way("multiply-accumulates"),
    "vlcli count quickstart --stage nlvr2 --answers 2 --json": Way('"macs"'),
    "vlcli cp quickstart mine.yaml": Way("mine.yaml", instead=("cp", "quickstart", "copied/mine.yaml")),
    "vlcli cp quickstart -": Way("# vlcli run quickstart", instead=("cp", "quickstart", "-")),
    "vlcli doctor": Way("torch and torchvision"),
    "vlcli runs": Way("stages done"),
    "vlcli runs --clean --yes": Way("stages done"),
    "vlcli runs --clean": Way("stages done", ("--yes",)),
    "vlcli run own.yaml": Way("accuracy", TINY),
    "vlcli run table.yaml": Way("accuracy"),
    "vlcli data stats table.yaml": Way("csv"),
    "vlcli data stats quickstart": Way("coco-captions"),
    "vlcli run mine.yaml stages.pretrain.epochs=3 model.hidden=64": Way("train/loss", ("--until", "pretrain")),
    "vlcli pretrain --recipe mine.yaml --only pretrain objectives.mlm.probability=0.2 --dry-run": Way("pretrain"),
    "vlcli run quickstart --seeds 3 --table": Way("skip", DRY),
    "vlcli run quickstart --seeds 10 --table": Way("skip", DRY),
    "vlcli run quickstart mine.yaml --seeds 3 --table": Way("±", ("--until", "test"), slow=True),
    "vlcli extract --recipe quickstart": Way("skip"),
    "vlcli export --recipe quickstart": Way("skip"),
    "vlcli eval --recipe quickstart": Way("language-test"),
    "vlcli eval nlvr2": Way("accuracy"),
    "vlcli eval nlvr2 --split dev": Way("runs/eval/nlvr2-"),
    "vlcli eval nlvr2 --checkpoint runs/quickstart/scratch --json": Way('"accuracy/both"'),
    "vlcli run quickstart --only test": Way("skip"),
    "vlcli run quickstart --from nlvr2 --until test": Way("skip"),
    "vlcli run quickstart --force --only nlvr2": Way("run"),
    "vlcli run quickstart stages.pretrain.objectives.mlm.probability=0.2 '~stages.onnx' --dry-run": Way("reuse"),
    "vlcli pretrain --recipe quickstart --only pretrain optimizer.lr=3e-4 --dry-run": Way("not made yet"),
    "vlcli extract --recipe regions root=PICTURES extractor.weights=resnet50.safetensors": Way(
        "regions", instead=("extract", "--recipe", "regions", "root=photographs", "extractor.arch=tiny-conv")
    ),
    "vlcli extract --recipe bottom-up.yaml root=PICTURES": Way(
        "regions",
        instead=("extract", "--recipe", "bottom-up.yaml", "root=photographs", "~extractor.weights", *SMALL_DETECTOR),
    ),
    "vlcli features info runs/quickstart/regions": Way("provenance.extractor"),
    "vlcli features info runs/quickstart/regions --json": Way('"provenance"'),
    "vlcli features verify runs/quickstart/regions": Way("sound"),
    "vlcli features verify runs/quickstart/regions/features.h5": Way("sound"),
    "vlcli features merge runs/quickstart/regions/features.h5 --into all.h5": Way("all.h5", ("--force",)),
    "vlcli features merge detected=runs/quickstart/regions truth=all.h5 --into both.h5": Way(
        "both.h5",
        instead=("features", "merge", "a=runs/quickstart/regions", "b=runs/quickstart/regions", "--into", "both.h5"),
    ),
    "vlcli features join runs/quickstart/regions/features.h5 --into runs/index.h5": Way("index.h5", ("--force",)),
    f"vlcli features draw runs/quickstart/regions {PICTURE} --limit 10": Way("000000000001.png"),
    "vlcli features export obj36 runs/quickstart/regions features.tsv": Way("images", ("--force",)),
    "vlcli features import obj36 features.tsv imported.h5 --dtype float32": Way("0 errors"),
    "vlcli data make shapes DATA --images 200 'parts=[coco, nlvr2]' nlvr2_train=40": Way("captions", ("nlvr2_test=4",)),
    "vlcli data make shapes DATA --images 200 'parts=[coco, vqa]' questions=2": Way("questions"),
    "vlcli data stats --root DATA": Way("COCO-Cap", instead=("data", "stats", "--root", "asked")),
    "vlcli data aggregate DATA": Way("mscoco_train.json", instead=("data", "aggregate", "asked", "--out", "lists")),
    "vlcli data answers DATA --size 9500": Way(
        "2 answers", instead=("data", "answers", "asked", "--out", "lists/a.json")
    ),
    "vlcli data coverage DATA/vqa/trainval_label2ans.json DATA/lxmert/all_ans.json": Way(
        "2 of 3", instead=("data", "coverage", "asked/wanted.json", "asked/table.json")
    ),
    "vlcli run tiny/detector": Way(
        "AP50", ("stages.world.world.images=40", "stages.detector.steps=2", "stages.detector.batch_size=4", "--quiet")
    ),
    "vlcli validate detector.yaml": Way("valid (shallow)"),
    "vlcli run tiny/concepts": Way(
        "baseline/f1@own",
        ("stages.world.world.images=40", "stages.eyes.steps=2", "stages.learn.epochs=1", "--quiet"),
    ),
    "vlcli run tiny/photo-concepts root=photographs": Way("baseline/f1@20", instead=WALLS),
    "vlcli data concepts captions_train.json --out words.txt": Way("words.txt", instead=CONCEPTS),
    "vlcli data concepts captions_train.json --out words.json --size 500 --pos NN,JJ --min-count 5": Way(
        "words.json", instead=(*CONCEPTS[:-1], "words.json", "--size", "500", "--pos", "NN,JJ", "--min-count", "5")
    ),
    "vlcli draw attention --from quickstart/nlvr2": Way("attention-1.png", ("count=1",)),
    "vlcli draw predictions --from quickstart/nlvr2 split=test1 count=12 --out pictures": Way(
        "pictures/predictions.png"
    ),
    "vlcli draw --recipe pictures.yaml": Way("looks", DRY),
    "vlcli draw reds --plugin reds.py --root photos data=folder": Way("reds.png"),
    "vlcli run tiny/dimbert": Way("right/look", (*FEW_SHAPES, *FEW_EPOCHS, "--quiet"), slow=True),
    "vlcli run tiny/dimbert-scst": Way(
        "self-critical",
        (*FEW_SHAPES, *FEW_EPOCHS, "stages.scst.steps=1", "stages.scst.batch_size=4", "--quiet"),
        slow=True,
    ),
    "vlcli run tiny/dimbert-ablation --seeds 3 --table": Way("pretrain-neither", DRY),
    "vlcli run tiny/dimbert-photos root=photographs": Way("said", instead=SAID_WALLS),
    "vlcli count dimbert/vlp": Way("115,939,396"),
    "vlcli pretrain --recipe dimbert root=DATA": Way("train/loss", instead=LITTLE_DIMBERT),
    "vlcli run tiny/dimbert-story": Way(
        "in_order",
        ("stages.world.world.albums=8", "stages.eyes.steps=1", "stages.story.epochs=1", "text.length=80", "--quiet"),
        slow=True,
    ),
    "vlcli run tiny/dimbert-referring": Way(
        "accuracy/other",
        ("stages.world.world.images=120", "stages.eyes.steps=1", "stages.refer.epochs=1", "--quiet"),
        slow=True,
    ),
    "vlcli draw --recipe grounding.yaml": Way("looks", DRY),
    "vlcli draw irpe-index ratio=2.0": Way("index.png"),
    "vlcli draw irpe-buckets method=cross 'grid=[10, 16]' 'at=[[0, 0], [5, 8]]'": Way("buckets-cross.json"),
    "vlcli draw irpe-macs": Way("macs.png", ("resolutions=[64]", "sides=[K]", "size=tiny")),
    "vlcli draw irpe-speed batch=4 rounds=3": Way(
        "speed.png", ("size=tiny", "resolution=32", "rounds=1", "encodings=[iRPE K]"), slow=True
    ),
    "vlcli run tiny/irpe-buckets": Way("b169-test", DRY),
    "vlcli count irpe/table6-6": Way("41,540,320"),
    "vlcli count irpe/table5-small-qkv": Way("22,165,864"),
    "vlcli run irpe root=DATA": Way(
        "top5", instead=("run", "irpe", "root=classes", *SMALL_DEIT, "stages.train.workers=0", "stages.test.workers=0")
    ),
    "vlcli run tiny/irpe --seeds 3 --table": Way(
        "±", ("stages.world.world.imagenet=40", *(f"stages.{name}.steps=2" for name in METHODS), "--quiet"), slow=True
    ),
    "vlcli count vlmo": Way("202,445,470"),
    "vlcli run vlmo root=DATA --dry-run": Way("second_path", instead=("show", "vlmo")),
    "vlcli run tiny/segmentation": Way(
        "UPerNet",
        ("stages.world.world.ade20k=5", "stages.light.steps=1", "stages.upernet.steps=1", "--quiet"),
        slow=True,
    ),
    "vlcli run tiny/vlmo --seeds 3 --table": Way("±", (*LITTLE, *SHORT, "--quiet"), slow=True),
    "vlcli run tiny/detr": Way(
        "AP50", ("stages.world.world.images=20", "stages.detr.steps=1", "stages.detr.batch_size=2", "--quiet")
    ),
    'vlcli ask quickstart/nlvr2 "each picture has a red circle" test1-0-0-img0 test1-0-0-img1 '
    "--features runs/quickstart/regions": Way("prediction"),
    'vlcli search "a red circle" --from photos/pairs --images PICTURES --top 5 --sheet found.png': Way(
        "rank", instead=("search", "a red wall", *WALLS_SEEN, "--top", "5", "--sheet", "found.png")
    ),
    "vlcli search --image PICTURES/one.png --from photos/pairs --images PICTURES --json": Way(
        '"embedded"', instead=("search", "--image", "photos/images/train0.png", *WALLS_SEEN, "--json")
    ),
    "vlcli search --image PICTURES/one.png --from photos/pairs --texts sentences.txt": Way(
        "sentence",
        instead=("search", "--image", "photos/images/train0.png", *WALLS_SEEN[:2], "--texts", "sentences.txt"),
    ),
    "vlcli count lxmert": Way("228,051,752"),
    "vlcli count ace-rpe": Way("56,821,248"),
    "vlcli run ace-rpe root=DATA": Way("anchor-alignment", instead=("show", "ace-rpe")),
    "vlcli validate ace-rpe/table1-rpe root=DATA": Way("shaw", instead=("show", "ace-rpe/table1-rpe")),
    "vlcli run tiny/ace-rpe --seeds 3 --table": Way(
        "±", (*LITTLE, *(f"stages.{name}.epochs=1" for name in POSITIONS), "--quiet"), slow=True
    ),
    "vlcli run tiny/ace-rpe-grounding": Way(
        "pointing",
        ("stages.world.world.images=30", "stages.eyes.steps=2", "stages.tune.epochs=1", "--quiet"),
        slow=True,
    ),
    "vlcli run tiny/lxmert": Way("NLVR2", LITTLE, slow=True),
    "vlcli run tiny/lxmert-table3 --seeds 3 --table": Way("Pre-train + scratch", LITTLE, slow=True),
    "vlcli trust FOLDER": Way("", instead=("trust", ".")),
    "vlcli trust papers": Way("", instead=("trust", ".")),
    "vlcli trust --list": Way(),  # nothing is trusted here, which is said on stderr
    "vlcli count tiny/lxmert tiny/vlmo": Way("tiny/vlmo"),
    "vlcli run tiny_paper.yaml --trust": Way("lxmert", DRY),  # run in earnest by test_docs
    "vlcli run roles.yaml": Way("train/loss"),
    "torchrun --nproc-per-node 2 -m vlcli run quickstart --only pretrain": Way("train/loss", ("--force",), slow=True),
    "torchrun --nproc-per-node 2 -m vlcli extract --recipe quickstart --only regions": Way(
        "regions", ("--force",), slow=True
    ),
}
LOOKING = ("vlcli ls", "vlcli show")
"""Commands that begin so run as they are shown and need no way of their own."""


@pytest.fixture(scope="module")
def desk(quickstart):
    """The quickstart's folder with everything else that the pages assume."""
    folder = quickstart.desk
    for text in PAGES.values():
        for name, content in files(text).items():
            (folder / name).write_text(content, encoding="utf-8")
    (folder / "mine.yaml").write_text("extends: quickstart.yaml\nname: mine\n")
    (folder / "copied").mkdir()
    _photos(folder / "photos")
    _table(folder / "features.tsv")
    photographs(folder / "photographs")
    _asked(folder / "asked")
    _classes(folder / "classes")
    make_model(folder / "contrast/pairs/model")
    (folder / "sentences.txt").write_text("a red wall\na blue wall\n")
    return folder


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


@pytest.mark.parametrize("command", [c for c in WAYS if not WAYS[c].slow])
def test_a_command_that_is_shown(desk, monkeypatch, command, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
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
    """In a copy of the desk, whose finished stages hold there too."""
    folder = shutil.copytree(desk, tmp_path / "desk")
    module = "torch.distributed.run" if command.startswith("torchrun") else "vlcli"
    ended = run([sys.executable, "-m", module, *words_of(command, WAYS[command])], folder, timeout=900)
    assert ended.code == 0, ended.err
    assert WAYS[command].says in ended.out


def test_the_reduced_quickstart_ran_every_stage_and_ends_in_its_table(quickstart):
    stages = {stage["stage"]: stage for stage in quickstart.document["stages"]}
    assert {stage["status"] for stage in stages.values()} == {"done"}
    assert {stage["kind"] for stage in stages.values()} >= {"extract", "pretrain", "finetune", "evaluate", "export"}
    rows = {row["label"]: row["metrics"] for row in quickstart.document["table"]["rows"]}
    assert {"with pre-training", "without", "language only"} <= set(rows)
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
    models = (Recipe, *STAGES.values(), OptimizerOptions, ScheduleOptions, EmaOptions, GroupOptions, TextOptions)
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
    assert rows["with pre-training"]["accuracy"] >= 0.72
    assert rows["without"]["accuracy"] <= 0.6
    assert rows["language only"]["accuracy"] == pytest.approx(0.5, abs=0.02)
    assert time.monotonic() - began < 1800
