"""Selects the easy examples that the first epochs draw from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from vlcli.data.sample import Example
from vlcli.errors import DataError

PUNCTUATION = ".,;:!?()'\""


class CurriculumLimits(Protocol):
    """Limits on the examples before an epoch (:class:`vlcli.recipe.schema.CurriculumStep`)."""

    @property
    def until_epoch(self) -> int:
        """The first epoch without these limits."""
        ...

    @property
    def words(self) -> int | None:
        """Most words of a sentence."""
        ...

    @property
    def regions(self) -> int | None:
        """Most regions of a picture."""
        ...

    @property
    def targets(self) -> Mapping[str, Sequence[Any]]:
        """Values that targets must have, by name."""
        ...

    @property
    def without(self) -> Sequence[str]:
        """Words that no sentence has."""
        ...


class Curriculum:
    """The examples that are easy enough in an epoch.

    Args:
        steps: the first whose ``until_epoch`` lies ahead decides; behind the last, all examples are drawn from.
        examples: all of them.
        regions: returns the number of regions of a picture; None where pictures have none.

    Raises:
        DataError: a step leaves no example, or asks for regions where there are none.
    """

    def __init__(
        self, steps: Sequence[CurriculumLimits], examples: Sequence[Example], regions: Callable[[str], int] | None
    ) -> None:
        self._regions = regions
        self._counts: dict[str, int] = {}
        self._allowed: list[tuple[int, NDArray[np.bool_]]] = []
        for step in steps:
            if step.regions is not None and regions is None:
                what = "The curriculum counts regions, and the data have none."
                hint = "leave `regions` out, or use a model that reads regions"
                raise DataError(what, where="curriculum.regions", hint=hint)
            allowed = np.array([self._is_easy(step, example) for example in examples], bool)
            self._allowed.append((step.until_epoch, allowed))
        for (_, allowed), step in zip(self._allowed, steps, strict=True):
            if not allowed.any():
                raise _nothing(step, examples)

    def allowed(self, epoch: int) -> NDArray[np.bool_] | None:
        """Return a mask (N,) of the examples that an epoch draws from; None for all."""
        return next((allowed for until, allowed in self._allowed if epoch < until), None)

    def _is_easy(self, step: CurriculumLimits, example: Example) -> bool:
        texts = [text.split() for text in (example.text or "", *example.choices)]
        if step.words is not None and max(map(len, texts)) > step.words:
            return False
        later = {word.lower() for word in step.without}
        if later and any(word.strip(PUNCTUATION).lower() in later for text in texts for word in text):
            return False
        if any(example.targets.get(name) not in values for name, values in step.targets.items()):
            return False
        if step.regions is None or self._regions is None:
            return True
        for name in set(example.images) - set(self._counts):
            self._counts[name] = self._regions(name)
        return all(self._counts[name] <= step.regions for name in example.images)


def _nothing(step: CurriculumLimits, examples: Sequence[Example]) -> DataError:
    asked: dict[str, Any] = {"words": step.words, "regions": step.regions, **step.targets}
    if step.without:
        asked["without"] = " ".join(step.without)
    shortest = min((len(example.text.split()) for example in examples if example.text), default=0)
    return DataError(
        f"No example is easy enough for the curriculum before epoch {step.until_epoch}.",
        where="curriculum",
        got=", ".join(f"{name}: {value}" for name, value in asked.items() if value is not None and value != {}),
        expected=f"a bound that some examples meet; the shortest sentence has {shortest} words",
        hint="raise `words` or `regions`, or name other `targets` or fewer words in `without`",
    )
