"""Estimates what a training stage costs on several GPUs: memory by part, time, traffic and bytes.

Every number says whether it is *counted* from the model, *measured* on this machine now, *given* on the command line,
or *assumed*. Nothing is run on a GPU.
"""

import io
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from timeit import timeit
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from vlcli.engine.optim import freeze
from vlcli.engine.schedule import StepPlan
from vlcli.engine.sharding import blocks_of
from vlcli.errors import UsageError
from vlcli.files import write_bytes
from vlcli.nn.count import count_model
from vlcli.nn.fake import fake_images, fake_text
from vlcli.nn.model import DataSpec, Model
from vlcli.progress import Silent
from vlcli.recipe import plan as planning
from vlcli.recipe.locate import Resolved
from vlcli.recipe.schema import Training
from vlcli.runner.execute import context_of
from vlcli.runner.trial_step import rehearse
from vlcli.tools.counting import Built, build_stage, first_stage

# Examples of a rehearsed step: matching needs another picture
EXAMPLES = 2


class Sizes(NamedTuple):
    """Counts of a training module.

    Attributes:
        held: parameters, momentum copies included.
        outside: parameters outside the blocks that are gathered one by one.
        block: parameters of the largest block.
        activations: bytes that one example keeps for the backward pass, in float32.
        operations: floating-point operations of one example, forward and backward.
        reads: bytes of one example's picture or regions as they are loaded.
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
    row = regions * (built.data_spec.region_dim * 2 + 16)  # float16 in a feature store
    return Sizes(
        held=held,
        trained=sum(p.numel() for p in parameters if p.requires_grad),
        outside=held - sum(blocks),
        block=max(blocks, default=0),
        activations=activations_of(model, built.data_spec, images),
        operations=(6.0 if module.teacher is None else 8.0) * macs,
        reads=images * (row if needs.regions else 150_000 if needs.pixels else 0),  # 150 KB: a JPEG file
        pixels=bool(needs.pixels),
        whole=False,
    )


def activations_of(model: Model, data_spec: DataSpec, images: int = 1) -> int:
    """Return the bytes of float32 that an example keeps for the backward pass, without parameters; 0 if unknown."""
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


def disk_rate(folder: Path) -> float:
    """Measure the bytes a second that reach the disk under ``folder`` (or the nearest folder above that is there)."""
    above = next(path for path in [folder.absolute(), *folder.absolute().parents] if path.is_dir())
    data = os.urandom(32_000_000)
    with tempfile.TemporaryDirectory(dir=above) as scratch:
        return len(data) / _seconds(lambda: write_bytes(Path(scratch) / "bytes", data), 1)


def decoding() -> float:
    """Measure the seconds in which this machine decodes a JPEG of 640 x 480 and makes it 224 x 224."""
    from PIL import Image

    noise = torch.randint(0, 256, (60, 80, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)).numpy()
    file = io.BytesIO()
    Image.fromarray(noise).resize((640, 480)).save(file, "JPEG", quality=90)

    content, bicubic = file.getvalue(), Image.Resampling.BICUBIC
    return _seconds(lambda: Image.open(io.BytesIO(content)).convert("RGB").resize((224, 224), bicubic), 10)


def _seconds(work: Callable[[], object], times: int) -> float:
    return max(timeit(work, number=times) / times, 1e-9)


COUNTED, MEASURED, GIVEN, ASSUMED = "counted", "measured", "given", "assumed"
# TFLOP/s that training is assumed to reach on one data centre GPU, by precision
REACHED = {"float32": 40.0, "bf16": 200.0, "fp16": 200.0}
_LINK = 25.0  # GB/s that a GPU is assumed to exchange with the others
_RESERVED = 0.9  # share of a GPU's memory that is assumed to be free for a training
_ONCE = "once through the model (all passes: --rehearse)"  # what is counted where no step is taken
# Tensors that an optimizer keeps of every trained parameter
MOMENTS = {"adamw": 2, "adam": 2, "bert-adam": 2, "sgd": 1, "muon": 2}


@dataclass(frozen=True)
class Wanted:
    """GPUs and unit costs of a plan.

    Attributes:
        memory: bytes of one GPU.
        machine: GPUs of one machine, for hybrid sharding.
        examples: of the data; None: unknown.
        tflops: that one GPU reaches; None: :data:`REACHED`.
        link: GB/s of a GPU to the others; None: 25.
        disk: bytes a second that checkpoints are written with; None: measured in ``folder``.
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


class Cost(NamedTuple):
    """One number of the plan in ``unit`` (B, s, /s, or empty), where it comes from, and its arithmetic in words."""

    name: str
    value: float
    unit: str
    source: str
    how: str = ""


def training_cost(resolved: Resolved, wanted: Wanted, stage: str | None = None) -> dict[str, Any]:
    """Return the costs of a training stage; None: of the first pre-training, else the first fine-tuning.

    Raises UsageError: the recipe has no such training stage, or a batch has fewer examples than there are GPUs.
    """
    name = stage or first_stage(resolved)
    config = resolved.stages.get(name)
    if not isinstance(config, Training):
        what, expected = "This is no training stage of the recipe.", "a pretrain or finetune stage"
        raise UsageError(what, where=resolved.reference, got=name, expected=expected)
    if config.batch_size < wanted.gpus:
        what, hint = "A batch must hold an example for every GPU.", "raise batch_size (it is that of all GPUs)"
        got = f"batch_size {config.batch_size} for {wanted.gpus} GPUs"
        raise UsageError(what, where=f"stages.{name}", got=got, hint=hint)
    built = build_stage(resolved, name, wanted.folder)
    freeze(built.module, config.trainable, config.frozen)
    sizes = sizes_of(built)
    if wanted.rehearse:
        operations, kept = rehearsed(resolved, name, built.data_spec, wanted.folder)
        sizes = sizes._replace(activations=kept, operations=operations, whole=True)
    memory, speed = memory_of(sizes, config, wanted), speed_of(sizes, config, wanted)
    return {"recipe": resolved.name, "stage": name, "gpus": wanted.gpus, "memory": memory, "time": speed}


def memory_of(sizes: Sizes, config: Training, wanted: Wanted) -> list[Cost]:
    """Return bytes of one GPU by part, their sum, and the examples that would fit."""
    shares = {"none": 1, "full": wanted.gpus, "hybrid": min(wanted.machine, wanted.gpus)}[config.sharding]
    half = config.precision != "float32"
    per_gpu, moments = -(-config.batch_size // wanted.gpus), MOMENTS[config.optimizer.name]
    each, source = sizes.activations * (0.5 if half else 1.0), COUNTED
    how = "kept for the backward pass" + ("" if sizes.whole else f", {_ONCE}")
    if half:
        how, source = f"{how}, half of float32's", ASSUMED
    if config.checkpointing:
        each, how, source = each / 8, f"{how}, an eighth with checkpointing", ASSUMED
    over, copy = f" over {shares} GPUs" if shares > 1 else "", 4 * sizes.trained
    parts = [
        Cost("weights", 4 * sizes.held / shares, "B", COUNTED, f"4 B x {sizes.held:,}{over}"),
        Cost("gradients", copy / shares, "B", COUNTED, f"4 B x {sizes.trained:,} trained{over}"),
        Cost("optimizer", moments * copy / shares, "B", COUNTED, f"{moments} moments of {config.optimizer.name}{over}"),
    ]
    if config.ema:
        parts.append(Cost("averages", copy / shares, "B", COUNTED, f"ema{over}"))
    if shares > 1:
        gathered = 4 * (sizes.outside + 2 * sizes.block)
        parts.append(Cost("gathered", gathered, "B", COUNTED, "outside blocks, and two blocks"))
    elif wanted.gpus > 1:
        parts.append(Cost("buckets", copy, "B", ASSUMED, "DDP's copy of the gradients"))
    if half:
        parts.append(Cost("casts", 2 * sizes.held, "B", ASSUMED, f"weights in {config.precision} during a step"))
    fixed = sum(cost.value for cost in parts)
    whole = fixed + each * per_gpu
    parts.append(Cost("activations", each * per_gpu, "B", source, f"{per_gpu} examples of a GPU; {how}"))
    parts.append(Cost("all", whole, "B", ASSUMED, f"{whole / wanted.memory:.0%} of a GPU"))
    if each:
        fits = max(0, int((_RESERVED * wanted.memory - fixed) / each))
        parts.append(Cost("examples that fit", fits, "", ASSUMED, f"on a GPU, in {_RESERVED:.0%} of its memory"))
    return parts


def speed_of(sizes: Sizes, config: Training, wanted: Wanted) -> list[Cost]:
    """Return seconds of a step, steps, reads and bytes a second, checkpoints."""
    n, rate, link = wanted.gpus, wanted.tflops or REACHED[config.precision], wanted.link or _LINK
    batch = config.batch_size * config.accumulate
    operations = sizes.operations * (4 / 3 if config.checkpointing else 1.0)
    compute = operations * batch / n / (rate * 1e12)
    sent = (2 if config.sharding == "none" else 3) * 4 * sizes.trained * (n - 1) / n
    network = sent / (link * 1e9)
    step = max(compute, network)
    rated, linked = (GIVEN if value else ASSUMED for value in (wanted.tflops, wanted.link))
    reads, passes = batch / step, "all passes" if sizes.whole else _ONCE
    costs = [
        Cost("operations", operations, "FLOP", COUNTED, f"of an example, forward and backward, {passes}"),
        Cost("computing", compute, "s", rated, f"of a step of {batch:,} examples, at {rate:g} TFLOP/s a GPU"),
        Cost("traffic", sent, "B", COUNTED, "of a GPU in a step"),
        Cost("communication", network, "s", linked, f"of a step, at {link:g} GB/s"),
        Cost("steps", 1 / step, "/s", ASSUMED, "the longer of the two; communication hidden behind computing"),
        Cost("examples read", reads, "/s", ASSUMED, "by all GPUs"),
        Cost("bytes read", reads * sizes.reads, "B/s", ASSUMED, f"{sizes.reads:,} B an example"),
    ]
    if sizes.pixels:
        seconds = decoding()
        how = f"workers of all GPUs, at {1000 * seconds:.1f} ms for a picture of 640 x 480"
        costs.append(Cost("processes that decode", reads * seconds, "", MEASURED, how))
    steps, source, how = config.steps, COUNTED, "of the recipe"
    if wanted.examples is not None:
        steps, source = StepPlan.of(wanted.examples, config, wanted.gpus).steps, GIVEN
        how = f"{wanted.examples:,} examples"
    if steps is not None:
        costs.append(Cost("all steps", steps, "", source, how))
        costs.append(Cost("training", steps * step, "s", ASSUMED, "without waiting"))
    size = 4 * (sizes.held + (MOMENTS[config.optimizer.name] + bool(config.ema)) * sizes.trained)
    disk, source = (wanted.disk, GIVEN) if wanted.disk else (disk_rate(wanted.folder), MEASURED)
    whose = "of one process" if config.sharding == "none" else "for all processes together"
    how = f"at {disk / 1e6:,.0f} MB/s {whose}" + (", as here" if source == MEASURED else "")
    costs.append(Cost("checkpoint", size, "B", COUNTED, "weights, moments, averages"))
    return [*costs, Cost("writing it", size / disk, "s", source, how)]
