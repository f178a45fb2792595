"""Types of a recipe's fields: one or several names, paths and components."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, WithJsonSchema

from vlcli.errors import ComponentError
from vlcli.registry.bounds import Between
from vlcli.registry.schema import Kind, as_spec


class Section(BaseModel):
    """A part of a recipe: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=(), frozen=True)


def as_list(value: Any) -> Any:
    """Returns a single item as a list of one; lists and None as they are."""
    return value if isinstance(value, list) or value is None else [value]


def _place(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError("the name of an earlier stage, of a file or of a folder, or a list of them")
    return value


def one_spec(value: Any) -> Any:
    """Returns a component's spec; a ValueError if it is none, which pydantic reports with every other fault."""
    try:
        return as_spec(value)
    except ComponentError as error:
        raise ValueError(error.expected) from error


def all_specs(value: Any) -> Any:
    """Returns one component or several as a list of specs; None as it is."""
    return [one_spec(item) for item in as_list(value)] if value is not None else None


SPEC_SCHEMA: dict[str, Any] = {
    "anyOf": [{"type": "string"}, {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}]
}
"""JSON Schema of a component: its name, or a mapping with its name and its parameters."""


def one_or_many(item: dict[str, Any]) -> dict[str, Any]:
    """Returns the JSON Schema of a field that holds one item or a list of items."""
    return {"anyOf": [item, {"type": "array", "items": item}]}


SpecField = Annotated[dict[str, Any], BeforeValidator(one_spec), WithJsonSchema(SPEC_SCHEMA)]
OptionalSpec = Annotated[
    dict[str, Any] | None,
    BeforeValidator(lambda value: None if value is None else one_spec(value)),
    WithJsonSchema({"anyOf": [SPEC_SCHEMA, {"type": "null"}]}),
]
ModelField = Annotated[
    dict[str, Any] | None,
    BeforeValidator(lambda value: {"name": value} if isinstance(value, str) else value),
    WithJsonSchema({"type": ["string", "object", "null"]}),
]
"""A stage's model: a name, a whole component, or only the keys that change of the recipe's model."""
SpecList = Annotated[list[dict[str, Any]], BeforeValidator(all_specs), WithJsonSchema(one_or_many(SPEC_SCHEMA))]
OptionalSpecs = Annotated[
    list[dict[str, Any]] | None, BeforeValidator(all_specs), WithJsonSchema(one_or_many(SPEC_SCHEMA))
]
DataField = Annotated[
    list[dict[str, Any]], BeforeValidator(all_specs), Kind("datasets"), WithJsonSchema(one_or_many(SPEC_SCHEMA))
]
Place = Annotated[str, BeforeValidator(_place)]
Places = Annotated[list[Place], BeforeValidator(as_list), WithJsonSchema(one_or_many({"type": "string"}))]
Names = Annotated[list[str], BeforeValidator(as_list), WithJsonSchema(one_or_many({"type": "string"}))]
Beta = Annotated[float, Between(0, 1, below=True)]
