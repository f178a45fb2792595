"""Samples to a :class:`vlcli.nn.batch.Batch`: unique rows, padding, views that share what they have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vlcli.data.sample import ImageSample, Sample, TextSample
from vlcli.nn.batch import Batch, Concepts, Images, Pixels, Regions, Text, View

CLEAN = "clean"


@dataclass
class Item:
    """One example in all its views.

    Attributes:
        views: sample by view, ``clean`` always.
        seed: a number for (seed, epoch, example).
    """

    views: dict[str, Sample]
    seed: int


def collate(items: Sequence[Item], *, pad_id: int = 0, multiple: int = 1) -> Batch:
    """B examples as one batch.

    In the clean view a text or image that several examples share is one row. A side that no corruption touched in any
    example is the clean view's very object; a touched side has a row of its own for each example.

    Args:
        items: the examples, all with the same views and the same number of images.
        pad_id: fills up shorter texts.
        multiple: text and region lengths are rounded up to a multiple of it.
    """
    clean = [item.views[CLEAN] for item in items]
    base = _clean_view(clean, pad_id, multiple)
    views = {CLEAN: base}
    for name in items[0].views:
        if name != CLEAN:
            views[name] = _changed_view([item.views[name] for item in items], clean, base, pad_id, multiple)
    seeds = torch.tensor([item.seed for item in items], dtype=torch.int64)
    return Batch(views, collate_targets([sample.targets for sample in clean]), [sample.key for sample in clean], seeds)


def _clean_view(samples: list[Sample], pad_id: int, multiple: int) -> View:
    images: dict[int, int] = {}
    kept_images: list[ImageSample] = []
    text_rows, kept_texts = _text_rows([sample.text for sample in samples])
    image_rows = [[_row(images, id(image), image, kept_images) for image in sample.images] for sample in samples]
    text = collate_texts(kept_texts, pad_id, multiple) if kept_texts else None
    stacked = collate_images(kept_images, multiple) if kept_images else None
    return _view(text, stacked, torch.tensor(text_rows), _rows(image_rows), {})


def _text_rows(texts: Sequence[TextSample | None]) -> tuple[list[int], list[TextSample]]:
    """The row of each sentence, and the different sentences; equal ids of two data sets may be different sentences."""
    known: dict[str, list[int]] = {}
    rows: list[int] = []
    kept: list[TextSample] = []
    for text in texts:
        if text is None:
            rows.append(-1)
            continue
        same = known.setdefault(text.key, [])
        row = next((row for row in same if kept[row].ids == text.ids), len(kept)) if same else len(kept)
        if row == len(kept):
            same.append(row)
            kept.append(text)
        rows.append(row)
    return rows, kept


def _row(known: dict[Any, int], key: Any, item: Any, kept: list[Any]) -> int:
    if key not in known:
        known[key] = len(kept)
        kept.append(item)
    return known[key]


def _rows(rows: list[list[int]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.long).reshape(len(rows), -1)  # (B, K)


def _changed_view(samples: list[Sample], clean: list[Sample], base: View, pad_id: int, multiple: int) -> View:
    pairs = list(zip(samples, clean, strict=True))
    marks = {name: _example_mark(samples, name) for name in _names(s.mask_labels.example for s in samples)}
    text, text_rows = base.text, base.text_rows
    if any(_text_touched(*pair) for pair in pairs):
        having = [sample for sample in samples if sample.text is not None]
        text = collate_texts([s.text for s in having if s.text is not None], pad_id, multiple)
        text_rows = _own_rows([sample.text is not None for sample in samples])
        names = _names(sample.mask_labels.text for sample in having)
        marks |= {n: _axis_mark([s.mask_labels.text.get(n) for s in having], text.ids.shape[1], -1) for n in names}
    images, image_rows = base.images, base.image_rows
    if any(_images_touched(*pair) for pair in pairs):
        images = collate_images([image for sample in samples for image in sample.images], multiple)
        image_rows = torch.arange(len(images)).reshape(len(samples), -1)
        marks |= _region_marks(samples, images)
    return _view(text, images, text_rows, image_rows, marks)


def _view(text: Text | None, images: Images | None, text_rows: Tensor, image_rows: Tensor, marks: Any) -> View:
    own = torch.arange(len(text_rows))
    aligned = (
        text is not None
        and images is not None
        and len(text) == len(images) == len(own)
        and image_rows.shape[1] == 1
        and torch.equal(text_rows, own)
        and torch.equal(image_rows[:, 0], own)
    )
    return View(text, images, text_rows, image_rows, aligned, marks)


def _own_rows(present: list[bool]) -> Tensor:
    flags = torch.tensor(present)
    return torch.where(flags, flags.cumsum(0) - 1, -1)


def _text_touched(sample: Sample, clean: Sample) -> bool:
    return bool(sample.mask_labels.text) or _differs(sample.text, clean.text)


def _images_touched(sample: Sample, clean: Sample) -> bool:
    if sample.mask_labels.regions or len(sample.images) != len(clean.images):
        return True
    return any(_differs(image, own) for image, own in zip(sample.images, clean.images, strict=True))


def _differs(one: Any, other: Any) -> bool:
    """Whether a part was replaced: forks share every value with their original until a corruption replaces it."""
    if one is None or other is None or type(one) is not type(other):
        return one is not other
    mine, theirs = one.__dict__, other.__dict__
    return any(mine.get(name) is not value for name, value in theirs.items())


def _names(marks: Any) -> list[str]:
    return list(dict.fromkeys(name for mark in marks for name in mark))


def _example_mark(samples: list[Sample], name: str) -> Tensor:
    given = [sample.mask_labels.example.get(name, -1) for sample in samples]
    return torch.as_tensor(np.asarray(given))


def _axis_mark(given: list[Any], length: int, fill: int) -> Tensor:
    """Marks along pieces or regions, padded: (N, length, ...); rows without a mark are all padding."""
    arrays = [None if mark is None else np.asarray(mark) for mark in given if not isinstance(mark, list)]
    if not arrays:  # lists of numbers or flags, as for pieces: all at once
        flat, mask = _flat(given, length)
        return torch.from_numpy(_spread(flat, mask, False if flat.dtype == bool else fill))
    arrays = [None if mark is None else np.asarray(mark) for mark in given]
    first = next(array for array in arrays if array is not None)
    blank = False if first.dtype == bool else fill
    dtype = np.float32 if first.dtype.kind == "f" else first.dtype if first.dtype == bool else np.int64
    padded = np.full((len(arrays), length, *first.shape[1:]), blank, dtype)
    for row, array in enumerate(arrays):
        if array is not None:
            padded[row, : len(array)] = array
    return torch.from_numpy(padded)


def _flat(lists: Sequence[list[Any]], length: int) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Lists of numbers behind one another, and where they stand in a padded array (N, length)."""
    flat = np.array(list(chain.from_iterable(lists)))
    kind = flat.dtype.kind
    flat = flat if kind == "b" else flat.astype(np.float32 if kind == "f" and flat.size else np.int64)
    return flat, _mask([len(one) for one in lists], length)


def _spread(flat: NDArray[Any], mask: NDArray[np.bool_], fill: Any) -> NDArray[Any]:
    padded = np.full(mask.shape, fill, flat.dtype)
    padded[mask] = flat
    return padded


def _region_marks(samples: list[Sample], images: Images) -> dict[str, Tensor]:
    regions = images.regions.mask.shape[1] if images.regions is not None else 0
    marks: dict[str, Tensor] = {}
    for name in _names(sample.mask_labels.regions for sample in samples):
        given: list[Any] = []
        for sample in samples:
            given += [sample.mask_labels.regions.get(name), *[None] * (len(sample.images) - 1)]
        longest = max(len(mark) for mark in given if mark is not None)
        marks[name] = _axis_mark(given, max(regions, longest), 0)
    return marks


def collate_texts(texts: Sequence[TextSample], pad_id: int = 0, multiple: int = 1) -> Text:
    """N tokenised sentences as (N, T) tensors."""
    counts = [len(text.ids) for text in texts]
    length, total = _up(max(counts), multiple), sum(counts)
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
    """M images in the forms they were loaded in."""
    first = images[0]
    return Images(
        [image.key for image in images],
        collate_regions(images, multiple) if first.features is not None else None,
        collate_pixels(images) if first.pixels is not None else None,
        _concepts(images) if first.concepts else None,
    )


def collate_regions(images: Sequence[ImageSample], multiple: int = 1) -> Regions:
    """Region features, float32, padded to the longest: (M, R, D)."""
    tables = {id(image.row[0]): image.row[0] for image in images if image.row is not None}
    if len(tables) == 1 and all(image.row is not None for image in images):
        found = next(iter(tables.values())).regions(images)
        if found is not None:
            return found  # type: ignore[no-any-return]
    features = [image.features for image in images]
    count = _up(max(1, *(len(array) for array in features if array is not None)), multiple)
    found = {name: pad([image.fields.get(name) for image in images], count, fill) for name, fill in _FIELDS.items()}
    ids = [image.box_ids for image in images]
    return Regions(
        features=_padded(features, count, 0, np.float32),
        boxes=_padded([image.boxes for image in images], count, 0, np.float32),
        mask=torch.from_numpy(_mask([len(array) for array in features if array is not None], count)),
        sizes=_sizes(images),
        box_ids=[names or [] for names in ids] if any(ids) else None,
        **found,
    )


_FIELDS = {
    "classes": -1,
    "class_scores": 0,
    "attributes": -1,
    "attribute_scores": 0,
    "class_probs": 0,
}


def pad(given: Sequence[NDArray[Any] | None], count: int, fill: int) -> Tensor | None:
    """Arrays (R, ...) as (M, count, ...), None where an image lacks the field."""
    if any(array is None for array in given):
        return None
    kind = next(array for array in given if array is not None).dtype.kind
    return _padded(given, count, fill, np.float32 if kind == "f" else np.int64)


def _padded(arrays: Sequence[NDArray[Any] | None], count: int, fill: int, dtype: Any) -> Tensor:
    first = next(array for array in arrays if array is not None)
    padded = np.empty((len(arrays), count, *first.shape[1:]), dtype)
    for row, array in enumerate(arrays):
        rows = 0 if array is None else len(array)
        padded[row, :rows] = array
        padded[row, rows:] = fill
    return torch.from_numpy(padded)


def _mask(counts: list[int], length: int) -> NDArray[np.bool_]:
    mask: NDArray[np.bool_] = np.arange(length)[None] < np.asarray(counts)[:, None]
    return mask


def _sizes(images: Sequence[ImageSample]) -> Tensor:
    return torch.tensor([list(image.size) for image in images], dtype=torch.long)


def collate_pixels(images: Sequence[ImageSample]) -> Pixels:
    """Pixels (M, 3, H, W); pictures of different sizes are padded at the right and bottom, with a mask."""
    arrays = [image.pixels for image in images if image.pixels is not None]
    sides = np.array([array.shape[1:] for array in arrays])
    height, width = sides.max(0).tolist()
    if (sides == sides[0]).all():
        stacked, mask = torch.from_numpy(np.stack(arrays)), None
    else:
        canvas = np.zeros((len(arrays), 3, height, width), np.float32)
        real = np.zeros((len(arrays), height, width), bool)
        for row, array in enumerate(arrays):
            canvas[row, :, : array.shape[1], : array.shape[2]] = array
            real[row, : array.shape[1], : array.shape[2]] = True
        stacked, mask = torch.from_numpy(canvas), torch.from_numpy(real)
    return Pixels(stacked, _sizes(images), mask, label_map=_label_maps(images, height, width), **_pixel_boxes(images))


def _label_maps(images: Sequence[ImageSample], height: int, width: int) -> Tensor | None:
    maps = [image.label_map for image in images]
    if all(array is None for array in maps):
        return None
    canvas = np.full((len(maps), height, width), -1, np.int64)
    for row, array in enumerate(maps):
        if array is not None:
            canvas[row, : array.shape[0], : array.shape[1]] = array
    return torch.from_numpy(canvas)


def _pixel_boxes(images: Sequence[ImageSample]) -> dict[str, Tensor | None]:
    boxes = [image.boxes for image in images]
    if all(array is None for array in boxes):
        return {}
    counts = [0 if array is None else len(array) for array in boxes]
    count = max(1, *counts)
    return {
        "boxes": _padded(boxes, count, 0, np.float32),
        "box_mask": torch.from_numpy(_mask(counts, count)),
        "classes": _labels([image.fields.get("classes") for image in images], count),
        "attributes": _labels([image.fields.get("attributes") for image in images], count),
    }


def _labels(given: list[NDArray[Any] | None], count: int) -> Tensor | None:
    return None if all(array is None for array in given) else _padded(given, count, -1, np.int64)


def _concepts(images: Sequence[ImageSample]) -> Concepts:
    counts = [len(image.concepts["ids"]) for image in images]
    count = max(1, *counts)
    ranks = torch.arange(count).expand(len(images), count).clone()
    ids = _padded([image.concepts["ids"] for image in images], count, 0, np.int64)
    scores = _padded([image.concepts["scores"] for image in images], count, 0, np.float32)
    hidden = None
    if any("hidden" in image.concepts for image in images):
        given = [image.concepts.get("hidden", np.zeros(n, bool)) for image, n in zip(images, counts, strict=True)]
        hidden = _padded(given, count, 0, np.bool_)
    return Concepts(ids, scores, ranks, torch.from_numpy(_mask(counts, count)), hidden)


def collate_targets(targets: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Targets by name: a tensor (B, ...) where all examples have numbers of one shape, else a list (None: lacking)."""
    names = list(dict.fromkeys(name for target in targets for name in target))
    return {name: _target([target.get(name) for target in targets]) for name in names}


def _target(given: list[Any]) -> Any:
    if not all(isinstance(item, bool | int | float | np.ndarray | np.generic) for item in given):
        return given
    arrays = [np.asarray(item) for item in given]
    if any(array.shape != arrays[0].shape or array.dtype.kind not in "biuf" for array in arrays):
        return given
    stacked = np.stack(arrays)
    return torch.from_numpy(stacked.astype(np.float32) if stacked.dtype.kind == "f" else stacked)


def _up(length: int, multiple: int) -> int:
    return -(-length // multiple) * multiple
