"""Heat maps of numbers of image tokens; scores of boxes and points by them."""

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from vlcli.nn import Batch, Layout, Recorder
from vlcli.nn.saliency import WordMaps, image_maps, word_maps
from vlcli.tasks.base import Runner
from vlcli.tasks.outputs import logits_of

Heat = NDArray[np.float32]


def matching_maps(
    runner: Runner, batch: Batch, objective: str, layer: str | None, head: int | None, where: str
) -> WordMaps:
    """Return Grad-CAM of each example's score for a match, by word (ALBEF's ``itm``)."""
    with torch.enable_grad():
        step = runner.step(batch, Recorder(gradients=True))
        logits = logits_of(runner.predict(step), objective)
        return word_maps(step, logits.flatten(1)[:, -1], layer=layer, head=head, where=where)


def contrast_maps(
    runner: Runner, batch: Batch, objective: str, layer: str | None, head: int | None, where: str
) -> tuple[Tensor, Layout]:
    """Return Grad-CAM (B, R) of each example's cosine of text and picture (ALBEF's ``itc``), and the layout."""
    with torch.enable_grad():
        step = runner.step(batch, Recorder(gradients=True))
        outputs = runner.predict(step)
        text, image = (logits_of(outputs, objective, f"{side}_embedding") for side in ("text", "image"))
        return image_maps(step, (text * image).sum(1), layer=layer, head=head, where=where)


def heat_map(values: Tensor, layout: Layout, row: int, size: tuple[int, int]) -> Heat:
    """Return a map (height, width) of the values (R,) of one picture's tokens.

    A grid is enlarged by bicubic interpolation. Of regions, a pixel has the highest number that covers it.
    """
    row = 0 if len(layout.valid) == 1 else row
    placed = _placed(layout, row)
    kept = values[placed].float().cpu()
    if layout.boxes is None and layout.grid is not None:
        cells = kept.view(1, 1, *layout.grid)
        return np.asarray(F.interpolate(cells, size=size, mode="bicubic", align_corners=False)[0, 0])
    assert layout.boxes is not None
    painted = np.full(size, kept.numpy().min(initial=0), np.float32)
    corners = layout.boxes[row][placed].float().cpu() * torch.tensor([size[1], size[0]] * 2)
    for value, (left, top, right, bottom) in zip(kept.tolist(), corners.round().int().tolist(), strict=True):
        area = painted[max(top, 0) : max(bottom, top + 1), max(left, 0) : max(right, left + 1)]
        np.maximum(area, value, out=area)
    return painted


def hottest(values: Tensor, layout: Layout, row: int, size: tuple[int, int]) -> tuple[float, float]:
    """Return x and y in pixels of the centre of the image token with the largest value.

    The enlarged map may be higher elsewhere: its curves rise beyond the cells at the picture's border.
    """
    row = 0 if len(layout.valid) == 1 else row
    best = int(values.float().masked_fill(~_placed(layout, row), -torch.inf).argmax())
    down, across = layout.centre[row, best].tolist()
    if layout.boxes is None and layout.grid is not None:
        down, across = (down + 0.5) / layout.grid[0], (across + 0.5) / layout.grid[1]
    return across * size[1], down * size[0]


def _placed(layout: Layout, row: int) -> Tensor:
    # (R,) bool: tokens that lie somewhere on the picture
    return layout.valid[row] & ~layout.special[row] & ~layout.centre[row, :, 0].isnan()


def box_heat(heat: Heat, boxes: NDArray[np.float32], power: float) -> NDArray[np.float64]:
    """Return the sum (N,) of a map inside each box (N, 4: x1 y1 x2 y2 in pixels) over its area to a ``power``.

    Whole pixels between rounded-down corners are summed, as in ALBEF's code; the area is that before rounding.
    """
    sums = np.zeros((heat.shape[0] + 1, heat.shape[1] + 1))
    sums[1:, 1:] = heat.astype(np.float64).cumsum(0).cumsum(1)
    left, top, right, bottom = (np.clip(boxes[:, k].astype(int), 0, heat.shape[1 - k % 2]) for k in range(4))
    right, bottom = np.maximum(right, left), np.maximum(bottom, top)
    inside = sums[bottom, right] - sums[top, right] - sums[bottom, left] + sums[top, left]
    area = np.maximum((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]), 1e-6).astype(np.float64)
    return np.asarray(inside / area**power)


def overlaps(box: NDArray[np.float32], boxes: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the intersection over union (N,) of a box (4,) with boxes (N, 4)."""
    from torchvision.ops import box_iou

    return np.asarray(box_iou(torch.as_tensor(box).double()[None], torch.as_tensor(boxes).double())[0])
