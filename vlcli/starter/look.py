"""Looks at a folder, and plans what is learnt from it."""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from vlcli.data import Example, Folder, Reader, Recognised
from vlcli.data.recognition.pictures import median_size
from vlcli.errors import DataError, UsageError
from vlcli.images.boxes import BoxList, boxes_for, read_boxes
from vlcli.images.files import BadImageError, check_image, read_size
from vlcli.starter import plan as planning
from vlcli.starter import seen
from vlcli.starter.machine import Machine, this_machine
from vlcli.starter.plan import OF_IMAGES, Plan, add_notes
from vlcli.starter.stages import model_of

# Rows that are shown as they are understood
SHOWN = 12
# Pictures that are decoded; of a larger folder as many, evenly spread, and of the others the headers are read.
_MOST_DECODED = 10_000
_SIZED = 50  # pictures whose median size counts
# Goals whose model reads features of regions: the beginning of a message, and what replaces weights.
_SEEN = {
    "captioning": ("Captions are written from", ""),
    "referring": ("Boxes are compared with expressions by", ", or labelled boxes (COCO's instances) to train one on"),
}


def look(root: Path, columns: Mapping[str, str] | None = None, fallback: bool = False) -> seen.Seen:
    """Look at every picture and table of a folder.

    Args:
        columns: the user's columns by role: ``image``, ``text``, ``answers``, ``label``.
        fallback: take folders as classes although a table is not understood.

    Raises:
        DataError: it is no folder, has no picture that can be read, or nothing says what the pictures show.
        UsageError: a column that the user names is in no table.
    """
    if not root.is_dir():
        raise DataError("There is no such folder.", where=str(root), hint="name the folder that holds your pictures")
    folder = Folder(root, columns)
    seen.check_columns(folder)
    pictures, boxes = folder.pictures, seen.box_files(folder)
    sources, aside = seen.ask_readers(folder, fallback)
    if not sources and not len(pictures):
        raise seen.no_pictures(folder)
    unreadable, checked = _damaged(sorted(path for paths in pictures.by_id.values() for path in paths))
    if unreadable and len(unreadable) == len(pictures):
        path, reason = next(iter(unreadable.items()))
        raise DataError("No picture of the folder can be read.", where=str(path), got=reason)
    if not sources:
        raise seen.nothing_found(folder, aside)
    weights, others = seen.find_weights(root)
    return seen.Seen(root, pictures, sources, [*aside, *others], boxes, weights, unreadable, checked)


def _damaged(paths: list[Path]) -> tuple[dict[Path, str], str]:
    """Return why pictures are damaged, and a line where only headers were read of some."""
    step = -(-len(paths) // _MOST_DECODED) if paths else 1

    def reason(place: int) -> str:
        try:
            (check_image if place % step == 0 else read_size)(paths[place])
        except BadImageError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        reasons = {path: text for path, text in zip(paths, pool.map(reason, range(len(paths))), strict=True) if text}
    line = f"{len(paths[::step]):,} of {len(paths):,} pictures were decoded, and the headers of the others read"
    return reasons, line if step > 1 else ""


def plan_for(folder: seen.Seen, wanted: str | None = None, machine: Machine | None = None) -> Plan:
    """Choose what to learn, the parts, features and sizes.

    Args:
        wanted: the goal; None: the first that fits.
        machine: where the recipe will run; None: here.

    Raises:
        DataError: a table cannot be read by its reader, or there are too few pictures.
        UsageError: the data do not fit the goal.
    """
    goals = planning.goals_of(folder.sources)
    if next(iter(goals)) == "image-classification" and wanted in (None, "multi-label"):
        single = goals["image-classification"]
        several = planning.in_several_classes(single, folder.root)
        folder.sources = [*several, *(one for one in folder.sources if not several or one is not single)]
        goals = planning.goals_of(folder.sources)
    if wanted is not None and wanted not in goals:
        raise UsageError("These data do not fit the task.", got=wanted, expected=", ".join(goals) or "no task fits")
    goal = wanted or next(iter(goals))
    source, captions = goals[goal], [one for one in folder.sources if one.kind == "captions" and not one.parts]
    joined = captions if source.kind == "captions" and not source.parts else []
    sources = [source, *(one for one in joined if one is not source)]
    read = _read(folder, sources)
    if len(sources) > 1:
        new = _not_repeated([rows for _, rows in read])
        sources, read = [sources[at] for at in new], [read[at] for at in new]
    examples = [example for _, rows in read for example in rows]
    if wanted is None and goal == "retrieval" and "captioning" in goals and folder.weights and _repeat(examples):
        goal = "captioning"
    parts = planning.divide(source, examples, folder.root)
    if goal not in ("pairs", "retrieval", "captioning") and (most := max(len(one.images) for one in examples)) > 1:
        what, hint = f"No model of {goal} reads several pictures.", "name the column of one picture: --image COLUMN"
        raise DataError(what, where=source.where, got=f"{most} in one row", expected="one picture a row", hint=hint)
    plan = Plan(goal, source, parts, machine or this_machine(), sources[1:], weights=folder.weights)
    others = [one.where for one in folder.sources if one.kind == source.kind and one not in sources]
    plan.boxes, plan.aside = folder.boxes, [*(f"{where}: {source.where} is learnt" for where in others), *folder.aside]
    pictures = {name: reader for reader, rows in read for example in rows for name in example.images}
    plan.pictures = len(folder.pictures) or len(pictures)  # those in shards are no files
    plan.sizes = median_size(pictures[name].locate(name) for name in list(pictures)[:: max(1, len(pictures) // _SIZED)])
    labelled = next((one for one in folder.sources if one.kind == "boxes"), None)
    if plan.weights is None and labelled and labelled.entry["name"] == "coco-instances":
        plan.labelled = labelled
    if goal in _SEEN and plan.features == "pixels":
        raise _no_weights(goal, folder.root)
    if goal in ("vqa", "classification", "pairs") and captions and not source.parts:
        if (model_of(plan)[0] or {}).get("name") == "lxmert":
            plan.captions = captions
        else:
            plan.notes.append("the captions are not used: the model learns from the answers alone")
    _sizes(plan, examples, folder.root)
    if goal == "referring":
        _boxes_to_choose(plan, *read[0], folder.root)
    plan.rows = seen.rows_of(*read[0], SHOWN)
    add_notes(plan, folder, [reader for reader, _ in read], examples)
    return plan


def _read(folder: seen.Seen, sources: Sequence[Recognised]) -> list[tuple[Reader, list[Example]]]:
    read = [planning.read(one, folder.root) for one in sources]
    if (ids := seen.ids_of([reader for reader, _ in read])) == "name":
        return read
    for one in folder.sources:
        one.entry["ids"], one.reasons["ids"] = ids, "pictures in different folders have equal names"
    return [planning.read(one, folder.root) for one in sources]


def _not_repeated(rows: Sequence[Sequence[Example]]) -> list[int]:
    # numbers of the sources that do not say again what the first says: img2dataset writes captions twice
    said = [{(*one.images, one.text) for one in some} for some in rows]
    return [at for at, texts in enumerate(said) if at == 0 or 2 * len(texts & said[0]) <= len(texts)]


def _no_weights(goal: str, root: Path) -> DataError:
    what, other = _SEEN[goal]
    expected = f"a ResNet's weights in the folder, e.g. resnet50.safetensors{other}"
    hint = "put the file there and call init again" + (", or take --task retrieval" if goal == "captioning" else "")
    text = f"{what} features of a backbone, and the folder has no weights."
    return DataError(text, where=str(root), expected=expected, hint=hint)


def _repeat(examples: list[Any]) -> bool:
    """Return whether most captions are said of several pictures: a sentence then finds no single picture."""
    pictures: dict[str, set[str]] = {}
    for example in examples:
        pictures.setdefault(example.text, set()).update(example.images)
    return 2 * sum(len(pictures[example.text]) > 1 for example in examples) > len(examples)


def _sizes(plan: Plan, examples: list[Any], root: Path) -> None:
    number = plan.parts["train"].examples
    plan.size = planning.size_for(number, plan.machine, plan.features == "pixels")
    captions = [example for one in plan.captions for example in planning.read(one, root)[1]]
    plan.vocabulary, plan.length = planning.text_facts([*examples, *captions])
    from_pixels = plan.goal in OF_IMAGES and plan.weights is None
    plan.batch = 4 if plan.goal == "detection" else 16 if from_pixels else 32 if plan.goal == "referring" else 64
    plan.epochs = planning.epochs_for(number, plan.batch, plan.goal not in ("retrieval", "captioning", "detection"))
    if plan.goal == "vqa":
        plan.min_count, plan.one_answer, plan.classes = planning.answers_facts(examples)
    else:
        plan.classes = len({str(example.targets.get("label")) for example in examples})


def _boxes_to_choose(plan: Plan, reader: Any, examples: list[Any], root: Path) -> None:
    """Set the boxes among which an expression chooses; add a note where most pictures have a single one."""
    if not plan.boxes and plan.labelled is not None:
        plan.boxes = list(plan.labelled.files)
    # without a file of boxes, those that the expressions about a picture speak of
    candidates: dict[str, BoxList] = {} if plan.boxes else dict(reader.boxes())
    for file in reversed([read_boxes(root / file) for file in plan.boxes]):
        names = {name for example in examples for name in example.images}
        candidates |= {name: boxes for name in names if (boxes := boxes_for(file, name)) is not None}
    counts = [len(boxes) for boxes in candidates.values()]
    single = sum(count == 1 for count in counts)
    plan.candidates = sum(counts) / max(1, len(counts))
    if single > len(counts) / 2:
        plan.notes.append(
            f"{single:,} of {len(counts):,} pictures have one box only, and an expression about it has nothing to "
            "choose: add a file of boxes of a detector (a JSON list with image_id, bbox, score) and call init again"
        )
