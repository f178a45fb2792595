"""Scenes to PNG files and exact masks: anti-aliased sprites, cached per size, pasted into small windows."""

import math
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from vlcli.data.shapes.config import PALETTE
from vlcli.data.shapes.world import TURNS, Drawn, Picture, Scene, Shape
from vlcli.progress import Progress
from vlcli.stopping import end_with_parent

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]
OVERSAMPLE = 6
_CHUNK = 64  # pictures that a process draws at a time


class Job(NamedTuple):
    """One picture to write: its scene, its file, and the file of its class mask, if it has one."""

    scene: Scene
    path: Path
    mask: Path | None = None
    classes: tuple[int, ...] = ()


def _polygon(kind: str, r: float) -> list[tuple[float, float]]:
    if kind == "square":
        return [(x * 0.84 * r, y * 0.84 * r) for x, y in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
    if kind == "triangle":
        return [(0, -0.95 * r), (0.87 * r, 0.68 * r), (-0.87 * r, 0.68 * r)]
    if kind == "star":
        steps = [(r if step % 2 == 0 else 0.44 * r, math.pi * step / 5) for step in range(10)]
        return [(length * math.sin(angle), -length * math.cos(angle)) for length, angle in steps]
    if kind == "hexagon":
        return [(r * math.cos(math.pi * step / 3), r * math.sin(math.pi * step / 3)) for step in range(6)]
    if kind == "cross":
        a, b = 0.33 * r, 0.95 * r
        across, down = (-a, a, a, b, b, a, a, -a, -a, -b, -b, -a), (-b, -b, -a, -a, a, a, b, b, a, a, -a, -a)
        return list(zip(across, down, strict=True))
    corners = []  # heart: the classic sixteen-sine-cubed curve
    for t in (2 * math.pi * step / 48 for step in range(48)):
        y = 13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)
        corners.append((16 * math.sin(t) ** 3 * r / 17, -(y + 2) * r / 17))
    return corners


@lru_cache(maxsize=4096)
def sprite(kind: str, radius: int, turn: int) -> Floats:
    """Return the coverage of a shape in its window, in [0, 1], (2 * radius + 3, 2 * radius + 3)."""
    side = 2 * radius + 3
    canvas = Image.new("L", (side * OVERSAMPLE, side * OVERSAMPLE), 0)
    draw = ImageDraw.Draw(canvas)
    middle, r = side * OVERSAMPLE / 2, radius * OVERSAMPLE
    if kind in ("circle", "ring"):
        draw.ellipse((middle - 0.95 * r,) * 2 + (middle + 0.95 * r,) * 2, fill=255)
        if kind == "ring":
            draw.ellipse((middle - 0.5 * r,) * 2 + (middle + 0.5 * r,) * 2, fill=0)
    else:
        angle = math.radians(6 * (turn - TURNS // 2))
        cos, sin = math.cos(angle), math.sin(angle)
        corners = [(middle + x * cos - y * sin, middle + x * sin + y * cos) for x, y in _polygon(kind, r)]
        draw.polygon(corners, fill=255)
    return np.asarray(canvas.reduce(OVERSAMPLE), dtype=np.float32) / np.float32(255)


@lru_cache(maxsize=4)
def _ramps(side: int) -> tuple[Floats, Floats, Floats]:
    ramp = np.linspace(-0.5, 0.5, side, dtype=np.float32)
    rng = np.random.default_rng(112)
    shape = (2 * side, 2 * side, 1)
    grain = rng.integers(-5, 6, shape) * (rng.random(shape) < 0.3)
    return ramp[None, :, None], ramp[:, None, None], grain.astype(np.float32)


def _window(shape: Shape) -> tuple[slice, slice]:
    half = shape.radius + 1
    return slice(shape.y - half, shape.y + half + 1), slice(shape.x - half, shape.x + half + 1)


def pixels(scene: Scene) -> Bytes:
    """Draw a scene (S, S, 3)."""
    side = scene.side
    across, down, grain = _ramps(side)
    canvas = np.asarray(scene.ground, np.float32) + (scene.slope[0] * across + scene.slope[1] * down)  # (S, S, 3)
    for shape in scene.shapes:
        alpha = sprite(shape.look.kind, shape.radius, shape.turn)[:, :, None]  # (h, w, 1)
        colour = np.asarray(PALETTE[shape.look.colour], np.float32) + np.asarray(shape.tint, np.float32)
        patch = canvas[_window(shape)]  # (h, w, 3), a view
        patch += alpha * (colour - patch)
    top, left = scene.grain % side, (scene.grain // side) % side
    canvas += grain[top : top + side, left : left + side]
    return np.clip(canvas, 0, 255).astype(np.uint8)


def geometry(scene: Scene) -> list[Drawn]:
    """Return visible box, area and column-major run lengths (COCO's uncompressed RLE) of every shape.

    A pixel is a shape's where it covers at least half of it and no later shape hides it.
    """
    owner = np.full((scene.side, scene.side), -1, np.int8)
    for index, shape in enumerate(scene.shapes):
        owner[_window(shape)][sprite(shape.look.kind, shape.radius, shape.turn) >= 0.5] = index
    windows = enumerate(map(_window, scene.shapes))
    return [
        _measure(scene.side, rows.start, columns.start, owner[rows, columns] == n) for n, (rows, columns) in windows
    ]


def _measure(side: int, top: int, left: int, mask: npt.NDArray[np.bool_]) -> Drawn:
    ys, xs = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    box = (left + int(xs[0]), top + int(ys[0]), int(xs[-1] - xs[0]) + 1, int(ys[-1] - ys[0]) + 1)
    padded = np.zeros((mask.shape[1], mask.shape[0] + 2), np.int8)
    padded[:, 1:-1] = mask.T
    columns, rows = np.diff(padded, axis=1).nonzero()  # starts and ends alternate inside each column
    counts = np.diff((left + columns) * side + top + rows, prepend=0, append=side * side)
    return Drawn(box, int(mask.sum()), counts.tolist())


def class_mask(scene: Scene, classes: tuple[int, ...]) -> Bytes:
    """Return the class id of every pixel (S, S): 1 for the ground, 0 (unlabelled) where a shape covers it in part."""
    mask = np.ones((scene.side, scene.side), np.uint8)
    for shape, label in zip(scene.shapes, classes, strict=True):
        view = mask[_window(shape)]
        alpha = sprite(shape.look.kind, shape.radius, shape.turn)
        view[alpha > 0.1] = 0
        view[alpha > 0.9] = label
    return mask


def _write(job: Job) -> list[Drawn]:
    options: dict[str, Any] = {"quality": 95} if job.path.suffix == ".jpg" else {"compress_level": 1}
    Image.fromarray(pixels(job.scene)).save(job.path, **options)
    if job.mask is not None:
        Image.fromarray(class_mask(job.scene, job.classes)).save(job.mask, compress_level=1)
    return geometry(job.scene)


def draw_all(jobs: list[Job], progress: Progress, label: str, workers: int = 1) -> Iterator[list[Drawn]]:
    """Write every picture, in processes when ``workers`` > 1, and yield their geometry in order.

    A picture depends on its scene only, so neither order nor worker count changes a byte.
    """
    for folder in dict.fromkeys(path.parent for job in jobs for path in (job.path, job.mask) if path is not None):
        folder.mkdir(parents=True, exist_ok=True)
    with progress.task(label, len(jobs), unit="img") as task:
        for drawn in _mapped(jobs, min(workers, -(-len(jobs) // _CHUNK))):
            task.advance()
            yield drawn


def _mapped(jobs: list[Job], workers: int) -> Iterator[list[Drawn]]:
    if workers <= 1:
        yield from map(_write, jobs)
        return
    with ProcessPoolExecutor(workers, get_context("spawn"), end_with_parent) as pool:
        yield from pool.map(_write, jobs, chunksize=_CHUNK)


def draw_pictures(root: Path, pictures: list[Picture], progress: Progress, label: str, workers: int) -> None:
    """Write ``pictures`` below ``root`` and note their geometry in them."""
    jobs = [Job(picture.scene, root / picture.file) for picture in pictures]
    for picture, drawn in zip(pictures, draw_all(jobs, progress, label, workers), strict=True):
        picture.drawn = drawn
