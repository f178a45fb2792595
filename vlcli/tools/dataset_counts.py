"""Counts examples, pictures and words of a recipe's data sets."""

from pathlib import Path
from typing import Any

from vlcli.builders.never_right import never_right
from vlcli.builders.readers import build_reader
from vlcli.data.reader import Reader
from vlcli.data.readers.cells import decisions
from vlcli.errors import UsageError, VlcliError
from vlcli.recipe import keys, plan, stage_record, wiring
from vlcli.recipe.components import split_options
from vlcli.recipe.locate import Resolved
from vlcli.registry import Spec, as_spec


def dataset_counts(resolved: Resolved, stage: str | None, output: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Return one row per stage and data set, and lines on answers that a training does not know.

    A row has the numbers of examples, different pictures, texts and words; an ``error`` instead if the data cannot be
    read; as ``composition`` the rows of a reader that counts its parts (``Reader.composition``). Raises UsageError:
    there is no such stage.
    """
    if stage is not None and stage not in resolved.stages:
        raise UsageError("The recipe has no such stage.", got=stage, expected=", ".join(resolved.stages))
    steps = plan.make(resolved, plan.RunOptions(output))[1]
    artifacts = {step.name: step.artifact for step in steps if step.artifact is not None}
    rows: list[dict[str, Any]] = []
    readers: dict[str, Reader] = {}

    def opened(name: str, spec: Spec) -> Reader:
        root = wiring.root_folder(resolved.recipe, resolved.stages[name], artifacts)
        key = stage_record.digest([split_options("datasets", as_spec(spec))[0], str(root)])
        if key not in readers:
            readers[key] = build_reader(spec, root)
        return readers[key]

    names = [stage] if stage else list(resolved.stages)
    for name in names:
        for spec in keys.data_specs(resolved.recipe, resolved.stages[name]):
            try:
                counts = _count(spec, opened(name, spec))
            except VlcliError as error:
                counts = {"split": spec.get("split", ""), "error": error}
            rows.append({"stage": name, "data set": spec["name"], **counts})
    return rows, never_right(resolved.recipe, opened, names)


def _count(spec: Spec, reader: Reader) -> dict[str, Any]:
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
