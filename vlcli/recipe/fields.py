"""Types of a recipe's fields, and the sections of a training stage: optimizer, schedule, EMA, early stopping."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, WithJsonSchema, model_validator

from vlcli.errors import ComponentError
from vlcli.registry.bounds import Between, Count, NotNegative, Positive, Share
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


def _model(value: Any) -> Any:
    return one_spec(value) if isinstance(value, str) or (isinstance(value, dict) and "name" in value) else value


def all_specs(value: Any) -> Any:
    """Returns one component or several as a list of specs; None as it is."""
    return [one_spec(item) for item in as_list(value)] if value is not None else None


# JSON Schema of a component: its name, or a mapping with its name and its parameters
SPEC_SCHEMA: dict[str, Any] = {
    "anyOf": [{"type": "string"}, {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}]
}


def one_or_many(item: dict[str, Any]) -> dict[str, Any]:
    """Returns the JSON Schema of a field that holds one item or a list of items."""
    return {"anyOf": [item, {"type": "array", "items": item}]}


SpecField = Annotated[dict[str, Any], BeforeValidator(one_spec), WithJsonSchema(SPEC_SCHEMA)]
OptionalSpec = Annotated[
    dict[str, Any] | None,
    BeforeValidator(lambda value: None if value is None else one_spec(value)),
    WithJsonSchema({"anyOf": [SPEC_SCHEMA, {"type": "null"}]}),
]
_MODEL_SCHEMA = WithJsonSchema({"type": ["string", "object", "null"]})
ModelField = Annotated[dict[str, Any] | None, BeforeValidator(_model), _MODEL_SCHEMA]
"""A stage's model: a name, a whole component, or only the keys that change of the recipe's model."""
_SPECS_SCHEMA = WithJsonSchema(one_or_many(SPEC_SCHEMA))
SpecList = Annotated[list[dict[str, Any]], BeforeValidator(all_specs), _SPECS_SCHEMA]
OptionalSpecs = Annotated[list[dict[str, Any]] | None, BeforeValidator(all_specs), _SPECS_SCHEMA]
DataField = Annotated[list[dict[str, Any]], BeforeValidator(all_specs), Kind("datasets"), _SPECS_SCHEMA]
Place = Annotated[str, BeforeValidator(_place)]
Places = Annotated[list[Place], BeforeValidator(as_list), WithJsonSchema(one_or_many({"type": "string"}))]
Names = Annotated[list[str], BeforeValidator(as_list), WithJsonSchema(one_or_many({"type": "string"}))]
Beta = Annotated[float, Between(0, 1, below=True)]


class GroupOptions(Section):
    """Options of the parameters whose name matches ``match`` (a regular expression, searched)."""

    match: str
    lr: NotNegative = 1.0
    decay: NotNegative | None = None


class OptimizerOptions(Section):
    """The optimizer; ``groups`` are tried in order, the first that matches wins.

    Without ``lr`` the engine chooses the rate (:mod:`vlcli.engine.schedule`).
    """

    name: Literal["adamw", "adam", "sgd", "bert-adam", "muon"] = "adamw"
    lr: NotNegative | None = None
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    eps: Share = 1e-8
    weight_decay: NotNegative = 0.01
    momentum: Beta = 0.9
    no_decay: list[str] = ["bias$", "(^|[._])(norm|layer_norm|LayerNorm)[^.]*\\.weight$"]
    groups: list[GroupOptions] = []
    layer_decay: Annotated[float, Between(0, 10, above=True)] = 1.0

    @property
    def ruled(self) -> bool:
        """Whether the engine's rule for learning rates holds."""
        return self.name not in ("sgd", "muon")

    @model_validator(mode="after")
    def _has_rate(self) -> Self:
        if self.lr is None and not self.ruled:
            raise ValueError(f"`lr` beside `name: {self.name}`: the rule that chooses one is for the variants of Adam")
        return self


class ScheduleOptions(Section):
    """The learning rate over time: warm-up (a share of all steps if below 1, else steps), then decay to ``end``.

    ``step`` multiplies it by ``factor`` at each of ``drops``, shares of all steps.
    """

    name: Literal["linear", "cosine", "constant", "polynomial", "step"] = "linear"
    warmup: Annotated[float, Between(0, 10**12)] = 0.05
    end: Share = 0.0
    power: Annotated[float, Between(0, 100, above=True)] = 1.0
    drops: list[Share] = []
    factor: Annotated[float, Between(0, 1000)] = 0.1


class EmaOptions(Section):
    """A moving average of the weights, used for evaluation and export."""

    decay: Share = 0.999
    warmup: bool = True


class StopOptions(Section):
    """Early stopping: after ``patience`` validations without an improvement by ``min_delta``, or after ``minutes``.

    The time includes validations and checkpoints.
    """

    patience: Count | None = None
    min_delta: NotNegative = 0.0
    minutes: Positive | None = None

    @model_validator(mode="after")
    def _says_when(self) -> Self:
        if self.patience is None and self.minutes is None:
            raise ValueError("`patience` (a number of validations), `minutes`, or both")
        return self
