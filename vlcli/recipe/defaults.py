"""Merges the key ``defaults``, keys that the stages of a kind share, under every stage of the kind.

    defaults: {finetune: {batch_size: 64, optimizer: {lr: 1e-3}}}
    stages:
      long: {kind: finetune, epochs: 9}                 # batches of 64 at 1e-3
      slow: {kind: finetune, optimizer: {lr: 1e-4}}     # batches of 64 at 1e-4

A stage's own keys take precedence, mappings key by key, as a child's do over its parent's under ``extends``.
"""

import copy
from collections.abc import Iterator
from typing import Any

from vlcli.errors import Problem, did_you_mean, shown
from vlcli.recipe import merge
from vlcli.recipe.schema import STAGES, kind_of
from vlcli.recipe.yaml import Document, Path_, section

KEY = "defaults"


def expand(document: Document) -> list[Problem]:
    """Moves ``defaults`` into the stages, in place; returns its faults: unknown kinds, keys that no such stage has."""
    shared = document.value.pop(KEY, None)
    if shared is None:
        return []
    if problems := list(_faults(shared, document)):
        return problems
    for name, stage in section(document.value, "stages").items():
        at: Path_ = ("stages", name)
        kind = kind_of(name, stage) if isinstance(stage, dict) else ""
        if shared.get(kind):
            lines = {(*at, *path[2:]): where for path, where in document.places.items() if path[:2] == (KEY, kind)}
            of_stage = {path: where for path, where in document.places.items() if path[:2] == at}
            parent = Document({"stages": {name: copy.deepcopy(shared[kind])}}, lines)
            merged = merge.merge(parent, Document({"stages": {name: stage}}, of_stage))
            document.value["stages"][name] = merged.value["stages"][name]
            document.places = {**document.places, **merged.places, at: document.places.get(at, merged.places[at])}
    return []


def _faults(shared: Any, document: Document) -> Iterator[Problem]:
    if not isinstance(shared, dict):
        what, expected = "defaults are a mapping from kinds of stages to keys", "finetune: {batch_size: 64}"
        yield document.fault((KEY,), what, shown(shared, 60), expected)
    for kind, keys in section(shared).items():
        path: Path_ = (KEY, kind)
        if kind not in STAGES:
            what, hint = f"there is no stage kind {kind!r}", did_you_mean(kind, STAGES)
            yield document.fault(path, what, "", ", ".join(STAGES), hint)
        elif keys is not None and not isinstance(keys, dict):
            yield document.fault(path, "the defaults of a kind are a mapping", shown(keys, 60))
        else:
            known = [info.alias or name for name, info in STAGES[kind].model_fields.items() if name != "kind"]
            for word in (word for word in keys or {} if word not in known):
                hint = did_you_mean(word, known)
                yield document.fault((*path, word), f"unknown key {word!r}", "", ", ".join(known), hint)
