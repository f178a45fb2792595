"""Defines the schema of a file of claims."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from vlcli.recipe.fields import Section
from vlcli.registry.bounds import Positive, Seed

ID = r"^[a-z0-9][a-z0-9-]*$"
"""Identifiers: lower-case letters, digits and hyphens, so that they can be typed and used as names of files."""
MOST_SEEDS = 100

Direction = Literal["higher", "lower"]
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


class Small(Section):
    """How a claim is tested: two rows of a small recipe, the first for the first of the published rows.

    Attributes:
        metric: of the recipe; as in the paper, the more the better.
        world: one of the file's worlds, in which the effect should show.
        seeds: that decide; None: the file's. So with ``power``.
    """

    recipe: Name
    rows: Rows
    metric: Name
    world: Name
    why: Sentence
    seeds: Seeds | None = None
    power: Power | None = None

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
            raise ValueError("'reason' stands beside 'small: none' and nowhere else")
        return self


class Earlier(Section):
    """Verdicts and differences of claims under an earlier registration; none of its seeds judges again."""

    settings: Sentence
    seeds: Seeds
    verdicts: Annotated[dict[str, tuple[Literal["reproduced", "opposite", "undecided"], float]], Field(min_length=1)]


class ClaimsFile(Section):
    """A paper's claims.

    Attributes:
        paper: short name, as in ``vlcli reproduce PAPER``.
        settings_seeds: seeds with which the settings of the small recipes were chosen; none of them judges.
        seeds: that decide, where a claim names none itself.
        worlds: descriptions by the name that claims use.
        earlier: registrations before this one, oldest first.
    """

    paper: Annotated[str, Field(pattern=ID, max_length=40)]
    title: Name
    settings_seeds: Seeds
    seeds: Seeds
    power: Power
    worlds: Annotated[dict[str, Sentence], Field(default_factory=dict)]
    earlier: Annotated[list[Earlier], Field(default_factory=list)]
    claims: Annotated[list[Claim], Field(min_length=1, max_length=1000)]

    @field_validator("seeds", "settings_seeds")
    @classmethod
    def _once(cls, seeds: list[int]) -> list[int]:
        if len(set(seeds)) < len(seeds):
            raise ValueError("every seed once")
        return seeds
