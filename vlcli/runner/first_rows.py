"""Checks columns, types and pictures of the data before a stage runs.

Annotation files are read whole up to :data:`WHOLE` bytes; of larger tables the first rows are read, of other large
files nothing. Data that a stage of this recipe will make are not checked.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vlcli.builders.never_right import never_right
from vlcli.builders.readers import build_reader
from vlcli.data import Example, Reader
from vlcli.data.checks import share_id
from vlcli.data.readers.cells import decisions
from vlcli.errors import DataError, Problem, VlcliError
from vlcli.images.files import conversion_notes, pixel_range, spread
from vlcli.images.shards import is_there
from vlcli.recipe import keys, stage_record, wiring
from vlcli.recipe.components import split_options
from vlcli.recipe.plan import Planner
from vlcli.recipe.schema import Evaluate, Extract, Stage, Training
from vlcli.recipe.yaml import dotted
from vlcli.registry import Spec, as_spec

WHOLE = 32 * 2**20
# How many examples' pictures are looked for
ROWS = 8


@dataclass
class Peek:
    """A data set with all of its examples (``whole``), or the first few."""

    reader: Reader
    examples: list[Example]
    whole: bool

    def images(self) -> list[str]:
        return list(dict.fromkeys(name for example in self.examples for name in example.images))


@dataclass
class Preview:
    """Reads each data set once, whichever stages name it."""

    planner: Planner
    artifacts: Mapping[str, Path]
    peeks: dict[str, Peek | DataError | None] = field(default_factory=dict)

    def problems(self, names: list[str]) -> list[Problem]:
        problems: list[Problem] = []
        for name in names:
            stage = self.planner.resolved.stages[name]
            for path, spec in _entries(name, stage):
                if (fault := self._fault(name, stage, spec)) is not None:
                    problems.append(Problem.of(dotted(path), fault, self.planner.resolved.document.place(path)))
        return problems

    def notes(self) -> list[str]:
        """Returns lines on types of columns, on what is left out, and on how pictures are converted."""
        peeks = [one for one in self.peeks.values() if isinstance(one, Peek)]
        lines = [line for one in peeks if one.whole for line in [*decisions(one.reader), *one.reader.notes()]]
        with pixel_range(self.planner.resolved.recipe.images.range):
            for one in peeks:
                names = one.images()
                lines += conversion_notes([one.reader.locate(names[row]) for row in spread(len(names))])
        return list(dict.fromkeys(lines + self._seen() + never_right(self.planner.resolved.recipe, self._whole_reader)))

    def _seen(self) -> list[str]:
        # a line for each evaluation that is asked about pictures of its training, unless it is of the very same data
        lines, stages = [], self.planner.resolved.stages
        for name, stage in stages.items():
            if not isinstance(stage, Evaluate):
                continue
            tested = self._pictures(name, "data")
            learnt = [("fit", name, "fit"), *((one, one, "data") for one in dict.fromkeys(self._above(name)))]
            for source, owner, key in learnt:
                seen = self._pictures(owner, key) if getattr(stages[owner], key) != stage.data else {}
                both = sorted(one for one in tested.keys() & seen if not tested[one].differs(one, seen[one]))
                if both:
                    count = f"{len(both)} of {len(tested)} pictures are in the data of {source}"
                    lines.append(f"{name}: {count}: {', '.join(both[:3])}")
        return lines

    def _above(self, name: str) -> list[str]:
        # the training stages whose weights a stage begins with, and theirs
        stages = self.planner.resolved.stages
        near = [one for one in self.planner.graph[name].stages if isinstance(stages[one], Training)]
        return near + [further for one in near for further in self._above(one)]

    def _pictures(self, name: str, key: str) -> dict[str, Reader]:
        stage = self.planner.resolved.stages[name]
        try:
            places = keys.data_places(self.planner.resolved.recipe, stage)
        except VlcliError:  # told where the stage itself is checked
            return {}
        peeks = [self._whole(name, spec) for place, spec in places if place == ("stage", key)]
        return {image: one.reader for one in peeks if one is not None for image in one.images()}

    def _whole(self, name: str, spec: Spec) -> Peek | None:
        one = self._peek(name, spec)
        return one if isinstance(one, Peek) and one.whole else None

    def _whole_reader(self, name: str, spec: Spec) -> Reader | None:
        one = self._whole(name, spec)
        return None if one is None else one.reader

    def _fault(self, name: str, stage: Stage, spec: Spec) -> DataError | None:
        peek = self._peek(name, spec)
        if not isinstance(peek, Peek):
            return peek
        if isinstance(stage, Extract):
            return None if stage.features else pictures_missing(peek.reader, peek.images())
        if self._stores(name) or getattr(stage, "features", []):
            return self._not_extracted(name, peek)
        try:  # whether the pictures exist is not checked: a model of texts needs none
            for image in peek.images()[:ROWS]:
                peek.reader.locate(image)
        except DataError as error:
            return error
        return None

    def _peek(self, name: str, spec: Spec) -> Peek | DataError | None:
        # None where the data are still to be made, may be absent, or are too large
        recipe, stage = self.planner.resolved.recipe, self.planner.resolved.stages[name]
        options = split_options("datasets", as_spec(spec))[1]
        if options.get("if_missing") == "skip" or stage.if_missing == "skip":
            return None
        earlier = list(itertools.takewhile(lambda other: other != name, self.planner.graph))
        maker = wiring.root_stage(recipe, stage, earlier)
        if maker and maker not in self.artifacts:
            return None
        root = wiring.root_folder(recipe, stage, self.artifacts)
        key = stage_record.digest([as_spec(spec), str(root)])
        if key not in self.peeks:
            self.peeks[key] = peek(spec, root)
        return self.peeks[key]

    def _not_extracted(self, name: str, peek: Peek) -> DataError | None:
        stage, held = self.planner.resolved.stages[name], self._extracted(name)
        if not held:
            return None
        images, reader = peek.images(), peek.reader
        for image in images:
            if image in held and reader.differs(image, held[image]):
                return share_id(image, held[image].locate(image), reader.locate(image), reader.ids, reader.label)
        absent = [image for image in images if image not in held]
        drops = getattr(stage, "missing", "error") == "drop"
        if not absent or (drops and len(absent) < len(images)):
            return None
        stages = ", ".join(self._stores(name))
        other_ids = any(other.ids != reader.ids for other in held.values())
        what = f"{len(absent)} of {len(images)} pictures of {reader.label} are not among those extracted."
        got, expected = ", ".join(absent[:3]), f"pictures of the stage {stages}, such as {', '.join(list(held)[:2])}"
        hint = "ids: path" if other_ids else f"give {stages} the same data, or say `missing: drop`"
        return DataError(what, got=got, expected=expected, hint=hint)

    def _stores(self, name: str) -> list[str]:
        inputs, stages = self.planner.graph[name], self.planner.resolved.stages
        return [other for other in inputs.stages if isinstance(stages[other], Extract)]

    def _extracted(self, name: str) -> dict[str, Reader] | None:
        # ids that the stores hold or will hold, each with its data set; None where that cannot be known yet
        stage, stores = self.planner.resolved.stages[name], self._stores(name)
        outside = [word for word in getattr(stage, "features", []) if word not in self.planner.graph]
        if not stores or outside or any(word.endswith(".h5") for word in stage.source):
            return None
        held: dict[str, Reader] = {}
        for other in stores:
            extract = self.planner.resolved.stages[other]
            assert isinstance(extract, Extract)
            if not extract.data or extract.features or extract.limit is not None:
                return None
            for peek in [self._whole(other, spec) for _, spec in _entries(other, extract)]:
                if peek is None:
                    return None
                held = dict.fromkeys(peek.images(), peek.reader) | held
        return held


def peek(spec: Spec, root: Path) -> Peek | DataError | None:
    """Reads a data set, or the first rows of a large table; returns None for other large data and those of no file."""
    try:
        reader = build_reader(spec, root)
        reader.require()
        files = reader.files()
        if not files or not isinstance(reader, Reader):  # a stranger's may do without the base class
            return None
        if sum(file.stat().st_size for file in files) <= WHOLE:
            return Peek(reader, list(reader.examples()), whole=True)
        examples = reader.first_examples(ROWS)
        return Peek(reader, examples, whole=False) if examples else None
    except DataError as error:
        return error
    except (VlcliError, OSError):  # no matter of the data: told elsewhere
        return None


def pictures_missing(reader: Reader, names: list[str]) -> DataError | None:
    """Returns a fault if none of the first pictures ``names`` exists; single ones may be absent."""
    if not names:
        return DataError("The data name no picture.", where=reader.label, hint=reader.pictures_help)
    try:
        paths = [reader.locate(name) for name in names[:ROWS]]
    except DataError as error:
        return error
    if any(map(is_there, paths)):
        return None
    what = "The only picture is not there." if len(paths) == 1 else f"None of the first {len(paths)} pictures is there."
    got = "; ".join(filter(None, (str(paths[0]), reader.near(names[0]))))
    expected = f"picture files under {reader.image_folder}"
    return DataError(what, where=reader.label, got=got, expected=expected, hint=reader.pictures_help)


def _entries(name: str, stage: Stage) -> Iterator[tuple[tuple[str | int, ...], Spec]]:
    if not isinstance(stage, Extract | Training | Evaluate):
        return
    for key in ("data", "validation", "fit"):
        for index, entry in enumerate(getattr(stage, key, None) or []):
            spec = as_spec(entry)
            split = spec.get("split")
            for one in split if isinstance(split, list) else [split]:
                yield ("stages", name, key, index), spec if one is None else {**spec, "split": one}
