"""ALBEF's pre-training step against numbers of its released code (reference/vlmo_golden.md, section 4)."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from vlcli_ace_rpe.weights import albef_name, to_albef

from vlcli.engine.learner import Learner, build_learner
from vlcli.nn import Batch, Facts, Images, Pixels, Text, View
from vlcli.objectives.mlm import MARK

FACTS = Facts(vocab_size=41, pad_id=0, unk_id=1, cls_id=2, sep_id=3, mask_id=4, text_length=6)
MODEL = {
    "name": "albef", "hidden": 24, "heads": 4, "intermediate": 48, "image_layers": 2, "text_layers": 2,
    "cross_layers": 2, "image_size": 48, "text_positions": 16, "dropout": 0.0,
}  # fmt: skip
IDS = [[2, 5, 9, 14, 3, 0], [2, 30, 31, 7, 12, 3], [2, 8, 3, 0, 0, 0]]


def objectives(alpha: float) -> list[dict[str, Any]]:
    return [
        {"name": "distilled-mlm", "distill": alpha},
        {"name": "momentum-contrast", "width": 12, "queue": 24, "distill": alpha},
        {"name": "contrast-matching", "pool": "own", "same": "allowed", "sampler": "best"},
    ]


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


def copied(key: str) -> str:
    """The name of a weight's momentum copy."""
    head = key.split(".", 1)
    return f"{head[0]}_m.{head[1]}"


@pytest.fixture(scope="module")
def golden(shared: Path) -> Any:
    return np.load(shared / "reference" / "vlmo_golden.npz")


def put(module: torch.nn.Module, state: dict[str, Tensor]) -> None:
    own = module.state_dict(keep_vars=True)
    with torch.no_grad():
        for name, tensor in state.items():
            own[name].copy_(tensor)


def filled(alpha: float) -> Learner:
    """The golden weights, and the momentum copies' own."""
    learner = build_learner(MODEL, objectives(alpha), FACTS).double()
    own = {n: v for n, v in learner.state_dict().items() if not n.startswith("teacher.") and "_copy." not in n}
    named = to_albef(own, 2)
    adapted = learner.model.adapt({k: value(k, tuple(v.shape)) for k, v in named.items()}, [])
    put(learner, {n if n.startswith("objectives.") else f"model.{n}": v for n, v in adapted.items()})
    far = {k: value(copied(k), tuple(v.shape)) for k, v in named.items() if "." in k}
    teacher = learner.model.adapt(far, [])
    put(learner.teacher, {n: v for n, v in teacher.items() if not n.startswith("objectives.")})
    for head, prefix in (("momentum-contrast", ("text", "image")), ("distilled-mlm", ("head",))):
        for part in prefix:
            stem = f"objectives.{head}.{part}."
            inner = {n.removeprefix(stem): v for n, v in teacher.items() if n.startswith(stem)}
            put(getattr(learner.objectives[head], f"{part}_copy"), inner)
    return learner


def batch() -> Batch:
    ids = torch.tensor(IDS)
    mask = ids != 0
    special = (ids == 2) | (ids == 3)
    keys = ["a", "b", "c"]
    pixels = Pixels(uniform("input.image_0", (3, 3, 48, 48)), torch.full((3, 2), 48))
    pictures, rows = Images(["0", "1", "2"], pixels=pixels), torch.arange(3)
    labels, hidden = torch.full((3, 6), -1), ids.clone()
    for place in ((0, 2), (1, 1), (1, 2), (2, 1)):
        labels[place], hidden[place] = ids[place], 33 if place == (2, 1) else 4
    text, masked = (Text(i, mask, special, ids * 0, keys=keys, raw=keys) for i in (ids, hidden))
    clean = View(text, pictures, rows, rows[:, None], aligned=True)
    corrupted = View(masked, pictures, rows, rows[:, None], aligned=True, marks={MARK: labels})
    return Batch({"clean": clean, "corrupted": corrupted}, {}, keys, rows)


def close(ours: Tensor, theirs: Any) -> None:
    np.testing.assert_allclose(ours.detach().numpy(), theirs, rtol=1e-9, atol=1e-9)


def test_encoders_and_fusion(golden: Any) -> None:
    learner = filled(0.4).eval()
    step = learner.step(batch())
    close(step.image().hidden, golden["albef/pretrain/image_embeds"])
    real = (torch.tensor(IDS) != 0).numpy()
    close(step.text().hidden[real], golden["albef/pretrain/text_embeds"][real])
    close(step.fused().text.hidden[real], golden["albef/pretrain/fusion_out"][real])
    logits = learner.objectives["contrast-matching"].predict(step)["logits"]
    close(logits, golden["albef/pretrain/itm_logits_pos"])


@pytest.mark.parametrize("alpha", [0.4])
def test_losses_gradients_queue_and_momentum(golden: Any, alpha: float) -> None:
    learner = filled(alpha).train()
    result = learner(batch())
    found = {name: float(mean.total / mean.count) for name, mean in result.losses.items()}
    for ours, theirs in (("distilled-mlm", "mlm"), ("momentum-contrast", "ita"), ("contrast-matching", "itm")):
        assert found[ours] == pytest.approx(float(golden[f"albef/pretrain/alpha{alpha}/loss_{theirs}"]), abs=1e-9)
    result.total.backward()
    squares: dict[str, float] = {}
    for name, parameter in learner.named_parameters():
        if not parameter.requires_grad:
            continue
        plain = name.removeprefix("model.")
        joint = ".attention." in plain and plain.startswith("image.") and "dense" not in plain
        number = plain.split(".")[2] if joint else ""
        ends = plain.rsplit(".", 1)[-1]
        theirs = f"visual_encoder.blocks.{number}.attn.qkv.{ends}" if joint else albef_name(plain, 2)
        assert theirs is not None, name
        assert parameter.grad is not None, name
        squares[theirs] = squares.get(theirs, 0.0) + float(parameter.grad.square().sum())
    keys, norms = (golden[f"albef/pretrain/alpha{alpha}/grad/{name}"].tolist() for name in ("keys", "norms"))
    assert set(squares) == set(keys)
    for name, norm in zip(keys, norms, strict=True):
        assert squares[name] ** 0.5 == pytest.approx(norm, rel=1e-7, abs=1e-9), name
    learner.close_step()
    contrast = learner.objectives["momentum-contrast"]
    assert contrast.place.tolist() == golden["albef/pretrain/queue_ptr_after"].tolist()
    close(contrast.image_queue, golden["albef/pretrain/image_queue_after"])
    close(contrast.text_queue, golden["albef/pretrain/text_queue_after"])
    name = "visual_encoder_m.blocks.0.mlp.fc1.weight"
    close(
        learner.teacher.image.layers[0].feed_forward.inner.weight, golden[f"albef/pretrain/momentum_key_after/{name}"]
    )
