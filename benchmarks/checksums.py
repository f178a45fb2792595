"""What checking a store's records costs: a training step with the checks over one without.

    python benchmarks/checksums.py [--images 640] [--hidden 256]

The hard case: every record is met for the first time (one sentence a picture, one epoch), loading shares the training's
thread, and the LXMERT is small (with a larger one, a second thread or a loader process the share is smaller). Steps
with and without checks alternate, in turned order; the ratio is of their medians, in seconds of the processor, which
other work on the machine disturbs less than the clock's. Beside it: what checking a batch takes alone.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from loader import OBJECTIVES, make_data

from vlcli import registry
from vlcli.data.pipeline import Pipeline
from vlcli.data.vocabulary import Tokenizer
from vlcli.features import FeatureStore
from vlcli.nn.forward_passes import ForwardPasses
from vlcli.nn.model import DataSpec


class Training:
    """A small LXMERT on three objectives.

    Args:
        root: folder of the data.
        hidden: width of the model.
        batch: examples a step.
    """

    def __init__(self, root: Path, hidden: int, batch: int) -> None:
        self.reader = registry.build("datasets", {"name": "coco-captions", "file": "captions.json"}, root)
        self.tokenizer = Tokenizer.train([str(example.text) for example in self.reader.examples()], 200)
        self.data_spec = DataSpec(text_length=20, **self.tokenizer.data_spec_fields())
        self.model = registry.build("models", {"name": "lxmert", "hidden": hidden, "heads": 4}, self.data_spec)
        self.objectives = [registry.build("objectives", name, self.model, self.data_spec) for name in OBJECTIVES]
        parts = [*self.model.parameters(), *(p for o in self.objectives for p in o.parameters())]
        self.optimizer, self.batch = torch.optim.AdamW(parts, 1e-4), batch

    def loader(self, store: FeatureStore) -> Iterator[Any]:
        """One epoch's batches."""
        data = Pipeline(
            [self.reader],
            needs=self.model.input_spec(),
            tokenizer=self.tokenizer,
            data_spec=self.data_spec,
            store=store,
            corruptions=[o.corruption() for o in self.objectives],
        )
        return iter(data.loader(self.batch, shuffle=True, workers=0))

    def step(self, batches: Iterator[Any]) -> float:
        """Seconds of the processor that loading a batch and learning from it take."""
        begun = time.process_time()
        step = ForwardPasses(self.model, next(batches))
        loss = sum(mean.value() for o in self.objectives for mean in o(step, {}).losses.values())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return time.process_time() - begun


def main() -> None:
    """Print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    for name, value in (("images", 640), ("batch", 32), ("hidden", 256), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    seconds: dict[bool, list[float]] = {True: [], False: []}
    with tempfile.TemporaryDirectory() as folder:
        path = make_data(Path(folder), given.images, captions=1)
        training = Training(Path(folder), given.hidden, given.batch)
        batches = {check: training.loader(FeatureStore(path, check=check)) for check in (True, False)}
        for number in range(given.images // given.batch):
            for check in (True, False) if number % 2 else (False, True):
                seconds[check].append(training.step(batches[check]))
        # The first steps open the store and warm up.
        with_checks, without = (statistics.median(seconds[check][2:]) for check in (True, False))
        part = FeatureStore(path).parts()[0]
        begun = time.process_time()
        part.check(list(range(len(part))))
        alone = (time.process_time() - begun) / len(part) * given.batch
    print(f"{with_checks / without:.4f}")
    print(f"{with_checks:.3f} s a step with checks, {without:.3f} s without; of a batch alone {1000 * alone:.1f} ms")


if __name__ == "__main__":
    main()
