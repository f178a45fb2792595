"""Writes warnings about the data into a plan."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from typing import Any

from vlcli.builders.never_right import never_right
from vlcli.builders.readers import build_reader
from vlcli.data.reader import Reader
from vlcli.data.sample import Example
from vlcli.errors import DataError
from vlcli.images.shards import is_there
from vlcli.recipe import yaml
from vlcli.recipe.load import from_mapping
from vlcli.starter.plan import Plan
from vlcli.starter.seen import Seen

FEW_TESTED = 30
"""Test pictures below which a score says little by itself."""
FEW_TRAINED, HARDLY_ANY = 1000, 30
"""Training examples below which little, or nothing, can be expected."""
_NAMED = 10
"""Damaged pictures that a note names; ``--json`` lists all."""


def add_notes(plan: Plan, seen: Seen, readers: Iterable[Reader], examples: list[Example]) -> None:
    """Add the notes of a plan, and set whether examples without a usable picture are left out.

    Raises:
        DataError: fewer than half of the pictures are there.
    """
    files = {name: path.absolute() for reader in readers for name, path in reader.image_files().items()}
    plan.notes += plan.source.notes
    plan.notes += _pictures(plan, seen, files)
    if encoding := plan.source.entry.get("encoding"):
        where = plan.source.where
        plan.notes.append(f"{where} is {encoding} text, not UTF-8; look whether letters with accents are right")
    for (first, one), (second, other) in combinations(plan.parts.items(), 2):
        if both := len(one.names & other.names):
            plan.notes.append(
                f"{both:,} of the {len(other.names):,} pictures of the {second} part are also in the {first} part: a "
                "score there is no score of new pictures"
            )
    plan.notes += [*_labels(plan, examples), *_counts(plan)]
    if seen.weights is not None and plan.weights is None:
        plan.notes.append(f"the weights in {seen.weights.file} are not used: the model of this task learns from pixels")


def unknown_answers(text: str, root: Path) -> list[str]:
    """Return lines on examples of the test part whose answers the training part does not have.

    Args:
        text: of the recipe.
        root: its data root.
    """
    recipe = from_mapping("recipe", yaml.parse(text, "recipe").value).recipe
    return never_right(recipe, lambda _, spec: build_reader(spec, root))


def _pictures(plan: Plan, seen: Seen, files: dict[str, Path]) -> list[str]:
    """Return notes about pictures that are missing, damaged, named twice, or in no row."""
    used, notes = set(files.values()), []
    absent = sorted(name for name, path in files.items() if path not in seen.paths and not is_there(path))
    if len(absent) > len(files) / 2:
        raise DataError(
            "Fewer than half of the pictures that the data name are there.",
            where=plan.source.where,
            got=f"{len(files) - len(absent):,} of {len(files):,}; not there: {', '.join(absent[:3])}",
            hint="add the pictures, or call init with the folder that holds them too",
        )
    if absent:
        notes.append(f"{len(absent):,} pictures that the data name are not there, such as {absent[0]}")
    bad = sorted(seen.name(path) for path in seen.unreadable if path.absolute() in used)
    if bad:
        more = f" and {len(bad) - _NAMED:,} more (--json lists them)" if len(bad) > _NAMED else ""
        notes.append(f"pictures that cannot be read: {len(bad):,}: {', '.join(bad[:_NAMED])}{more}")
    plan.drop = bool(absent or bad)
    names = defaultdict(list)
    for name, path in files.items():
        names[path].append(name)
    if twice := [" and ".join(several[:2]) for several in names.values() if len(several) > 1]:
        notes.append(
            f"{len(twice):,} pictures have two names in the data, such as {twice[0]}: they count as two pictures, of "
            "which one may be in the training part and the other in the test part; write them alike"
        )
    idle = len(seen.paths - used - {path.absolute() for path in seen.unreadable})
    if idle:
        notes.append(f"{idle:,} pictures of the folder are in none of these rows: nothing is learnt from them")
    return notes + ([seen.checked] if seen.checked else [])


def _labels(plan: Plan, examples: list[Example]) -> list[str]:
    """Return notes about classes with a single example, and about rows that contradict each other."""
    notes = []
    counts = Counter(str(example.targets["label"]) for example in examples if "label" in example.targets)
    once = sum(count == 1 for count in counts.values())
    if plan.goal in ("image-classification", "classification") and once:
        every = "each class" if once == len(counts) else f"{once:,} of {len(counts):,} classes"
        notes.append(f"{every} occurs once: what is learnt of such a class cannot be tested")
    targets: dict[Any, set[str]] = defaultdict(set)
    for example in examples:
        target = example.targets.get("label", example.targets.get("raw_answers"))
        if target is not None:
            targets[(*example.images, example.text)].add(str(target))
    if several := [key for key, values in targets.items() if len(values) > 1]:
        what = "pictures" if plan.goal == "image-classification" else "pictures with the same sentence"
        named = f"such as {several[0][0]}" if several[0][0] else ""
        notes.append(
            f"rows contradict each other about {len(several):,} {what}, {named}: all of these rows are learnt from"
        )
    return notes


def _counts(plan: Plan) -> list[str]:
    few, tested, notes = plan.parts["train"].examples, plan.parts["test"].pictures, []
    if few < HARDLY_ANY:
        notes.append(f"nothing can be learnt from {few:,} training examples: the table shows what the baselines score")
    elif few < FEW_TRAINED:
        notes.append(f"{few:,} training examples are few: expect little more than the most frequent answer or chance")
    if tested < FEW_TESTED:
        notes.append(f"test pictures are few ({tested}): read the intervals of the report with the scores")
    return notes
