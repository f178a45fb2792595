"""Collates samples into a :class:`vlcli.nn.batch.Batch`: unique rows, padding, views that share their parts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import default_collate

from vlcli.data.inputs import FILLS
from vlcli.data.sample import ImageSample, Sample, TextSample
from vlcli.nn.batch import Batch, Concepts, Images, Pixels, Regions, Text, View

CLEAN = "clean"


@dataclass
class Item:
    """One example: its sample by view, ``clean`` always, and a number for (seed, epoch, example)."""

    views: dict[str, Sample]
    seed: int


def collate(items: Sequence[Item], *, pad_id: int = 0, multiple: int = 1) -> Batch:
    """Collate B examples with the same views and the same number of images into one batch.

    In the clean view, a text or image of several examples is one row. A side that no corruption touched in any example
    is the clean view's very object; a touched side has a row for each example.
    """
    clean = [item.views[CLEAN] for item in items]
    base = _clean_view(clean, pad_id, multiple)
    views = {CLEAN: base}
    for name in (name for name in items[0].views if name != CLEAN):
        views[name] = _changed_view([item.views[name] for item in items], clean, base, pad_id, multiple)
    seeds = torch.tensor([item.seed for item in items], dtype=torch.int64)
    return Batch(views, collate_targets([sample.targets for sample in clean]), [sample.key for sample in clean], seeds)


def _clean_view(samples: list[Sample], pad_id: int, multiple: int) -> View:
    text_rows, texts = _text_rows([sample.text for sample in samples])
    every = [image for sample in samples for image in sample.images]
    unique = {id(image): image for image in every}
    row_of = {key: row for row, key in enumerate(unique)}
    return _view(
        collate_texts(texts, pad_id, multiple) if texts else None,
        collate_images(list(unique.values()), multiple) if unique else None,
        torch.tensor(text_rows),  # (B,)
        torch.tensor([row_of[id(image)] for image in every], dtype=torch.long).reshape(len(samples), -1),  # (B, K)
        {},
    )


def _text_rows(texts: Sequence[TextSample | None]) -> tuple[list[int], list[TextSample]]:
    known: dict[str, list[int]] = {}
    rows: list[int] = []
    kept: list[TextSample] = []
    for text in texts:
        if text is None:
            rows.append(-1)
            continue
        same = known.setdefault(text.key, [])
        rows.append(next((row for row in same if kept[row].ids == text.ids), len(kept)))
        if rows[-1] == len(kept):
            same.append(len(kept))
            kept.append(text)
    return rows, kept


def _changed_view(samples: list[Sample], clean: list[Sample], base: View, pad_id: int, multiple: int) -> View:
    pairs = list(zip(samples, clean, strict=True))
    marks = {
        name: torch.as_tensor(np.asarray([sample.mask_labels.example.get(name, -1) for sample in samples]))
        for name in _names(sample.mask_labels.example for sample in samples)
    }
    text, text_rows = base.text, base.text_rows
    if any(sample.mask_labels.text or _differs(sample.text, its_clean.text) for sample, its_clean in pairs):
        text = collate_texts([sample.text for sample in samples if sample.text is not None], pad_id, multiple)
        present = torch.tensor([sample.text is not None for sample in samples])
        text_rows = torch.where(present, present.cumsum(0) - 1, -1)
        labels = [sample.mask_labels.text for sample in samples if sample.text is not None]
        marks |= {name: _axis_mark([one.get(name) for one in labels], text.ids.shape[1], -1) for name in _names(labels)}
    images, image_rows = base.images, base.image_rows
    if any(_images_touched(*pair) for pair in pairs):
        images = collate_images([image for sample in samples for image in sample.images], multiple)
        image_rows = torch.arange(len(images)).reshape(len(samples), -1)
        marks |= _region_marks(samples, images)
    return _view(text, images, text_rows, image_rows, marks)


def _view(text: Text | None, images: Images | None, text_rows: Tensor, image_rows: Tensor, marks: Any) -> View:
    in_order = torch.arange(len(text_rows))
    aligned = (
        text is not None
        and images is not None
        and len(text) == len(images) == len(in_order)
        and torch.equal(text_rows, in_order)
        and torch.equal(image_rows, in_order[:, None])
    )
    return View(text, images, text_rows, image_rows, aligned, marks)


def _images_touched(sample: Sample, clean: Sample) -> bool:
    other = len(sample.images) != len(clean.images)
    return bool(sample.mask_labels.regions) or other or any(map(_differs, sample.images, clean.images))


def _differs(one: Any, other: Any) -> bool:
    if one is None or other is None or type(one) is not type(other):
        return one is not other
    return any(vars(one).get(name) is not value for name, value in vars(other).items())


def _names(marks: Iterable[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(chain.from_iterable(marks)))


def _axis_mark(marks: list[Any], length: int, fill: int) -> Tensor:
    """Pad marks along pieces or regions to (N, length, ...); rows without a mark are all padding."""
    if all(isinstance(mark, list) for mark in marks):  # of numbers or flags, as for pieces: all at once
        flat = np.array(list(chain.from_iterable(marks)))
        kind = flat.dtype.kind
        flat = flat if kind == "b" else flat.astype(np.float32 if kind == "f" and flat.size else np.int64)
        mask = _mask([len(mark) for mark in marks], length)
        padded = np.full(mask.shape, False if kind == "b" else fill, flat.dtype)
        padded[mask] = flat
        return torch.from_numpy(padded)
    arrays = [None if mark is None else np.asarray(mark) for mark in marks]
    first = next(array for array in arrays if array is not None)
    dtype = {"f": np.float32, "b": np.bool_}.get(first.dtype.kind, np.int64)
    return _padded(arrays, (length,), False if dtype is np.bool_ else fill, dtype)


def _region_marks(samples: list[Sample], images: Images) -> dict[str, Tensor]:
    count = images.regions.mask.shape[1] if images.regions is not None else 0
    marks: dict[str, Tensor] = {}
    # of each image, the labels by name: those of a sample are its first image's
    labels = [label for one in samples for label in (one.mask_labels.regions, *[{}] * (len(one.images) - 1))]
    for name in _names(labels):
        rows = [label.get(name) for label in labels]
        marks[name] = _axis_mark(rows, max(count, *(len(mark) for mark in rows if mark is not None)), 0)
    return marks


def collate_texts(texts: Sequence[TextSample], pad_id: int = 0, multiple: int = 1) -> Text:
    """Pad N tokenised sentences to (N, T) tensors."""
    counts = [len(text.ids) for text in texts]
    length, total = _rounded_up(max(counts), multiple), sum(counts)
    mask = _mask(counts, length)
    ids, words, special = np.full(mask.shape, pad_id, np.int64), np.full(mask.shape, -1, np.int64), np.zeros_like(mask)
    ids[mask] = np.fromiter(chain.from_iterable([text.ids for text in texts]), np.int64, total)
    words[mask] = np.fromiter(chain.from_iterable([text.words for text in texts]), np.int64, total)
    special[mask] = np.fromiter(chain.from_iterable([text.special for text in texts]), bool, total)
    causal = torch.tensor([text.causal for text in texts]) if any(text.causal for text in texts) else None
    return Text(
        torch.from_numpy(ids),
        torch.from_numpy(mask),
        torch.from_numpy(special),
        torch.from_numpy(words),
        causal=causal,
        keys=[text.key for text in texts],
        raw=[text.raw for text in texts],
    )


def collate_images(images: Sequence[ImageSample], multiple: int = 1) -> Images:
    """Collate M images in the forms they were loaded in."""
    first = images[0]
    return Images(
        [image.key for image in images],
        collate_regions(images, multiple) if first.features is not None else None,
        collate_pixels(images) if first.pixels is not None else None,
        _concepts(images) if first.concepts else None,
    )


def collate_regions(images: Sequence[ImageSample], multiple: int = 1) -> Regions:
    """Pad region features to the longest: (M, R, D) float32."""
    tables = {id(image.row[0]): image.row[0] for image in images if image.row is not None}
    if len(tables) == 1 and all(image.row is not None for image in images):
        regions: Regions | None = next(iter(tables.values())).regions(images)
        if regions is not None:
            return regions
    features = [image.features for image in images]
    counts = [len(array) for array in features if array is not None]
    count = _rounded_up(max(1, *counts), multiple)
    ids = [image.box_ids for image in images]
    return Regions(
        features=_padded(features, (count,), 0, np.float32),
        boxes=_padded([image.boxes for image in images], (count,), 0, np.float32),
        mask=torch.from_numpy(_mask(counts, count)),
        sizes=_sizes(images),
        box_ids=[names or [] for names in ids] if any(ids) else None,
        **{name: pad([image.fields.get(name) for image in images], count, fill) for name, fill in FILLS.items()},
    )


def pad(arrays: Sequence[NDArray[Any] | None], count: int, fill: int) -> Tensor | None:
    """Pad arrays (R, ...) to (M, count, ...); None where an image lacks the field."""
    present = [array for array in arrays if array is not None]
    if len(present) < len(arrays):
        return None
    return _padded(present, (count,), fill, np.float32 if present[0].dtype.kind == "f" else np.int64)


def _padded(arrays: Sequence[NDArray[Any] | None], sides: tuple[int, ...], fill: int, dtype: Any) -> Tensor:
    """Pad the first axes of arrays to ``sides`` and stack them; a row without an array is all padding."""
    first = next(array for array in arrays if array is not None)
    padded = np.zeros((len(arrays), *sides, *first.shape[len(sides) :]), dtype)
    if fill:
        padded.fill(fill)
    for row, array in zip(padded, arrays, strict=True):
        if array is not None:
            row[tuple(map(slice, array.shape[: len(sides)]))] = array
    return torch.from_numpy(padded)


def _mask(counts: list[int], length: int) -> NDArray[np.bool_]:
    return np.arange(length)[None] < np.asarray(counts)[:, None]


def _sizes(images: Sequence[ImageSample]) -> Tensor:
    return torch.tensor([list(image.size) for image in images], dtype=torch.long)


def collate_pixels(images: Sequence[ImageSample]) -> Pixels:
    """Stack pixels (M, 3, H, W); pictures of different sizes are padded at the right and bottom, with a mask."""
    arrays = [image.pixels for image in images if image.pixels is not None]
    sides = np.array([array.shape[1:] for array in arrays])
    height, width = sides.max(0).tolist()
    mask = None
    if (sides == sides[0]).all():
        stacked = default_collate(list(map(torch.from_numpy, arrays)))  # in a worker into memory that it shares
    else:
        stacked = _padded(arrays, (3, height, width), 0, np.float32)
        mask = _padded([np.ones(array.shape[1:], bool) for array in arrays], (height, width), 0, np.bool_)
    labels = _optional([image.label_map for image in images], (height, width))
    return Pixels(stacked, _sizes(images), mask, label_map=labels, **_pixel_boxes(images))


def _optional(labels: Sequence[NDArray[Any] | None], sides: tuple[int, ...]) -> Tensor | None:
    return None if all(array is None for array in labels) else _padded(labels, sides, -1, np.int64)


def _pixel_boxes(images: Sequence[ImageSample]) -> dict[str, Tensor | None]:
    boxes = [image.boxes for image in images]
    if all(array is None for array in boxes):
        return {}
    counts = [0 if array is None else len(array) for array in boxes]
    count = max(1, *counts)
    labels = {name: [image.fields.get(name) for image in images] for name in ("classes", "attributes")}
    return {
        "boxes": _padded(boxes, (count,), 0, np.float32),
        "box_mask": torch.from_numpy(_mask(counts, count)),
        **{name: _optional(arrays, (count,)) for name, arrays in labels.items()},
    }


def _concepts(images: Sequence[ImageSample]) -> Concepts:
    counts = [len(image.concepts["ids"]) for image in images]
    count = max(1, *counts)
    ranks = torch.arange(count).expand(len(images), count).clone()
    ids = _padded([image.concepts["ids"] for image in images], (count,), 0, np.int64)
    scores = _padded([image.concepts["scores"] for image in images], (count,), 0, np.float32)
    hidden = None
    if any("hidden" in image.concepts for image in images):
        hidden = _padded([image.concepts.get("hidden") for image in images], (count,), 0, np.bool_)
    return Concepts(ids, scores, ranks, torch.from_numpy(_mask(counts, count)), hidden)


def collate_targets(targets: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Collate targets by name: a tensor (B, ...) of numbers of one shape, else a list with None for absent ones."""
    return {name: _target([target.get(name) for target in targets]) for name in _names(targets)}


def _target(values: list[Any]) -> Any:
    if not all(isinstance(item, bool | int | float | np.ndarray | np.generic) for item in values):
        return values
    arrays = [np.asarray(item) for item in values]
    if any(array.shape != arrays[0].shape or array.dtype.kind not in "biuf" for array in arrays):
        return values
    stacked = np.stack(arrays)
    return torch.from_numpy(stacked.astype(np.float32) if stacked.dtype.kind == "f" else stacked)


def _rounded_up(length: int, multiple: int) -> int:
    return -(-length // multiple) * multiple
