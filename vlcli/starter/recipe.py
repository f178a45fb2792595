"""The recipe that a plan becomes: text with a reason beside each choice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vlcli.starter import stages
from vlcli.starter.emit import Writer
from vlcli.starter.plan import GOALS, OF_IMAGES, Plan, whole
from vlcli.starter.times import Times

_STAGES: dict[str, Callable[[Plan, Writer], dict[str, str]]] = {
    "vqa": stages.answering,
    "pairs": stages.classification,
    "classification": stages.classification,
    "referring": stages.referring,
    "retrieval": stages.retrieval,
    "captioning": stages.captioning,
    "image-classification": stages.image_classification,
    "multi-label": stages.image_classification,
    "detection": stages.detection,
}
"""What writes the stages of a goal and returns the rows of its table."""


_MOST_ASIDE = 12
"""Files left aside that the head of a recipe names."""


def recipe_text(plan: Plan, root: str, file: str, times: Times) -> str:
    """The recipe.

    Args:
        plan: what to learn and how.
        root: the data root as it was typed.
        file: the recipe's name, for the commands in its head.
        times: how long its stages take.
    """
    writer = Writer()
    _head(plan, writer, file, times)
    _data(plan, writer, root)
    _model(plan, writer)
    writer.open("stages")
    rows = _STAGES[plan.goal](plan, writer)
    _table(plan, writer, rows)
    return writer.text()


def _head(plan: Plan, writer: Writer, file: str, times: Times) -> None:
    goal = GOALS[plan.goal][1]
    writer.comment(f"vlcli run {file}")
    writer.lines.append("#")
    writer.comment(
        f"Written by `vlcli init`: {goal}, learnt from {plan.source.where}. Change what you like: docs/recipes.md "
        f"explains every key, and `vlcli validate {file} --deep` checks the recipe before anything runs."
    )
    writer.comment(f"Time expected on this machine ({plan.machine.text}): {times.text}.")
    for note in plan.notes:
        writer.comment(f"Note: {note}.")
    for line in plan.aside[:_MOST_ASIDE]:
        writer.comment(f"Left aside: {line}.")
    if len(plan.aside) > _MOST_ASIDE:
        writer.comment(f"Left aside: {len(plan.aside) - _MOST_ASIDE:,} more files.")
    writer.key("about", f"{goal[0].upper()}{goal[1:]}, learnt from {plan.source.where}")
    writer.key("seed", 1, why="another seed draws other initial weights: vlcli run ... --seeds 3 --table")
    if plan.machine.cores > 1:
        writer.key("jobs", 2, why="stages that do not need one another run side by side")


def _data(plan: Plan, writer: Writer, root: str) -> None:
    writer.key("root", root, why="relative to where vlcli runs; root=FOLDER on the command line reads another folder")
    writer.open("datasets")
    why = plan.source.reasons.get("encoding", "")
    entries = [whole(plan.source), *plan.entries[1:]]
    writer.entries("all", entries, 2, why)
    if plan.source.parts:
        writer.comment(f"Parts: {plan.source.reasons['parts']}.", 2)
    else:
        writer.comment(
            "Held out by picture: a hash of a picture's name decides, so that all rows of a picture are in one part, "
            "whatever the order of the table.",
            2,
        )
    for part, found in plan.parts.items():
        counts = f"{found.examples:,} examples on {found.pictures:,} pictures"
        writer.key(part, {"name": "all", **found.options}, 2, counts)
    if plan.captions:
        taken = plan.parts["train"].options
        captioned = [{**source.entry, **taken} for source in plan.captions]
        writer.entries("captioned", captioned, 2, "of the same share of pictures: no test picture is among them")
    if plan.labelled is not None and plan.goal != "detection":
        taken = {key: value for key, value in plan.parts["train"].options.items() if key == "take"}
        taken = plan.labelled.parts.get("train", taken)
        why = "labelled boxes, on which a small network learns to see"
        why += "; of the same share of pictures" if taken else ""
        writer.key("objects", {**plan.labelled.entry, **taken}, 2, why)


def _model(plan: Plan, writer: Writer) -> None:
    model, why = stages.model_of(plan)
    if model is None:
        return
    writer.comment(why)
    writer.key("model", model)
    if plan.goal in OF_IMAGES:
        return
    writer.open("text")
    train: Any = ["train", "captioned"] if plan.captions else "train"
    vocabulary = {"train": train, "size": plan.vocabulary}
    writer.key("vocabulary", vocabulary, 2, "word pieces learnt from the training sentences")
    writer.key("length", plan.length, 2, "99 of 100 sentences are shorter")


def _table(plan: Plan, writer: Writer, rows: dict[str, str]) -> None:
    writer.open("table")
    writer.key("title", f"{GOALS[plan.goal][1]}: held-out pictures", 2)
    writer.key("rows", rows, 2)
    metrics, why = stages.metrics_of(plan)
    writer.key("metrics", metrics, 2, why)
