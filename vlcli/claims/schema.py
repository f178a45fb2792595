"""What a file of claims may say (pydantic, as recipes): every fault is told with its line."""

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
    """What the number of seeds was estimated from, before any judged run.

    Attributes:
        difference: between the two rows' metrics, in the metric's unit, expected for the small recipe.
        deviation: standard deviation over seeds of the paired differences, in the same unit.
    """

    difference: Positive
    deviation: Positive


class Small(Section):
    """How a claim is put to the test in small.

    Attributes:
        recipe: registered name of a recipe with rows.
        rows: its two rows; the first stands for the first of the published rows.
        metric: name of the metric there; as in the paper, the more the better.
        world: name of one of the file's worlds.
        why: why the effect should show in that world, one sentence or two.
        seeds: that decide; None: the file's.
        power: what the number of seeds was estimated from; None: the file's.
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
        id: short name, unique among all installed claims; begins with the paper's name.
        claim: what the paper says, one sentence.
        table: number of its table (or figure: ``figure 3``).
        rows: the two rows of that table, as they are called there.
        metric: the column they are compared by.
        published: the two printed numbers.
        direction: whether the paper says that the first row's number is higher or lower than the second's.
        small: how the claim is tested; ``none`` where it cannot be.
        reason: why it cannot be tested in small; only, and always, with ``small: none``.
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
    """What claims showed under an earlier registration, which other settings and other seeds replaced.

    Attributes:
        settings: what the rows were then, and why they were registered anew.
        seeds: that judged then; none of them judges again.
        verdicts: by identifier of the claim: the verdict and the difference of the two rows.
    """

    settings: Sentence
    seeds: Seeds
    verdicts: Annotated[dict[str, tuple[Literal["reproduced", "opposite", "undecided"], float]], Field(min_length=1)]


class ClaimsFile(Section):
    """A paper's claims.

    Attributes:
        paper: short name, as in ``vlcli reproduce PAPER``.
        title: of the paper, with authors, venue and year.
        settings_seeds: seeds with which the settings of the small recipes were chosen; none of them is judged.
        seeds: that decide, where a claim names none itself.
        power: what their number was estimated from, where a claim says nothing itself.
        worlds: what each world is, by the name that claims give it.
        earlier: registrations before this one, oldest first.
        claims: the contrasts.
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
