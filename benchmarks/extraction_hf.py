"""What extractors of transformers cost beside their networks: ``python benchmarks/extraction_hf.py PICTURES``.

One side is ``extract_images`` in one process, from files to the finished store. The other is the network's forward pass
alone on the same pictures in the same batches, prepared beforehand. Networks have random weights: DINOv2, CLIP and
SigLIP 2 at the width and depth of ViT-S, DETR with ResNet-18, and ``backbone`` with ``boxes: cells`` beside them.
Pictures are decoded and prepared in ``--workers`` processes, as in a recipe; with 0 in a thread beside the network's.

Both sides take turns, ``--rounds`` times; the ratios are medians of the rounds: of wall time, of the processor time of
the whole process (what one core has to do), and of that of the network's thread (what is left to do where another core
decodes).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import transformers as T

from vlcli.detection.extraction import Share, _Run, extract_images
from vlcli.detection.extractor import Extractor
from vlcli.detection.jobs import jobs_of, prepare
from vlcli.progress import Silent
from vlcli.registry import build

GOAL = 1.10
VIT = {"hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 6, "image_size": 224, "patch_size": 16}
WIDE = {**VIT, "intermediate_size": 1536}
SQUARE = {"height": 224, "width": 224}


def save(folder: Path, *parts: Any) -> str:
    for part in parts:
        part.save_pretrained(folder)
    return str(folder)


def detr() -> tuple[Any, Any]:
    body = T.ResNetConfig(depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 256, 512], layer_type="basic",
                          out_features=["stage4"])  # fmt: skip
    config = T.DetrConfig(use_timm_backbone=False, backbone=None, backbone_config=body)
    return T.DetrForObjectDetection(config), T.DetrImageProcessor(size={"shortest_edge": 400, "longest_edge": 667})


def specs(root: Path) -> dict[str, dict[str, Any]]:
    made = {
        "DINOv2 S/16": (T.Dinov2Model(T.Dinov2Config(**VIT)), T.BitImageProcessor(
            size={"shortest_edge": 256}, crop_size=SQUARE, do_center_crop=True)),
        "CLIP S/16": (T.CLIPVisionModel(T.CLIPVisionConfig(**WIDE)), T.CLIPImageProcessor()),
        "SigLIP 2 S/16 NaFlex": (T.Siglip2VisionModel(T.Siglip2VisionConfig(
            **{k: v for k, v in WIDE.items() if k != "image_size"}, num_patches=256)), T.Siglip2ImageProcessor()),
    }  # fmt: skip
    found: dict[str, dict[str, Any]] = {}
    for number, (name, parts) in enumerate(made.items()):
        found[name] = {"name": "transformers", "weights": save(root / str(number), *parts)}
    found["DETR ResNet-18"] = {"name": "transformers-detector", "weights": save(root / "detr", *detr())}
    found["backbone resnet50 cells"] = {"name": "backbone", "boxes": "cells", "short": 224, "long": 400}
    return found


def network(extractor: Extractor, items: list[Any]) -> Callable[[], Any]:
    """The network's forward pass on prepared pictures."""
    pixels = torch.stack([item.pixels for item in items])
    net: Any = extractor.network  # type: ignore[attr-defined]
    if hasattr(net, "last_map"):
        return lambda: net.last_map(pixels.float())
    patches = [item.patches for item in items] if any(getattr(items[0], "patches", (0, 0))) else None
    return (lambda: net(pixels, patches)) if patches else (lambda: net(pixels))


def measure(extractor: Extractor, images: list[tuple[str, Path]], workers: int, rounds: int) -> list[list[float]]:
    """Of each round the seconds of the extraction by each clock, then those of the network alone."""
    run = _Run(extractor, Silent(), Share(), True)
    batches = [[prepare(job, extractor.preparation) for job in batch]
               for batch in run.plan(jobs_of(images, {}), set(), extractor.batch_size)]  # fmt: skip
    found = []
    with tempfile.TemporaryDirectory() as name, torch.inference_mode():
        network(extractor, batches[0])()  # warms up
        for number in range(rounds):
            whole = timed(partial(extract_images, images, extractor, Path(name) / f"{number}.h5", workers=workers))
            alone = timed(lambda: [network(extractor, batch)() for batch in batches])
            found.append([*whole, *alone])
    return found


CLOCKS = (time.perf_counter, time.process_time, time.thread_time)


def timed(work: Callable[[], Any]) -> list[float]:
    """Seconds on the wall, of the process and of this thread."""
    begun = [clock() for clock in CLOCKS]
    work()
    return [clock() - then for clock, then in zip(CLOCKS, begun, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pictures", type=Path)
    parser.add_argument("--count", type=int, default=32)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    images = [(path.stem, path) for path in sorted(args.pictures.rglob("*.jpg"))][: args.count]
    print(f"{len(images)} pictures, {torch.get_num_threads()} thread(s), {args.workers} workers; the goal is {GOAL}")
    with tempfile.TemporaryDirectory() as name:
        for what, spec in specs(Path(name)).items():
            if args.only in what:
                print(line(what, measure(build("extractors", spec), images, args.workers, args.rounds)), flush=True)


def line(what: str, rounds: list[list[float]]) -> str:
    """Medians of the rounds."""
    ours, alone = (median(one[at] for one in rounds) for at in (0, len(CLOCKS)))
    wall, whole, thread = (median(one[at] / one[at + len(CLOCKS)] for one in rounds) for at in range(len(CLOCKS)))
    ratios = f"ratio {wall:.3f}, processor {whole:.3f}, network's thread {thread:.3f}"
    return f"{what:26} {ours:6.2f} s, alone {alone:6.2f} s, {ratios}"


if __name__ == "__main__":
    main()
