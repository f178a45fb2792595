"""What keeping decoded images saves: images a second from file to array, beside decoding them in every epoch.

    python benchmarks/decoded.py [--images 400] [--side 80] [--rounds 7]

PNG files of drawn shapes, as the generated data sets have them. Both readings take turns, so that a busy machine slows
both; processor time is counted. Nothing outside a temporary folder is touched.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from vlcli.data import Example, Reader
from vlcli.data.pictures import DecodedImages, Pictures
from vlcli.data.sample import ImageSample
from vlcli.data.shapes import ShapesConfig, make_shapes
from vlcli.nn.model import InputSpec
from vlcli.progress import Silent


class Folder(Reader):
    """A folder of images."""

    def files(self) -> list[Path]:
        """None besides the images."""
        return []

    def read(self) -> list[Example]:
        """One example an image."""
        return [Example(name, None, [name]) for name in self.image_files()]

    def image_files(self) -> dict[str, Path]:
        """Every image below the root."""
        return {path.relative_to(self.root).as_posix(): path for path in sorted(self.root.rglob("*.png"))}


def seconds(pictures: Pictures, names: list[str]) -> float:
    """Processor time of one epoch."""
    began = time.process_time()
    for name in names:
        pictures.fill(ImageSample(name, (0, 0)), None)
    return time.process_time() - began


def main() -> None:
    """Print both rates and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=400)
    parser.add_argument("--side", type=int, default=80)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        made = ShapesConfig(size=given.side, parts=("imagenet",), imagenet=given.images, images=20)
        make_shapes(root, made, Silent())
        needs = InputSpec(pixels=True, size=(given.side, given.side))
        kept, anew = Pictures([Folder(root)], needs, None), Pictures([Folder(root)], needs, None)
        anew._decoded = DecodedImages(0)
        names = list(kept.files)
        seconds(kept, names)  # the first epoch decodes
        times = [(seconds(kept, names), seconds(anew, names)) for _ in range(given.rounds)]
    fast, slow = (statistics.median(column) for column in zip(*times, strict=True))
    print(f"{len(names)} images of {given.side} x {given.side} pixels, one core")
    print(
        f"kept {len(names) / fast:,.0f} images a second, decoded anew {len(names) / slow:,.0f}: ratio {slow / fast:.2f}"
    )


if __name__ == "__main__":
    main()
