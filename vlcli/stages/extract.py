"""Extract: the images of some data sets (or of a folder) become an HDF5 store of region features."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vlcli import registry
from vlcli.builders.context import StageContext, StageResult
from vlcli.builders.readers import open_readers
from vlcli.data.files import IMAGE_SUFFIXES
from vlcli.data.picture_index import path_id
from vlcli.data.reader import Reader
from vlcli.data.reader_errors import share_id
from vlcli.data.remote import local_copy
from vlcli.detection.cluster import RayCluster
from vlcli.detection.extraction import ExtractionReport, Share, extract_images
from vlcli.detection.extractor import Extractor
from vlcli.detection.given import stored_boxes, stored_labels
from vlcli.engine import processes
from vlcli.engine.bundle import WEIGHTS, verified
from vlcli.errors import DataError, UsageError
from vlcli.features import FeatureStore
from vlcli.features.concepts import sort_files
from vlcli.files import is_remote
from vlcli.images.boxes import NO_AREA, BoxFile, BoxList, image_id, read_boxes
from vlcli.images.conversions import conversion_notes
from vlcli.images.labels import Labels, class_table, ids_used, numbered, together
from vlcli.images.remote import files_below
from vlcli.recipe.pictures import note_pictures
from vlcli.recipe.schema import Extract

STORE = "features.h5"
STORES = (".h5", ".hdf5")
LISTS = (".txt", ".lst", ".list")


def run(context: StageContext) -> StageResult:
    """Extract every image the stage's data name, each once, into ``features.h5``; several processes share the work."""
    config = context.config
    assert isinstance(config, Extract)
    cluster = _cluster(context)
    processes.use_threads(config.threads)
    listed = listed_images(context)
    readers = readers_of(context) if listed is None else []
    images: Mapping[str, Path | str] = collect_images(readers) if listed is None else listed
    left_out = [line for reader in readers for line in reader.notes()]  # of pictures too, which are found by now
    boxes, labels = collect_boxes(context, readers, left_out)
    extractor = build_extractor(context)
    extractor.attach(labels)
    left_out += conversion_notes(list(images.values()))
    for line in left_out if processes.rank() == 0 else ():
        context.progress.warn(line)
    for note in extractor.notes():
        context.progress.info(note)
    chosen = list(images.items())[: config.limit]
    if extractor.reads != "regions":
        note_pictures(path for _, path in chosen)
    report = extract_images(
        chosen,
        extractor,
        context.folder / STORE,
        boxes=boxes or None,
        progress=context.progress,
        workers=config.workers,
        batch_size=config.batch_size,
        device=processes.resolve_device(context.device) if cluster is None else "cpu",
        dtype=config.dtype,
        resume=context.resume,
        strict=config.strict,
        set=config.set or extractor.set,
        compression=config.compression,
        share=Share(processes.rank(), processes.world(), processes.wait, processes.collect),
        source=region_source(context, extractor),
        labels=labels,
        cluster=cluster,
    )
    if report.errors and processes.rank() == 0:
        context.progress.warn(_without(report, context.folder))
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


def listed_images(context: StageContext) -> dict[str, Path | str] | None:
    """The pictures of ``images: LIST.txt`` (a path or an address a line) or of ``images: ADDRESS``; None where neither.

    Raises:
        DataError: the list is empty or names a file outside the root; nothing is at the address.
    """
    config = context.config
    assert isinstance(config, Extract)
    if config.data or config.images is None:
        return None
    if Path(config.images).suffix.lower() in LISTS:
        return _of_list(_file(context, config.images), context.root)
    if is_remote(config.images):
        found = [name for name in files_below(config.images) if Path(name).suffix.lower() in IMAGE_SUFFIXES]
        return _by_id(found, context.root)
    return None


def _of_list(path: Path, root: Path) -> dict[str, Path | str]:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    rows = [(line.strip(), f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not rows:
        raise DataError("The list names no picture.", where=str(path), expected="a path a line")
    return _by_id([line if is_remote(line) else under(root, line, where, there=False) for line, where in rows], root)


def _by_id(pictures: Sequence[Path | str], root: Path) -> dict[str, Path | str]:
    """Pictures by name; where two have one name, all by path."""
    found = {image_id(picture): picture for picture in pictures}
    if len(found) < len(set(pictures)):
        found = {path_id(root, root, str(picture).rpartition("://")[2]): picture for picture in pictures}
    if len(found) < len(set(pictures)):
        found = {path_id(root, root, str(picture).rpartition("://")[2], ending=True): picture for picture in pictures}
    return found


def _file(context: StageContext, name: str) -> Path:
    """A file under the data root, or the copy of a remote one."""
    return local_copy(name) if is_remote(name) else under(context.root, name)


def _cluster(context: StageContext) -> RayCluster | None:
    """The Ray cluster that extracts, where the stage asks for one.

    Raises:
        UsageError: a launcher started several processes, too.
        ComponentError: Ray is not installed.
    """
    config = context.config
    assert isinstance(config, Extract)
    if config.engine == "local":
        return None
    if processes.world() > 1:
        raise UsageError("With engine: ray, one process gives out the work.", got=f"{processes.world()} of a launcher")
    return RayCluster(config.workers, config.threads or 1, context.device, context.progress)


def collect_images(readers: list[Reader]) -> dict[str, Path]:
    """Image id -> file over all data sets, in order.

    Raises:
        DataError: two different files share an id, or there is no image at all.
    """
    found: dict[str, Path] = {}
    for reader in readers:
        for name, path in reader.image_files().items():
            if found.setdefault(name, path) != path:
                raise share_id(name, found[name], path, reader.ids, reader.label)
    if not found:
        raise DataError("The data name no picture.", where=", ".join(str(reader.image_folder) for reader in readers))
    return found


def collect_boxes(context: StageContext, readers: list[Reader], notes: list[str]) -> tuple[dict[str, BoxList], Labels]:
    """Given boxes by image, and what their numbers stand for: of the files (or stores) named, else of the data sets.

    ``notes`` gets a line for every file of which boxes are left out.
    """
    config = context.config
    assert isinstance(config, Extract)
    own = [(reader.boxes(), labels_of(reader)) for reader in readers]
    if not config.boxes:
        return together(own)
    files = [_file(context, name) for name in config.boxes]
    stored = [(stored_boxes(file), stored_labels(file)) for file in files if file.suffix in STORES]
    paths = [file for file in files if file.suffix not in STORES]
    read = [read_boxes(path) for path in paths]
    notes += [
        f"{p}: left out {one.without_area} {NO_AREA}" for p, one in zip(paths, read, strict=True) if one.without_area
    ]
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
    return FeatureStore(found)


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


def _without(report: ExtractionReport, folder: Path) -> str:
    """One line on the pictures that the store lacks."""
    first, count = report.errors[0], len(report.errors)
    lacking = f"{count} of {report.images + count} pictures are not in the store ({folder / 'errors.jsonl'})"
    return f"{lacking}; the first: {first.path or first.id}: {first.reason}"
