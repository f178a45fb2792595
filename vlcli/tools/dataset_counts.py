"""Counts examples, pictures and words of a recipe's data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vlcli import registry
from vlcli.data.reader import Reader
from vlcli.data.readers.cells import decisions
from vlcli.errors import UsageError, VlcliError
from vlcli.recipe import keys, wiring
from vlcli.recipe import plan as planning
from vlcli.recipe.locate import Resolved


def dataset_counts(resolved: Resolved, stage: str | None = None, output: Path = Path("runs")) -> list[dict[str, Any]]:
    """Return one row per stage and data set: examples, different pictures and texts, words.

    A data set that cannot be read has its ``error`` instead; one whose reader counts its parts
    (``Reader.composition``) has these rows as ``composition``.

    Raises:
        UsageError: the recipe has no such stage.
    """
    if stage is not None and stage not in resolved.stages:
        raise UsageError("The recipe has no such stage.", got=stage, expected=", ".join(resolved.stages))
    _, steps = planning.make(resolved, planning.RunOptions(output))
    artifacts = {step.name: step.artifact for step in steps if step.artifact is not None}
    rows = []
    for name in [stage] if stage else resolved.stages:
        config = resolved.stages[name]
        root = wiring.root_folder(resolved.recipe, config, artifacts)
        for spec in keys.data_specs(resolved.recipe, config):
            try:
                counts = _count(spec, root)
            except VlcliError as error:
                counts = {"split": spec.get("split", ""), "error": error}
            rows.append({"stage": name, "data set": spec["name"], **counts})
    return rows


def _count(spec: dict[str, Any], root: Path) -> dict[str, Any]:
    reader = registry.of(Reader).build(spec, root)
    reader.require()
    examples = reader.examples()
    texts = {example.text for example in examples if example.text}
    composition, notes = reader.composition(), [*decisions(reader), *reader.notes()]
    return {
        "split": spec.get("split", getattr(reader, "split", "")),
        **({"composition": composition} if composition else {}),
        "examples": len(examples),
        "pictures": len({image for example in examples for image in example.images}),
        "texts": len(texts),
        "words": sum(len(text.split()) for text in texts),
        **({"left out": dict(reader.left_out)} if reader.left_out else {}),
        **({"notes": notes} if notes else {}),
    }
