"""Average precision of boxes, as COCO's own evaluation computes it."""

import contextlib
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vlcli.errors import ComponentError

INSTALL = "pip install 'vlcli[coco]'"
AREAS = ("all", "small", "medium", "large")
LIMITS = (1, 10, 100)  # most detections of a picture that count, in the three recalls; average precision takes the last


def average_precision(
    truth: Mapping[str, list[dict[str, Any]]], detections: Sequence[Mapping[str, Any]]
) -> dict[str, float]:
    """Return COCO's average precision of boxes (Lin et al. 2014; pycocotools).

    Args:
        truth: a COCO instances document; ``area`` and ``iscrowd`` may be missing.
        detections: COCO results: ``image_id``, ``category_id``, ``bbox`` (x, y, width, height), ``score``.

    Returns:
        ``AP`` (mean over the thresholds .50 to .95), ``AP50``, ``AP75``, ``APs``, ``APm``, ``APl`` (areas below 32²,
        below 96² and above), ``AR1``, ``AR10``, ``AR100``, ``AP/CLASS``; those that no true box decides are left out.

    Raises:
        ComponentError: pycocotools is not installed.
    """
    try:
        from pycocotools.coco import COCO
        from pycocotools.cocoeval import COCOeval
    except ImportError as error:
        raise ComponentError("Average precision needs pycocotools.", got=str(error), hint=INSTALL) from None
    with contextlib.redirect_stdout(io.StringIO()):
        pair = (_indexed(COCO(), truth, notes) for notes in (truth["annotations"], detections))
        evaluated = COCOeval(*pair, "bbox")
        evaluated.params.maxDets = list(LIMITS)
        evaluated.evaluate()
        evaluated.accumulate()
    precision, recall = evaluated.eval["precision"], evaluated.eval["recall"]  # (T, R, K, A, M), (T, K, A, M)
    steps = evaluated.params.iouThrs
    all_sizes = precision[:, :, :, 0, -1]  # (T, R, K)
    means = {"AP": all_sizes}
    means |= {f"AP{round(100 * value)}": all_sizes[np.isclose(steps, value)] for value in (0.5, 0.75)}
    means |= {f"AP{name[0]}": precision[:, :, :, AREAS.index(name), -1] for name in AREAS[1:]}
    means |= {f"AR{limit}": recall[:, :, 0, number] for number, limit in enumerate(LIMITS)}
    names = {row["id"]: str(row.get("name", row["id"])) for row in truth["categories"]}
    rows = np.array([names[key] for key in evaluated.params.catIds])  # categories of one name are one row
    means |= {f"AP/{name}": all_sizes[:, :, rows == name] for name in rows.tolist()}
    return {name: float(values[values > -1].mean()) for name, values in means.items() if (values > -1).any()}


def _indexed(coco: Any, truth: Mapping[str, list[dict[str, Any]]], notes: Sequence[Mapping[str, Any]]) -> Any:
    rows = [
        {"area": note["bbox"][2] * note["bbox"][3], "iscrowd": 0, **note, "id": number}
        for number, note in enumerate(notes, 1)
    ]
    coco.dataset = {"images": truth["images"], "categories": truth["categories"], "annotations": rows}
    coco.createIndex()
    return coco
