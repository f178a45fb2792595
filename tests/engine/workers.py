"""What the tests of several processes and of kills run: ``python -m tests.engine.workers KIND FOLDER [...]``."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import torch

from tests.engine.parts import DATA_SPEC, FakeData, config
from vlcli.engine import processes
from vlcli.engine.trackers import JsonLines
from vlcli.engine.trainer import Score, Trainer
from vlcli.engine.training_module import build_training_module
from vlcli.engine.weights import save_tensors

torch.set_num_threads(1)

OBJECTIVES = {
    "all": ["engine-words", {"name": "engine-contrast", "weight": 0.5}, {"name": "engine-queue", "size": 14}],
    "late": ["engine-words", {"name": "engine-contrast", "from_epoch": 1}],
    "rare": ["engine-words", "engine-rare"],
}


class Killing(FakeData):
    """Data that kill their own process after some batches."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.left = after

    def loader(self, batch_size, **options):
        for batch in super().loader(batch_size, **options):
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            self.left -= 1
            yield batch


def patient(folder: Path, kill: int = -1) -> None:
    """Train until three validations in a row have brought nothing; scores depend on the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    module = build_training_module({"name": "engine-tiny", "dropout": 0.2}, OBJECTIVES["all"], DATA_SPEC, seed=1)
    stop = {"patience": 3, "min_delta": 0.002}
    made = config(steps=400, save_every=5, evaluate_every=2, validation="coco-captions", stop=stop)

    def evaluate(*_: object) -> Score:
        total = -float(module.objectives["engine-contrast"].left.weight.detach().double().square().sum())
        return Score({"m": total}, total)

    data = Killing(kill) if kill >= 0 else FakeData()
    trackers = [JsonLines(folder)]
    trainer = Trainer(module, data, made, folder, seed=3, device="cpu", trackers=trackers, evaluate=evaluate)
    outcome = trainer.run()
    chosen = trainer.select_weights(outcome)[1] if processes.rank() == 0 else {}
    (folder / f"outcome-{processes.rank()}").write_text(f"{outcome.steps}; {outcome.stopped}")
    if processes.rank() == 0:
        save_tensors(folder / "final.safetensors", module.state_dict())
        save_tensors(folder / "chosen.safetensors", chosen)


def train(folder: Path, objectives: str = "all", kill: int = -1, dropout: float = 0.0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    module = build_training_module(
        {"name": "engine-tiny", "dropout": dropout}, OBJECTIVES[objectives], DATA_SPEC, seed=1
    )
    # 22 examples: the last batch of an epoch holds 6, so that processes do not always hold equal rows.
    data = FakeData(22) if kill < 0 else Killing(kill)
    options = {"batch_size": 7 if kill < 0 else 8, "steps": 6, "save_every": 2}
    # A plain optimizer: Adam would blow rounding up wherever the true gradient is nothing.
    options["optimizer"] = {"name": "sgd", "lr": 0.05} if kill < 0 else {"lr": 1e-2}
    evaluate = (lambda *_: Score({"m": 1.0}, 1.0)) if kill < 0 else None
    trackers = [JsonLines(folder)]
    trainer = Trainer(
        module, data, config(**options), folder, seed=3, device="cpu", trackers=trackers, evaluate=evaluate
    )
    outcome = trainer.run()
    assert outcome.best == (3 if kill < 0 else -1)
    if processes.rank() == 0:
        save_tensors(folder / "final.safetensors", module.state_dict())


def gather(folder: Path) -> None:
    processes.start("cpu")
    rank = processes.rank()
    mine = (torch.arange(2.0 + rank)[:, None] + 10 * rank).requires_grad_()
    whole = processes.gather(mine)
    (whole[:, 0] ** 2 * (rank + 1)).sum().backward()
    flags = processes.gather(torch.tensor([True, False, True][: 2 + rank]))
    if rank == 0:
        save_tensors(folder / "gather.safetensors", {"whole": whole, "grad": mine.grad, "flags": flags.int()})
    processes.wait()


if __name__ == "__main__":
    kind, where, *rest = sys.argv[1:]
    if kind == "gather":
        gather(Path(where))
    elif kind == "patient":
        patient(Path(where), *map(int, rest))
    elif kind == "kill":
        train(Path(where), "all", int(rest[0]), dropout=0.2)
    else:
        for name in OBJECTIVES:
            train(Path(where) / name, name)
