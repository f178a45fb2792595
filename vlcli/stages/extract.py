"""Extract: the images of some data sets (or of a folder) become an HDF5 store of region features."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from vlcli import registry
from vlcli.builders.context import StageContext, StageResult
from vlcli.builders.readers import open_readers
from vlcli.data.reader import Reader
from vlcli.detection.extraction import ExtractionReport, Share, extract_images
from vlcli.detection.extractor import Extractor
from vlcli.detection.given import stored_boxes, stored_labels
from vlcli.engine import processes
from vlcli.engine.bundle import WEIGHTS, verified
from vlcli.errors import DataError
from vlcli.features import FeatureStore
from vlcli.features.concepts import sort_files
from vlcli.images.boxes import BoxFile, BoxList, image_id, read_boxes
from vlcli.images.labels import Labels, class_table, ids_used, numbered, together
from vlcli.recipe.schema import Extract

STORE = "features.h5"
STORES = (".h5", ".hdf5")
LISTS = (".txt", ".lst", ".list")


def run(context: StageContext) -> StageResult:
    """Extract every image the stage's data name, each once, into ``features.h5``; several processes share the work."""
    config = context.config
    assert isinstance(config, Extract)
    processes.use_threads(config.threads)
    listed = listed_images(context)
    readers = readers_of(context) if listed is None else []
    images = collect_images(readers) if listed is None else listed
    left_out = [line for reader in readers for line in reader.notes()]
    boxes, labels = collect_boxes(context, readers)
    extractor = build_extractor(context)
    extractor.attach(labels)
    for note in extractor.notes():
        context.progress.info(note)
    report = extract_images(
        list(images.items())[: config.limit],
        extractor,
        context.folder / STORE,
        boxes=boxes or None,
        progress=context.progress,
        workers=config.workers,
        batch_size=config.batch_size,
        device=processes.resolve_device(context.device),
        dtype=config.dtype,
        resume=context.resume,
        strict=config.strict,
        set=config.set or extractor.set,
        compression=config.compression,
        share=Share(processes.rank(), processes.world(), processes.wait, processes.collect),
        source=region_source(context, extractor),
        labels=labels,
    )
    return StageResult(
        metrics={"images": float(report.images), "regions": float(report.regions), "errors": float(len(report.errors))},
        files={"features": STORE} | ({"errors": "errors.jsonl"} if report.errors else {}),
        notes=[*extractor.notes(), *left_out, _summary(report, context.folder / STORE)],
        facts={"provenance": extractor.provenance()},
    )


def readers_of(context: StageContext) -> list[Reader]:
    """The stage's data sets; ``images: FOLDER`` alone stands for a folder of pictures."""
    config = context.config
    assert isinstance(config, Extract)
    specs = list(config.data) or [{"name": "folder", "images": config.images or "."}]
    return open_readers(specs, context.root, context.progress, context.cache)


def listed_images(context: StageContext) -> dict[str, Path] | None:
    """The pictures of ``images: LIST.txt``: a path a line, from the data root; None where it is no such file.

    Raises:
        DataError: the list is empty, names a file outside the root, or two pictures alike.
    """
    config = context.config
    assert isinstance(config, Extract)
    if config.data or config.images is None or Path(config.images).suffix.lower() not in LISTS:
        return None
    path = under(context.root, config.images)
    found: dict[str, Path] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        if line.strip():
            where = f"{path}:{number}"
            picture = under(context.root, line.strip(), where, there=False)
            if found.setdefault(image_id(picture), picture) != picture:
                raise DataError(f"Two pictures have the id {image_id(picture)!r}.", where=where, got=str(picture))
    if not found:
        raise DataError("The list names no picture.", where=str(path), expected="a path a line")
    return found


def collect_images(readers: list[Reader]) -> dict[str, Path]:
    """Image id -> file over all data sets, in order.

    Raises:
        DataError: two different files share an id, or there is no image at all.
    """
    found: dict[str, Path] = {}
    for reader in readers:
        for name, path in reader.image_files().items():
            if found.setdefault(name, path) != path:
                raise DataError(f"Two pictures have the id {name!r}.", got=f"{found[name]} and {path}")
    if not found:
        raise DataError("The data name no picture.", where=", ".join(str(reader.image_folder) for reader in readers))
    return found


def collect_boxes(context: StageContext, readers: list[Reader]) -> tuple[dict[str, BoxList], Labels]:
    """Given boxes by image, and what their numbers stand for: of the files (or stores) named, else of the data sets."""
    config = context.config
    assert isinstance(config, Extract)
    own = [(reader.boxes(), labels_of(reader)) for reader in readers]
    if not config.boxes:
        return together(own)
    files = [under(context.root, name) for name in config.boxes]
    stored = [(stored_boxes(file), stored_labels(file)) for file in files if file.suffix in STORES]
    read = [read_boxes(file) for file in files if file.suffix not in STORES]
    return together([*stored, *number_files(read, [labels for _, labels in own])])


def labels_of(reader: Reader) -> Labels:
    """How a data set numbers the labels of its boxes."""
    return Labels(tuple(reader.class_names()), tuple(reader.class_ids()), tuple(reader.attribute_names()))


def number_files(files: list[BoxFile], known: list[Labels]) -> list[tuple[dict[str, BoxList], Labels]]:
    """Box files with their classes numbered from 0, all in one way where they list no categories of their own."""
    nameless = [file for file in files if not file.categories]
    ids = {number for file in nameless for number in ids_used(file)}
    named = {number: name for file in files for number, name in file.categories.items()}
    table = class_table(ids, named, next((labels for labels in known if labels.class_ids), None))
    found = []
    for file in files:
        own = class_table(ids_used(file), file.categories) if file.categories else table if ids_used(file) else Labels()
        found.append((numbered(file, own), replace(own, attributes=file.attributes)))
    return found


def region_source(context: StageContext, extractor: Extractor) -> FeatureStore | None:
    """The regions that an extractor reads in place of pictures; None where it reads pictures.

    Raises:
        DataError: it reads regions, and the stage names no store of them.
    """
    config = context.config
    assert isinstance(config, Extract)
    if extractor.reads != "regions":
        return None
    found = sort_files(context.feature_files(config.features))[0] if config.features else []
    if not found:
        raise DataError(
            "The extractor reads region features, and the stage names no store of them.",
            where=f"stages.{context.name}",
            expected="features: STAGE or a file",
            hint="add an extract stage before this one and name it here",
        )
    return FeatureStore.open(found)


def build_extractor(context: StageContext) -> Extractor:
    """The extractor, its ``weights`` taken from the stage that ``from`` names or found under the data root.

    A file of ``words`` lies under the data root too.
    """
    config = context.config
    assert isinstance(config, Extract)
    spec: dict[str, Any] = dict(config.extractor)
    sources = context.sources()
    if sources and "weights" not in spec:
        spec["weights"] = str(verified(sources[0] / "model" / WEIGHTS))
    elif spec.get("weights"):
        spec["weights"] = str(verified(under(context.root, spec["weights"], there=False)))  # it says where to get them
    if isinstance(spec.get("words"), str):
        spec["words"] = str(under(context.root, spec["words"], there=False))
    extractor: Extractor = registry.extractors.build(spec)
    return extractor


def under(root: Path, name: str, where: str = "", there: bool = True) -> Path:
    """``name`` under the data root; absolute paths are taken as they are, links are followed wherever they lead.

    Args:
        root: the data root.
        name: a path.
        where: what says it, for messages.
        there: whether it must exist.

    Raises:
        DataError: a relative path that leaves the root, or nothing there.
    """
    path = Path(name).expanduser()
    if not path.is_absolute():
        # Who may link a folder into the root may also read what it leads to: only `..` is kept from leaving.
        path = Path(os.path.normpath(root / path))
        if not path.is_relative_to(os.path.normpath(root)):
            raise DataError(
                "A relative path must stay inside the data root.",
                where=where or str(root),
                got=name,
                expected="a path without `..` that leaves it",
                hint="give an absolute path, or link the folder into the root",
            )
    if there and not path.exists():
        raise DataError("There is no such file.", where=str(path), hint="set `root` to the folder that holds the data")
    return path


def _summary(report: ExtractionReport, store: Path) -> str:
    bad = f", {len(report.errors)} could not be read (errors.jsonl)" if report.errors else ""
    return f"{report.images} images, {report.regions} regions in {store.name}{bad}"
