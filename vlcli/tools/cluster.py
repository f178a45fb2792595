"""What a training stage will cost on several GPUs: memory by part, time, traffic and bytes.

Every number says where it comes from: *counted* from the model itself, *measured* on this machine now, *given* on the
command line, or *assumed*. Nothing is run on a GPU.
"""

from __future__ import annotations

import io
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from vlcli.engine.optim import freeze
from vlcli.engine.plan import StepPlan
from vlcli.engine.sharding import blocks_of
from vlcli.errors import UsageError
from vlcli.files import write_bytes
from vlcli.nn.count import count_model
from vlcli.nn.fake import fake_images, fake_text
from vlcli.nn.model import DataSpec, Model
from vlcli.recipe.resolved import Resolved
from vlcli.recipe.schema import Training
from vlcli.tools.counting import Built, build_stage, first_stage
from vlcli.tools.rehearsed import count_step

COUNTED, MEASURED, GIVEN, ASSUMED = "counted", "measured", "given", "assumed"
REACHED = {"float32": 40.0, "bf16": 200.0, "fp16": 200.0}
"""TFLOP/s that training is assumed to reach on one data centre GPU, by precision."""
LINK = 25.0
"""GB/s that a GPU is assumed to exchange with the others."""
RESERVED = 0.9
"""Share of a GPU's memory that is assumed to be free for a training."""
ONCE = "once through the model (all passes: --rehearse)"
"""What is counted where no step is taken."""
MOMENTS = {"adamw": 2, "adam": 2, "bert-adam": 2, "sgd": 1}
"""Tensors that an optimizer keeps of every trained parameter."""


@dataclass(frozen=True)
class Wanted:
    """What the plan is for.

    Attributes:
        gpus: processes, one GPU each.
        memory: bytes of one GPU.
        machine: GPUs of one machine, for hybrid sharding.
        examples: of the data; None: unknown.
        tflops: that one GPU reaches; None: :data:`REACHED`.
        link: GB/s of a GPU to the others; None: :data:`LINK`.
        disk: bytes a second that checkpoints are written with; None: measured in ``folder``.
        folder: of all runs.
        rehearse: count a step of two invented examples, taken on this machine, instead of one way through the model.
    """

    gpus: int
    memory: float
    machine: int = 8
    examples: int | None = None
    tflops: float | None = None
    link: float | None = None
    disk: float | None = None
    folder: Path = Path("runs")
    rehearse: bool = False


@dataclass(frozen=True)
class Cost:
    """One number of the plan.

    Attributes:
        name: what it is.
        value: in ``unit``.
        unit: ``B``, ``s``, ``/s`` or empty for a plain number.
        source: :data:`COUNTED`, :data:`MEASURED`, :data:`GIVEN` or :data:`ASSUMED`.
        how: the arithmetic, in words.
    """

    name: str
    value: float
    unit: str
    source: str
    how: str = ""


@dataclass(frozen=True)
class Sizes:
    """Counted numbers of a training module.

    Attributes:
        held: parameters, momentum copies included.
        trained: of them trained.
        outside: parameters outside the blocks that are gathered one by one.
        block: parameters of the largest block.
        activations: bytes that one example keeps for the backward pass, in float32.
        operations: floating-point operations of one example, forward and backward.
        whole: whether these two are of all passes of a step, or of one way through the model.
        reads: bytes of one example's picture or regions as they are loaded.
        pixels: whether pictures are decoded.
    """

    held: int
    trained: int
    outside: int
    block: int
    activations: int
    operations: float
    reads: int
    pixels: bool
    whole: bool = False


def plan_cluster(resolved: Resolved, wanted: Wanted, stage: str | None = None) -> dict[str, Any]:
    """The arithmetic of a recipe's training stage.

    Args:
        resolved: the recipe.
        wanted: GPUs and unit costs.
        stage: which; None: the first pre-training, else the first fine-tuning.

    Raises:
        UsageError: the recipe has no such training stage, or a batch has fewer examples than there are GPUs.
    """
    name = stage or first_stage(resolved)
    config = resolved.stages.get(name)
    if not isinstance(config, Training):
        expected = "a pretrain or finetune stage"
        raise UsageError(
            "This is no training stage of the recipe.", where=resolved.reference, got=name, expected=expected
        )
    if config.batch_size < wanted.gpus:
        got, hint = (
            f"batch_size {config.batch_size} for {wanted.gpus} GPUs",
            "raise batch_size (it is that of all GPUs)",
        )
        raise UsageError("A batch must hold an example for every GPU.", where=f"stages.{name}", got=got, hint=hint)
    built = build_stage(resolved, name, wanted.folder)
    freeze(built.module, config.trainable, config.frozen)
    sizes = sizes_of(built)
    if wanted.rehearse:
        step = count_step(resolved, name, built.data_spec, wanted.folder)
        sizes = replace(sizes, activations=step.kept, operations=step.operations, whole=True)
    memory = memory_of(sizes, config, wanted)
    speed = speed_of(sizes, config, wanted)
    return {"recipe": resolved.name, "stage": name, "gpus": wanted.gpus, "memory": memory, "time": speed}


def sizes_of(built: Built) -> Sizes:
    """Counts of a module on the meta device."""
    module, parameters = built.module, dict.fromkeys(built.module.parameters())
    blocks = [sum(p.numel() for p in block.parameters()) for block in blocks_of(module)]
    held = sum(p.numel() for p in parameters)
    needs, heads = module.model.input_spec(), dict(module.objectives.items())
    macs = count_model(module.model, data_spec=built.data_spec, objectives=heads, images=built.images)["macs"]["total"]
    return Sizes(
        held=held,
        trained=sum(p.numel() for p in parameters if p.requires_grad),
        outside=held - sum(blocks),
        block=max(blocks, default=0),
        activations=activations_of(module.model, built.data_spec, built.images),
        operations=(6.0 if module.teacher is None else 8.0) * macs,
        reads=_bytes_of(module.model, built.data_spec) * built.images,
        pixels=bool(needs.pixels),
    )


def activations_of(model: Model, data_spec: DataSpec, images: int = 1) -> int:
    """Bytes that one example's way through the model keeps for the backward pass, in float32 on the meta device.

    Storages are counted once; parameters are not. 0 where the model cannot run without values.
    """
    own = {p.untyped_storage()._cdata for p in [*model.parameters(), *model.buffers()]}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage
        return tensor

    was = model.training
    model.train()
    try:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            made = _passes(model, data_spec, images)
    except (NotImplementedError, RuntimeError):
        return 0
    finally:
        model.train(was)
    found = sum(storage.nbytes() for storage in kept.values())
    del made
    return found


def _passes(model: Model, data_spec: DataSpec, images: int) -> list[Any]:
    needs, embeds = model.input_spec(), model.fuse_takes == "embeddings" and "fuse" in model.capabilities
    made: list[Any] = []
    if needs.text:
        text = fake_text(data_spec, device="meta")
        made.append(model.embed_text(text) if embeds else model.encode_text(text))
    for _ in range(images if needs.regions or needs.pixels else 0):
        picture = fake_images(needs, data_spec, device="meta")
        made.append(model.embed_image(picture) if embeds else model.encode_image(picture))
        if needs.text and "fuse" in model.capabilities:
            made.append(model.fuse(made[0], made[-1]))
    return made


def _bytes_of(model: Model, data_spec: DataSpec) -> int:
    """Bytes of one picture as the loader reads it: a row of a feature store in float16, or a JPEG file."""
    needs = model.input_spec()
    if needs.regions:
        count = data_spec.regions if needs.grid is None else needs.grid[0] * needs.grid[1]
        return count * (data_spec.region_dim * 2 + 16)
    return 150_000 if needs.pixels else 0


def memory_of(sizes: Sizes, config: Training, wanted: Wanted) -> list[Cost]:
    """Bytes of one GPU by part, the whole, and the examples that would fit."""
    shares = {"none": 1, "full": wanted.gpus, "hybrid": min(wanted.machine, wanted.gpus)}[config.sharding]
    half = config.precision != "float32"
    per_gpu = -(-config.batch_size // wanted.gpus)
    each, source = sizes.activations * (0.5 if half else 1.0), COUNTED
    how = "kept for the backward pass" + ("" if sizes.whole else f", {ONCE}")
    if half:
        how, source = f"{how}, half of float32's", ASSUMED
    if config.checkpointing:
        each, how, source = each / 8, f"{how}, an eighth with checkpointing", ASSUMED
    over = f" over {shares} GPUs" if shares > 1 else ""
    parts = [
        Cost("weights", 4 * sizes.held / shares, "B", COUNTED, f"4 B x {sizes.held:,}{over}"),
        Cost("gradients", 4 * sizes.trained / shares, "B", COUNTED, f"4 B x {sizes.trained:,} trained{over}"),
        Cost(
            "optimizer",
            4 * MOMENTS[config.optimizer.name] * sizes.trained / shares,
            "B",
            COUNTED,
            f"{MOMENTS[config.optimizer.name]} moments of {config.optimizer.name}{over}",
        ),
    ]
    if config.ema:
        parts.append(Cost("averages", 4 * sizes.trained / shares, "B", COUNTED, f"ema{over}"))
    if shares > 1:
        gathered = 4 * (sizes.outside + 2 * sizes.block)
        parts.append(Cost("gathered", gathered, "B", COUNTED, "outside blocks, and two blocks"))
    elif wanted.gpus > 1:
        parts.append(Cost("buckets", 4 * sizes.trained, "B", ASSUMED, "DDP's copy of the gradients"))
    if half:
        parts.append(Cost("casts", 2 * sizes.held, "B", ASSUMED, f"weights in {config.precision} during a step"))
    fixed = sum(cost.value for cost in parts)
    parts.append(Cost("activations", each * per_gpu, "B", source, f"{per_gpu} examples of a GPU; {how}"))
    whole = fixed + each * per_gpu
    parts.append(Cost("all", whole, "B", ASSUMED, f"{whole / wanted.memory:.0%} of a GPU"))
    room = RESERVED * wanted.memory - fixed
    if each:
        fits = max(0, int(room / each))
        parts.append(Cost("examples that fit", fits, "", ASSUMED, f"on a GPU, in {RESERVED:.0%} of its memory"))
    return parts


def speed_of(sizes: Sizes, config: Training, wanted: Wanted) -> list[Cost]:
    """Seconds of a step, steps, reads and bytes a second, checkpoints."""
    n, rate = wanted.gpus, wanted.tflops or REACHED[config.precision]
    batch, again = config.batch_size * config.accumulate, 4 / 3 if config.checkpointing else 1.0
    compute = sizes.operations * again * batch / n / (rate * 1e12)
    sent = (2 if config.sharding == "none" else 3) * 4 * sizes.trained * (n - 1) / n
    network = sent / ((wanted.link or LINK) * 1e9)
    step = max(compute, network)
    given, linked = (GIVEN if value else ASSUMED for value in (wanted.tflops, wanted.link))
    reads, passes = batch / step, "all passes" if sizes.whole else ONCE
    found = [
        Cost("operations", sizes.operations * again, "FLOP", COUNTED, f"of an example, forward and backward, {passes}"),
        Cost("computing", compute, "s", given, f"of a step of {batch:,} examples, at {rate:g} TFLOP/s a GPU"),
        Cost("traffic", sent, "B", COUNTED, "of a GPU in a step"),
        Cost("communication", network, "s", linked, f"of a step, at {wanted.link or LINK:g} GB/s"),
        Cost("steps", 1 / step, "/s", ASSUMED, "the longer of the two; communication hidden behind computing"),
        Cost("examples read", reads, "/s", ASSUMED, "by all GPUs"),
        Cost("bytes read", reads * sizes.reads, "B/s", ASSUMED, f"{sizes.reads:,} B an example"),
    ]
    if sizes.pixels:
        seconds = decoding()
        how = f"workers of all GPUs, at {1000 * seconds:.1f} ms for a picture of 640 x 480"
        found.append(Cost("processes that decode", reads * seconds, "", MEASURED, how))
    return found + _whole_run(config, wanted, step) + _checkpoint(sizes, config, wanted)


def _whole_run(config: Training, wanted: Wanted, step: float) -> list[Cost]:
    steps, how = config.steps, "of the recipe"
    if wanted.examples is not None:
        steps = StepPlan.of(wanted.examples, config, wanted.gpus).steps
        how = f"{wanted.examples:,} examples"
    if steps is None:
        return []
    said = GIVEN if wanted.examples is not None else COUNTED
    return [Cost("all steps", steps, "", said, how), Cost("training", steps * step, "s", ASSUMED, "without waiting")]


def _checkpoint(sizes: Sizes, config: Training, wanted: Wanted) -> list[Cost]:
    tensors = MOMENTS[config.optimizer.name] + bool(config.ema)
    size = 4 * (sizes.held + tensors * sizes.trained)
    disk, said = (wanted.disk, GIVEN) if wanted.disk else (disk_rate(wanted.folder), MEASURED)
    whose = "of one process" if config.sharding == "none" else "for all processes together"
    how = f"at {disk / 1e6:,.0f} MB/s {whose}" + (", as here" if said == MEASURED else "")
    return [
        Cost("checkpoint", size, "B", COUNTED, "weights, moments, averages"),
        Cost("writing it", size / disk, "s", said, how),
    ]


def disk_rate(folder: Path, size: int = 32_000_000) -> float:
    """Bytes a second that reach the disk under ``folder`` (or the nearest folder above that is there)."""
    place = next(path for path in [folder.absolute(), *folder.absolute().parents] if path.is_dir())
    data = os.urandom(size)

    def write() -> None:
        with tempfile.TemporaryDirectory(dir=place) as scratch:
            write_bytes(Path(scratch) / "bytes", data)

    return size / _seconds(write, 1)


def decoding() -> float:
    """Seconds in which this machine decodes a JPEG of 640 x 480 and makes it 224 x 224."""
    from PIL import Image

    noise = torch.randint(0, 256, (60, 80, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)).numpy()
    file = io.BytesIO()
    Image.fromarray(noise).resize((640, 480)).save(file, "JPEG", quality=90)

    def decode() -> None:
        file.seek(0)
        Image.open(file).convert("RGB").resize((224, 224), Image.Resampling.BICUBIC)

    return _seconds(decode, 10)


def _seconds(work: Callable[[], None], times: int) -> float:
    begun = time.perf_counter()
    for _ in range(times):
        work()
    return max((time.perf_counter() - begun) / times, 1e-9)
