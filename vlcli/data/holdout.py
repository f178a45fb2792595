"""Selects the part of a data set that ``take`` of a reader names, decided by image.

====================  =====================================================================================
``first:1161``        the first 1,161 images of a fixed shuffle of this data set's images
``after:1161``        all the others
``first:0.85``        images whose number in [0, 1), made from their id alone, is below 0.85
``after:0.85``        all the others
``first:0.85:7``      the same with another shuffle (seed 7; 0 where none is given)
``between:0.8:0.9``   images whose number is 0.8 or more and below 0.9; ``between:0.8:0.9:7`` with seed 7
``in:FILE``           the images that FILE lists, one id or file name a line (the first word of a line counts)
``in:FILE=PART``      those of a part: lines of FILE that end in PART (``0001.jpg 0``, ``0001.jpg,train``), or the list
                      PART of a JSON document
``not-in:FILE``       all the others
``named:train_*``     images whose id fits a pattern (of an id that is a path, its last part); ``not-named:`` the others
``A & B``             of the images that A chooses, those that B chooses: ``in:train.txt & first:0.9``
====================  =====================================================================================

``first:0.8``, ``between:0.8:0.9`` and ``after:0.9`` are three disjoint parts for training, validation and testing.
An image's captions, questions and boxes go together, ``first`` and ``after`` (``in`` and ``not-in``) are disjoint and
together everything. Counts give exact numbers within one file. Shares depend on ids alone, so that captions, questions
and boxes of the same photographs are divided alike even where the files list different subsets. Images that one example
shows side by side (NLVR2) count as one.
"""

import hashlib
import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from vlcli.data.files import inside, parse_json, read_text, value
from vlcli.data.sample import Example
from vlcli.errors import DataError
from vlcli.images.boxes import image_id

_AND = " & "
_ENDS_IN = re.compile(r"\s*(\S.*?)\s*[\s,;|]\s*([^\s,;|]+)\s*")


def select(examples: Sequence[Example], take: str, root: Path) -> list[Example]:
    """Return the examples of :func:`select_rows`, in their order."""
    return [examples[row] for row in select_rows(examples, take, root)]


def listed_files(take: str, root: Path) -> list[Path]:
    """Return the lists of pictures that ``take`` names."""
    parts = (part.partition(":") for part in take.split(_AND))
    return [_file_of(root, named)[0] for kind, _, named in parts if kind in ("in", "not-in") and named]


def _file_of(root: Path, named: str) -> tuple[Path, str]:
    whole, (file, _, part) = inside(root, named), named.rpartition("=")
    return (inside(root, file), part) if file and not whole.is_file() else (whole, "")


def _listed(root: Path, named: str) -> Callable[[str], bool]:
    """Return whether a list names an image id; ids that are paths are compared folder by folder, from the right."""
    path, part = _file_of(root, named)
    text = read_text(path)
    if not part:
        names = [line.split()[0] for line in text.splitlines() if line.strip()]
    elif text.lstrip().startswith("{"):
        names = value(parse_json(text, str(path)), part, list, str(path))
    else:
        hits = map(_ENDS_IN.fullmatch, text.splitlines())
        names = [hit[1] for hit in hits if hit and hit[2] == part]
    files = [file for name in names if (file := PurePosixPath(str(name).lstrip("/"))).name not in ("", "..")]
    stems = {image_id(file.name) for file in files}
    paths = {file.with_name(image_id(file.name)).parts for file in files}

    def is_listed(name: str) -> bool:
        parts = PurePosixPath(name).parts
        return any(parts[at:] in paths for at in range(len(parts))) if len(parts) > 1 else name in stems

    return is_listed


def select_rows(examples: Sequence[Example], take: str, root: Path) -> list[int]:
    """Return the numbers of the examples whose images ``take`` chooses, ascending."""
    rows = list(range(len(examples)))
    for part in take.split(_AND):
        rows = [rows[row] for row in _select_rows([examples[row] for row in rows], part, root)]
    return rows


def _select_rows(examples: Sequence[Example], take: str, root: Path) -> list[int]:
    kind, _, rest = take.partition(":")
    groups = groups_of(examples)
    if kind.removeprefix("not-") in ("in", "named") and rest:
        is_meant = _listed(root, rest) if kind.endswith("in") else lambda name: fnmatchcase(name.split("/")[-1], rest)
        chosen = {group for group, example in zip(groups, examples, strict=True) if any(map(is_meant, example.images))}
    else:
        try:
            chosen = _drawn(set(groups), kind, rest.split(":"))
        except ValueError:
            what, hint = "It is not clear which part of the data is meant.", "a share has a point, e.g. first:0.9"
            expected = "first:N, after:N, first:SHARE, after:SHARE, between:SHARE:SHARE, in:FILE, not-in:FILE or "
            expected += "named:PATTERN; several joined by ' & '"
            raise DataError(what, where="take", got=take, expected=expected, hint=hint) from None
    wanted = kind in ("first", "between", "in", "named")
    return [row for row, group in enumerate(groups) if (group in chosen) is wanted]


def _drawn(groups: set[str], kind: str, words: list[str]) -> set[str]:
    bounds = {"first": 1, "after": 1, "between": 2}.get(kind, 0)
    if not bounds or not bounds <= len(words) <= bounds + 1:
        raise ValueError
    seed = int("".join(words[bounds:]) or 0)

    def number(name: str) -> float:
        return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:6], "big") / 2**48  # in [0, 1)

    if words[0].lstrip().startswith("-"):
        raise ValueError
    if bounds == 1 and "." not in words[0]:
        return set(sorted(sorted(groups), key=number)[: int(words[0])])
    if not all("." in word for word in words[:bounds]):
        raise ValueError
    low, high = (0.0, float(words[0])) if bounds == 1 else (float(words[0]), float(words[1]))
    return {group for group in groups if low <= number(group) < high}


def groups_of(examples: Sequence[Example]) -> list[str]:
    """Return each example's group: the smallest id among the images linked to its first; a text without image's own."""
    parent: dict[str, str] = {}

    def root_of(name: str) -> str:
        while parent.setdefault(name, name) != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for example in examples:
        for other in example.images[1:]:
            low, high = sorted((root_of(example.images[0]), root_of(other)))
            parent[high] = low
    return [root_of(e.images[0]) if e.images else f"text/{e.text_key or e.text}" for e in examples]
