"""Extracts region features of pictures into an HDF5 store."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from vlcli import registry
from vlcli.builders.context import StageContext, StageResult
from vlcli.builders.readers import open_readers
from vlcli.data.files import IMAGE_SUFFIXES, read_text
from vlcli.data.picture_index import path_id
from vlcli.data.pictures import collect_images
from vlcli.data.reader import Reader
from vlcli.detection.extraction import ExtractionReport, Share, extract_images
from vlcli.detection.extractor import Extractor
from vlcli.detection.jobs import Cluster
from vlcli.detection.stored_boxes import stored_boxes, stored_labels
from vlcli.engine import processes
from vlcli.engine.allocator import keep_freed_memory
from vlcli.engine.bundle import WEIGHTS, verified
from vlcli.errors import DataError, UsageError
from vlcli.features import FeatureStore
from vlcli.features.concepts import sort_files
from vlcli.files import is_remote
from vlcli.images.boxes import NO_AREA, BoxFile, BoxList, boxes_for, image_id, read_boxes
from vlcli.images.files import conversion_notes
from vlcli.images.labels import Labels, class_table, ids_used, numbered, together
from vlcli.images.remote import files_below, local_copy
from vlcli.recipe.pictures import note_pictures
from vlcli.recipe.schema import Extract
from vlcli.recipe.wiring import find_below

STORE = "features.h5"
STORES = (".h5", ".hdf5")
LISTS = (".txt", ".lst", ".list")


def run(context: StageContext) -> StageResult:
    """Extracts every picture of the stage's data once; several processes share the work."""
    config = context.section(Extract)
    cluster = _cluster(context)
    processes.use_threads(config.threads)
    listed = listed_images(context)
    readers = readers_of(context) if listed is None else []
    images: Mapping[str, Path | str] = collect_images(readers) if listed is None else listed
    if not images:
        folders = ", ".join(str(reader.image_folder) for reader in readers)
        raise DataError("The data name no picture.", where=folders or str(config.images))
    left_out = [line for reader in readers for line in reader.notes()]  # of pictures too, which are found by now
    boxes, labels = collect_boxes(context, readers, left_out)
    extractor = build_extractor(context)
    keep_freed_memory()
    extractor.attach(labels)
    left_out += conversion_notes(list(images.values()))
    chosen = list(images.items())[: config.limit]
    bare = sum(boxes_for(boxes, name) is None for name, _ in chosen) if boxes or config.boxes else 0
    if bare and getattr(extractor.preparation, "boxes", "") == "given-or-grid":  # all records need the same fields
        told = f"{bare:,} of {len(chosen):,} pictures have no boxes, and a grid stands for them"
        left_out.append(f"{told}: the store has no classes or scores (extractor.boxes=given leaves such pictures out)")
        boxes = {name: BoxList(one.top(None).boxes, size=one.size, name=one.name) for name, one in boxes.items()}
        labels = Labels()
    for line in left_out:
        context.progress.warn(line)
    for note in extractor.notes():
        context.progress.info(note)
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
    summary, errors = f"{report.images} images, {report.regions} regions in {STORE}", len(report.errors)
    if errors:
        summary += f", {errors} could not be read (errors.jsonl)"
        _warn_of_errors(report, context)
    return StageResult(
        metrics={"images": float(report.images), "regions": float(report.regions), "errors": float(errors)},
        files={"features": STORE} | ({"errors": "errors.jsonl"} if errors else {}),
        notes=[*extractor.notes(), *left_out, summary],
        facts={"provenance": extractor.provenance()},
    )


def _warn_of_errors(report: ExtractionReport, context: StageContext) -> None:
    first, errors = report.errors[0], len(report.errors)
    lacking = f"{errors} of {report.images + errors} pictures are not in the store ({context.folder / 'errors.jsonl'})"
    context.progress.warn(f"{lacking}; the first: {first.path or first.id}: {first.reason}")


def readers_of(context: StageContext) -> list[Reader]:
    """Opens the stage's data sets; with ``images: FOLDER`` alone, a folder of pictures."""
    config = context.section(Extract)
    specs = list(config.data) or [{"name": "folder", "images": config.images or "."}]
    return open_readers(specs, context.root, context.progress, context.cache)


def listed_images(context: StageContext) -> dict[str, Path | str] | None:
    """Returns the pictures of ``images: LIST.txt`` (a path or address a line) or ``images: ADDRESS``, by id; else None.

    If two pictures have one name, the ids are paths.

    Raises:
        DataError: the list is empty or names a file outside the root, or the address has no files.
    """
    config, root = context.section(Extract), context.root
    if config.data or config.images is None:
        return None
    pictures: list[Path | str] = []
    if Path(config.images).suffix.lower() in LISTS:
        path = _file(context, config.images)
        for number, text in enumerate(read_text(path).splitlines(), 1):
            if line := text.strip():
                pictures.append(line if is_remote(line) else under(root, line, f"{path}:{number}", there=False))
        if not pictures:
            raise DataError("The list names no picture.", where=str(path), expected="a path a line")
    elif is_remote(config.images):
        pictures += [name for name in files_below(config.images) if Path(name).suffix.lower() in IMAGE_SUFFIXES]
    else:
        return None
    by_id = {image_id(picture): picture for picture in pictures}
    for ending in (False, True):
        if len(by_id) < len(set(pictures)):
            paths = {picture: str(picture).rpartition("://")[2] for picture in pictures}
            by_id = {path_id(root, root, path, ending=ending): picture for picture, path in paths.items()}
    return by_id


def _file(context: StageContext, name: str) -> Path:
    return local_copy(name) if is_remote(name) else under(context.root, name)


def _cluster(context: StageContext) -> Cluster | None:
    config = context.section(Extract)
    shared = processes.world() > 1 or processes.resolve_device(context.device) != "cpu"
    if config.engine == "local" or (config.engine == "processes" and shared):  # by a launcher's, or for one accelerator
        return None
    if processes.world() > 1:
        raise UsageError("`engine: ray` runs in one launched process only.", got=f"{processes.world()} of a launcher")
    engine: Callable[..., Cluster] = registry.load("engines", config.engine)
    return engine(config.workers, config.threads or 1, context.device, context.progress)


def collect_boxes(context: StageContext, readers: list[Reader], notes: list[str]) -> tuple[dict[str, BoxList], Labels]:
    """Returns boxes by picture and their labels, from the stage's ``boxes`` (files or stores), else from its data sets.

    Adds a line to ``notes`` for every file of which boxes are left out.
    """
    config = context.section(Extract)
    of_data = [(reader.boxes(), _labels(reader)) for reader in readers]
    if not config.boxes:
        return together(of_data)
    paths = [_file(context, name) for name in config.boxes]
    stored = [(stored_boxes(path), stored_labels(path)) for path in paths if path.suffix in STORES]
    files = {path: read_boxes(path) for path in paths if path.suffix not in STORES}
    notes += [f"{p}: left out {one.without_area} {NO_AREA}" for p, one in files.items() if one.without_area]
    return together([*stored, *number_files(list(files.values()), [labels for _, labels in of_data])])


def _labels(reader: Reader) -> Labels:
    return Labels(tuple(reader.class_names()), tuple(reader.class_ids()), tuple(reader.attribute_names()))


def number_files(files: list[BoxFile], known: list[Labels]) -> list[tuple[dict[str, BoxList], Labels]]:
    """Numbers the classes of box files from 0; files without categories share one numbering."""
    ids = {number for file in files if not file.categories for number in ids_used(file)}
    named = {number: name for file in files for number, name in file.categories.items()}
    shared = class_table(ids, named, next((labels for labels in known if labels.class_ids), None))
    tables = []
    for file in files:
        used = ids_used(file)
        labels = class_table(used, file.categories) if file.categories else shared if used else Labels()
        tables.append((numbered(file, labels), replace(labels, attributes=file.attributes)))
    return tables


def region_source(context: StageContext, extractor: Extractor) -> FeatureStore | None:
    """Opens the regions of an extractor that reads no pictures; else returns None."""
    if extractor.reads != "regions":
        return None
    named = context.section(Extract).features
    files = sort_files(context.feature_files(named))[0] if named else []
    if not files:
        what = "The extractor reads region features, and the stage names no store of them."
        where, hint = f"stages.{context.name}", "add an extract stage before this one and name it here"
        raise DataError(what, where=where, expected="features: STAGE or a file", hint=hint)
    return FeatureStore(files)


def build_extractor(context: StageContext) -> Extractor:
    """Builds the extractor, with ``weights`` from the stage that ``from`` names or under the data root."""
    spec: dict[str, Any] = dict(context.section(Extract).extractor)
    sources = context.sources()
    if sources and "weights" not in spec:
        spec["weights"] = str(verified(sources[0] / "model" / WEIGHTS))
    elif spec.get("weights"):
        spec["weights"] = str(verified(under(context.root, spec["weights"], there=False)))  # it says where to get them
    if isinstance(spec.get("words"), str):
        spec["words"] = str(under(context.root, spec["words"], there=False))
    if isinstance(config_file := spec.get("config"), str):  # or a name that the extractor knows
        spec["config"] = str(find_below(config_file, context.root) or config_file)
    extractor: Extractor = registry.of(Extractor).build(spec)
    return extractor


def under(root: Path, name: str, where: str = "", there: bool = True) -> Path:
    """Returns a path under the data root; absolute paths stay as they are, links may lead out of the root.

    Args:
        where: the place that names the path, for messages.
        there: whether the file must exist.

    Raises:
        DataError: a relative path leaves the root, or there is no such file.
    """
    path = Path(name).expanduser()
    if not path.is_absolute():
        # Whoever links a folder into the root may also read its target: only `..` is refused.
        path = Path(os.path.normpath(root / path))
        if not path.is_relative_to(os.path.normpath(root)):
            what, expected = "A relative path must stay inside the data root.", "a path without `..` that leaves it"
            hint = "give an absolute path, or link the folder into the root"
            raise DataError(what, where=where or str(root), got=name, expected=expected, hint=hint)
    if there and not path.exists():
        raise DataError("There is no such file.", where=str(path), hint="set `root` to the folder that holds the data")
    return path
