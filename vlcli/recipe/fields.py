"""Types of a recipe's fields: one or several names, places and components."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator

from vlcli.errors import ComponentError
from vlcli.registry.bounds import Between
from vlcli.registry.schema import Kind, as_spec


def as_list(value: Any) -> Any:
    """A single item as a list of one; lists and None as they are."""
    return value if isinstance(value, list) or value is None else [value]


def _place(value: Any) -> Any:
    """A text that names a stage or a file; a ValueError that says so where it is none (a mapping, a number)."""
    if not isinstance(value, str):
        raise ValueError("the name of an earlier stage, of a file or of a folder, or a list of them")
    return value


def one_spec(value: Any) -> Any:
    """A component's spec; a ValueError where it is none, so that pydantic reports it with every other fault."""
    try:
        return as_spec(value)
    except ComponentError as error:
        raise ValueError(error.expected) from error


def spec_or_none(value: Any) -> Any:
    """The same; None stays None."""
    return None if value is None else one_spec(value)


def model_changes(value: Any) -> Any:
    """A stage's model: a name, a whole component, or only what it changes of the recipe's."""
    return {"name": value} if isinstance(value, str) else value


def all_specs(value: Any) -> Any:
    """One component or several, as a list of specs; None stays None."""
    return [one_spec(item) for item in as_list(value)] if value is not None else None


SpecField = Annotated[dict[str, Any], BeforeValidator(one_spec)]
DataField = Annotated[list[dict[str, Any]], BeforeValidator(all_specs), Kind("datasets")]
Place = Annotated[str, BeforeValidator(_place)]
Places = Annotated[list[Place], BeforeValidator(as_list)]
Names = Annotated[list[str], BeforeValidator(as_list)]
Beta = Annotated[float, Between(0, 1, below=True)]
