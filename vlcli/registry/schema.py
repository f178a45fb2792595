"""Reads the options of a component: its keyword-only parameters, with types and defaults."""

import inspect
import re
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

from pydantic import ConfigDict, PydanticUndefinedAnnotation, create_model

from vlcli.errors import ComponentError
from vlcli.registry.bounds import Between

_ARGS = re.compile(r"^Args:\n(?:    .*(?:\n|\Z))+", re.MULTILINE)
_SECTION = re.compile(_ARGS.pattern.replace("Args", "(?:Args|Attributes)"), re.MULTILINE)
_OPTION = re.compile(r"^    (\w+):.*(?:\n     .*)*", re.MULTILINE)

Spec = dict[str, Any]
"""A component as a recipe writes it: ``{"name": "irpe", "method": "product"}``."""


@dataclass(frozen=True)
class Kind:
    """Marks a parameter that is itself a component: ``position: Annotated[Spec | str | None, Kind("positions")]``."""

    kind: str


AttentionSpec = Annotated[Spec | str, Kind("attentions")]
"""A parameter that is a component of the kind ``attentions``."""
DatasetSpec = Annotated[Spec | str, Kind("datasets")]
"""A parameter that is a component of the kind ``datasets``."""
DrawingSpec = Annotated[Spec | str, Kind("drawings")]
"""A parameter that is a component of the kind ``drawings``."""
ExporterSpec = Annotated[Spec | str, Kind("exporters")]
"""A parameter that is a component of the kind ``exporters``."""
ExtractorSpec = Annotated[Spec | str, Kind("extractors")]
"""A parameter that is a component of the kind ``extractors``."""
ModelSpec = Annotated[Spec | str, Kind("models")]
"""A parameter that is a component of the kind ``models``."""
ObjectiveSpec = Annotated[Spec | str, Kind("objectives")]
"""A parameter that is a component of the kind ``objectives``."""
PositionSpec = Annotated[Spec | str, Kind("positions")]
"""A parameter that is a component of the kind ``positions``."""
RewriteSpec = Annotated[Spec | str, Kind("rewrites")]
"""A parameter that is a component of the kind ``rewrites``."""
RoleSpec = Annotated[Spec | str, Kind("roles")]
"""A parameter that is a component of the kind ``roles``."""
TaskSpec = Annotated[Spec | str, Kind("tasks")]
"""A parameter that is a component of the kind ``tasks``."""
TrackerSpec = Annotated[Spec | str, Kind("trackers")]
"""A parameter that is a component of the kind ``trackers``."""
TransformSpec = Annotated[Spec | str, Kind("transforms")]
"""A parameter that is a component of the kind ``transforms``."""


@dataclass(frozen=True)
class Parameter:
    """One option of a component.

    Attributes:
        default: ``inspect.Parameter.empty`` if the option is required.
        kind: the registry kind if the value is a component or a list of them, else None.
    """

    name: str
    annotation: Any
    default: Any
    kind: str | None = None

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty

    @property
    def type_text(self) -> str:
        """The type as ``vlcli show`` prints it."""
        return _type_text(self.annotation)


def as_spec(value: Any) -> Spec:
    """Returns a recipe's entry as a new mapping with ``name``: ``{"name": "irpe"}`` for ``"irpe"``."""
    if isinstance(value, str):
        return {"name": value}
    if isinstance(value, dict) and isinstance(value.get("name"), str):
        return dict(value)
    expected = "a name, or a mapping with the key 'name'"
    raise ComponentError("This is not a component.", got=repr(value), expected=expected)


def parameters(component: Callable[..., Any]) -> dict[str, Parameter]:
    """Returns the keyword-only parameters of a component by name; with ``**options`` also those of its base class.

    Raises:
        ComponentError: a type cannot be resolved.
    """
    return dict(_parameters(component))


@lru_cache(maxsize=1024)
def _parameters(component: Callable[..., Any]) -> dict[str, Parameter]:
    constructors: list[Callable[..., Any]] = [component]
    if inspect.isclass(component):
        constructors = [vars(one)["__init__"] for one in component.__mro__ if "__init__" in vars(one)]
    options: dict[str, Parameter] = {}
    for target in constructors:
        try:
            hints = typing.get_type_hints(target, include_extras=True)
        except NameError as error:
            where = f"{target.__module__}:{target.__qualname__}"
            raise ComponentError("A parameter's type cannot be resolved.", where=where, got=str(error)) from error
        signature = inspect.signature(target).parameters.values()
        for one in signature:
            if one.kind is one.KEYWORD_ONLY and one.name not in options:
                annotation = hints.get(one.name, Any)
                options[one.name] = Parameter(one.name, annotation, one.default, _kind_of(annotation))
        if all(one.kind is not one.VAR_KEYWORD for one in signature):
            break
    return options


def documentation(component: Callable[..., Any]) -> str:
    """Return the docstring of a component, with the lines of a class's bases on inherited options."""
    text = inspect.getdoc(component) or ""
    inherited: dict[str, str] = {}
    for base in inspect.getmro(component)[1:] if inspect.isclass(component) else ():
        inherited = _option_lines(inspect.cleandoc(base.__doc__ or "")) | inherited
    written = _option_lines(text)
    more = [inherited[name] for name in parameters(component) if name in inherited and name not in written]
    if not more:
        return text
    args = _ARGS.search(text)
    head, tail = (text[: args.end()].rstrip("\n"), text[args.end() :]) if args else (f"{text}\n\nArgs:", "")
    return "\n".join([head, *more, *([tail] if tail else [])])


def _option_lines(text: str) -> dict[str, str]:
    sections = "".join(match[0] for match in _SECTION.finditer(text))
    return {match[1]: match[0].rstrip("\n") for match in _OPTION.finditer(sections)}


@lru_cache(maxsize=1024)
def validator(component: Callable[..., Any]) -> Any:
    """Returns a pydantic model of the parameters, without unknown keys, that converts the values of YAML."""
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=True, protected_namespaces=())
    fields: dict[str, Any] = {
        one.name: (one.annotation, ... if one.required else one.default) for one in parameters(component).values()
    }
    try:
        return create_model(getattr(component, "__name__", "component"), __config__=config, **fields)
    except PydanticUndefinedAnnotation as error:
        raise ComponentError("A parameter's type cannot be resolved.", got=str(error)) from error


def _kind_of(annotation: Any) -> str | None:
    for item in getattr(annotation, "__metadata__", ()):
        if isinstance(item, Kind):
            return item.kind
    return next((kind for kind in map(_kind_of, typing.get_args(annotation)) if kind), None)


def _type_text(annotation: Any) -> str:
    if kind := _kind_of(annotation):
        return f"{kind[:-1]} (a component)"
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return "None" if annotation is type(None) else annotation.__name__
    if typing.get_origin(annotation) is typing.Literal:
        return " | ".join(map(repr, typing.get_args(annotation)))
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return " | ".join(map(_type_text, typing.get_args(annotation)))
    if extra := getattr(annotation, "__metadata__", ()):
        bounds = [f" ({item.text().removeprefix('a number ')})" for item in extra if isinstance(item, Between)]
        return _type_text(typing.get_args(annotation)[0]) + "".join(bounds[:1])
    return str(annotation).replace("typing.", "").replace("NoneType", "None")
