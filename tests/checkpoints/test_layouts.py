"""Rules of layouts, files of checkpoints with faults, and files that are recognised by names and shapes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from vlcli.checkpoints.identify import matches, read_tensors
from vlcli.checkpoints.layout import Entry, expand
from vlcli.checkpoints.load import every, named, read
from vlcli.cli import app
from vlcli.errors import ComponentError, DataError, RecipeError, UsageError

GOOD = """\
family: mine
title: A paper of mine
blocks:
  layer: {"{query,key}": linear hidden hidden, norm: norm hidden}
layouts:
  small:
    sizes: {hidden: 4, layers: 2}
    tensors: {"encoder.{0:layers}": layer, head: linear 3 hidden}
    model: {name: lxmert}
  headless: {extends: small, without: ['head\\..*']}
files:
  - name: mine.pth
    url: https://example.org/mine.pth
    licence: MIT
    layout: headless
    about: trained by me
"""


def test_ranges_alternatives_blocks_and_sizes():
    sizes = {"hidden": 4, "layers": 2, "wide": "3*hidden+1", "span": "2*hidden-1"}
    made = expand({"{0:layers}.{q,k}": "matrix wide hidden", "table": "tensor span", "scale": "tensor"}, sizes, {})
    assert made["1.k.weight"] == Entry((13, 4))
    assert made["table"].shape == (7,)
    assert made["scale"] == Entry(())
    assert made["scale"].count == 1
    assert len(made) == 6


def test_a_block_takes_sizes_of_its_own():
    block = {"layer": {"fc": "linear out in"}}
    made = expand({"a": "layer out=2 in=n", "b": "layer out=n in=5"}, {"n": 3}, block)
    assert (made["a.fc.weight"].shape, made["b.fc.weight"].shape) == ((2, 3), (3, 5))


@pytest.mark.parametrize(
    ("rule", "word"),
    [("linear hidden depth", "depth"), ("liner hidden hidden", "liner"), ("linear hidden", "linear hidden")],
)
def test_a_rule_that_says_nothing_known_is_refused(rule, word):
    with pytest.raises(UsageError) as caught:
        expand({"a": rule}, {"hidden": 4}, {})
    assert word in str(caught.value)


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "checkpoints.yaml"
    file.write_text(text)
    return file


def test_a_layout_extends_another_and_leaves_names_out(tmp_path):
    (one,) = read(written(tmp_path, GOOD))
    assert len(one.tensors) == 2 * 6
    assert one.reader == {"kind": "model", "name": "lxmert"}
    assert one.sized(hidden=8)["encoder.0.query.weight"].shape == (8, 8)


FAULTS = {
    "unknown layout": ("layout: headless", "layout: other", "no such layout"),
    "circle": ("small:\n", "small:\n    extends: headless\n", "circle"),
    "unknown key": ("licence: MIT", "licence: MIT\n    licens: MIT", "licens"),
    "address": ("https://example.org/mine.pth", "example.org", "url"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_a_file_of_checkpoints_are_told(tmp_path, fault):
    old, new, word = FAULTS[fault]
    with pytest.raises(RecipeError) as caught:
        read(written(tmp_path, GOOD.replace(old, new)))
    assert word in str(caught.value)


def test_names_of_checkpoints_are_unique_and_the_nearest_is_suggested():
    names = [one.name for one in every()]
    assert len(set(names)) == len(names)
    with pytest.raises(ComponentError) as caught:
        named("model_LXRT.pt")
    assert "model_LXRT.pth" in str(caught.value)


def stored(tensors, path: Path) -> Path:
    values = {name: torch.zeros(entry.shape, dtype=getattr(torch, entry.dtype)) for name, entry in tensors.items()}
    save_file(values, path) if path.suffix == ".safetensors" else torch.save(values, path)
    return path


SMALL = {"hidden": 12, "inner": 24, "words": 40, "places": 20, "features": 16, "objects": 7, "attributes": 5}


@pytest.mark.parametrize("ending", ["safetensors", "pth"])
def test_a_file_is_recognised_by_its_names(tmp_path, ending):
    tensors = named("Epoch03_LXRT.pth").sized(**SMALL)
    found = read_tensors(stored(tensors, tmp_path / f"unknown.{ending}"))
    first = matches(found)[0]
    assert (first.checkpoint.family.family, first.missing, first.further) == ("lxmert", (), ())
    assert first.other_shape["bert.pooler.dense.bias"] == ((12,), (768,))


@pytest.mark.parametrize("name", ["unc-nlp/lxmert-gqa-uncased", "vlmo_base_plus_patch16_384_nlvr2.pt"])
def test_a_published_layout_is_recognised_as_itself(name):
    best, *rest = matches(named(name).tensors)
    assert best.checkpoint.name == name
    assert best.faults == 0
    assert all(other.faults for other in rest)


def test_a_damaged_file_is_one_message(tmp_path):
    path = tmp_path / "cut.safetensors"
    path.write_bytes(b"\xff\xff\xff\xff\xff\xff\xff\x7f{}")
    with pytest.raises(DataError, match="cannot be read"):
        read_tensors(path)
    path.write_bytes((20).to_bytes(8, "little") + b'{"a": {"shape": 3}} ')
    with pytest.raises(DataError, match="cannot be read"):
        read_tensors(path)


def vlcli(*words: str, code: int = 0):
    ended = CliRunner().invoke(app, [*words])
    assert ended.exit_code == code, ended.output
    return ended


def test_listing_and_facts():
    rows = json.loads(vlcli("ls", "checkpoints", "--json").stdout)["checkpoints"]
    lxmert = next(row for row in rows if row["file"] == "model_LXRT.pth")
    assert lxmert["numbers"] == 251_492_648
    assert {"task": "VQA v2 test-dev", "metric": "accuracy", "value": 72.42} in lxmert["scores"]
    assert "one tensor with the word embeddings" in vlcli("checkpoint", "model_LXRT.pth").stdout


def test_a_file_of_ones_own(tmp_path):
    path = stored(named("unc-nlp/lxmert-vqa-uncased").sized(**SMALL, answers=9), tmp_path / "own.safetensors")
    shown = json.loads(vlcli("checkpoint", str(path), "--json").stdout)
    assert shown["layouts"][0]["layout"] == "transformers-answers"
    stored({"a.weight": Entry((2, 2))}, path)
    assert "no layout that is known" in vlcli("checkpoint", str(path), code=5).stderr
    assert "did you mean" in vlcli("checkpoint", "model_LXR.pth", code=4).stderr
