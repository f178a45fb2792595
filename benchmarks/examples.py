"""What small examples cost: examples a second and core out of the pipeline, beside a path that goes one by one.

    python benchmarks/examples.py [--examples 4000] [--batch 64] [--rounds 5] [--hidden 96]

Symbols: captions of eight words, two to five regions of 20 numbers. The path beside it does what a first version would:
each sentence becomes ids anew, each picture is read by itself, each draw has a generator of its own, rows are padded
one after another. Both take turns, so that a busy machine slows both; processor time is counted. The last columns are
training steps of the quickstart's model and the share of them spent waiting for data. Nothing outside a temporary
folder is touched.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vlcli import registry
from vlcli.data import Example, Reader
from vlcli.data.pipeline import Pipeline
from vlcli.data.sample import PHASES, Sample, generator
from vlcli.data.vocabulary import Tokenizer
from vlcli.features import FeatureStore, FeatureWriter, Record
from vlcli.nn.forward_passes import ForwardPasses
from vlcli.nn.model import DataSpec, InputSpec

WORDS = ["red", "green", "blue", "circle", "square", "star", "left", "right", "of", "above", "a", "is", "the", "below"]
SIZES = {"heads": 4, "text_layers": 2, "image_layers": 1, "cross_layers": 2, "dropout": 0.0, "init_std": 0.06}
KINDS: dict[str, list[Any]] = {
    "pairs": [],
    "lxmert": ["mlm", "masked-object", "matching"],
    "roles": [
        {"name": "mlm", "roles": ["place", "attribute"]},
        {"name": "matching", "foils": 0.5, "rewrites": ["other-attribute", "turned-relation"]},
    ],
}


class Made(Reader):
    """Captions on pictures, two on each."""

    def __init__(self, root: Path, count: int) -> None:
        super().__init__(root)
        self.count = count

    def files(self) -> list[Path]:
        """None: they are made."""
        return []

    def read(self) -> list[Example]:
        """The same ones every time."""
        rng = np.random.default_rng(0)
        texts = [" ".join(rng.choice(WORDS, 8)) for _ in range(self.count)]
        return [Example(f"e{n}", text, [f"i{n // 2}"], targets={"label": n % 2}) for n, text in enumerate(texts)]


def make_store(folder: Path, count: int) -> FeatureStore:
    """Two to five regions a picture."""
    rng = np.random.default_rng(1)
    with FeatureWriter(folder / "features.h5", {"extractor": "made"}) as writer:
        for number in range(count):
            rows = 2 + number % 4
            corners = np.sort(rng.random((rows, 2, 2)) * 112, axis=1).reshape(rows, 4)
            labels = {"classes": rng.integers(0, 8, rows), "class_scores": rng.random(rows)}
            writer.append(Record(f"i{number}", rng.standard_normal((rows, 20)), corners, (112, 112), **labels))
        writer.finish()
    return FeatureStore(folder / "features.h5")


def one_by_one(data: Pipeline, batch: int, epoch: int) -> Iterator[int]:
    """The examples of an epoch as a first version would load them; gives the size of each batch."""
    for picks in data.loader(batch, shuffle=True, epoch=epoch).batches:
        samples = [_loaded(data, code, epoch) for _, code in picks]
        for name in ("ids", "words", "special"):
            _stack([np.asarray(getattr(views[-1].text, name)) for views in samples])
            _stack([np.asarray(getattr(views[0].text, name)) for views in samples])
        for views in zip(*samples, strict=True):
            for name in ("features", "boxes"):
                _stack([getattr(sample.images[0], name) for sample in views])
            for name in ("classes", "class_scores"):
                _stack([sample.images[0].fields[name] for sample in views])
        yield len(samples)


def _loaded(data: Pipeline, code: int, epoch: int) -> list[Sample]:
    """The sample as read and, where objectives corrupt it, as corrupted."""
    clean = _plain(data, code)
    corruptions = sorted(data.corruption.corruptions, key=lambda one: PHASES.index(one.phase))
    fork = _plain(data, code) if corruptions else clean
    for corruption in corruptions:
        rng = generator(data.seed, epoch, clean.key, corruption.name)
        corruption(fork, rng, lambda rng=rng: _plain(data, int(rng.integers(data.total))))
    generator(data.seed, epoch, clean.key, "").integers(2**63 - 1)
    return [clean, fork]


def _plain(data: Pipeline, code: int) -> Sample:
    """One example, everything read anew."""
    from vlcli.data.inputs import fill_regions
    from vlcli.data.sample import ImageSample

    assert data.store is not None
    assert data.tokenizer is not None
    example = data.examples[code % data.total]
    image = ImageSample(example.images[0], (0, 0))
    fill_regions(image, data.store.read(image.key, data.dataset.images.fields))
    return Sample(example.key, data.tokenizer.encode(str(example.text), "", data.length), [image], example.targets)


def _stack(rows: list[np.ndarray]) -> torch.Tensor:
    """Arrays of several lengths, padded one after another."""
    padded = torch.zeros((len(rows), max(map(len, rows)), *rows[0].shape[1:]))
    for number, row in enumerate(rows):
        padded[number, : len(row)] = torch.tensor(row, dtype=torch.float32)
    return padded


def rates(data: Pipeline, batch: int, rounds: int) -> tuple[float, float, float]:
    """Examples a second of processor time, ours and one by one, and the median of the rounds' ratios."""
    ours, theirs = [], []
    for epoch in range(rounds + 1):
        begun = time.process_time()
        seen = sum(len(found) for found in data.loader(batch, shuffle=True, epoch=epoch))
        ours.append(seen / (time.process_time() - begun))
        begun = time.process_time()
        seen = sum(one_by_one(data, batch, epoch))
        theirs.append(seen / (time.process_time() - begun))
    ratios = [one / other for one, other in zip(ours[1:], theirs[1:], strict=True)]  # the first round warms up
    return statistics.median(ours[1:]), statistics.median(theirs[1:]), statistics.median(ratios)


def waiting(data: Pipeline, model: torch.nn.Module, objectives: list[Any], batch: int) -> tuple[float, float]:
    """Examples a second of training, and the share of it spent waiting for data."""
    parameters = [*model.parameters(), *(p for one in objectives for p in one.parameters())]
    optimizer = torch.optim.AdamW(parameters, 1e-4)
    waited, begun, seen = 0.0, time.perf_counter(), 0
    source = iter(data.loader(batch, shuffle=True, epoch=1))
    while True:
        asked = time.perf_counter()
        found = next(source, None)
        waited += time.perf_counter() - asked
        if found is None:
            break
        step = ForwardPasses(model, found)
        loss = sum(mean.value() for one in objectives for mean in one(step, {}).losses.values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += len(found)
    seconds = time.perf_counter() - begun
    return seen / seconds, waited / seconds


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    for name, value in (("examples", 4000), ("batch", 64), ("rounds", 5), ("hidden", 96), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    with tempfile.TemporaryDirectory() as folder:
        store, tokenizer = make_store(Path(folder), given.examples // 2), Tokenizer.train(WORDS, 100)
        data_spec = DataSpec(
            text_length=24,
            region_dim=20,
            region_classes=8,
            region_attributes=0,
            regions=5,
            **tokenizer.data_spec_fields(),
        )
        print(
            f"{'objectives':<10} {'examples/s':>11} {'one by one':>11} {'ratio':>6} {'training/s':>11} {'waiting':>8}"
        )
        for name, specs in KINDS.items():
            torch.manual_seed(0)
            model = registry.build("models", {"name": "lxmert", "hidden": given.hidden, **SIZES}, data_spec)
            objectives = [registry.build("objectives", spec, model, data_spec) for spec in specs]
            data = Pipeline(
                [Made(Path(folder), given.examples)],
                needs=InputSpec(text=True, regions=True),
                tokenizer=tokenizer,
                data_spec=data_spec,
                store=store,
                corruptions=[one.corruption() for one in objectives],
            )
            ours, theirs, ratio = rates(data, given.batch, given.rounds)
            row = f"{name:<10} {ours:>11,.0f} {theirs:>11,.0f} {ratio:>6.1f}"
            if objectives:
                training, share = waiting(data, model, objectives, given.batch)
                row += f" {training:>11,.0f} {share:>8.1%}"
            print(row, flush=True)


if __name__ == "__main__":
    main()
