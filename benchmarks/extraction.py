"""What extraction costs beside the network itself: ``python benchmarks/extraction.py PICTURES [--boxes FILE]``.

One side is ``extract_images`` in one process, from files to the finished store: headers, decoding, resizing, the
network, checks, float16, HDF5, fsync. The other is the network's forward pass alone (backbone and RoI head) on the same
pictures in the same batches, decoded and resized to 600 pixels beforehand. The two take turns part by part, since
neighbours make a machine's speed drift; the ratio is that of the sums, beside it the median part's, and the ratio of
processor time, which neighbours disturb least.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch

from vlcli.detection.extraction import Share, _Run, extract_images
from vlcli.detection.extractor import Extractor, Prepared
from vlcli.detection.jobs import jobs_of, prepare
from vlcli.images.boxes import BoxList, read_boxes
from vlcli.progress import Silent
from vlcli.registry import build

GOAL = 1.10
SUFFIXES = (".jpg", ".jpeg", ".png")


def ready(extractor: Extractor, images: list[tuple[str, Path]], boxes: dict[str, BoxList]) -> list[list[Prepared]]:
    """The batches an extraction would make, decoded."""
    run = _Run(extractor, Silent(), Share(), True)
    made = []
    for batch in run.plan(jobs_of(images, boxes), set(), extractor.batch_size):
        items = [prepare(job, extractor.preparation) for job in batch]
        made.append([item for item in items if isinstance(item, Prepared)])
    return made


@torch.inference_mode()
def forward(network: torch.nn.Module, device: torch.device, batches: list[list[Prepared]]) -> tuple[float, float]:
    """Wall and processor seconds of the network alone: pixels and boxes lie ready on the device."""
    fed = []
    for items in batches:
        pixels = torch.stack([item.pixels for item in items]).to(device).float()
        fed.append((pixels, [item.scaled_boxes().to(device) for item in items]))
    start = clocks()
    for pixels, boxes in fed:
        network(pixels, boxes)
    if device.type == "cuda":
        torch.cuda.synchronize()
    return since(start)


def clocks() -> tuple[float, float]:
    """Wall and processor seconds."""
    return time.perf_counter(), time.process_time()


def since(start: tuple[float, float]) -> tuple[float, float]:
    """Both since ``start``."""
    return time.perf_counter() - start[0], time.process_time() - start[1]


def cut(images: list[tuple[str, Path]], size: int) -> list[list[tuple[str, Path]]]:
    """Parts of ``size`` pictures."""
    return [images[start : start + size] for start in range(0, len(images), size)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pictures", type=Path)
    parser.add_argument("--boxes", type=Path, help="given boxes; without it a grid of 6 x 6")
    parser.add_argument("--arch", default="resnet50")
    parser.add_argument("--head", default="c5")
    parser.add_argument("--count", type=int, default=48)
    parser.add_argument("--part", type=int, default=8, help="pictures a turn")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=0)
    args = parser.parse_args()
    kind = "given" if args.boxes else "grid"
    spec = {"name": "backbone", "arch": args.arch, "head": args.head, "boxes": kind, "limit": 36}
    extractor: Extractor = build("extractors", spec).to(args.device)
    boxes = read_boxes(args.boxes) if args.boxes else {}
    paths = sorted(path for path in args.pictures.rglob("*") if path.suffix.lower() in SUFFIXES)
    images = [(path.stem, path) for path in paths if not boxes or path.stem in boxes][: args.count]
    ours, alone = [], []
    with tempfile.TemporaryDirectory() as name:
        for number, part in enumerate(cut(images, args.part)):
            batches = ready(extractor, list(part), boxes)
            for turn in range(2):  # which goes first alternates
                if (turn + number) % 2:
                    alone.append(forward(extractor.network, extractor.device, batches))
                else:
                    start = clocks()
                    out = Path(name) / f"{number}.h5"
                    extract_images(list(part), extractor, out, boxes=boxes or None, workers=args.workers)
                    ours.append(since(start))
    tell(ours[1:], alone[1:], f"{len(images)} pictures, {args.arch} {args.head}, {args.device}")  # the first warms up


def tell(ours: list[tuple[float, float]], alone: list[tuple[float, float]], what: str) -> None:
    """Print sums and ratios."""
    ratios = [a[0] / b[0] for a, b in zip(ours, alone, strict=True)]
    wall, processor = ([sum(part[kind] for part in parts) for parts in (ours, alone)] for kind in (0, 1))
    print(f"{what}, {torch.get_num_threads()} thread(s)")
    print(f"{'':14} {'wall s':>8} {'processor s':>12}")
    print(f"{'extraction':14} {wall[0]:8.2f} {processor[0]:12.2f}")
    print(f"{'network alone':14} {wall[1]:8.2f} {processor[1]:12.2f}")
    print(f"{'ratio':14} {wall[0] / wall[1]:8.3f} {processor[0] / processor[1]:12.3f}")
    print(f"median part {statistics.median(ratios):.3f} of wall time; the goal is {GOAL}")


if __name__ == "__main__":
    main()
