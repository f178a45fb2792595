"""A registered claim as a line of a list and as JSON."""

from __future__ import annotations

from typing import Any

from vlcli.claims.load import Registered


def as_row(one: Registered) -> dict[str, Any]:
    """The facts of a claim, and ``test``: which rows of which recipe decide it, or that none can."""
    claim, small = one.claim, one.small
    facts = claim.model_dump(exclude={"small"}, exclude_none=True)
    facts |= {"paper": one.file.paper, "title": one.file.title, "place": one.place, "test": "not in small"}
    if small is None:
        return facts
    tested = small.model_dump(exclude_none=True) | {"seeds": one.seeds, "power": one.power.model_dump()}
    test = f"{small.recipe}:{small.rows[0]} against {small.rows[1]}, {small.metric}"
    return facts | {"small": tested | {"about": one.file.worlds[small.world]}, "test": test}
