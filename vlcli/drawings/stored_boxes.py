"""The stored boxes of pictures, drawn on them."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from vlcli.errors import DataError
from vlcli.features.reader import FeatureStore
from vlcli.features.schema import Record
from vlcli.features.writer import written_whole
from vlcli.images.files import BadImageError, open_image
from vlcli.progress import Progress, Silent
from vlcli.report.drawing import draw_boxes
from vlcli.report.refuse_overwrite import refuse_others


def draw_stored(
    store: FeatureStore,
    pictures: Sequence[str | Path],
    folder: str | Path,
    *,
    limit: int | None = None,
    least: float = 0.0,
    classes: Sequence[str] = (),
    attributes: Sequence[str] = (),
    force: bool = False,
    progress: Progress | None = None,
) -> list[Path]:
    """Draw the boxes of pictures with their labels and scores, where the store has them.

    Args:
        store: the boxes.
        pictures: image files, found in the store by their name or by the number it ends in.
        folder: where ``ID.png`` of each goes.
        limit: most boxes, by score; in the store's order where there are none.
        least: lowest score drawn.
        classes: names of the classes; by default the store's own, else their numbers.
        attributes: names of the attributes, likewise.
        force: replace other pictures of these names.
        progress: where to report.

    Returns:
        The files.

    Raises:
        DataError: a picture cannot be read, or the store lacks it.
        UsageError: other pictures lie under these names.
    """
    paths, made = [Path(path) for path in pictures], []
    ids = _ids(store, paths)
    given = {"classes": classes, "attributes": attributes}
    names = {what: chosen or known_names(store, what) for what, chosen in given.items()}
    targets = {name: Path(folder) / f"{name.replace('/', '%2F')}.png" for name in ids}
    for path, name in zip(paths, ids, strict=True):
        if not force and targets[name].is_file():
            refuse_others({targets[name]: _drawn(store.read(name), path, names, limit, least)})
    with (progress or Silent()).task("drawing", len(paths), "picture") as task:
        for path, name in zip(paths, ids, strict=True):
            content = _drawn(store.read(name), path, names, limit, least)
            with written_whole(targets[name]) as draft:
                draft.write_bytes(content)
            made.append(targets[name])
            task.advance()
    return made


def _ids(store: FeatureStore, paths: Sequence[Path]) -> list[str]:
    names = [store.id_of(path) for path in paths]
    if absent := store.missing(names):
        numbered = {_number(name): name for name in store.ids}
        found = {name: numbered.get(_number(name), name) for name in absent if _number(name)}
        names = [found.get(name, name) for name in names]
    store.require(names)
    return names


def _number(name: str) -> str:
    digits = re.search(r"\d+$", name)
    return digits.group().lstrip("0") if digits else ""


def known_names(store: FeatureStore, what: str) -> list[str]:
    """Names of ``classes`` or ``attributes`` by number, of concepts the words, as the provenance has them."""
    found = store.provenance.get(what) or (store.provenance.get("words") if what == "classes" else None)
    return [str(name) for name in found] if isinstance(found, list) else []


def _drawn(record: Record, path: Path, names: Mapping[str, Sequence[str]], limit: int | None, least: float) -> bytes:
    """The PNG of one picture with its boxes."""
    try:
        picture = open_image(path, raw=record.size)
    except BadImageError as error:
        raise DataError("a picture cannot be drawn on", where=str(path), got=str(error)) from None
    rows = _chosen(record, limit, least)
    labels = [_label(record, row, names) for row in rows.tolist()]
    height, width = record.size
    scale = np.array([picture.width / width, picture.height / height] * 2, np.float32)
    drawn = draw_boxes(picture, record.boxes[rows] * scale, labels if any(labels) else None)
    content = io.BytesIO()
    drawn.save(content, format="PNG")
    return content.getvalue()


def _scores(record: Record) -> np.ndarray | None:
    return record.scores if record.scores is not None else record.class_scores


def _chosen(record: Record, limit: int | None, least: float) -> np.ndarray:
    """The boxes to draw: the best last, so that they lie on top."""
    scores = _scores(record)
    if scores is None:
        return np.arange(len(record))[:limit]
    order = np.argsort(-scores, kind="stable")
    return order[scores[order] >= least][:limit][::-1]


def _label(record: Record, row: int, names: Mapping[str, Sequence[str]]) -> str:
    parts = []
    for ids, what in ((record.attributes, "attributes"), (record.classes, "classes")):
        if ids is not None:
            parts.append(_name(int(ids[row]), names[what], what))
    scores = _scores(record)
    if scores is not None:
        parts.append(f"{float(scores[row]):.2f}")
    return " ".join(part for part in parts if part)


def _name(number: int, names: Sequence[str], what: str) -> str:
    if 0 <= number < len(names):
        return names[number]
    return str(number) if what == "classes" else ""


def read_names(path: str | Path) -> list[str]:
    """A vocabulary, a name a line; of several spellings divided by commas (Visual Genome's) the first.

    Raises:
        DataError: it cannot be read.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise DataError("the names cannot be read", where=str(path), got=str(error)) from None
    return [line.split(",")[0].strip() for line in lines]
