"""From a folder to a plan: look at what lies in it, and choose."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vlcli.data.recognition.folder import Folder
from vlcli.data.recognition.recognised import Recognised
from vlcli.errors import DataError
from vlcli.images.boxes import BoxList, boxes_for, read_boxes
from vlcli.starter import plan as planning
from vlcli.starter.damage import damaged
from vlcli.starter.machine import Machine, this_machine
from vlcli.starter.notes import add_notes
from vlcli.starter.plan import Plan
from vlcli.starter.seen import Seen, ids_of, rows_of
from vlcli.starter.sources import ask_readers, box_files, check_columns, nothing_found
from vlcli.starter.weights import find_weights

SHOWN = 12
"""Rows that are shown as they are understood."""


def look(root: Path, columns: Mapping[str, str] | None = None, fallback: bool = False) -> Seen:
    """Look at every picture and table of a folder.

    Args:
        root: the folder.
        columns: columns that the user names, by role: ``image``, ``text``, ``answers``, ``label``.
        fallback: whether classes named by folders count although a table is not understood.

    Raises:
        DataError: it is no folder, has no picture that can be read, or nothing says what the pictures show.
        UsageError: a column that the user names is in no table.
    """
    if not root.is_dir():
        raise DataError("There is no such folder.", where=str(root), hint="name the folder that holds your pictures")
    folder = Folder(root, columns)
    check_columns(folder)
    pictures = folder.pictures
    boxes = box_files(folder)
    sources, aside = ask_readers(folder, fallback)
    if not sources and not len(pictures):
        raise DataError(
            "The folder holds no pictures.",
            where=str(root),
            got=f"{sum(1 for _ in root.iterdir())} files and folders",
            expected="files that end in .jpg, .png, .webp, .gif, .bmp, .tif or .ppm, also in subfolders",
            hint="name the folder that holds them, or convert other formats first",
        )
    unreadable, checked = damaged(path for found in pictures.by_id.values() for path in found)
    if unreadable and len(unreadable) == len(pictures):
        path, reason = next(iter(unreadable.items()))
        raise DataError("No picture of the folder can be read.", where=str(path), got=reason)
    if not sources:
        raise nothing_found(folder, aside)
    weights, others = find_weights(root)
    return Seen(root, pictures, sources, [*aside, *others], boxes, weights, unreadable, checked)


def plan_for(folder: Seen, wanted: str | None = None, machine: Machine | None = None) -> Plan:
    """Choose what to learn, the parts, features and sizes.

    Args:
        folder: what lies there.
        wanted: the goal; None: the first that fits.
        machine: where it will run; None: this one.

    Raises:
        DataError: a table cannot be read by its reader, or there are too few pictures.
        UsageError: the data do not fit the goal.
    """
    goals = planning.goals_of(folder.sources)
    goal = planning.choose(goals, wanted)
    source = goals[goal]
    more = [] if source.parts else [one for one in folder.sources if _joins(one, source)]
    read = [planning.read(one, folder.root) for one in (source, *more)]
    if (ids := ids_of([reader for reader, _ in read])) != "name":
        for one in folder.sources:
            one.entry["ids"], one.reasons["ids"] = ids, "pictures in different folders have equal names"
        read = [planning.read(one, folder.root) for one in (source, *more)]
    examples = [example for _, found in read for example in found]
    if wanted is None and goal == "retrieval" and "captioning" in goals and folder.weights and _repeat(examples):
        goal = "captioning"
    parts = planning.divide(source, examples, folder.root)
    machine = machine or this_machine()
    made = Plan(goal, source, parts, machine, planning.size_for(1, machine, False), more)
    made.weights = folder.weights
    made.boxes, made.sizes = folder.boxes, folder.pictures.sizes()
    labelled = next((one for one in folder.sources if one.kind == "boxes"), None)
    made.labelled = (
        labelled if made.weights is None and labelled and labelled.entry["name"] == "coco-instances" else None
    )
    if goal in _SEEN and made.features == "pixels":
        raise _needs_weights(folder, goal)
    if goal in ("vqa", "classification", "pairs") and not source.parts:
        made.captions = [one for one in folder.sources if one.kind == "captions" and not one.parts]
    _sizes(made, examples, folder.root)
    if goal == "referring":
        _boxes_to_choose(made, folder)
    made.rows = rows_of(*read[0], SHOWN)
    made.aside = folder.aside
    add_notes(made, folder, [reader for reader, _ in read], examples)
    return made


def _repeat(examples: list[Any]) -> bool:
    """Whether most captions are said of several pictures: a sentence then finds no picture of its own."""
    pictures: dict[str, set[str]] = {}
    for example in examples:
        pictures.setdefault(example.text, set()).update(example.images)
    return 2 * sum(len(pictures[example.text]) > 1 for example in examples) > len(examples)


def _joins(one: Recognised, source: Recognised) -> bool:
    """Whether a further data set is learnt from together with the first: captions of several files are."""
    return one is not source and one.kind == source.kind == "captions" and not one.parts


def _sizes(plan: Plan, examples: list[Any], root: Path) -> None:
    """Model, vocabulary, length and epochs by the data."""
    number = plan.parts["train"].examples
    plan.size = planning.size_for(number, plan.machine, plan.features == "pixels")
    captions = [example for one in plan.captions for example in planning.read(one, root)[1]]
    plan.vocabulary, plan.length = planning.text_facts([*examples, *captions])
    fixed = plan.goal in ("retrieval", "captioning", "detection")
    from_pixels = plan.goal in planning.OF_IMAGES and plan.weights is None
    plan.batch = 4 if plan.goal == "detection" else 16 if from_pixels else 32 if plan.goal == "referring" else 64
    plan.epochs = planning.epochs_for(number, plan.batch, stops=not fixed)
    if plan.goal == "vqa":
        plan.min_count, plan.one_answer, plan.classes = planning.answers_facts(examples)
    else:
        plan.classes = len({str(example.targets.get("label")) for example in examples})


def _boxes_to_choose(plan: Plan, folder: Seen) -> None:
    """The boxes among which an expression chooses; a note where most pictures have a single one.

    They are those of a file of boxes or, where there is none, labelled boxes, else those that the expressions about a
    picture speak of.
    """
    if not plan.boxes and plan.labelled is not None:
        plan.boxes = list(plan.labelled.files)
    counts = [len(boxes) for boxes in _candidates(plan, folder.root).values()]
    single = sum(count == 1 for count in counts)
    plan.candidates = sum(counts) / max(1, len(counts))
    if single > len(counts) / 2:
        plan.notes.append(
            f"{single:,} of {len(counts):,} pictures have one box only, and an expression about it has nothing to "
            "choose: add a file of boxes of a detector (a JSON list with image_id, bbox, score) and call init again"
        )


def _candidates(plan: Plan, root: Path) -> Mapping[str, BoxList]:
    """Boxes by picture."""
    reader, examples = planning.read(plan.source, root)
    if not plan.boxes:
        return reader.boxes()
    files = [read_boxes(root / file) for file in plan.boxes]
    found: dict[str, BoxList] = {}
    for name in {name for example in examples for name in example.images}:
        for file in files:
            if (boxes := boxes_for(file, name)) is not None:
                found[name] = boxes
    return found


def _needs_weights(folder: Seen, goal: str) -> DataError:
    what, other = _SEEN[goal]
    return DataError(
        f"{what} features of a backbone, and the folder has no weights.",
        where=str(folder.root),
        expected=f"a ResNet's weights in the folder, e.g. resnet50.safetensors{other}",
        hint="put the file there and call init again" + (", or take --task retrieval" if goal == "captioning" else ""),
    )


_SEEN = {
    "captioning": ("Captions are written from", ""),
    "referring": ("Boxes are compared with expressions by", ", or labelled boxes (COCO's instances) to train one on"),
}
"""Goals whose model reads features of regions: why, and what else than weights can make them."""
