"""Stores of every kind in a recipe: extracted, trained on, asked about a new picture."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from tests.detection.test_processes import _share
from tests.plugins.hf.models import build
from tests.plugins.hf.tiny import WORDS, pictures, save, tower
from vlcli.cli import app
from vlcli.detection.extraction import extract_images
from vlcli.features import FeatureStore

RECIPE = """\
name: seen
root: {root}
seed: 1
model: {{name: lxmert, hidden: 32, heads: 2, text_layers: 1, image_layers: 1, cross_layers: 1, intermediate: 32}}
text: {{vocabulary: {{train: {{name: jsonl}}, size: 60}}, length: 8}}
stages:
  regions: {{kind: extract, extractor: {extractor}, data: {{name: jsonl}}, workers: 0}}
  tune: {{kind: finetune, task: classification, data: {{name: jsonl}}, steps: 2, batch_size: 2, workers: 0}}
"""
DIMBERT = """\
name: named
root: {root}
seed: 1
model: {{name: dimbert, hidden: 32, heads: 2, layers: 1, intermediate: 32}}
text: {{vocabulary: {{train: {{name: jsonl}}, size: 60}}, length: 8}}
stages:
  regions: {{kind: extract, extractor: {{name: transformers, weights: tower}}, data: {{name: jsonl}}, workers: 0}}
  words: {{kind: extract, extractor: {extractor}, data: {{name: jsonl}}, workers: 0}}
  tune: {{objectives: [mlm], kind: pretrain, data: {{name: jsonl}}, steps: 2, batch_size: 2, workers: 0}}
"""
SLOW = pytest.mark.slow


@pytest.fixture
def data(tmp_path):
    images = pictures(tmp_path / "data/images", 4)
    rows = [
        {"image": path.name, "text": f"a {WORDS[n]} here", "label": WORDS[n % 2]} for n, (_, path) in enumerate(images)
    ]
    (tmp_path / "data/train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "data/words.txt").write_text("\n".join(WORDS) + "\n")
    return tmp_path / "data"


def run(folder: Path, text: str, monkeypatch) -> Path:
    torch.set_num_threads(1)
    monkeypatch.chdir(folder)
    (folder / "mine.yaml").write_text(text)
    ended = CliRunner().invoke(app, ["run", "mine.yaml"], catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    return folder / "runs"


KINDS = {
    "dinov2": "{name: transformers, weights: model}",
    "siglip2": "{name: transformers, weights: model}",
    "resnet": "{name: transformers, weights: model, boxes: grid, grid: [2, 2]}",
    "detr": "{name: transformers-detector, weights: model}",
    "rt_detr": "{name: transformers-detector, weights: model}",
    "owlv2": "{name: transformers-detector, weights: model, words: words.txt}",
    "grounding_dino": "{name: transformers-detector, weights: model, words: [red circle, cat]}",
    "backbone": "{name: backbone, arch: tiny-conv, boxes: cells, short: 32}",
    "bottom-up": "{name: bottom-up, depth: 50, boxes: cells, short: 64, long: 100}",
}


@SLOW
@pytest.mark.parametrize("kind", KINDS)
def test_an_lxmert_learns_from_the_store_and_answers_about_a_new_picture(kind, data, monkeypatch):
    if kind in ("dinov2", "siglip2", "resnet"):
        save(data / "model", *tower(kind))
    elif kind not in ("backbone", "bottom-up"):
        build(kind, data / "model")
    runs = run(data.parent, RECIPE.format(root=data, extractor=KINDS[kind]), monkeypatch)
    told = FeatureStore(runs / "seen/regions/features.h5").provenance
    (made,) = json.loads((runs / "seen/tune/model/config.json").read_text())["extraction"]
    assert made["spec"]["name"] == told["extractor"]
    (data / "words.txt").unlink()  # the store tells its words
    new = data.parent / "new.png"
    new.write_bytes((data / "images/p1.png").read_bytes())
    asked = CliRunner().invoke(app, ["predict", str(runs / "seen/tune"), str(new), "a cat here", "--json"])
    assert asked.exit_code == 0, asked.output
    fresh = json.loads(asked.stdout.splitlines()[0])
    stored = CliRunner().invoke(
        app, ["predict", str(runs / "seen/tune"), str(data / "images/p1.png"), "a cat here", "--json",
              "--features", str(runs / "seen/regions")]
    )  # fmt: skip
    same = json.loads(stored.stdout.splitlines()[0])
    assert fresh["prediction"] == same["prediction"]
    assert fresh["score"] == pytest.approx(same["score"], abs=1e-4)


@SLOW
@pytest.mark.parametrize("kind", ["clip", "siglip", "owlv2", "grounding_dino"])
def test_dimbert_reads_the_words_of_an_open_vocabulary_model(kind, data, monkeypatch):
    save(data / "tower", *tower("dinov2"))
    build(kind, data / "model")
    extractor = "{name: transformers-concepts, weights: model, words: words.txt, top: 3}"
    runs = run(data.parent, DIMBERT.format(root=data, extractor=extractor), monkeypatch)
    config = json.loads((runs / "named/tune/model/config.json").read_text())
    assert {one["set"] for one in config["extraction"]} == {"boxes", "concepts"}


def _work(rank, count, barrier, desk, folder, images, out):
    from vlcli_hf import TransformersExtractor

    torch.set_num_threads(1)
    extract_images(images, TransformersExtractor(weights=str(folder)), out, share=_share(rank, count, barrier, desk),
                   batch_size=1)  # fmt: skip


@SLOW
def test_two_processes_write_what_one_writes(data, tmp_path):
    import multiprocessing

    folder, images = save(data / "model", *tower("siglip2")), pictures(tmp_path / "more", 5)
    from vlcli_hf import TransformersExtractor

    extract_images(images, TransformersExtractor(weights=str(folder)), tmp_path / "one.h5", batch_size=1)
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager:
        rest = (2, context.Barrier(2), manager.dict(), folder, images, tmp_path / "two.h5")
        workers = [context.Process(target=_work, args=(rank, *rest)) for rank in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(120)
    assert (tmp_path / "one.h5").read_bytes() == (tmp_path / "two.h5").read_bytes()
