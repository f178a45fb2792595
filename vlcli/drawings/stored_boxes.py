"""Draws the boxes of a feature store on their pictures."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from vlcli.errors import DataError
from vlcli.features import FeatureStore, Record
from vlcli.files import write_bytes
from vlcli.images.boxes import by_number, trailing_number
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
    """Draws the boxes of pictures with their labels and scores, where the store has them.

    Args:
        pictures: image files, found in the store by their name or by the number it ends in.
        folder: where ``ID.png`` of each goes.
        limit: most boxes, by score; in the store's order where there are none.
        classes: names of the classes; by default the store's own, else their numbers.

    Raises:
        DataError: a picture cannot be read, or the store lacks it.
        UsageError: other pictures lie under these names.
    """
    paths = [Path(path) for path in pictures]
    ids = _ids(store, paths)
    chosen = {"classes": classes, "attributes": attributes}
    names = {what: some or known_names(store, what) for what, some in chosen.items()}
    targets = {name: Path(folder) / f"{name.replace('/', '%2F')}.png" for name in ids}
    for path, name in zip(paths, ids, strict=True):
        if not force and targets[name].is_file():
            refuse_others({targets[name]: _drawn(store.read(name), path, names, limit, least)})
    with (progress or Silent()).task("drawing", len(paths), "picture") as task:
        for path, name in zip(paths, ids, strict=True):
            write_bytes(targets[name], _drawn(store.read(name), path, names, limit, least))
            task.advance()
    return [targets[name] for name in ids]


def _ids(store: FeatureStore, paths: Sequence[Path]) -> list[str]:
    names = [store.id_of(path) for path in paths]
    if absent := store.missing(names):
        numbered = by_number(store.ids)
        others = {name: numbered.get(trailing_number(name), name) for name in absent}
        names = [others.get(name, name) for name in names]
    store.require(names)
    return names


def known_names(store: FeatureStore, what: str) -> list[str]:
    """Returns the names of ``classes`` or ``attributes`` by number, from the provenance; of concepts the words."""
    names = store.provenance.get(what) or (store.provenance.get("words") if what == "classes" else None)
    return [str(name) for name in names] if isinstance(names, list) else []


def _drawn(record: Record, path: Path, names: Mapping[str, Sequence[str]], limit: int | None, least: float) -> bytes:
    # the best boxes are drawn last, so that they lie on top
    try:
        picture = open_image(path, raw=record.size)
    except BadImageError as error:
        raise DataError("a picture cannot be drawn on", where=str(path), got=str(error)) from None
    scores = record.scores if record.scores is not None else record.class_scores
    rows = np.arange(len(record))[:limit]
    if scores is not None:
        order = np.argsort(-scores, kind="stable")
        rows = order[scores[order] >= least][:limit][::-1]
    labels = [_label(record, row, names, scores) for row in rows.tolist()]
    height, width = record.size
    scale = np.array([picture.width / width, picture.height / height] * 2, np.float32)
    drawn = draw_boxes(picture, record.boxes[rows] * scale, labels if any(labels) else None)
    content = io.BytesIO()
    drawn.save(content, format="PNG")
    return content.getvalue()


def _label(record: Record, row: int, names: Mapping[str, Sequence[str]], scores: np.ndarray | None) -> str:
    parts = []
    for ids, what in ((record.attributes, "attributes"), (record.classes, "classes")):
        if ids is not None:
            unnamed = str(ids[row]) if what == "classes" else ""
            parts.append(names[what][ids[row]] if 0 <= ids[row] < len(names[what]) else unnamed)
    if scores is not None:
        parts.append(f"{scores[row]:.2f}")
    return " ".join(filter(None, parts))


def read_names(path: str | Path) -> list[str]:
    """Reads a vocabulary, a name a line; of several spellings divided by commas (Visual Genome's) the first."""
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        raise DataError("the names cannot be read", where=str(path), got=str(error)) from None
    return [line.split(",")[0].strip() for line in lines]
