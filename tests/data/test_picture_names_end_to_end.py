"""Names of pictures by the command line: what a person has in a folder goes through, or is refused in one message."""

from __future__ import annotations

import json
import os
import subprocess
import unicodedata
from pathlib import Path

import forked
import pytest
from PIL import Image

from vlcli.features import FeatureStore

COLOURS = {"red": (250, 0, 0), "green": (0, 250, 0), "blue": (0, 0, 250)}
WORDS = list(COLOURS)
EXTRACT = """
  regions:
    kind: extract
    extractor: {name: backbone, arch: tiny-conv, short: 0, boxes: grid, grid: [2, 2], resolution: 2, limit: 0}
    data: [DATA]
    threads: 1
"""
PIXELS = "{name: vlmo, image: pixels, image_size: 16, patch: 8, hidden: 16, heads: 2, layers: 1, fused_layers: 1}"
REGIONS = "{name: lxmert, hidden: 16, heads: 2, text_layers: 1, image_layers: 1, cross_layers: 1}"
PART = '{name: json, split: %s, images: ".", text: question, answers: answer%s}'


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return forked.run(words, folder, {**os.environ, "OMP_NUM_THREADS": "1"}, 300)


def picture(path: Path, colour: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (16, 16), COLOURS[colour]).save(path)


@pytest.fixture
def easy(tmp_path: Path) -> Path:
    """Two parts in the form of easy-VQA: pictures of equal names, other colours, a list of questions for each part."""
    for part, shift in (("train", 0), ("test", 1)):
        rows = []
        for number in range(9):
            picture(tmp_path / f"{part}/{number}.png", WORDS[(number + shift) % 3])
            rows.append(
                {"image": f"{part}/{number}.png", "question": "which colour?", "answer": WORDS[(number + shift) % 3]}
            )
        (tmp_path / f"{part}.json").write_text(json.dumps(rows))
    return tmp_path


def recipe(folder: Path, model: str, stages: str, ids: str) -> Path:
    train, test = PART % ("train", ids), PART % ("test", ids)
    text = f"""root: .
model: {model}
text: {{vocabulary: {{train: {train}, size: 40}}, length: 8}}
stages:{stages.replace("DATA", f"{train}, {test}")}
  tune: {{kind: finetune, task: {{name: vqa, min_count: 1}}, data: {train}, steps: 2, batch_size: 4, threads: 1}}
  test: {{kind: evaluate, from: tune, data: {test}, threads: 1}}
"""
    path = folder / "r.yaml"
    path.write_text(text)
    return path


def test_equal_names_in_two_parts_by_pixels(easy: Path) -> None:
    recipe(easy, PIXELS, "", "")
    ended = run(easy, "run", "r.yaml")
    assert ended.returncode == 0, ended.stderr
    assert "cannot" not in ended.stderr


def test_equal_names_in_two_parts_by_extraction_need_paths_for_ids(easy: Path) -> None:
    recipe(easy, REGIONS, EXTRACT, "")
    ended = run(easy, "run", "r.yaml")
    assert ended.returncode == 5
    assert "next: ids: path" in ended.stderr
    assert "Traceback" not in ended.stderr
    recipe(easy, REGIONS, EXTRACT, ", ids: path")
    ended = run(easy, "run", "r.yaml")
    assert ended.returncode == 0, ended.stderr
    store = FeatureStore(easy / "runs/r/regions/features.h5")
    assert sorted(store.ids)[:2] == ["test/0", "test/1"]
    assert (store.read("test/0").features != store.read("train/0").features).any()
    assert store.id_of(easy / "test/0.png") == "test/0"
    assert run(easy, "features", "verify", "runs/r/regions/features.h5").returncode == 0
    ended = run(
        easy, "predict", "runs/r/tune", "test/0.png", "which colour?", "--features", "runs/r/regions/features.h5"
    )
    assert ended.returncode == 0, ended.stderr


def windows(folder: Path, number: int) -> str:
    picture(folder / f"Fotos/B\u00fcro/IMG_{number}.JPG", WORDS[number % 3])
    return f"Fotos\\B\u00fcro\\IMG_{number}.JPG"


def subfolders(folder: Path, number: int) -> str:
    picture(folder / f"{'ab'[number % 7 < 3]}/p{number}.jpg", WORDS[number % 3])
    return f"p{number}.jpg"


def converted(folder: Path, number: int) -> str:
    picture(folder / f"images/{number}.jpg", WORDS[number % 3])
    return f"{number}.tif"


def foreign(folder: Path, number: int) -> str:
    picture(folder / f"images/{number}.jpg", WORDS[number % 3])
    return f"/home/bob/data/coco/images/{number}.jpg"


def decomposed(folder: Path, number: int) -> str:
    picture(folder / unicodedata.normalize("NFD", f"images/M\u00f6we {number}.jpg"), WORDS[number % 3])
    return f"M\u00f6we {number}.jpg"


@pytest.mark.parametrize("write", [windows, subfolders, converted, foreign, decomposed])
def test_init_and_extraction_find_every_picture(tmp_path: Path, write) -> None:
    folder = tmp_path / "data"
    names = [write(folder, number) for number in range(42)]
    rows = "".join(f"{name},a {WORDS[number % 3]} wall number {number}\n" for number, name in enumerate(names))
    (folder / "t.csv").write_text(f"image,caption\n{rows}")
    ended = run(tmp_path, "init", "data")
    assert ended.returncode == 0, ended.stderr
    assert "are not there" not in ended.stdout + ended.stderr
    text = (tmp_path / "recipe.yaml").read_text()
    entry = next(line.partition(": ")[2] for line in text.splitlines() if "name: csv" in line)
    (tmp_path / "r.yaml").write_text(f"root: data\nstages:{EXTRACT.replace('[DATA]', entry)}")
    ended = run(tmp_path, "run", "r.yaml")
    assert ended.returncode == 0, ended.stderr
    assert len(FeatureStore(tmp_path / "runs/r/regions/features.h5").ids) == 42
