"""Counts scored examples whose answers are not in the training data of the model."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from vlcli.data.reader import Reader
from vlcli.errors import VlcliError
from vlcli.recipe.resolve import ResolvedStage, resolve
from vlcli.recipe.schema import Evaluate, Finetune, Recipe, Stage
from vlcli.registry import Spec
from vlcli.tasks.base import Task

Open = Callable[[str, Spec], Reader | None]
"""Opens a data set of a stage, by name and spec; None if it cannot be read yet."""
_NAMED = 3


def never_right(recipe: Recipe, opened: Open, stages: Iterable[str] | None = None) -> list[str]:
    """Returns a line for each data set of evaluations and validations with such examples; ``stages``: None is all."""
    lines: list[str] = []
    for name in recipe.stages if stages is None else stages:
        stage = recipe.stages[name]
        trained = name if isinstance(stage, Finetune) else _trained(recipe, stage)
        if trained is None or not isinstance(stage, Evaluate | Finetune):
            continue
        training, own = resolve(recipe, recipe.stages[trained]), resolve(recipe, stage)
        scored = stage.validation if isinstance(stage, Finetune) else own.data if own.task == training.task else []
        with suppress(VlcliError):  # told where the stage itself is checked
            known = _known(training, trained, opened) if scored else set()
            readers = [opened(name, spec) for spec in scored] if known else []
            for reader in filter(None, readers):
                lines += _line(training.built_task, reader, known)
    return list(dict.fromkeys(lines))


def _trained(recipe: Recipe, stage: Stage) -> str | None:
    for word in stage.source:
        above = recipe.stages.get(word)
        if above is not None and (found := word if isinstance(above, Finetune) else _trained(recipe, above)):
            return found
    return None


def _known(training: ResolvedStage, name: str, opened: Open) -> set[str]:
    readers: list[Any] = [opened(name, spec) for spec in training.data]
    if training.built_task is None or not all(readers):
        return set()
    return set(training.built_task.labels(readers))


def _line(task: Task, reader: Reader, known: set[str]) -> Iterator[str]:
    names, examples = reader.label_names(), reader.examples()
    answers = [task.right_answers(example, names) for example in examples]
    lost = Counter(some[0] for some in answers if some and known.isdisjoint(some))
    if lost:
        most = ", ".join(f"{answer} {count:,}" for answer, count in lost.most_common(_NAMED))
        number, more = f"{lost.total():,} of {len(examples):,} examples", " ..." if len(lost) > _NAMED else ""
        why = f"have an answer that the training does not know ({most}{more}): they can never be right"
        yield f"{reader.label}: {number} {why}"
