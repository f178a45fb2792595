"""Random damage to valid files: values replaced, bytes flipped, ends cut; drawn by hypothesis, the same every time."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.fuzz.harness import ANY, Content, Trial, fault_of
from vlcli.recipe import yaml

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=6),
    st.sampled_from(["\ud800", "x" * 300, "a\x00b", "../..", [], {}, [[]], {"a": None}, [1, "a"], {"name": []}]),
)
READERS = {
    "coco/annotations/captions_train.json": "coco-captions",
    "coco/annotations/instances_train.json": "coco-instances",
    "vqa/v2_OpenEnded_mscoco_train_questions.json": "vqa",
    "vqa/v2_mscoco_train_annotations.json": "vqa",
    "gqa/train_balanced_questions.json": "gqa",
    "nlvr2/train.json": "nlvr2",
    "karpathy/dataset_shapes.json": "karpathy",
    "snli_ve/snli_ve_train.jsonl": "snli-ve",
    "vist/train.story-in-sequence.json": "vist",
}
LINES = ("snli_ve_train.jsonl", "train.json")
"""Files of an object a line (NLVR2 calls its own .json)."""
NOT_SUPPRESSED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]


def _drawn(examples: int) -> Any:
    """Settings of a test: the same inputs on every machine, no shrinking (the message names the input)."""
    return settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=NOT_SUPPRESSED,
    )


def _replaced(value: Any, draw: st.DataObject, depth: int = 0) -> Any:
    """``value`` with one part, chosen at random, made something else, left out or doubled."""
    inner = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    if not inner or (depth and draw.draw(st.integers(0, 3)) == 0):
        return draw.draw(ODD)
    key, held = draw.draw(st.sampled_from(inner[:8]))
    if draw.draw(st.integers(0, 9)) == 0:
        rest = [(k, v) for k, v in inner if k != key]
        return dict(rest) if isinstance(value, dict) else [v for _, v in rest]
    changed = [(k, _replaced(held, draw, depth + 1) if k == key else v) for k, v in inner]
    return dict(changed) if isinstance(value, dict) else [v for _, v in changed]


def _damaged(data: bytes, draw: st.DataObject) -> bytes:
    """Bytes cut, flipped or filled."""
    place = draw.draw(st.integers(0, max(0, len(data) - 1)))
    how = draw.draw(st.sampled_from(["cut", "flip", "fill", "twice"]))
    if how == "cut":
        return data[:place]
    if how == "flip":
        return data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :] if data else b"\xff"
    return data[:place] + (b"\x00" * 64 + data[place + 64 :] if how == "fill" else data)  # twice: its start again


def _json_lines(path: Path) -> Any:
    text = path.read_text()
    return [json.loads(line) for line in text.splitlines()] if path.name in LINES else json.loads(text)


def _dump(value: Any, lines: bool) -> bytes:
    rows = value if lines and isinstance(value, list) else [value]
    return "\n".join(json.dumps(row) for row in rows).encode()


def _recipes(draw: st.DataObject, valid: Path) -> Trial:
    value = _replaced(yaml.read(valid / "valid.yaml").value, draw)
    words = draw.draw(st.sampled_from([("validate", "r.yaml"), ("run", "r.yaml", "--dry-run"), ("show", "r.yaml")]))
    verdict = "--dry-run" in words  # the plan's table says what blocks a stage
    return Trial("recipe", "random", words, {"r.yaml": json.dumps(value)}, ANY, verdict=verdict)


def _annotations(draw: st.DataObject, valid: Path) -> Trial:
    file = draw.draw(st.sampled_from(sorted(READERS)))
    source = valid / "runs/valid/world/world" / file
    if draw.draw(st.integers(0, 4)):
        data = _dump(_replaced(_json_lines(source), draw), source.name in LINES)
    else:
        data = _damaged(source.read_bytes(), draw)

    def world(path: Path, base: Path) -> None:
        shutil.copytree(base / "runs/valid/world/world", path)
        (path / file).write_bytes(data)

    recipe = f"root: world\nstages: {{t: {{kind: pretrain, model: lxmert, data: {READERS[file]}, objectives: [mlm]}}}}"
    files: dict[str, Content] = {"world": world, "r.yaml": recipe}
    return Trial("annotation", "random", ("data", "stats", "r.yaml"), files, ANY)


def _stores(draw: st.DataObject, valid: Path) -> Trial:
    data = _damaged((valid / "runs/valid/regions/features.h5").read_bytes(), draw)
    verb = draw.draw(st.sampled_from(["verify", "info"]))
    return Trial("store", "random", ("features", verb, "s.h5"), {"s.h5": data}, ANY, verdict=True)


def _models(draw: st.DataObject, valid: Path) -> Trial:
    config = json.loads((valid / "runs/valid/train/model/config.json").read_text())
    weights = (valid / "runs/valid/train/model/model.safetensors").read_bytes()
    if draw.draw(st.integers(0, 2)):
        config = _replaced(config, draw)
    else:
        weights = _damaged(weights, draw)
        if draw.draw(st.booleans()):
            del config["files"]  # else the checksum finds all of it

    def model(path: Path, base: Path) -> None:
        shutil.copytree(base / "runs/valid/train/model", path)
        (path / "config.json").write_text(json.dumps(config))
        (path / "model.safetensors").write_bytes(weights)

    store = "{valid}/runs/valid/regions/features.h5"
    words = ("ask", "model", "what colour", "000000000001", "--features", store)
    return Trial("bundle", "random", words, {"model": model}, ANY)


def _records(draw: st.DataObject, valid: Path) -> Trial:
    stage = draw.draw(st.sampled_from(["world", "regions", "train"]))
    source = valid / "runs/valid" / stage / "stage.json"
    value = _replaced(json.loads(source.read_text()), draw)
    data = json.dumps(value).encode() if draw.draw(st.integers(0, 3)) else _damaged(source.read_bytes(), draw)

    def runs(path: Path, base: Path) -> None:
        shutil.copytree(base / "runs", path)
        (path / "valid" / stage / "stage.json").write_bytes(data)

    recipe = (valid / "valid.yaml").read_text()
    files: dict[str, Content] = {"runs": runs, "valid.yaml": recipe}
    return Trial("record", "random", ("run", "valid.yaml", "--dry-run"), files, ANY, verdict=True)


def _commands(draw: st.DataObject, valid: Path) -> Trial:
    key = draw.draw(
        st.sampled_from(["seed", "stages.train.steps", "stages.train.optimizer.lr", "model.hidden", "text", "x"])
    )
    word = draw.draw(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=12))
    verb = draw.draw(st.sampled_from([("validate",), ("run", "--dry-run"), ("show",)]))
    words = (*verb, "valid.yaml", f"{key}={word}")
    recipe = (valid / "valid.yaml").read_text()
    return Trial("command", "random", words, {"valid.yaml": recipe}, ANY, verdict="--dry-run" in words)


KINDS = {
    "recipe": _recipes,
    "annotation": _annotations,
    "store": _stores,
    "bundle": _models,
    "record": _records,
    "command": _commands,
}


@pytest.mark.parametrize("kind", KINDS)
@_drawn(5)
@given(draw=st.data())
def test_random_damage_ends_as_documented(kind, draw, tmp_path_factory, valid, tally):
    folder = tmp_path_factory.getbasetemp() / f"random-{kind}"
    assert fault_of(KINDS[kind](draw, valid), folder, valid, tally) == ""


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@_drawn(40)
@given(draw=st.data())
def test_much_random_damage_ends_as_documented(kind, draw, tmp_path_factory, valid, tally):
    folder = tmp_path_factory.getbasetemp() / f"random-{kind}"
    assert fault_of(KINDS[kind](draw, valid), folder, valid, tally) == ""
