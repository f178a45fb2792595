"""What a person should know of the data before anything is learnt from them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

from vlcli.data.reader import Reader
from vlcli.data.sample import Example
from vlcli.errors import DataError
from vlcli.images.shards import is_there
from vlcli.starter.plan import Part, Plan
from vlcli.starter.seen import Seen

FEW_TESTED = 30
"""Test pictures below which a score says little by itself."""
FEW_TRAINED, HARDLY_ANY = 1000, 30
"""Training examples below which little, or nothing, can be expected."""
_NAMED = 10
"""Damaged pictures that a note names; ``--json`` lists all."""


def add_notes(plan: Plan, seen: Seen, readers: Iterable[Reader], examples: list[Example]) -> None:
    """Write the notes of a plan, and decide whether examples without a usable picture are left out.

    Raises:
        DataError: fewer than half of the pictures are there.
    """
    files = {name: path.absolute() for reader in readers for name, path in reader.image_files().items()}
    plan.notes += plan.source.notes
    _pictures(plan, seen, files)
    if "encoding" in plan.source.entry:
        encoding = plan.source.entry["encoding"]
        plan.notes.append(
            f"{plan.source.where} is {encoding} text, not UTF-8; look whether letters with accents are right"
        )
    plan.notes += [*_shared(plan.parts), *_rare(plan, examples), *_twice(plan, examples), *_counts(plan)]
    if seen.weights is not None and plan.weights is None:
        plan.notes.append(f"the weights in {seen.weights.file} are not used: {_WHY_NO_WEIGHTS}")


_WHY_NO_WEIGHTS = "the model of this task learns from pixels"


def _pictures(plan: Plan, seen: Seen, files: Mapping[str, Path]) -> None:
    """Pictures that are missing, damaged, or in no row."""
    used = set(files.values())
    absent = sorted(name for name, path in files.items() if path not in seen.paths and not is_there(path))
    if len(absent) > len(files) / 2:
        raise DataError(
            "Fewer than half of the pictures that the data name are there.",
            where=plan.source.where,
            got=f"{len(files) - len(absent):,} of {len(files):,}; not there: {', '.join(absent[:3])}",
            hint="add the pictures, or call init with the folder that holds them too",
        )
    if absent:
        plan.notes.append(f"{len(absent):,} pictures that the data name are not there, such as {absent[0]}")
    bad = sorted(seen.name(path) for path in seen.unreadable if path.absolute() in used)
    if bad:
        more = f" and {len(bad) - _NAMED:,} more (--json lists them)" if len(bad) > _NAMED else ""
        plan.notes.append(f"pictures that cannot be read: {len(bad):,}: {', '.join(bad[:_NAMED])}{more}")
    plan.drop = bool(absent or bad)
    names = defaultdict(list)
    for name, path in files.items():
        names[path].append(name)
    if twice := [" and ".join(found[:2]) for found in names.values() if len(found) > 1]:
        plan.notes.append(
            f"{len(twice):,} pictures have two names in the data, such as {twice[0]}: they count as two pictures, of "
            "which one may be in the training part and the other in the test part; write them alike"
        )
    idle = len(seen.paths - used - {path.absolute() for path in seen.unreadable})
    if idle:
        plan.notes.append(f"{idle:,} pictures of the folder are in none of these rows: nothing is learnt from them")
    plan.notes += [seen.checked] if seen.checked else []


def _shared(parts: Mapping[str, Part]) -> list[str]:
    """Pictures that two parts have in common."""
    found = []
    for (first, one), (second, other) in combinations(parts.items(), 2):
        if both := len(one.names & other.names):
            found.append(
                f"{both:,} of the {len(other.names):,} pictures of the {second} part are also in the {first} part: a "
                "score there is no score of new pictures"
            )
    return found


def _rare(plan: Plan, examples: list[Example]) -> list[str]:
    """Classes with a single example."""
    counts = Counter(str(example.targets["label"]) for example in examples if "label" in example.targets)
    once = sum(count == 1 for count in counts.values())
    if plan.goal not in ("image-classification", "classification") or not once:
        return []
    every = "each class" if once == len(counts) else f"{once:,} of {len(counts):,} classes"
    return [f"{every} occurs once: what is learnt of such a class cannot be tested"]


def _twice(plan: Plan, examples: list[Example]) -> list[str]:
    """Rows that say different things of the same picture and sentence."""
    said: dict[Any, set[str]] = defaultdict(set)
    for example in examples:
        target = example.targets.get("label", example.targets.get("raw_answers"))
        if target is not None:
            said[(*example.images, example.text)].add(str(target))
    several = [key for key, targets in said.items() if len(targets) > 1]
    if not several:
        return []
    what = "pictures" if plan.goal == "image-classification" else "pictures with the same sentence"
    named = f"such as {several[0][0]}" if several[0][0] else ""
    return [f"rows contradict each other about {len(several):,} {what}, {named}: all of these rows are learnt from"]


def _counts(plan: Plan) -> list[str]:
    found = []
    few = plan.parts["train"].examples
    if few < HARDLY_ANY:
        found.append(f"nothing can be learnt from {few:,} training examples: the table shows what the baselines score")
    elif few < FEW_TRAINED:
        found.append(f"{few:,} training examples are few: expect little more than the most frequent answer or chance")
    tested = plan.parts["test"].pictures
    if tested < FEW_TESTED:
        found.append(f"test pictures are few ({tested}): read the intervals of the report with the scores")
    return found
