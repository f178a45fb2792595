"""ALBEF in small: its weights by the rule of reference/vlmo_golden.md, and the batches its numbers were made with."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from vlcli_albef.weights import albef_name, to_albef

from vlcli.data.sample import TextSample
from vlcli.engine.training_module import TrainingModule, build_training_module
from vlcli.engine.weights import WeightLoader
from vlcli.nn import Batch, DataSpec, Images, Pixels, Text, View
from vlcli.objectives.mlm import MARK

DATA_SPEC = DataSpec(vocab_size=41, pad_id=0, unk_id=1, cls_id=2, sep_id=3, mask_id=4, text_length=6)
MODEL = {
    "name": "albef", "hidden": 24, "heads": 4, "intermediate": 48, "image_layers": 2, "text_layers": 2,
    "cross_layers": 2, "image_size": 48, "length": 16, "dropout": 0.0,
}  # fmt: skip
IDS = torch.tensor([[2, 5, 9, 14, 3, 0], [2, 30, 31, 7, 12, 3], [2, 8, 3, 0, 0, 0]])
HIDDEN = {(0, 2): 4, (1, 1): 4, (1, 2): 4, (2, 1): 33}
COPIED = ("visual_encoder", "text_encoder", "text_decoder", "vision_proj", "text_proj", "cls_head")


def uniform(key: str, shape: tuple[int, ...]) -> Tensor:
    index = np.arange(int(np.prod(shape, dtype=np.int64)), dtype=np.uint64)
    drawn = (index * np.uint64(2654435761) + np.uint64(zlib.crc32(key.encode()))) % np.uint64(2**32)
    return torch.from_numpy(2 * (drawn.astype(np.float64) / 2**32) - 1).reshape(shape)


def value(key: str, shape: tuple[int, ...]) -> Tensor:
    parts = key.split(".")
    leaf, parent = parts[-1], parts[-2] if len(parts) > 1 else ""
    drawn = uniform(key, shape)
    if key == "temp":
        return torch.tensor(0.07, dtype=torch.float64)
    if key.endswith("_queue"):
        return F.normalize(drawn, dim=0)
    if leaf == "weight" and "norm" in parent.lower():
        return 1 + 0.1 * drawn
    if ("embeddings" in parent and leaf == "weight") or leaf in ("pos_embed", "cls_token"):
        return 0.5 * drawn
    return drawn / np.sqrt(np.prod(shape[1:])) if len(shape) >= 2 else 0.1 * drawn


def released(module: TrainingModule, *, bert: bool = True) -> dict[str, Tensor]:
    """A file as ALBEF's code writes it for such a module: with ``bert.`` in the text's names, or without (downstream).

    Keys and values of the cross-attentions of two pictures are one, named by the second's rule.
    """
    own = {n: v for n, v in module.state_dict().items() if not n.startswith("teacher.") and "_copy." not in n}
    named = to_albef(own, len(module.model.text.layers))
    shapes = {
        name if bert else name.replace("text_encoder.bert.", "text_encoder."): tuple(v.shape)
        for name, v in named.items()
    }
    shapes |= {
        f"{head}_m.{rest}": shape
        for name, shape in shapes.items()
        for head, _, rest in [name.partition(".")]
        if head in COPIED
    }
    made = {name: value(name, shape) for name, shape in shapes.items() if name != "queue_ptr"}
    return {name: made[_twin(name) if module.model.images > 1 else name] for name in made}


def _twin(name: str) -> str:
    parts = name.split(".")
    if "crossattention" not in parts or parts[-2] not in ("key", "value"):
        return name
    place = parts.index("layer") + 1
    return ".".join([*parts[:place], str(int(parts[place]) | 1), *parts[place + 1 :]])


def loaded(
    model: dict[str, Any],
    objectives: list[dict[str, Any]],
    state: Mapping[str, Tensor] | None = None,
    data_spec: DataSpec = DATA_SPEC,
    *,
    bert: bool = False,
) -> TrainingModule:
    """A training module in double precision that has read such a file the way a stage reads it."""
    module = build_training_module(model, objectives, data_spec).double()
    loader = WeightLoader(module)
    loader.add(dict(state or released(module, bert=bert)), "a released file", ours=False)
    report = loader.finish()
    assert not report.mismatched
    assert not [name for name in report.new if name.startswith("model.")]
    return module


def view(ids: Tensor, pixels: Tensor, keys: list[str] | None = None, columns: int = 1) -> View:
    """Texts with their pictures; with ``columns`` the second half of the pictures are the second of each."""
    mask, count = ids != 0, len(ids)
    names = [str(row) for row in range(count)]
    text = Text(ids, mask, (ids == 2) | (ids == 3), ids * 0, keys=names, raw=names)
    keys = keys or [str(row) for row in range(len(pixels))]
    images = Images(keys, pixels=Pixels(pixels, torch.full((len(pixels), 2), pixels.shape[-1])))
    rows = torch.arange(count)
    return View(text, images, rows, torch.arange(len(pixels)).reshape(columns, count).T, aligned=columns == 1)


def batch(
    ids: Tensor = IDS,
    pixels: Tensor | None = None,
    *,
    hidden: Mapping[tuple[int, int], int] = HIDDEN,
    keys: list[str] | None = None,
    second: Tensor | None = None,
    targets: dict[str, Any] | None = None,
) -> Batch:
    """The examples of the reference: words hidden as ``hidden`` says, a second picture where one is given."""
    pixels = uniform("input.image_0", (3, 3, 48, 48)) if pixels is None else pixels
    both = pixels if second is None else torch.cat([pixels, second])
    clean = view(ids, both, keys, 1 if second is None else 2)
    labels, masked = torch.full(ids.shape, -1), ids.clone()
    for place, word in hidden.items():
        labels[place], masked[place] = ids[place], word
    other = view(masked, pixels, keys)
    corrupted = View(other.text, clean.images, clean.text_rows, clean.image_rows, clean.aligned, {MARK: labels})
    names = [str(row) for row in range(len(ids))]
    return Batch({"clean": clean, "corrupted": corrupted}, targets or {}, names, torch.arange(len(ids)))


class Numbered:
    """A tokenizer whose words are their numbers."""

    ids = {"pad": 0, "cls": 2, "sep": 3}  # noqa: RUF012

    def encode(self, raw: str, key: str = "", length: int | None = None) -> TextSample:
        pieces = [int(word) for word in raw.split()]
        inner = [False] * len(pieces)
        return TextSample(key or raw, raw, [2, *pieces, 3], [True, *inner, True], [-1, *range(len(pieces)), -1])

    encode_answer = encode

    def decode(self, ids: list[int]) -> str:
        return " ".join(str(number) for number in ids if number not in (0, 2, 3))


def gradients(module: TrainingModule) -> dict[str, float]:
    """Norms by ALBEF's names; what has no gradient counts 0."""
    squares: dict[str, float] = {}
    depth = len(module.model.text.layers)
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            continue
        theirs, _ = albef_name(name.removeprefix("model."), depth)
        assert theirs, name
        found = 0.0 if parameter.grad is None else float(parameter.grad.square().sum())
        squares[theirs] = squares.get(theirs, 0.0) + found
    return {name: square**0.5 for name, square in squares.items()}


def close(ours: Any, theirs: Any, tolerance: float = 1e-9) -> None:
    found = ours.detach().numpy() if isinstance(ours, Tensor) else ours
    np.testing.assert_allclose(found, theirs, rtol=tolerance, atol=tolerance)
