"""ONNX files of every family against PyTorch, and the page's program against vlcli's own answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny_models
import torch
from PIL import Image
from tiny_models import FAMILIES, SENTENCES

import vlcli
from vlcli.api import RegionFeatures
from vlcli.errors import ComponentError
from vlcli.export.graph import predicting
from vlcli.progress import Silent

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
onnx = pytest.importorskip("vlcli.export.onnx")

PAGE = Path(__file__).parents[2] / "docs" / "onnx.md"
ALONE = (
    "import runpy, sys; sys.modules.update(vlcli=None, torch=None); "
    "runpy.run_path(sys.argv.pop(1), run_name='__main__')"
)
QUICK = ("deit",)


def exported(folder: Path, family: str, **options):
    torch.set_num_threads(1)
    bundle = tiny_models.make(folder / family, family, **options.pop("saved", {}))
    out = folder / f"{family}-onnx"
    out.mkdir()
    return bundle, out, onnx.Onnx(**options).export(bundle, out, Silent())


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    """The page's program, as a reader would copy it."""
    code = PAGE.read_text(encoding="utf-8").split("<!-- file: from_pixels.py -->\n```python\n")[1].split("\n```")[0]
    path = tmp_path_factory.mktemp("page") / "from_pixels.py"
    path.write_text(code + "\n")
    return path


def said(program: Path, *words: object):
    """What the program prints, in a process in which vlcli and torch cannot be imported."""
    command = [sys.executable, "-c", ALONE, str(program), *map(str, words)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env, check=False)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def photograph(folder: Path, name: str = "photo.png", seed: int = 0) -> Path:
    pixels = np.random.default_rng(seed).integers(0, 255, (45, 60, 3), dtype=np.uint8)
    Image.fromarray(pixels).resize((90, 70)).save(folder / name)
    return folder / name


def stored(folder: Path, regions: int = 4) -> tuple[Path, RegionFeatures]:
    rng = np.random.default_rng(1)
    low = rng.random((regions, 2)) * 0.5
    boxes, features = np.concatenate([low, low + 0.4], 1), rng.random((regions, 12), np.float32)
    np.savez(folder / "regions.npz", features=features, boxes=boxes)
    return folder / "regions.npz", RegionFeatures(features, boxes)


@pytest.mark.parametrize(
    "family", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES]
)
def test_every_output_equals_torch_at_sizes_that_were_not_traced(family, tmp_path):
    bundle, out, made = exported(tmp_path, family)
    assert made.metrics["max_difference"] < 1e-4
    for graph in onnx.graphs(bundle, None):
        session = onnx.session_of(out / f"{graph.stem}.onnx")
        inputs = graph.example(2, 8, 6, seed=9)
        signature = json.loads((out / f"{graph.stem}.onnx.json").read_text())
        assert list(signature["inputs"]) == [item.name for item in session.get_inputs()]
        assert list(signature["outputs"]) == [item.name for item in session.get_outputs()]
        graph.kept = graph.kept if graph.stem != "start" else tuple(signature["outputs"])
        with torch.no_grad():
            wanted = graph.outputs(*inputs)
        found = dict(zip(signature["outputs"], onnx.run(session, graph, inputs), strict=True))
        for name in graph.compared or wanted:
            torch.testing.assert_close(found[name], wanted[name], atol=1e-4, rtol=1e-4, equal_nan=True)
    assert (out / "preprocessing.json").is_file()
    assert all((out / name).exists() for name in made.files.values())


def test_the_program_answers_as_vlcli_does_from_pixels(tmp_path, program):
    bundle, out, _ = exported(tmp_path, "albef-vqa")
    picture = photograph(tmp_path)
    wanted = vlcli.load(bundle.folder).answers(SENTENCES[2], picture, best=3)
    found = said(program, out, SENTENCES[2], picture)
    assert [name for name, _ in found] == [name for name, _ in wanted]
    np.testing.assert_allclose([chance for _, chance in found], [chance for _, chance in wanted], atol=1e-5)


@pytest.mark.slow
def test_the_program_compares_pictures_with_a_sentence(tmp_path, program):
    bundle, out, _ = exported(tmp_path, "vlmo")
    pictures = [photograph(tmp_path, f"{seed}.png", seed) for seed in range(3)]
    model = vlcli.load(bundle.folder)
    wanted = model.embed_image(pictures) @ model.embed_text(SENTENCES[0])[0]
    assert (out / "model.onnx").is_file(), "the matching head"
    np.testing.assert_allclose(said(program, out, SENTENCES[0], *pictures), wanted.numpy(), atol=1e-5)
    facts = json.loads((out / "image.onnx.json").read_text())
    assert facts["temperature"] == pytest.approx(float((-bundle.module.objectives["contrast"].scale).exp()))


@pytest.mark.slow
def test_the_program_says_a_caption_from_stored_regions(tmp_path, program):
    task = {"name": "captioning", "decoding": "greedy", "max_length": 6, "unknown": True}
    bundle, out, _ = exported(tmp_path, "dimbert-vlp", saved={"task_spec": task})
    file, regions = stored(tmp_path)
    assert said(program, out, file) == vlcli.load(bundle.folder).predict(regions)["prediction"]


@pytest.mark.slow
def test_pictures_are_cropped_as_the_transform_says(tmp_path, program):
    spec = {"name": "imagenet", "crop": 0.8}
    bundle, out, _ = exported(tmp_path, "deit", saved={"transform_spec": spec})
    picture = photograph(tmp_path)
    logits = vlcli.load(bundle.folder).predict(picture)["image-classification/logits"]
    found = dict(map(tuple, said(program, out, picture)))
    wanted = logits.softmax(-1).tolist()
    np.testing.assert_allclose([found[name] for name in ("yes", "no", "red")], wanted, atol=1e-5)


def test_one_objective_alone_and_none_of_a_name(tmp_path):
    bundle = tiny_models.make(tmp_path, "lxmert-pretrained")
    assert predicting(bundle)[0] == ["matching", "image-qa"]
    assert [graph.stem for graph in onnx.graphs(bundle, None)] == ["matching", "image-qa"]
    assert [graph.stem for graph in onnx.graphs(bundle, "matching")] == ["model"]
    with pytest.raises(ComponentError, match="matching or image-qa"):
        onnx.graphs(bundle, "mlm")


@pytest.mark.parametrize(
    ("wanted", "actual", "apart"),
    [
        ([1.0, 2.0], [1.0, 2.5], 0.5),
        ([0.0, torch.nan], [0.0, torch.nan], 0.0),
        ([0.0, 1.0], [0.0, torch.nan], torch.inf),
        ([-torch.inf, 1.0], [-torch.inf, 1.0], 0.0),
        ([-torch.inf, 1.0], [0.0, 1.0], torch.inf),
    ],
)
def test_a_number_that_only_one_side_lacks_is_a_difference(wanted, actual, apart):
    assert onnx._difference(torch.tensor(wanted), torch.tensor(actual)) == apart
