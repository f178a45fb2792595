"""Applies the overrides of the command line to a recipe: ``a.b=v``, ``~a.b``, ``a=@file.yaml``.

A first key of the recipe's root is absolute (``stages.pretrain.epochs=3``, ``seed=1``); any other is inside the verb's
stage (``epochs=3``). A list item is named by its position or by its ``as`` or ``name``
(``objectives.mlm.probability=0.2``). Overrides of the environment variable ``VLCLI_SET`` are applied first.
"""

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlcli.errors import UsageError, did_you_mean
from vlcli.recipe import yaml
from vlcli.recipe.schema import Recipe, Stage
from vlcli.recipe.yaml import Document, Path_


@dataclass(frozen=True)
class Override:
    """One override; ``text`` is as typed, ``origin`` the command line or ``VLCLI_SET``."""

    text: str
    keys: tuple[str, ...]
    value: Any = None
    remove: bool = False
    origin: str = "command line"


def is_override(word: str) -> bool:
    """Returns True if a positional word is an override rather than a name."""
    return "=" in word or word.startswith("~")


def collect(words: list[str]) -> list[Override]:
    """Parses the overrides of ``VLCLI_SET``, then those typed."""
    try:
        inherited = shlex.split(os.environ.get("VLCLI_SET", ""))
    except ValueError as error:
        raise UsageError("VLCLI_SET cannot be split into words.", got=str(error), hint="check its quotes") from error
    return [parse(w, "VLCLI_SET") for w in inherited] + [parse(w) for w in words]


def parse(text: str, origin: str = "command line") -> Override:
    """Parses one override. Raises UsageError: neither ``key=value`` nor ``~key``, or the value is not YAML."""
    path, equals, written = text.partition("=")
    remove = path.startswith("~") and not equals
    keys = tuple(path[remove:].split("."))
    if not (equals or remove) or not all(keys):
        expected = "key.path=value or ~key.path"
        raise UsageError("This override cannot be read.", where=origin, got=text, expected=expected)
    if remove:
        return Override(text, keys, remove=True, origin=origin)
    try:
        value = yaml.read(Path(written[1:]).expanduser()).value if written.startswith("@") else yaml.scalar(written)
        return Override(text, keys, value, origin=origin)
    except ValueError as error:
        what, hint = "An override's value is not YAML.", "quote it, e.g. 'key=\"text\"'"
        raise UsageError(what, where=origin, got=text, expected=str(error), hint=hint) from error


def absolute(override: Override, roots: list[str], stages: list[str], verb_stage: str | None) -> tuple[str, ...]:
    """Returns the override's path from the recipe's root, whose keys are ``roots``.

    ``verb_stage`` is the stage of the verb or of ``--only``, if it is one. Raises UsageError: the path is relative, and
    it is not clear which stage is meant.
    """
    if override.keys[0] in roots:
        return override.keys
    if verb_stage is not None:
        return ("stages", verb_stage, *override.keys)
    first = override.keys[0]
    stage, *tail = override.keys if first in stages else (stages[0] if stages else "STAGE", *override.keys)
    what = f"{first!r} is no key of the recipe's root, and it is not clear which stage is meant."
    where, expected = override.origin, f"stages are {', '.join(stages) or 'none'}; root keys are {', '.join(roots)}"
    hint = did_you_mean(first, roots) or f"name the stage: stages.{stage}.{'.'.join(tail)}=..., or --only STAGE"
    raise UsageError(what, where=where, got=override.text, expected=expected, hint=hint)


def apply(document: Document, override: Override, keys: tuple[str, ...]) -> None:
    """Changes ``document`` in place at the path ``keys``.

    Raises UsageError: the path leads through a value that has no keys, or what is to be removed is not there.
    """
    holder: Any = document.value
    path: Path_ = ()
    for word in keys[:-1]:
        key = _key_in(holder, word, override, path)
        inner = holder.get(key) if isinstance(holder, dict) else holder[key]
        if inner is None and isinstance(holder, dict) and not override.remove:
            inner = holder[key] = {}
        elif isinstance(inner, str):  # a component written as its name alone
            inner = holder[key] = {"name": inner}
        holder, path = inner, (*path, key)
    key = _key_in(holder, keys[-1], override, path)
    path = (*path, key)
    if override.remove and isinstance(holder, dict) and key not in holder:
        what, got, hint = "There is nothing to remove.", override.text, did_you_mean(str(key), holder)
        expected = ", ".join(map(str, holder)) or "no keys here"
        raise UsageError(what, where=override.origin, got=got, expected=expected, hint=hint)
    for inside in [place for place in document.places if place[: len(path)] == path]:
        del document.places[inside]
    if override.remove:
        del holder[key]
    else:
        holder[key] = override.value
        document.places[path] = f"{override.origin} ({override.text})"


def _key_in(holder: Any, key: str, override: Override, path: Path_) -> Any:
    if isinstance(holder, dict):
        return key
    if isinstance(holder, list):
        if re.fullmatch("-?[0-9]{1,9}", key) and -len(holder) <= int(key) < len(holder):
            return int(key) % len(holder)
        for index, item in enumerate(holder):
            if key in ((item.get("as"), item.get("name")) if isinstance(item, dict) else (item,)):
                return index
    items = enumerate(holder) if isinstance(holder, list) else ()
    known = [(item.get("as") or item.get("name") or i) if isinstance(item, dict) else item for i, item in items]
    what, below = f"The override's path does not exist at {key!r}.", ".".join(map(str, path)) or "the root"
    expected = f"below {below}: {', '.join(map(str, known)) or 'a single value, without keys'}"
    raise UsageError(what, where=override.origin, got=override.text, expected=expected)


def uneven(recipe: Recipe, words: list[str]) -> Iterator[str]:
    """Yields a line for each override that changes a stage and not its control (equal but for ``only``)."""
    paths = [text.removeprefix("~").partition("=")[0].split(".") for text in words]
    for root, stage, *rest in (path for path in paths if len(path) > 2):
        if root != "stages" or stage not in recipe.stages:
            continue
        for other in recipe.stages:
            alone = other != stage and ["stages", other, *rest] not in paths
            if alone and _controls(recipe.stages[stage], recipe.stages[other], rest[0]):
                here = f"stages.{stage}.{'.'.join(rest)} is set here"
                yield f"{here} and not in {other}, its control: the two are unequal now"


def _controls(stage: Stage, other: Stage, key: str) -> bool:
    one, two = (
        {k: v for k, v in each.model_dump(by_alias=True, mode="json").items() if k != key} for each in (stage, other)
    )
    return one != two and _without_only(one) == _without_only(two)


def _without_only(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_only(inner) for key, inner in value.items() if key not in ("only", "about")}
    return [_without_only(inner) for inner in value] if isinstance(value, list) else value
