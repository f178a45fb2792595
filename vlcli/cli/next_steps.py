"""What a finished run leads to: the commands that use its model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vlcli.recipe.schema import Evaluate, Recipe
from vlcli.runner.execute import StageOutcome


def next_commands(recipe: Recipe, outcomes: Sequence[StageOutcome]) -> list[str]:
    """Commands that ask the model, serve it on a page, and report the run; none where no trained model was judged.

    The model is that of the first row of the recipe's table; without a table, of the first evaluate stage.

    Args:
        recipe: that was run.
        outcomes: of its stages.
    """
    trained = {o.name: o.folder for o in outcomes if o.kind == "finetune" and o.status == "done"}
    judged = list(recipe.table.rows.values()) if recipe.table else [o.name for o in outcomes if o.kind == "evaluate"]
    model = next((trained[name] for stage in judged for name in _sources(recipe, stage) if name in trained), None)
    return [] if model is None else _commands(model)


def _sources(recipe: Recipe, stage: str) -> list[str]:
    found = recipe.stages.get(stage)
    return [str(name) for name in found.source] if isinstance(found, Evaluate) else []


def _commands(model: Path) -> list[str]:
    return [f"vlcli predict {model} PICTURE... [TEXT]", f"vlcli demo {model}", f"vlcli report {model.parent}"]
