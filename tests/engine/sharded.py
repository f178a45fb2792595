"""What the tests of shared parameters run: ``python -m tests.engine.sharded FOLDER MODE [STEPS]`` in every process."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch

from tests.engine.parts import DATA_SPEC, FakeData, config
from tests.engine.workers import OBJECTIVES
from vlcli.engine import processes
from vlcli.engine.outcome import Score
from vlcli.engine.trackers import JsonLines
from vlcli.engine.trainer import Trainer
from vlcli.engine.training_module import build_training_module
from vlcli.engine.weights import save_tensors

torch.set_num_threads(1)

OPTIMIZERS = {
    "sgd": {"name": "sgd", "lr": 0.05, "momentum": 0.9, "layer_decay": 0.8},
    "adamw": {"name": "adamw", "lr": 1e-3, "eps": 1e-3, "layer_decay": 0.8},
    "bert-adam": {"name": "bert-adam", "lr": 1e-3, "eps": 1e-3},
}


def train(folder: Path, mode: str, until: int = 6, optimizer: str = "sgd", objectives: str = "all", **more) -> None:
    """Six steps of the small model, every part of training switched on."""
    folder.mkdir(parents=True, exist_ok=True)
    model = {"name": "engine-tiny", "hidden": 10, "stacked": True}
    module = build_training_module(model, OBJECTIVES[objectives], DATA_SPEC, seed=1)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_("blocks.0.norm" not in name and parameter.requires_grad)
    options = {"batch_size": 7, "steps": 6, "save_every": 2, "accumulate": 2, "clip": 0.5, "ema": {"decay": 0.9}}
    options |= {"optimizer": OPTIMIZERS[optimizer], "sharding": mode, "evaluate_every": 3, **more}

    def evaluate(*_: object) -> Score:
        total = sum(float(p.detach().double().square().sum()) for p in module.model.parameters())
        return Score({"m": total}, total)

    trackers = [JsonLines(folder)]
    made = config(**options)
    trainer = Trainer(module, FakeData(44), made, folder, seed=3, device="cpu", trackers=trackers, evaluate=evaluate)
    if until < 6:
        _end_after(trainer, until)
    outcome = trainer.run()
    if processes.rank() == 0:
        save_tensors(folder / "final.safetensors", {n: v.detach() for n, v in module.state_dict().items()})
        save_tensors(folder / "ema.safetensors", dict(trainer.ema.shadow))
        save_tensors(folder / "chosen.safetensors", trainer.select_weights(outcome)[1])


def _end_after(trainer: Trainer, step: int) -> None:
    """End the process when the checkpoint of a step is written."""
    save = trainer.checkpoints.save

    def last(*given: Any) -> Path:
        path = save(*given)
        if trainer.position.step == step:
            processes.wait()
            os._exit(0)
        return path

    trainer.checkpoints.save = last  # type: ignore[method-assign]


if __name__ == "__main__":
    where, mode, *rest = sys.argv[1:]
    switched: dict[str, Any] = {name: True for name in ("compile", "checkpointing") if name in rest}
    switched |= {"steps": 300, "save_every": 3, "evaluate_every": 30} if "long" in rest else {}
    train(Path(where), mode, int(rest[0]) if rest else 6, *rest[1:3], **switched)
