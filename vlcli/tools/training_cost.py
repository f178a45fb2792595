"""Estimates what a training stage costs on several GPUs: memory by part, time, traffic and bytes.

Every number says whether it is *counted* from the model, *measured* on this machine now, *given* on the command line,
or *assumed*. Nothing is run on a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from vlcli.engine.optim import freeze
from vlcli.engine.plan import StepPlan
from vlcli.errors import UsageError
from vlcli.recipe.resolved import Resolved
from vlcli.recipe.schema import Training
from vlcli.tools.counting import build_stage, first_stage
from vlcli.tools.training_sizes import Sizes, decoding, disk_rate, rehearsed, sizes_of

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
    """GPUs and unit costs of a plan.

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


class Cost(NamedTuple):
    """One number of the plan in ``unit`` (B, s, /s, or empty), where it comes from, and its arithmetic in words."""

    name: str
    value: float
    unit: str
    source: str
    how: str = ""


def training_cost(resolved: Resolved, wanted: Wanted, stage: str | None = None) -> dict[str, Any]:
    """Return the costs of a training stage; None: of the first pre-training, else the first fine-tuning.

    Raises:
        UsageError: the recipe has no such training stage, or a batch has fewer examples than there are GPUs.
    """
    name = stage or first_stage(resolved)
    config = resolved.stages.get(name)
    if not isinstance(config, Training):
        what, expected = "This is no training stage of the recipe.", "a pretrain or finetune stage"
        raise UsageError(what, where=resolved.reference, got=name, expected=expected)
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
    how = "kept for the backward pass" + ("" if sizes.whole else f", {ONCE}")
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
        fits = max(0, int((RESERVED * wanted.memory - fixed) / each))
        parts.append(Cost("examples that fit", fits, "", ASSUMED, f"on a GPU, in {RESERVED:.0%} of its memory"))
    return parts


def speed_of(sizes: Sizes, config: Training, wanted: Wanted) -> list[Cost]:
    """Return seconds of a step, steps, reads and bytes a second, checkpoints."""
    n, rate, link = wanted.gpus, wanted.tflops or REACHED[config.precision], wanted.link or LINK
    batch, operations = config.batch_size * config.accumulate, sizes.operations
    operations *= 4 / 3 if config.checkpointing else 1.0
    compute = operations * batch / n / (rate * 1e12)
    sent = (2 if config.sharding == "none" else 3) * 4 * sizes.trained * (n - 1) / n
    network = sent / (link * 1e9)
    step = max(compute, network)
    rated, linked = (GIVEN if value else ASSUMED for value in (wanted.tflops, wanted.link))
    reads, passes = batch / step, "all passes" if sizes.whole else ONCE
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
    return costs + _whole_run(config, wanted, step) + _checkpoint(sizes, config, wanted)


def _whole_run(config: Training, wanted: Wanted, step: float) -> list[Cost]:
    steps, source, how = config.steps, COUNTED, "of the recipe"
    if wanted.examples is not None:
        steps, source = StepPlan.of(wanted.examples, config, wanted.gpus).steps, GIVEN
        how = f"{wanted.examples:,} examples"
    if steps is None:
        return []
    return [Cost("all steps", steps, "", source, how), Cost("training", steps * step, "s", ASSUMED, "without waiting")]


def _checkpoint(sizes: Sizes, config: Training, wanted: Wanted) -> list[Cost]:
    size = 4 * (sizes.held + (MOMENTS[config.optimizer.name] + bool(config.ema)) * sizes.trained)
    disk, source = (wanted.disk, GIVEN) if wanted.disk else (disk_rate(wanted.folder), MEASURED)
    whose = "of one process" if config.sharding == "none" else "for all processes together"
    how = f"at {disk / 1e6:,.0f} MB/s {whose}" + (", as here" if source == MEASURED else "")
    checkpoint = Cost("checkpoint", size, "B", COUNTED, "weights, moments, averages")
    return [checkpoint, Cost("writing it", size / disk, "s", source, how)]
