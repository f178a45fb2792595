"""Batches of zeros in the shapes that a model reads, and models on the meta device: to count, try a step, export."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from vlcli.nn.batch import Batch, Concepts, Images, Pixels, Regions, Text, View
from vlcli.nn.model import DataSpec, InputSpec

T = TypeVar("T")


def without_memory(make: Callable[[], T]) -> T:
    """Call ``make`` on the meta device; with memory if its construction reads values."""
    try:
        with torch.device("meta"), _Undrawn():
            return make()
    except RuntimeError as error:  # NotImplementedError is one
        if "meta" not in str(error):
            raise
        return make()


class _Undrawn(TorchFunctionMode):
    # torch would draw for tensors of the meta device in Python, as slowly as for large ones, and import its compiler.

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensor = args[0] if args else (kwargs or {}).get("tensor")
        if getattr(func, "__module__", "") == "torch.nn.init" and isinstance(tensor, Tensor) and tensor.is_meta:
            return tensor
        return func(*args, **(kwargs or {}))


_DEFAULT_SIZE = (224, 224)  # height and width for models that take any


def fake_text(data_spec: DataSpec, rows: int = 1, device: torch.device | str = "cpu") -> Text:
    """Make sentences of the full length: a class token, unknown pieces, a separator."""
    length = data_spec.text_length
    ids = torch.full((rows, length), data_spec.unk_id, device=device)
    ids[:, 0], ids[:, -1] = data_spec.cls_id, data_spec.sep_id
    index = torch.arange(length, device=device).expand(rows, length)
    special = (index == 0) | (index == length - 1)
    real = torch.ones(rows, length, dtype=torch.bool, device=device)
    keys = [f"text-{row}" for row in range(rows)]
    return Text(ids, real, special, (index - 1).masked_fill(special, -1), keys=keys, raw=["" for _ in keys])


def fake_images(needs: InputSpec, data_spec: DataSpec, rows: int = 1, device: torch.device | str = "cpu") -> Images:
    """Make pictures in every form of ``needs``."""
    regions = fake_regions(data_spec, rows, device, needs.grid) if needs.regions else None
    pixels = _pixels(needs, data_spec, rows, device) if needs.pixels else None
    concepts = _concepts(rows, device) if needs.concepts else None
    return Images([f"image-{row}" for row in range(rows)], regions, pixels, concepts)


def fake_regions(
    data_spec: DataSpec, rows: int = 1, device: torch.device | str = "cpu", grid: tuple[int, int] | None = None
) -> Regions:
    """Make regions that each cover the whole picture, or the cells of ``grid`` (rows, columns)."""
    count = data_spec.regions if grid is None else grid[0] * grid[1]
    flat = torch.zeros(rows, count, dtype=torch.long, device=device)
    sure = torch.ones(rows, count, device=device)
    features = torch.zeros(rows, count, data_spec.region_dim, device=device)
    boxes = _cells(grid or (1, 1), device).expand(rows, count, 4)
    sizes = torch.full((rows, 2), _DEFAULT_SIZE[0], device=device)
    return Regions(features, boxes, sure.bool(), sizes, flat, sure, flat, sure)


def fake_batch(
    needs: InputSpec, data_spec: DataSpec, rows: int = 2, images: int = 1, device: torch.device | str = "cpu"
) -> Batch:
    """Make ``rows`` examples of one sentence and ``images`` pictures each."""
    order = torch.arange(rows, device=device)
    text = fake_text(data_spec, rows, device) if needs.text else None
    seen = fake_images(needs, data_spec, rows * images, device)
    pictures = torch.arange(rows * images, device=device).reshape(rows, images)
    view = View(text, seen, order, pictures, aligned=images == 1)
    return Batch({"clean": view}, {}, [str(row) for row in range(rows)], order)


def _cells(grid: tuple[int, int], device: torch.device | str) -> torch.Tensor:
    # (rows * columns, 4) in row-major order, as shares of the picture
    y, x = torch.cartesian_prod(*(torch.arange(count, device=device) / count for count in grid)).unbind(1)
    return torch.stack([x, y, x + 1 / grid[1], y + 1 / grid[0]], -1)


def _pixels(needs: InputSpec, data_spec: DataSpec, rows: int, device: torch.device | str) -> Pixels:
    height, width = needs.size or _DEFAULT_SIZE
    images = torch.zeros(rows, 3, height, width, device=device)
    sizes = torch.tensor([[height, width]], device=device).expand(rows, 2)
    if not needs.boxes:
        return Pixels(images, sizes)
    flat = torch.zeros(rows, data_spec.regions, dtype=torch.long, device=device)
    boxes = _cells((1, 1), device).expand(rows, data_spec.regions, 4)
    return Pixels(images, sizes, None, boxes, flat == 0, flat, flat)


def _concepts(rows: int, device: torch.device | str, count: int = 20) -> Concepts:
    ids = torch.zeros(rows, count, dtype=torch.long, device=device)
    ranks = torch.arange(count, device=device).expand(rows, count)
    return Concepts(ids, torch.ones(rows, count, device=device), ranks, torch.ones_like(ids, dtype=torch.bool))
