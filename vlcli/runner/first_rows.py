"""What the data themselves say before anything costs time: readable, with the right columns, with their pictures.

Annotation files are read whole up to :data:`WHOLE` bytes; of larger tables the first rows are read, of other large
files nothing. What a stage of this recipe is still to make cannot be looked at.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vlcli.builders.readers import build_reader
from vlcli.data.reader import Reader
from vlcli.data.reader_errors import share_id
from vlcli.data.readers.column_types import decisions
from vlcli.data.sample import Example
from vlcli.errors import DataError, Problem, VlcliError
from vlcli.images.conversions import conversion_notes, spread
from vlcli.images.files import pixel_range
from vlcli.images.shards import is_there
from vlcli.recipe import stage_record, wiring
from vlcli.recipe.components import dotted, split_options
from vlcli.recipe.plan import Planner
from vlcli.recipe.schema import Evaluate, Extract, Stage, Training
from vlcli.registry import Spec, as_spec

WHOLE = 32 * 2**20
ROWS = 8
"""How many examples' pictures are looked for."""


@dataclass
class Peek:
    """What was read of one data set.

    Attributes:
        reader: it.
        examples: all of its examples, or the first few.
        whole: whether these are all.
    """

    reader: Reader
    examples: list[Example]
    whole: bool

    def images(self) -> list[str]:
        """The ids of its pictures, each once."""
        return list(dict.fromkeys(name for example in self.examples for name in example.images))


@dataclass
class Preview:
    """Reads each data set once, whichever stages name it.

    Attributes:
        planner: of the recipe.
        artifacts: finished stages.
    """

    planner: Planner
    artifacts: Mapping[str, Path]
    peeks: dict[str, Peek | DataError | None] = field(default_factory=dict)

    def problems(self, names: list[str]) -> list[Problem]:
        """Every fault of the data that the stages ``names`` read."""
        found: list[Problem] = []
        for name in names:
            stage = self.planner.resolved.stages[name]
            for path, spec in _entries(name, stage):
                fault = self._fault(name, stage, spec)
                if fault is not None:
                    found.append(self._problem(path, fault))
        return found

    def notes(self) -> list[str]:
        """Lines of the data sets: types of columns, what is left out, how pictures are converted."""
        peeks = [one for one in self.peeks.values() if isinstance(one, Peek)]
        found = [line for one in peeks if one.whole for line in [*decisions(one.reader), *one.reader.notes()]]
        with pixel_range(self.planner.resolved.recipe.images.range):
            for one in peeks:
                names = one.images()
                found += conversion_notes([one.reader.locate(names[row]) for row in spread(len(names))])
        return list(dict.fromkeys(found))

    def _fault(self, name: str, stage: Stage, spec: Spec) -> DataError | None:
        peek = self._peek(name, spec)
        if not isinstance(peek, Peek):
            return peek
        if isinstance(stage, Extract):
            return None if stage.features else pictures_missing(peek.reader, peek.images())
        if not self._stores(name) and not getattr(stage, "features", []):
            return _unclear(peek.reader, peek.images()[:ROWS])
        return self._not_extracted(name, peek)

    def _peek(self, name: str, spec: Spec) -> Peek | DataError | None:
        """What is read of a data set; None where it is still to be made, may be absent, or is too large."""
        recipe, stage = self.planner.resolved.recipe, self.planner.resolved.stages[name]
        options = split_options("datasets", as_spec(spec))[1]
        if options.get("if_missing") == "skip" or stage.if_missing == "skip":
            return None
        earlier = list(itertools.takewhile(lambda other: other != name, self.planner.graph))
        made = wiring.root_stage(recipe, stage, earlier)
        if made and made not in self.artifacts:
            return None
        root = wiring.root_folder(recipe, stage, self.artifacts)
        key = stage_record.digest([as_spec(spec), str(root)])
        if key not in self.peeks:
            self.peeks[key] = peek(spec, root)
        return self.peeks[key]

    def _not_extracted(self, name: str, peek: Peek) -> DataError | None:
        """Pictures of a training's data that no extraction of this recipe holds."""
        stage, held = self.planner.resolved.stages[name], self._extracted(name)
        if held and (fault := _other_picture(peek, held)) is not None:
            return fault
        absent = [image for image in peek.images() if image not in held] if held else []
        drops = getattr(stage, "missing", "error") == "drop"
        if not held or not absent or (drops and len(absent) < len(peek.images())):
            return None
        stages = ", ".join(self._stores(name))
        return DataError(
            f"{len(absent)} of {len(peek.images())} pictures of {peek.reader.label} are not among those extracted.",
            got=", ".join(absent[:3]),
            expected=f"pictures of the stage {stages}, such as {', '.join(list(held)[:2])}",
            hint="ids: path"
            if any(other.ids != peek.reader.ids for other in held.values())
            else f"give {stages} the same data, or say `missing: drop`",
        )

    def _stores(self, name: str) -> list[str]:
        inputs, stages = self.planner.graph[name], self.planner.resolved.stages
        return [other for other in inputs.stages if isinstance(stages[other], Extract)]

    def _extracted(self, name: str) -> dict[str, Reader] | None:
        """The ids that the stage's stores hold or will hold, each with the data set that the stage read it of.

        None where that cannot be known yet, or it has none.
        """
        stage, stores = self.planner.resolved.stages[name], self._stores(name)
        outside = [word for word in getattr(stage, "features", []) if word not in self.planner.graph]
        if not stores or outside or any(word.endswith(".h5") for word in stage.source):
            return None
        held: dict[str, Reader] = {}
        for other in stores:
            extract = self.planner.resolved.stages[other]
            assert isinstance(extract, Extract)
            peeks = [self._peek(other, spec) for _, spec in _entries(other, extract)]
            if not extract.data or extract.features or extract.limit is not None:
                return None
            for peek in peeks:
                if not isinstance(peek, Peek) or not peek.whole:
                    return None
                held = dict.fromkeys(peek.images(), peek.reader) | held
        return held

    def _problem(self, path: tuple[str | int, ...], fault: DataError) -> Problem:
        place = self.planner.resolved.document.place(path)
        what = f"{fault.what} ({fault.where})" if fault.where else fault.what
        return Problem(dotted(path), what, place, fault.got, fault.expected, fault.hint, fault.exit_code)


def peek(spec: Spec, root: Path) -> Peek | DataError | None:
    """Read a data set, or the first rows of a large table; None of what else is large or names no file.

    Args:
        spec: the reader and its parameters.
        root: its data root.
    """
    try:
        reader = build_reader(spec, root)
        reader.require()
        files = reader.files()
        if not files or not isinstance(reader, Reader):  # a stranger's may do without the base class
            return None
        if sum(file.stat().st_size for file in files) <= WHOLE:
            return Peek(reader, list(reader.examples()), whole=True)
        found = reader.first_examples(ROWS)
        return Peek(reader, found, whole=False) if found else None
    except DataError as error:
        return error
    except (VlcliError, OSError):  # no matter of the data: told elsewhere
        return None


def _other_picture(peek: Peek, held: Mapping[str, Reader]) -> DataError | None:
    """What is wrong where an id means one picture to a training and another to the extraction before it."""
    for name in peek.images():
        other = held.get(name)
        if other is None or not peek.reader.differs(name, other):
            continue
        return share_id(name, other.locate(name), peek.reader.locate(name), peek.reader.ids, peek.reader.label)
    return None


def _unclear(reader: Reader, names: list[str]) -> DataError | None:
    """What is wrong with the names of pictures that a model reads itself, such as two files of one name.

    Whether they are there is not asked: a model of texts alone does without.
    """
    try:
        for name in names:
            reader.locate(name)
    except DataError as error:
        return error
    return None


def pictures_missing(reader: Reader, names: list[str]) -> DataError | None:
    """What is wrong where not one of the first pictures is there; single ones may be absent.

    Args:
        reader: the data set.
        names: ids of its pictures.
    """
    if not names:
        return DataError("The data name no picture.", where=reader.label, hint=reader.pictures_help)
    try:
        paths = [reader.locate(name) for name in names[:ROWS]]
    except DataError as error:
        return error
    if any(is_there(path) for path in paths):
        return None
    what = "The only picture is not there." if len(paths) == 1 else f"None of the first {len(paths)} pictures is there."
    return DataError(
        what,
        where=reader.label,
        got="; ".join(filter(None, (str(paths[0]), reader.near(names[0])))),
        expected=f"picture files under {reader.image_folder}",
        hint=reader.pictures_help,
    )


def _entries(name: str, stage: Stage) -> Iterator[tuple[tuple[str | int, ...], Spec]]:
    """The data sets that a stage names itself, one split each, with their place in the recipe."""
    if not isinstance(stage, Extract | Training | Evaluate):
        return
    for field_name in ("data", "validation", "fit"):
        given: list[Any] = getattr(stage, field_name, None) or []
        for index, entry in enumerate(given):
            spec = as_spec(entry)
            split = spec.get("split")
            for one in split if isinstance(split, list) else [split]:
                yield ("stages", name, field_name, index), spec if one is None else {**spec, "split": one}
