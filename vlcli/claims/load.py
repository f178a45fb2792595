"""Finds, reads and checks files of claims by their schema; reports every fault with its line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from vlcli.errors import ComponentError, Problem, RecipeError, UsageError, did_you_mean
from vlcli.recipe import yaml
from vlcli.recipe.check import by_place, typed
from vlcli.recipe.fields import Section
from vlcli.recipe.load import registered_file
from vlcli.recipe.yaml import Document, Path_, dotted
from vlcli.registry import entries, names
from vlcli.registry.bounds import Positive, Seed, Share

# Identifiers: lower-case letters, digits and hyphens, so that they can be typed and used as names of files
ID = r"^[a-z0-9][a-z0-9-]*$"
MOST_SEEDS = 100
# Part of the page on which claims stand that real photographs test; their worlds are named ``real/NAME``
REAL = "real"

Direction = Literal["higher", "lower"]
EarlierVerdict = Literal["reproduced", "opposite", "undecided", "not judged"]
Sentence = Annotated[str, Field(min_length=10, max_length=1000)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Rows = tuple[Name, Name]
Seeds = Annotated[list[Seed], Field(min_length=1, max_length=MOST_SEEDS)]


class Power(Section):
    """The expected difference of two rows, and the standard deviation of paired differences over seeds.

    The number of seeds was estimated from both before any judged run.
    """

    difference: Positive
    deviation: Positive


class World(Section):
    """The data of a small recipe.

    Attributes:
        chance: score of a model that has not learnt the relation in question; None: of guessing, as the evaluate stage
            measured it (``chance/METRIC``).
        ceiling: the best possible score.
    """

    about: Sentence
    chance: float | None = None
    ceiling: float = 1.0


class Small(Section):
    """How a claim is tested: two rows of a small recipe, the first for the first of the published rows.

    Attributes:
        metric: of the recipe; as in the paper, the more the better.
        world: one of the file's worlds, in which the effect should show; ``real/NAME``: photographs, which lie in the
            recipe's ``root``.
        minutes: of one core that a row takes with one seed, as estimated.
        planted: a third row, known to differ from the second by the registered difference; where this is not found
            either, the claim is not judged.
        seeds: that decide; None: the file's. So with ``power``.
    """

    recipe: Name
    rows: Rows
    metric: Name
    world: Name
    why: Sentence
    seeds: Seeds | None = None
    power: Power | None = None
    minutes: Positive | None = None
    planted: Name | None = None

    @property
    def cells(self) -> tuple[str, ...]:
        return (*self.rows, self.planted) if self.planted else self.rows

    @field_validator("rows")
    @classmethod
    def _two(cls, rows: tuple[str, str]) -> tuple[str, str]:
        if rows[0] == rows[1]:
            raise ValueError("two different rows")
        return rows


class Claim(Section):
    """One published contrast.

    Attributes:
        id: unique among all installed claims; begins with the paper's name.
        table: number of the paper's table (or figure: ``figure 3``).
        rows: of that table, with the numbers ``published`` in the column ``metric``.
        direction: of the first row's number to the second's.
        reason: why the claim cannot be tested in small; only, and always, with ``small: none``.
    """

    id: Annotated[str, Field(pattern=ID, max_length=80)]
    claim: Sentence
    table: Annotated[str, Field(min_length=1, max_length=20)]
    rows: Rows
    metric: Name
    published: tuple[float, float]
    direction: Direction
    small: Small | Literal["none"]
    reason: Sentence | None = None

    @field_validator("table", mode="before")
    @classmethod
    def _number(cls, table: object) -> object:
        return str(table) if isinstance(table, int) and not isinstance(table, bool) else table

    @model_validator(mode="after")
    def _agrees(self) -> Claim:
        first, second = self.published
        if first == second or (first > second) != (self.direction == "higher"):
            raise ValueError(f"the published numbers {first:g} and {second:g} do not agree with {self.direction!r}")
        if (self.small == "none") != (self.reason is not None):
            raise ValueError("'reason' must be given with 'small: none', and with nothing else")
        return self


class Earlier(Section):
    """Verdicts and differences of claims under an earlier registration; none of its seeds judges again."""

    settings: Sentence
    seeds: Seeds
    verdicts: Annotated[dict[str, tuple[EarlierVerdict, float]], Field(min_length=1)]


class ClaimsFile(Section):
    """A paper's claims.

    Attributes:
        paper: short name, as in ``vlcli reproduce PAPER``.
        settings_seeds: seeds with which the settings of the small recipes were chosen; none of them judges.
        seeds: that decide, where a claim names none itself.
        judged_between: shares of the way from chance to the ceiling between which the second row of a claim must lie
            for a difference that is not found to count as undecided.
        worlds: by the name that claims use; a sentence is the world's ``about``.
        earlier: registrations before this one, oldest first.
    """

    paper: Annotated[str, Field(pattern=ID, max_length=40)]
    title: Name
    settings_seeds: Seeds
    seeds: Seeds
    power: Power
    judged_between: tuple[Share, Share] = (0.1, 0.9)
    worlds: Annotated[dict[str, World], Field(default_factory=dict)]
    earlier: Annotated[list[Earlier], Field(default_factory=list)]
    claims: Annotated[list[Claim], Field(min_length=1, max_length=1000)]

    @field_validator("worlds", mode="before")
    @classmethod
    def _described(cls, worlds: object) -> object:
        if not isinstance(worlds, dict):
            return worlds
        return {name: {"about": world} if isinstance(world, str) else world for name, world in worlds.items()}

    @field_validator("seeds", "settings_seeds")
    @classmethod
    def _once(cls, seeds: list[int]) -> list[int]:
        if len(set(seeds)) < len(seeds):
            raise ValueError("every seed once")
        return seeds


@dataclass(frozen=True)
class Registered:
    """A claim with the file of its paper, and the path and line where it stands."""

    claim: Claim
    file: ClaimsFile
    path: Path
    line: int

    @property
    def small(self) -> Small | None:
        return None if isinstance(self.claim.small, str) else self.claim.small

    @property
    def world(self) -> World:
        assert self.small is not None
        return self.file.worlds[self.small.world]

    @property
    def is_real(self) -> bool:
        """Whether real photographs test the claim, not a generated world."""
        return self.small is not None and self.small.world.startswith(f"{REAL}/")

    @property
    def part(self) -> str:
        return REAL if self.is_real else self.file.paper

    @property
    def seeds(self) -> list[int]:
        return (self.small and self.small.seeds) or self.file.seeds

    @property
    def power(self) -> Power:
        return (self.small and self.small.power) or self.file.power

    @property
    def earlier(self) -> list[tuple[str, float]]:
        """Verdict and difference under each earlier registration that judged the claim, oldest first."""
        return [one.verdicts[self.claim.id] for one in self.file.earlier if self.claim.id in one.verdicts]

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line}"


def papers() -> list[str]:
    """Returns the names of the papers with claims; reads no file."""
    return names("claims")


def as_row(one: Registered) -> dict[str, Any]:
    """Returns the facts of a claim, and ``test``: which rows of which recipe decide it, or that none can."""
    claim, small = one.claim, one.small
    facts = claim.model_dump(exclude={"small"}, exclude_none=True)
    facts |= {"paper": one.file.paper, "title": one.file.title, "place": one.place, "test": "not in small"}
    if small is None:
        return facts
    tested = small.model_dump(exclude_none=True) | {"seeds": one.seeds, "power": one.power.model_dump()}
    test = f"{small.recipe}:{small.rows[0]} against {small.rows[1]}, {small.metric}"
    return facts | {"small": tested | {"about": one.file.worlds[small.world].about}, "test": test}


def of_paper(reference: str) -> list[Registered]:
    """Returns a paper's claims, by name or file; ComponentError: none are registered; RecipeError: all faults."""
    if reference.endswith((".yaml", ".yml")):
        path = Path(reference).expanduser()
        if not path.is_file():
            raise UsageError("There is no such file of claims.", where=reference, hint="list papers: vlcli ls claims")
        return read(path)
    if reference.rpartition(":")[2] not in papers():
        what = f"No claims of a paper called {reference!r} are registered."
        hint = did_you_mean(reference, papers(), 3, 0.4) or "list them: vlcli ls claims"
        raise ComponentError(what, expected=", ".join(papers()), hint=hint)
    return read(registered_file("claims", reference).file)


def every(chosen: Sequence[str] = ()) -> list[Registered]:
    """Returns the claims of the papers ``chosen``, of all papers without any."""
    papers = chosen or [f"{one.distribution}:{one.name}" for one in entries("claims")]
    claims = [one for paper in papers for one in of_paper(paper)]
    first = {one.claim.id: one for one in reversed(claims)}
    twice = [
        Problem(one.claim.id, "two claims have this identifier", one.place, got=first[one.claim.id].place)
        for one in claims
        if first[one.claim.id] is not one
    ]
    if twice:
        raise RecipeError(twice, "claims")
    return claims


def pick(claims: Sequence[Registered], wanted: Iterable[str]) -> list[Registered]:
    """Returns those with the identifiers ``wanted``, in the order of the files."""
    known = {one.claim.id: one for one in claims}
    for name in (wanted := list(dict.fromkeys(wanted))):
        if name not in known:
            hint = did_you_mean(name, known, 3, 0.4) or "list them: vlcli reproduce --list"
            raise UsageError("There is no such claim.", got=repr(name), hint=hint)
    return [one for one in claims if one.claim.id in wanted]


def read(path: Path) -> list[Registered]:
    """Returns the claims of one file; RecipeError: every fault with its line, or the file cannot be read."""
    document = yaml.read(path)
    if not isinstance(document.value, dict):
        problem = Problem("", "a file of claims is a mapping", str(path), expected="paper, title, seeds, claims")
        raise RecipeError([problem], str(path))
    file, problems = typed(ClaimsFile, document)
    problems += _faults(file, document) if file is not None else []
    if problems:
        error = RecipeError(sorted(problems, key=by_place), str(path))
        error.what = error.what.replace("in recipe", "in claims")
        raise error
    lines = (document.place(("claims", index)).rpartition(":")[2] for index in range(len(file.claims)))
    return [Registered(claim, file, path, int(line or 0)) for claim, line in zip(file.claims, lines, strict=True)]


def _faults(file: ClaimsFile, document: Document) -> list[Problem]:
    problems: list[Problem] = []
    seen: dict[str, int] = {}
    for index, claim in enumerate(file.claims):
        path: Path_ = ("claims", index)
        if (first := seen.setdefault(claim.id, index)) != index:
            got = f"{claim.id}, as in {document.place(('claims', first))}"
            problems.append(_fault(document, (*path, "id"), "this identifier is taken", got))
        if not claim.id.startswith(f"{file.paper}-"):
            what, expected = "identifiers begin with the paper", f"{file.paper}-..."
            problems.append(_fault(document, (*path, "id"), what, claim.id, expected))
        if isinstance(small := claim.small, Small):
            if small.world not in file.worlds:
                what, expected = "there is no such world", ", ".join(file.worlds)
                problems.append(_fault(document, (*path, "small", "world"), what, small.world, expected))
            where = (*path, "small", "seeds") if small.seeds else ("seeds",)
            problems += _seed_faults(where, small.seeds or file.seeds, claim.id, file, document)
    return list(dict.fromkeys(problems)) + [
        _fault(document, ("earlier", index, "verdicts"), "there is no such claim", name, "an identifier of this file")
        for index, one in enumerate(file.earlier)
        for name in one.verdicts
        if name not in seen
    ]


def _seed_faults(path: Path_, seeds: list[int], claim: str, file: ClaimsFile, document: Document) -> Iterator[Problem]:
    # seeds that chose settings do not judge, nor those that judged the claim under an earlier registration
    judged = [seed for one in file.earlier if claim in one.verdicts for seed in one.seeds]
    chosen, before = "settings were chosen with these seeds", "claims were judged with these seeds before"
    used = [
        (f"{chosen}, so they cannot judge", file.settings_seeds, "other seeds than settings_seeds"),
        (f"{before}, so they cannot judge the new settings", judged, "other seeds than those under 'earlier'"),
    ]
    for what, taken, expected in used:
        if both := sorted(set(seeds) & set(taken)):
            yield _fault(document, path, what, ", ".join(map(str, both)), expected)


def _fault(document: Document, path: Path_, what: str, got: str, expected: str = "") -> Problem:
    # with the line where the claim begins, the seeds or the earlier registrations
    return Problem(dotted(path), what, document.place(path[: 1 if path[0] == "earlier" else 2]), got, expected)
