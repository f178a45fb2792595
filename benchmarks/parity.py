"""One training step of each paper's recipe on the processor and on a GPU: how far losses and gradients differ.

    python benchmarks/parity.py --device cuda
    python benchmarks/parity.py --device cpu --tiny         # small recipes; float32 is then compared with itself

Weights and invented examples are the same, dropout is 0, and ``multinomial``, by which matching chooses its negatives,
takes the first that it may. A loss differs by its relative difference, a gradient by the norm of the difference over
the norm of the processor's, of all parameters together. Ends with exit code 1 where float32 differs by more than
``EXACT`` or bf16 by more than ``ROUNDED``; a step that draws random numbers on the device is printed and not judged.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vlcli.nn import Batch
from vlcli.plugin_kit.two_processes import Draws, without_dropout
from vlcli.progress import Silent
from vlcli.recipe import plan as planning
from vlcli.recipe.load import load
from vlcli.runner.execute import context_of
from vlcli.runner.trial_step import Rehearsal, rehearse
from vlcli.tools.counting import build_stage

EXAMPLES = 3
EXACT = {"loss": 1e-4, "gradient": 1e-3}
ROUNDED = {"loss": 0.03, "gradient": 0.15}
STAGES = {
    "lxmert:pretrain": "tiny/lxmert:pretrain",
    "dimbert:pretrain": "tiny/dimbert:pretrain",
    "vlmo:pairs": "tiny/vlmo:staged:pairs",
    "irpe:train": "tiny/irpe:product:train",
    "ace-rpe:pretrain": "tiny/ace-rpe:anchor:pretrain",
    "ace-rpe:pretrain model.cross_position.gradient=false": "tiny/ace-rpe:ace-rpe:pretrain",
}
"""Stages with overrides, and the small ones that take their place."""
# Rounded hidden states change its gradient through similarities near a threshold by its size (docs/ace-rpe.md).
NOT_ROUNDED = ("ace-rpe:pretrain",)

Step = tuple[dict[str, float], dict[str, Tensor], set[str]]


def step(rehearsal: Rehearsal, batch: Batch, state: dict[str, Tensor], *, bf16: bool = False) -> Step:
    """Losses, gradients on the processor, and the operators that drew random numbers."""
    module, device = rehearsal.module, next(rehearsal.module.parameters()).device
    module.load_state_dict(state)
    module.zero_grad(set_to_none=True)
    torch.manual_seed(0)
    rounding = torch.autocast(device.type, torch.bfloat16) if bf16 else contextlib.nullcontext()
    with Draws() as draws, rounding:
        result = rehearsal.loss(batch.to(device))
    result.total.backward()
    module.close_step()
    gradients = {name: p.grad.float().cpu() for name, p in module.named_parameters() if p.grad is not None}
    return {name: float(mean.value()) for name, mean in result.losses.items()}, gradients, draws.seen


def difference(one: Step, other: Step) -> dict[str, float]:
    """The largest relative difference of a loss, and that of the gradients."""
    losses = max(abs(other[0][name] - value) / max(abs(value), 1e-6) for name, value in one[0].items())
    apart = sum(float((other[1][name] - value).square().sum()) for name, value in one[1].items())
    whole = sum(float(value.square().sum()) for value in one[1].values())
    return {"loss": losses, "gradient": (apart / whole) ** 0.5}


def compared(reference: str, device: str, folder: Path) -> bool:
    """Print both differences of a stage; whether they are small enough."""
    stage, *words = reference.split()
    name, stage = stage.rsplit(":", 1)
    resolved = load(name, words)
    planner, steps = planning.make(resolved, planning.RunOptions(folder))
    context = context_of(planner, stage, {step.name: step for step in steps}, Silent())
    with rehearse(context, EXAMPLES, build_stage(resolved, stage, folder).data_spec) as rehearsal:
        without_dropout(rehearsal.module)
        batch = rehearsal.batch()
        state = {name: value.clone() for name, value in rehearsal.module.state_dict().items()}
        exact = step(rehearsal, batch, state)
        rehearsal.module.to(device)
        same, rounded = (step(rehearsal, batch, state, bf16=bf16) for bf16 in (False, True))
    bounds = {"float32": (difference(exact, same), EXACT), "bf16": (difference(exact, rounded), ROUNDED)}
    for precision, (differences, _) in bounds.items():
        print(
            f"{reference}, {precision}: loss {differences['loss']:.1e}, gradient {differences['gradient']:.1e}",
            flush=True,
        )
    if same[2] and device != "cpu":
        print(f"{reference} is not judged: it draws {', '.join(sorted(same[2]))}")
        return True
    judged = [bounds["float32"]] if reference in NOT_ROUNDED else bounds.values()
    return all(differences[word] <= most[word] for differences, most in judged for word in most)


def first_possible(weights: Tensor, count: int, *_: Any, **__: Any) -> Tensor:
    """Take the place of ``torch.multinomial``: the same rows on every device, however its weights are rounded."""
    order = torch.arange(weights.shape[-1], 0, -1, device=weights.device)
    return ((weights > 0) * order).topk(count, -1).indices


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="the small recipes of the same papers")
    options = parser.parse_args()
    chosen: Callable[..., Tensor] = first_possible
    torch.multinomial = chosen  # type: ignore[assignment]
    torch.backends.cudnn.allow_tf32 = False
    with tempfile.TemporaryDirectory() as folder:
        fine = [
            compared(stage, options.device, Path(folder)) for stage in (STAGES.values() if options.tiny else STAGES)
        ]
    sys.exit(0 if all(fine) else 1)


if __name__ == "__main__":
    main()
