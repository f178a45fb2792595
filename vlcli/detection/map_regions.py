"""Makes regions of the cells of a feature map."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vlcli.detection.extractor import Prepared
from vlcli.features.schema import Record


@dataclass(frozen=True)
class MapGeometry:
    """Position of a map's cells in the input of a network."""

    stride: tuple[float, float]  # height and width of a cell in pixels of the input
    scale: tuple[float, float]  # (x, y) factors from pixels of the original picture to pixels of the resized one
    # (x, y) of the input's first pixel in the resized picture: above 0 where its borders were cropped, below 0 where
    # they were padded
    offset: tuple[float, float] = (0.0, 0.0)


def cell_boxes(
    size: tuple[int, int], cells: tuple[int, int], geometry: MapGeometry
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return the boxes of a map's cells, row by row, and which of them show any of the picture.

    Args:
        size: height and width of the original picture in pixels.
        cells: rows and columns of the map.
        geometry: position of the cells.

    Returns:
        x1 y1 x2 y2 in pixels of the original picture, cut at its borders (rows * columns, 4); False for cells that lie
        in padding alone (rows * columns,).
    """
    (height, width), (down, across) = size, geometry.stride
    y = (np.arange(cells[0] + 1) * down + geometry.offset[1]) / geometry.scale[1]
    x = (np.arange(cells[1] + 1) * across + geometry.offset[0]) / geometry.scale[0]
    y, x = y.clip(0, height), x.clip(0, width)
    top, left = np.meshgrid(y[:-1], x[:-1], indexing="ij")
    bottom, right = np.meshgrid(y[1:], x[1:], indexing="ij")
    boxes = np.stack([left, top, right, bottom], -1).reshape(-1, 4).astype(np.float32)
    return boxes, (boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])


def cell_record(item: Prepared, rows: Tensor, geometry: MapGeometry) -> Record:
    """Return the record of a picture whose regions are the cells of ``rows`` (h, w, D), row by row; cells that show
    padding alone are left out.
    """
    boxes, seen = cell_boxes(item.size, (rows.shape[0], rows.shape[1]), geometry)
    features: NDArray[np.float32] = rows.flatten(0, 1).float().cpu().numpy()
    return Record(id=item.id, features=features[seen], boxes=boxes[seen], size=item.size)
