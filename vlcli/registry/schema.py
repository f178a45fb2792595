"""A component's signature is its schema: keyword-only parameters are what a recipe may set.

Where ``__init__`` takes ``**options``, the parameters of the base class are the component's too.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

from pydantic import ConfigDict, PydanticUndefinedAnnotation, create_model

from vlcli.errors import ComponentError
from vlcli.registry.bounds import Between

_ARGS = re.compile(r"^Args:\n(?:    .*(?:\n|\Z))+", re.MULTILINE)
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
    """One thing a recipe may set on a component.

    Attributes:
        name: the parameter.
        annotation: its type.
        default: its default; ``inspect.Parameter.empty`` where it must be given.
        kind: the registry kind of the component(s) it holds, or None.
    """

    name: str
    annotation: Any
    default: Any
    kind: str | None = None

    @property
    def required(self) -> bool:
        """Whether a recipe must give it."""
        return self.default is inspect.Parameter.empty

    @property
    def type_text(self) -> str:
        """The type as a person reads it."""
        return _type_text(self.annotation)


def as_spec(value: Any) -> Spec:
    """``"irpe"`` and ``{"name": "irpe", ...}`` are the same choice; returns a new mapping with ``name``."""
    if isinstance(value, str):
        return {"name": value}
    if isinstance(value, dict) and isinstance(value.get("name"), str):
        return dict(value)
    raise ComponentError(
        "This is not a component.", got=repr(value), expected="a name, or a mapping with the key 'name'"
    )


def parameters(component: Callable[..., Any]) -> dict[str, Parameter]:
    """The keyword-only parameters of a component, with resolved types."""
    return dict(_parameters(component))


@lru_cache(maxsize=1024)
def _parameters(component: Callable[..., Any]) -> dict[str, Parameter]:
    found: dict[str, Parameter] = {}
    for target in _constructors(component):
        hints = _hints(target)
        taken = inspect.signature(target).parameters.values()
        for parameter in taken:
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                annotation = hints.get(parameter.name, Any)
                made = Parameter(parameter.name, annotation, parameter.default, _kind_of(annotation))
                found.setdefault(parameter.name, made)
        if all(parameter.kind is not inspect.Parameter.VAR_KEYWORD for parameter in taken):
            break
    return found


def _constructors(component: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """A function itself; of a class its ``__init__``, then those of its bases, to which ``**options`` are passed."""
    if not inspect.isclass(component):
        yield component
        return
    yield from (vars(one)["__init__"] for one in component.__mro__ if "__init__" in vars(one))


def documentation(component: Callable[..., Any]) -> str:
    """Return the docstring of a component; of a class, its ``Args`` end with the bases' lines on inherited options."""
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
    args = _ARGS.search(text)
    return {match[1]: match[0].rstrip("\n") for match in _OPTION.finditer(args[0] if args else "")}


@lru_cache(maxsize=1024)
def validator(component: Callable[..., Any]) -> Any:
    """A pydantic model of the parameters: unknown keys refused, values coerced as YAML needs."""
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=True, protected_namespaces=())
    fields: dict[str, Any] = {}
    for parameter in parameters(component).values():
        default = ... if parameter.required else parameter.default
        fields[parameter.name] = (parameter.annotation, default)
    try:
        return create_model(getattr(component, "__name__", "component"), __config__=config, **fields)
    except PydanticUndefinedAnnotation as error:
        raise ComponentError("A parameter's type cannot be resolved.", got=str(error)) from error


def _hints(target: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(target, include_extras=True)
    except NameError as error:
        place = f"{target.__module__}:{target.__qualname__}"
        raise ComponentError("A parameter's type cannot be resolved.", where=place, got=str(error)) from error


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
