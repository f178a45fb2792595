"""Builds the JSON Schema of recipes for editors, without the parameters of components, whose check imports them."""

from typing import Any

from pydantic import BaseModel

from vlcli.recipe.components import FIELDS, READER_OPTIONS
from vlcli.recipe.fields import SPEC_SCHEMA, one_or_many
from vlcli.recipe.rows import NOT_IN_ROWS
from vlcli.recipe.schema import STAGES, Recipe
from vlcli.registry import names

Schema = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NULL = {"type": "null"}
_COMPONENTS = {key: kind for key, kind in FIELDS.items() if key != "model"} | {"world": "worlds"}
_PUBLISHED = {
    "type": ["object", "null"],
    "description": "Published numbers by metric, in the metric's unit; [mean, spread] where the paper gives a spread.",
    "additionalProperties": {
        "anyOf": [{"type": "number"}, {"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": 2}]
    },
}


def recipe_schema() -> Schema:
    """Returns the JSON Schema (2020-12) of a recipe file; it allows parts and nulls everywhere, for ``extends``."""
    definitions: Schema = {}
    recipe = _plain(Recipe, definitions)
    stages = {kind: _plain(model, definitions) for kind, model in STAGES.items()}
    for kind, schema in stages.items():
        keys = schema["properties"]
        keys |= {key: _nullable(_several(_COMPONENTS[key]), {"type": "object"}) for key in keys if key in _COMPONENTS}
        if "model" in keys:  # it may also be a part of the recipe's
            keys["model"] = _nullable(_ref("component-models"), {"type": "object"})
        keys["kind"] = {"enum": [kind, "eval"] if kind == "evaluate" else [kind]}
        definitions[f"stage-{kind}"] = schema
    definitions |= {f"component-{kind}": _component(kind) for kind in {*_COMPONENTS.values(), "models"}}
    definitions["stage"] = _any_stage(stages)
    definitions["TableOptions"]["properties"]["rows"] = _mapping({"type": ["string", "null"]})
    properties = recipe["properties"]
    by_name = {
        kind: {"if": {"required": ["kind"]}, "then": _ref("stage"), "else": _ref(f"stage-{kind}")} for kind in stages
    }
    row = _nullable(_ref("row"))
    properties |= {
        "model": _nullable(_ref("component-models"), {"type": "object"}),
        "stages": {
            "type": "object",
            "description": "Names of stages and what each does, in the order in which they run.",
            "properties": {kind: _nullable(schema) for kind, schema in by_name.items()},
            "additionalProperties": _nullable(_ref("stage")),
        },
        "datasets": _mapping(
            _nullable(_several("datasets"), {"type": "object"}),
            description="Data sets by a name of your own, which stages use under data, validation and fit.",
        ),
        "defaults": _mapping(
            False,
            description="Keys that all stages of a kind share; the keys of a stage take precedence.",
            properties={kind: _nullable(_ref(f"stage-{kind}")) for kind in stages},
        ),
        "rows": _mapping(
            {"anyOf": [row, {"type": "object", "additionalProperties": row}]},
            description="Rows of a table: labels and what each row changes; or axes of a grid.",
        ),
        "skip": {"type": ["object", "array", "string", "null"]},
        "published": _mapping(_ref("published")),
        "others": _mapping(_ref("published"), description="Systems that no row builds: published numbers alone."),
        "published_in": {"type": "object", "description": "Table, page, split and unit of the published numbers."},
    }
    keys = {key: {"$ref": f"#/properties/{key}"} for key in properties if key not in NOT_IN_ROWS}
    keys |= {"published": _ref("published"), "unchanged": {"type": "boolean"}}
    definitions["row"] = {"type": "object", "properties": keys, "additionalProperties": False}
    definitions["published"] = _PUBLISHED
    recipe["anyOf"] = [{"required": ["stages"]}, {"required": ["extends"]}]
    return {"$schema": DIALECT, "title": "vlcli recipe", **recipe, "$defs": dict(sorted(definitions.items()))}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _nullable(*schemas: Schema) -> Schema:
    return {"anyOf": [*schemas, _NULL]}


def _mapping(values: Schema | bool, **notes: Any) -> Schema:
    return {"type": ["object", "null"], **notes, "additionalProperties": values}


def _several(kind: str) -> Schema:
    return one_or_many(_ref(f"component-{kind}"))


def _plain(model: type[BaseModel], definitions: Schema) -> Schema:
    # Every key is optional and nullable, because another recipe may have it.
    schema = model.model_json_schema(by_alias=True, ref_template="#/$defs/{model}")
    parts = schema.pop("$defs", {})
    for part in (schema, *parts.values()):
        part.pop("required", None)
        part.pop("title", None)
        for key, field in part.get("properties", {}).items():
            rest = {name: value for name, value in field.items() if name not in ("title", "default")}
            notes = {"default": field["default"]} if field.get("default") is not None else {}
            part["properties"][key] = {**_nullable(rest), **notes}
    definitions.update(parts)
    return schema


def _component(kind: str) -> Schema:
    name = {"anyOf": [{"enum": names(kind)}, SPEC_SCHEMA["anyOf"][0]]}  # or one of a package installed elsewhere
    options: Schema = {key: {} for key in READER_OPTIONS} if kind == "datasets" else {}
    mapping = {"type": "object", "required": ["name"], "properties": {"name": name, **options}}
    return {"description": f"One of the {kind} that `vlcli ls {kind}` lists.", "anyOf": [name, mapping]}


def _any_stage(stages: Schema) -> Schema:
    # The kind decides; without one (the parent has it) every key of any kind is allowed.
    keys: dict[str, list[Any]] = {}
    for schema in stages.values():
        for key, value in schema["properties"].items():
            alternatives = keys.setdefault(key, [])
            alternatives += [value] if value not in alternatives else []
    union = {key: values[0] if len(values) == 1 else {"anyOf": values} for key, values in keys.items()}
    union["kind"] = {"enum": [*stages, "eval"]}
    words = {kind: {"kind": schema["properties"]["kind"]} for kind, schema in stages.items()}
    conditions = {kind: {"required": ["kind"], "properties": word} for kind, word in words.items()}
    cases = [{"if": condition, "then": _ref(f"stage-{kind}")} for kind, condition in conditions.items()]
    return {"type": "object", "properties": union, "additionalProperties": False, "allOf": cases}
