"""Counts and measures a training module: parameters, activations, operations, the disk, decoding of pictures."""

from __future__ import annotations

import io
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from vlcli.engine.sharding import blocks_of
from vlcli.files import write_bytes
from vlcli.nn.count import count_model
from vlcli.nn.fake import fake_images, fake_text
from vlcli.nn.model import DataSpec, Model
from vlcli.progress import Silent
from vlcli.recipe import plan as planning
from vlcli.recipe.resolved import Resolved
from vlcli.runner.execute import context_of
from vlcli.runner.trial_step import rehearse
from vlcli.tools.counting import Built

EXAMPLES = 2
"""Examples of a rehearsed step: matching needs another picture."""


class Sizes(NamedTuple):
    """Counts of a training module.

    Attributes:
        held: parameters, momentum copies included.
        trained: trained parameters.
        outside: parameters outside the blocks that are gathered one by one.
        block: parameters of the largest block.
        activations: bytes that one example keeps for the backward pass, in float32.
        operations: floating-point operations of one example, forward and backward.
        reads: bytes of one example's picture or regions as they are loaded.
        pixels: whether pictures are decoded.
        whole: whether activations and operations are of all passes of a step, or of one way through the model.
    """

    held: int
    trained: int
    outside: int
    block: int
    activations: int
    operations: float
    reads: int
    pixels: bool
    whole: bool


def sizes_of(built: Built) -> Sizes:
    """Return the counts of a module on the meta device."""
    module, model, images = built.module, built.module.model, built.images
    parameters, needs = dict.fromkeys(module.parameters()), model.input_spec()
    blocks = [sum(p.numel() for p in block.parameters()) for block in blocks_of(module)]
    held = sum(p.numel() for p in parameters)
    heads = dict(module.objectives.items())
    macs = count_model(model, data_spec=built.data_spec, objectives=heads, images=images)["macs"]["total"]
    regions = built.data_spec.regions if needs.grid is None else needs.grid[0] * needs.grid[1]
    row = regions * (
        built.data_spec.region_dim * 2 + 16
    )  # float16 in a feature store; a JPEG file where pixels are read
    return Sizes(
        held=held,
        trained=sum(p.numel() for p in parameters if p.requires_grad),
        outside=held - sum(blocks),
        block=max(blocks, default=0),
        activations=activations_of(model, built.data_spec, images),
        operations=(6.0 if module.teacher is None else 8.0) * macs,
        reads=images * (row if needs.regions else 150_000 if needs.pixels else 0),
        pixels=bool(needs.pixels),
        whole=False,
    )


def activations_of(model: Model, data_spec: DataSpec, images: int = 1) -> int:
    """Return the bytes of float32 that one example's way through the model keeps for the backward pass.

    Parameters are left out. 0 where the model cannot run without values.
    """
    needs, embeds = model.input_spec(), model.fuse_takes == "embeddings" and "fuse" in model.capabilities
    was = model.training
    outputs: list[Any] = []
    model.train()
    try:
        with kept_bytes(model) as kept:
            if needs.text:
                text = fake_text(data_spec, device="meta")
                outputs.append(model.embed_text(text) if embeds else model.encode_text(text))
            for _ in range(images if needs.regions or needs.pixels else 0):
                picture = fake_images(needs, data_spec, device="meta")
                outputs.append(model.embed_image(picture) if embeds else model.encode_image(picture))
                if needs.text and "fuse" in model.capabilities:
                    outputs.append(model.fuse(outputs[0], outputs[-1]))
            return sum(kept.values())
    except (NotImplementedError, RuntimeError):
        return 0
    finally:
        model.train(was)


@contextmanager
def kept_bytes(module: nn.Module) -> Iterator[dict[int, int]]:
    """Count the bytes of every storage that is kept for the backward pass; parameters and buffers left out."""
    weights = {p.untyped_storage()._cdata for p in [*module.parameters(), *module.buffers()]}
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in weights:
            kept[storage._cdata] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield kept


def rehearsed(resolved: Resolved, name: str, like: DataSpec, output: Path) -> tuple[float, int]:
    """Take a step on invented examples, on the CPU in float32; return operations and kept bytes of an example."""
    planner, steps = planning.make(resolved, planning.RunOptions(output))
    context = context_of(planner, name, {step.name: step for step in steps}, Silent())
    with rehearse(context, EXAMPLES, like) as rehearsal:
        batch = rehearsal.batch()
        with FlopCounterMode(display=False) as counter:
            with kept_bytes(rehearsal.module) as kept:
                total = rehearsal.loss(batch).total
            size = sum(kept.values())
            total.backward()
        return counter.get_total_flops() / EXAMPLES, size // EXAMPLES


def disk_rate(folder: Path, size: int = 32_000_000) -> float:
    """Measure the bytes a second that reach the disk under ``folder`` (or the nearest folder above that is there)."""
    above = next(path for path in [folder.absolute(), *folder.absolute().parents] if path.is_dir())
    data = os.urandom(size)
    with tempfile.TemporaryDirectory(dir=above) as scratch:
        return size / _seconds(lambda: write_bytes(Path(scratch) / "bytes", data), 1)


def decoding() -> float:
    """Measure the seconds in which this machine decodes a JPEG of 640 x 480 and makes it 224 x 224."""
    from PIL import Image

    noise = torch.randint(0, 256, (60, 80, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)).numpy()
    file = io.BytesIO()
    Image.fromarray(noise).resize((640, 480)).save(file, "JPEG", quality=90)

    def decode() -> None:
        file.seek(0)
        Image.open(file).convert("RGB").resize((224, 224), Image.Resampling.BICUBIC)

    return _seconds(decode, 10)


def _seconds(work: Callable[[], object], times: int) -> float:
    begun = time.perf_counter()
    for _ in range(times):
        work()
    return max((time.perf_counter() - begun) / times, 1e-9)
