"""The JSON Schema of recipes, for editors: completion of keys and names, and faults while one types.

It is made of the models that check recipes, so that both know the same keys and bounds. Parameters of components are
not part of it (``vlcli validate --deep`` checks them): looking them up imports the components.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from vlcli.recipe.components import FIELDS, READER_OPTIONS
from vlcli.recipe.fields import SPEC_SCHEMA, one_or_many
from vlcli.recipe.rows import NOT_IN_ROWS
from vlcli.recipe.schema import STAGES, Recipe
from vlcli.registry import names

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NULL = {"type": "null"}
_COMPONENTS = {key: kind for key, kind in FIELDS.items() if key != "model"} | {"world": "worlds"}
"""A stage's model may also be a part of the recipe's, so it has a schema for itself."""


def recipe_schema() -> dict[str, Any]:
    """The schema of a recipe file.

    A recipe with ``extends`` may say a part of a stage or of a component only, and ``~`` (null) where it takes a key
    out; the schema allows both everywhere, since it does not know the parent.

    Returns:
        A JSON Schema (2020-12).
    """
    definitions: dict[str, Any] = {}
    recipe = _plain(Recipe, definitions)
    stages = {kind: _plain(model, definitions) for kind, model in STAGES.items()}
    for kind, found in stages.items():
        _name_components(found["properties"])
        found["properties"]["kind"] = {"enum": _said(kind)}
        definitions[f"stage-{kind}"] = found
    definitions |= {f"component-{kind}": _component(kind) for kind in {*_COMPONENTS.values(), "models"}}
    definitions["stage"] = _any_stage(stages)
    properties = recipe["properties"]
    properties["model"] = {"anyOf": [{"$ref": "#/$defs/component-models"}, {"type": "object"}, _NULL]}
    properties["stages"] = {
        "type": "object",
        "description": "Names of stages and what each does, in the order in which they run.",
        "properties": {kind: {"anyOf": [_of_kind(kind, by_name=True), _NULL]} for kind in stages},
        "additionalProperties": {"anyOf": [{"$ref": "#/$defs/stage"}, _NULL]},
    }
    properties["datasets"] = {
        "type": ["object", "null"],
        "description": "Data sets by a name of your own, which stages use under data, validation and fit.",
        "additionalProperties": {"anyOf": [_several("datasets"), {"type": "object"}, _NULL]},
    }
    rows = definitions["TableOptions"]["properties"]
    rows["rows"] = {"type": ["object", "null"], "additionalProperties": {"type": ["string", "null"]}}
    properties["defaults"] = _defaults(stages)
    properties["rows"], properties["skip"] = _rows(), {"type": ["object", "array", "string", "null"]}
    properties["published"] = {"type": ["object", "null"], "additionalProperties": {"$ref": "#/$defs/published"}}
    definitions |= {"row": _row(properties), "published": _PUBLISHED}
    recipe["anyOf"] = [{"required": ["stages"]}, {"required": ["extends"]}]
    head = {"$schema": DIALECT, "title": "vlcli recipe"}
    return {**head, **recipe, "$defs": dict(sorted(definitions.items()))}


def _defaults(stages: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": ["object", "null"],
        "description": "Keys that all stages of a kind share; the keys of a stage take precedence.",
        "properties": {kind: {"anyOf": [{"$ref": f"#/$defs/stage-{kind}"}, _NULL]} for kind in stages},
        "additionalProperties": False,
    }


def _rows() -> dict[str, Any]:
    row = {"anyOf": [{"$ref": "#/$defs/row"}, _NULL]}
    return {
        "type": ["object", "null"],
        "description": "Rows of a table: labels and what each row changes; or axes of a grid.",
        "additionalProperties": {"anyOf": [row, {"type": "object", "additionalProperties": row}]},
    }


def _row(properties: dict[str, Any]) -> dict[str, Any]:
    keys = {key: {"$ref": f"#/properties/{key}"} for key in properties if key not in NOT_IN_ROWS}
    keys |= {"published": {"$ref": "#/$defs/published"}, "unchanged": {"type": "boolean"}}
    return {"type": "object", "properties": keys, "additionalProperties": False}


_PUBLISHED = {
    "type": ["object", "null"],
    "description": "Published numbers by metric, in the metric's unit; [mean, spread] where the paper gives a spread.",
    "additionalProperties": {
        "anyOf": [{"type": "number"}, {"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": 2}]
    },
}


def _plain(model: type[BaseModel], definitions: dict[str, Any]) -> dict[str, Any]:
    found = model.model_json_schema(by_alias=True, ref_template="#/$defs/{model}")
    parts = found.pop("$defs", {})
    for part in (found, *parts.values()):
        part.pop("required", None)
        part.pop("title", None)
        part["properties"] = {key: _nullable(value) for key, value in part.get("properties", {}).items()}
    definitions.update(parts)
    return dict(found)


def _nullable(field: dict[str, Any]) -> dict[str, Any]:
    rest = {key: value for key, value in field.items() if key not in ("title", "default")}
    notes = {key: field[key] for key in ("default",) if field.get(key) is not None}
    return {"anyOf": [rest, _NULL], **notes}


def _name_components(properties: dict[str, Any]) -> None:
    for key, kind in _COMPONENTS.items():
        if key in properties:
            properties[key] = {"anyOf": [_several(kind), {"type": "object"}, _NULL]}
    if "model" in properties:
        properties["model"] = {"anyOf": [{"$ref": "#/$defs/component-models"}, {"type": "object"}, _NULL]}


def _several(kind: str) -> dict[str, Any]:
    return one_or_many({"$ref": f"#/$defs/component-{kind}"})


def _component(kind: str) -> dict[str, Any]:
    name = {"anyOf": [{"enum": names(kind)}, SPEC_SCHEMA["anyOf"][0]]}
    mapping = {"type": "object", "required": ["name"], "properties": {"name": name}}
    if kind == "datasets":
        mapping["properties"] = {"name": name, **{key: {} for key in READER_OPTIONS}}
    return {"description": f"One of the {kind} that `vlcli ls {kind}` lists.", "anyOf": [name, mapping]}


def _of_kind(kind: str, by_name: bool = False) -> dict[str, Any]:
    if not by_name:
        return {"$ref": f"#/$defs/stage-{kind}"}
    said = {"required": ["kind"]}
    return {"if": said, "then": {"$ref": "#/$defs/stage"}, "else": {"$ref": f"#/$defs/stage-{kind}"}}


def _any_stage(stages: dict[str, Any]) -> dict[str, Any]:
    keys: dict[str, Any] = {}
    for found in stages.values():
        for key, value in found["properties"].items():
            keys.setdefault(key, []).append(value)
    union = {key: value[0] if len(value) == 1 else {"anyOf": _unlike(value)} for key, value in keys.items()}
    union["kind"] = {"enum": [*stages, "eval"]}
    cases = [
        {
            "if": {
                "required": ["kind"],
                "properties": {"kind": {"enum": [kind, *(["eval"] if kind == "evaluate" else [])]}},
            },
            "then": _of_kind(kind),
        }
        for kind in stages
    ]
    return {"type": "object", "properties": union, "additionalProperties": False, "allOf": cases}


def _said(kind: str) -> list[str]:
    return [kind, "eval"] if kind == "evaluate" else [kind]


def _unlike(values: list[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found
