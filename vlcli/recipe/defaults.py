"""What the stages of one kind share: the key ``defaults``, merged under every stage of the kind.

    defaults:
      finetune: {batch_size: 64, optimizer: {lr: 1e-3}}
    stages:
      long: {kind: finetune, epochs: 9}                 # batches of 64 at 1e-3
      slow: {kind: finetune, optimizer: {lr: 1e-4}}     # batches of 64 at 1e-4

A stage's own keys take precedence, mappings key by key, as a child's do over its parent's under ``extends``.
"""

from __future__ import annotations

import copy
import difflib
from typing import Any

from vlcli.errors import Problem, shown
from vlcli.recipe import merge
from vlcli.recipe.schema import STAGES, kind_of
from vlcli.recipe.yaml import Document, Path_

KEY = "defaults"


def expand(document: Document) -> list[Problem]:
    """Merge ``defaults`` under the stages and take the key out of ``document``.

    Args:
        document: a recipe merged with its parents; nothing of it is shared with another.

    Returns:
        Faults of the key itself: kinds that there are none of, and keys that no stage of the kind has.
    """
    given = document.value.pop(KEY, None)
    if given is None:
        return []
    problems = _faults(given, document)
    stages = document.value.get("stages")
    if problems or not isinstance(stages, dict):
        return problems
    for name, stage in stages.items():
        kind = kind_of(name, stage) if isinstance(stage, dict) else ""
        if given.get(kind):
            _merge_under(document, name, kind, given[kind])
    return []


def _merge_under(document: Document, name: str, kind: str, shared: dict[str, Any]) -> None:
    at: Path_ = ("stages", name)
    lines = {(*at, *path[2:]): where for path, where in document.places.items() if path[:2] == (KEY, kind)}
    own = {path: where for path, where in document.places.items() if path[:2] == at}
    stage = Document({"stages": {name: document.value["stages"][name]}}, own)
    merged = merge.merge(Document({"stages": {name: copy.deepcopy(shared)}}, lines), stage)
    document.value["stages"][name] = merged.value["stages"][name]
    place = document.places.get(at)
    document.places.update(merged.places)
    if place is not None:
        document.places[at] = place


def _faults(given: Any, document: Document) -> list[Problem]:
    if not isinstance(given, dict):
        what, expected = "defaults are a mapping from kinds of stages to keys", "finetune: {batch_size: 64}"
        return [Problem(KEY, what, document.place((KEY,)), shown(given, 60), expected)]
    problems = []
    for kind, keys in given.items():
        path, key = document.place((KEY, kind)), f"{KEY}.{kind}"
        if kind not in STAGES:
            close = difflib.get_close_matches(str(kind), list(STAGES), n=1)
            hint = f"did you mean {close[0]!r}?" if close else ""
            problems.append(Problem(key, f"there is no stage kind {kind!r}", path, "", ", ".join(STAGES), hint))
        elif keys is not None and not isinstance(keys, dict):
            problems.append(Problem(key, "the defaults of a kind are a mapping", path, shown(keys, 60)))
        else:
            problems += [_unknown(kind, word, document) for word in keys or {} if word not in _known(kind)]
    return problems


def _known(kind: str) -> list[str]:
    fields = STAGES[kind].model_fields
    return [info.alias or name for name, info in fields.items() if name != "kind"]


def _unknown(kind: str, word: str, document: Document) -> Problem:
    close = difflib.get_close_matches(str(word), _known(kind), n=1)
    hint = f"did you mean {close[0]!r}?" if close else ""
    place, expected = document.place((KEY, kind, word)), ", ".join(_known(kind))
    return Problem(f"{KEY}.{kind}.{word}", f"unknown key {word!r}", place, "", expected, hint)
