"""What a recipe's data sets hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vlcli import registry
from vlcli.data.reader import Reader
from vlcli.data.readers.column_types import decisions
from vlcli.errors import UsageError, VlcliError
from vlcli.recipe import keys, wiring
from vlcli.recipe import plan as planning
from vlcli.recipe.resolved import Resolved


def dataset_counts(resolved: Resolved, stage: str | None = None, output: Path = Path("runs")) -> list[dict[str, Any]]:
    """One row per stage and data set: examples, different pictures and texts, words.

    A data set that cannot be read has a row with its ``error`` instead.

    A data set whose reader counts its parts (``Reader.composition``) has these rows too, as ``composition``.

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
            rows.append({"stage": name, "data set": spec["name"], **_counted(spec, root)})
    return rows


def _counted(spec: dict[str, Any], root: Path) -> dict[str, Any]:
    try:
        return _count(spec, root)
    except VlcliError as error:
        return {"split": spec.get("split", ""), "error": error}


def _count(spec: dict[str, Any], root: Path) -> dict[str, Any]:
    reader = registry.of(Reader).build(spec, root)
    reader.require()
    examples = reader.examples()
    texts = {example.text for example in examples if example.text}
    pictures = {image for example in examples for image in example.images}
    words = sum(len(text.split()) for text in texts)
    left_out = {"left out": dict(reader.left_out)} if reader.left_out else {}
    notes = {"notes": found} if (found := [*decisions(reader), *reader.notes()]) else {}
    rows = reader.composition()
    grouped = {"composition": rows} if rows else {}
    return {
        "split": spec.get("split", getattr(reader, "split", "")),
        **grouped,
        "examples": len(examples),
        "pictures": len(pictures),
        "texts": len(texts),
        "words": words,
        **left_out,
        **notes,
    }
