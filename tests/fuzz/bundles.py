"""Bad trained models: configs of wrong types, weights cut or of other shapes, state dicts that are none."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tests.fuzz.harness import Content, Trial


def _bundle(change: Callable[[Path], None]) -> Callable[[Path, Path], None]:
    """A copy of the valid model, changed."""

    def make(path: Path, valid: Path) -> None:
        shutil.copytree(valid / "runs/valid/train/model", path)
        change(path)

    return make


def _config(*keys: str, value: Any) -> Callable[[Path, Path], None]:
    """One value of the config replaced."""

    def change(folder: Path) -> None:
        file = folder / "config.json"
        content = json.loads(file.read_text())
        holder = content
        for key in keys[:-1]:
            holder = holder[key]
        if value is KeyError:
            del holder[keys[-1]]
        else:
            holder[keys[-1]] = value
        file.write_text(json.dumps(content))

    return _bundle(change)


def _file(name: str, data: bytes | None) -> Callable[[Path, Path], None]:
    def change(folder: Path) -> None:
        if data is None:
            (folder / name).unlink()
        else:
            (folder / name).write_bytes(data)

    return _bundle(change)


def _cut(name: str, size: int) -> Callable[[Path, Path], None]:
    def change(folder: Path) -> None:
        (folder / name).write_bytes((folder / name).read_bytes()[:size])

    return _bundle(change)


def _unrecorded(folder: Path) -> None:
    """Size and checksum of the weights removed, so that what is wrong within them is what is met."""
    config = json.loads((folder / "config.json").read_text())
    del config["files"]
    (folder / "config.json").write_text(json.dumps(config))


def _tied(value: str) -> Callable[[Path, Path], None]:
    def change(folder: Path) -> None:
        state = load_file(folder / "model.safetensors")
        save_file(state, folder / "model.safetensors", {"tied": value})
        _unrecorded(folder)

    return _bundle(change)


def _weights(edit: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Path, Path], None]:
    def change(folder: Path) -> None:
        state = edit(load_file(folder / "model.safetensors"))
        save_file(state, folder / "model.safetensors", {"tied": "{}"})
        _unrecorded(folder)

    return _bundle(change)


ODD: tuple[Any, ...] = (3, "x", [], [1], None, True, {"a": {"b": 1}})
KEYS = ("format", "version", "facts", "text", "model", "objectives", "task", "transform", "info", "files", "vlcli")
CHANGES: dict[str, Content] = {
    "no-config": _file("config.json", None),
    "config-empty": _file("config.json", b""),
    "config-list": _file("config.json", b"[]"),
    "config-deep": _file("config.json", b"[" * 50_000 + b"]" * 50_000),
    "config-integer": _file("config.json", b'{"format": "vlcli-bundle", "version": ' + b"7" * 5000 + b"}"),
    "config-binary": _file("config.json", b"\xff\xfe\x00"),
    "no-weights": _file("model.safetensors", None),
    "weights-empty": _file("model.safetensors", b""),
    "weights-text": _file("model.safetensors", b"hello"),
    "weights-huge-header": _file("model.safetensors", b"\xff" * 8 + b"{}"),
    "weights-cut": _cut("model.safetensors", 2000),
    "tied-list": _tied("[1]"),
    "tied-number": _tied('{"model.x": 3}'),
    "tied-cut": _tied("{"),
    "tied-unknown": _tied('{"model.x": "model.nothing"}'),
    "tied-deep": _tied("[" * 50_000),
    "weights-missing": _weights(lambda state: dict(list(state.items())[1:])),
    "weights-more": _weights(lambda state: {**state, "model.more": torch.zeros(2)}),
    "weights-shape": _weights(lambda state: {name: value[:1] for name, value in state.items() if value.ndim}),
    "weights-integers": _weights(lambda state: {name: value.to(torch.int32) for name, value in state.items()}),
    "facts-answers": _config("facts", "answers", value=3),
    "facts-answers-numbers": _config("facts", "answers", value=[1, [2]]),
    "facts-vocabulary": _config("facts", "vocabulary", value="many"),
    "facts-length": _config("facts", "text_length", value=-1),
    "facts-regions": _config("facts", "region_dim", value=10**12),
    "model-layers": _config("model", "text_layers", value=10**6),
    "model-hidden": _config("model", "hidden", value="x"),
    "model-unknown": _config("model", "name", value="nothing"),
    "text-length": _config("text", "length", value="x"),
    "text-length-huge": _config("text", "length", value=10**12),
    "text-lowercase": _config("text", "lowercase", value=[1]),
}

STATES: dict[str, Any] = {
    "integer-keys": {1: torch.zeros(2), 2: torch.zeros(3)},
    "nested-integers": {"model": {1: torch.zeros(2)}},
    "list": [torch.zeros(2)],
    "tensor": torch.zeros(3),
    "number": 3,
    "words": {"a": "b"},
    "empty": {},
    "none": None,
}


def _saved(value: Any) -> Callable[[Path, Path], None]:
    def make(path: Path, valid: Path) -> None:
        torch.save(value, path)

    return make


def trials() -> Iterator[Trial]:
    """Every bad model and state dict."""
    changes = dict(CHANGES)
    for key in KEYS:
        changes |= {f"{key}-{number}": _config(key, value=value) for number, value in enumerate(ODD)}
        changes[f"{key}-gone"] = _config(key, value=KeyError)
    store = "{valid}/runs/valid/regions/features.h5"
    for number, (name, content) in enumerate(changes.items()):
        words = ("ask", "model", "what colour is it", "000000000001", "--features", store)
        yield Trial("bundle", name, words, {"model": content}, (0, 2, 3, 4, 5), quick=number % 9 == 0)
    recipe = (
        "stages: {train: {kind: pretrain, root: {valid}/runs/valid/world/world, steps: 0, batch_size: 2, "
        "data: {name: coco-captions, split: train}, features: {valid}/runs/valid/regions/features.h5, "
        "model: {name: lxmert, hidden: 16, heads: 2, text_layers: 1, image_layers: 1, cross_layers: 1}, "
        "text: {vocabulary: {train: {name: coco-captions}, size: 100}, length: 12}, "
        "objectives: [mlm], missing: drop, from: w.pth}}"
    )

    def written(path: Path, valid: Path) -> None:
        path.write_text(recipe.replace("{valid}", str(valid)))

    states: dict[str, Content] = {name: _saved(value) for name, value in STATES.items()}
    states |= {"text": b"hello", "zip": b"PK\x03\x04" + b"\x00" * 40, "pickle": b"\x80\x04cos\nsystem\n(S'id'\ntR."}
    for name, content in states.items():
        words = ("run", "r.yaml", "--quiet", "--output", "out")
        files: dict[str, Content] = {"r.yaml": written, "w.pth": content}
        yield Trial("bundle", f"state-{name}", words, files, (5,), quick=name == "integer-keys")
