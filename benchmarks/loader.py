"""What loading costs: examples a second out of the pipeline, and the share of a training step spent waiting for data.

    python benchmarks/loader.py [--images 1000] [--batch 32] [--steps 30] [--hidden 256]

The data are made on the spot: captions of 5 to 16 words, 36 regions of 2048 float16 numbers an image, objectives of a
small LXMERT (masked words, masked regions, matching). One table; nothing outside a temporary folder is touched.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from vlcli import registry
from vlcli.data.pipeline import Pipeline
from vlcli.data.vocabulary import Tokenizer
from vlcli.features import FeatureStore, FeatureWriter, Record
from vlcli.nn.forward_passes import ForwardPasses
from vlcli.nn.model import DataSpec

WORDS = [f"{first}{second}" for first in ("ba", "ko", "mi", "tu", "re") for second in ("lo", "na", "pe", "si", "ru")]
OBJECTIVES = ("mlm", "masked-object", "matching")


def make_data(root: Path, images: int, captions: int = 5) -> Path:
    """Captions in COCO's format, so many a picture, and a store."""
    rng = np.random.default_rng(0)
    rows = [{"id": n, "file_name": f"{n:012d}.jpg", "height": 480, "width": 640} for n in range(images)]
    texts = [" ".join(rng.choice(WORDS, rng.integers(5, 17))) for _ in range(images * captions)]
    notes = [{"id": k, "image_id": k // captions, "caption": text} for k, text in enumerate(texts)]
    (root / "captions.json").write_text(json.dumps({"images": rows, "annotations": notes}))
    with FeatureWriter(root / "features.h5", {"extractor": "made"}) as writer:
        for n in range(images):
            corners = np.sort(rng.random((36, 2, 2)) * [640, 480], axis=1).reshape(36, 4)
            labels = {"classes": rng.integers(0, 1600, 36), "class_scores": rng.random(36)}
            labels |= {"attributes": rng.integers(0, 400, 36), "attribute_scores": rng.random(36)}
            writer.append(Record(f"{n:012d}", rng.standard_normal((36, 2048)), corners, (480, 640), **labels))
        writer.finish()
    return root / "features.h5"


def examples_a_second(data: Pipeline, batch: int, workers: int, steps: int) -> float:
    """Best of two epochs' beginnings, workers warm."""
    rates = []
    for epoch in range(3):
        begun, seen = 0.0, 0
        for number, found in enumerate(data.loader(batch, shuffle=True, epoch=epoch, workers=workers)):
            if number == 4:
                begun, seen = time.perf_counter(), 0
            seen += len(found)
            if number == steps + 4:
                break
        rates.append((seen - batch) / (time.perf_counter() - begun))
    return max(rates[1:])


def waiting(
    data: Pipeline, model: torch.nn.Module, objectives: list, batch: int, workers: int, steps: int, device: str
) -> list[float]:
    """Seconds of a step, and the share of it spent waiting."""
    optimizer = torch.optim.AdamW([*model.parameters(), *(p for o in objectives for p in o.parameters())], 1e-4)
    waited, begun = 0.0, time.perf_counter()
    source = iter(data.loader(batch, shuffle=True, workers=workers))
    for number in range(steps + 3):
        if number == 3:
            waited, begun = 0.0, time.perf_counter()
        asked = time.perf_counter()
        found = next(source)
        waited += time.perf_counter() - asked
        step = ForwardPasses(model, found.to(device))
        loss = sum(mean.value() for o in objectives for mean in o(step, {}).losses.values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    seconds = time.perf_counter() - begun
    return [seconds / steps, waited / seconds]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    for name, value in (("images", 1000), ("batch", 32), ("steps", 30), ("hidden", 256), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2], help="processes that load")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        store = FeatureStore(make_data(Path(folder), given.images))
        reader = registry.build("datasets", {"name": "coco-captions", "file": "captions.json"}, Path(folder))
        tokenizer = Tokenizer.train([str(example.text) for example in reader.examples()], 200)
        data_spec = DataSpec(text_length=20, **tokenizer.data_spec_fields())
        model = registry.build("models", {"name": "lxmert", "hidden": given.hidden, "heads": 4}, data_spec)
        model = model.to(given.device)
        objectives = [registry.build("objectives", name, model, data_spec).to(given.device) for name in OBJECTIVES]
        corruptions = [o.corruption() for o in objectives]
        data = Pipeline(
            [reader],
            needs=model.input_spec(),
            tokenizer=tokenizer,
            data_spec=data_spec,
            store=store,
            corruptions=corruptions,
        )
        print(f"{'workers':>7} {'examples/s':>11} {'step s':>8} {'waiting':>8}")
        for workers in given.workers:
            rate = examples_a_second(data, given.batch, workers, given.steps)
            seconds, share = waiting(data, model, objectives, given.batch, workers, given.steps, given.device)
            print(f"{workers:>7} {rate:>11.0f} {seconds:>8.3f} {share:>8.1%}")


if __name__ == "__main__":
    main()
