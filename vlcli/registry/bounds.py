"""Checks the numbers of a recipe by bounds of their annotation (:class:`Between`) or of their parameter's name."""

import math
import re
import typing
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

Number = int | float
# The largest whole number: what 64 bits hold
MOST_INT = 2**63 - 1


@dataclass(frozen=True)
class Between:
    """Bounds of a number in a recipe, which must be finite; ``above`` and ``below`` exclude ``low`` and ``high``."""

    low: Number
    high: Number
    above: bool = False
    below: bool = False

    def holds(self, number: Number) -> bool:
        over = number > self.low if self.above else number >= self.low
        under = number < self.high if self.below else number <= self.high
        return over and under and math.isfinite(number)

    def text(self, whole: bool = False) -> str:
        """Returns the bounds for a message: "a whole number from 1 to 1,024"."""
        first = f"above {_figure(self.low)}" if self.above else f"from {_figure(self.low)}"
        last = f"below {_figure(self.high)}" if self.below else f"to {_figure(self.high)}"
        joint = " and " if self.above or self.below else " "
        return f"a {'whole ' if whole else ''}number {first}{joint}{last}"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        expected = self.text(whole=source is int)

        def check(value: Any, inner: core_schema.ValidatorFunctionWrapHandler) -> Any:
            try:
                number = inner(value)
            except ValidationError:
                raise ValueError(expected) from None
            if isinstance(value, bool) or not self.holds(number):
                raise ValueError(expected)
            return number

        return core_schema.no_info_wrap_validator_function(check, handler(source))

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        low = "exclusiveMinimum" if self.above else "minimum"
        high = "exclusiveMaximum" if self.below else "maximum"
        return {**handler(core), low: self.low, high: self.high}


Share = Annotated[float, Between(0, 1)]
Weight = Annotated[float, Between(-1e6, 1e6)]
Positive = Annotated[float, Between(0, 1e6, above=True)]
NotNegative = Annotated[float, Between(0, 1e6)]
Count = Annotated[int, Between(1, 10**12)]
CountOrNone = Annotated[int, Between(0, 10**12)]
BatchSize = Annotated[int, Between(1, 10**6)]
Processes = Annotated[int, Between(0, 1024)]
Threads = Annotated[int, Between(1, 1024)]  # or stages that run at the same time
Seed = Annotated[int, Between(0, MOST_INT)]

_SIZES = "image_size|short|long|shortest|longest|max_length|min_length|side|resolution|window|stride|length"
_SHARES = "dropout|drop_path|probability|smoothing|distill|momentum|flip|erasing|cropped|confidence|nms|proposal_nms"
_COUNTS = (
    "limit|beams|candidates|queries|proposals|max_boxes|min_boxes|samples|negatives|images|pictures|classes|words"
    "|regions"
)
_BY_NAME = {
    r"(?:\w+_)?(?:layers|blocks|depths?)": Between(0, 1000),
    r"(?:\w+_)?heads": Between(1, 1024),
    r"(?:\w+_)?hidden": Between(1, 65_536),
    r"(?:\w+_)?(?:width|dim|intermediate|channels)": Between(0, 65_536),
    r"patch|kernel": Between(1, 65_536),
    r"(?:\w+_)?batch(?:_size)?|block": Between(1, 10**6),
    r"workers": Between(0, 1024),
    r"threads": Between(1, 1024),
    r"seed": Between(0, MOST_INT),
    rf"{_SHARES}|\w+_share": Between(0, 1),
    r"temperature": Between(0, 1e6, above=True),
    r"eps|(?:\w+_)?std": Between(0, 1000),
    r"memory": Between(0, 10**9),  # retrieval: at 0 every encoded row waits on disk
    r"queue|codes": Between(1, 10**9),
    _SIZES: Between(0, 65_536),
    _COUNTS: Between(0, 10**9),
    r"(?:\w+_)?weight": Between(-1e6, 1e6),
}
_ANY = Between(-1e12, 1e12)


def number_fault(name: str, annotation: Any, value: Any) -> tuple[Number, str] | None:
    """Returns the first number in ``value`` (or its lists and mappings) out of bounds, and the bounds as text; or None.

    Bounds in the annotation, which pydantic checks, replace those of the parameter's name.
    """
    by_name = (bounds for pattern, bounds in _BY_NAME.items() if re.fullmatch(pattern, name))
    bounds = _ANY if has_bounds(annotation) else next(by_name, _ANY)
    outside = next((number for number in numbers_in(value) if not bounds.holds(number)), None)
    return None if outside is None else (outside, bounds.text(whole=_is_whole(annotation)))


def has_bounds(annotation: Any) -> bool:
    """Whether an annotation has bounds: :class:`Between`, or ``ge``, ``gt``, ``le``, ``lt``."""
    for item in getattr(annotation, "__metadata__", ()):
        parts = (item, *getattr(item, "metadata", ()))
        ends = [getattr(part, end, None) for part in parts for end in ("ge", "gt", "le", "lt")]
        if any(isinstance(part, Between) for part in parts) or any(end is not None for end in ends):
            return True
    return any(has_bounds(inner) for inner in typing.get_args(annotation) if not isinstance(inner, str))


def _is_whole(annotation: Any) -> bool:
    inner = [_is_whole(one) for one in typing.get_args(annotation) if _is_number(one)]
    return all(inner) if inner else annotation is int


def _is_number(annotation: Any) -> bool:
    return annotation in (int, float) or any(map(_is_number, typing.get_args(annotation)))


def numbers_in(value: Any) -> typing.Iterator[Number]:
    """Yields the numbers in a value, its lists and its mappings."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield value
    elif isinstance(value, list | tuple | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from numbers_in(item)


def _figure(number: Number) -> str:
    if number == MOST_INT:
        return "2^63 - 1"
    return f"{int(number):,}" if number == int(number) else f"{number:g}"
