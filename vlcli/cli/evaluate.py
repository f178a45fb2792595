"""``vlcli eval TASK`` scores the newest matching checkpoint, ``vlcli eval --recipe R`` runs its evaluate stages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from vlcli.cli import options as o
from vlcli.cli.guard import guarded
from vlcli.cli.request import RunRequest, requested
from vlcli.cli.run import QUICKSTART, carry_out, run_one


@guarded
@requested
def evaluate(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TASK] [KEY=VALUE]...",
            help="A task, then overrides of the evaluation.",
            autocompletion=o.complete_tasks,
            show_default=False,
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option("--recipe", help="Run this recipe's evaluate stages.", autocompletion=o.complete_recipes),
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option("--checkpoint", help="A stage's or model's folder; default: the newest of the task.")
    ] = None,
    split: Annotated[str | None, typer.Option("--split", help="Which part of the data.")] = None,
    root: Annotated[Path | None, typer.Option("--root", help="The data root; default: the one trained on.")] = None,
    predictions: Annotated[
        Path | None, typer.Option("--predictions", help="Score this file of predictions, without a model.")
    ] = None,
    *,
    request: RunRequest,
) -> None:
    """Score a trained model, or a file of predictions.

    vlcli eval nlvr2

    vlcli eval vqa --checkpoint runs/lxmert/vqa --split val --root DATA

    vlcli eval --recipe quickstart

    vlcli eval --predictions answers.jsonl --checkpoint runs/quickstart/test
    """
    request = replace(request, kind=None if request.only else "evaluate")
    names, overrides = o.split_words(words)
    if predictions is not None:
        from vlcli.cli.rescore import rescore

        where = {"checkpoint": checkpoint, "root": root}
        rescore(predictions, names, request, recipe=recipe, split=split, **where)
        return
    if recipe is not None or not names:
        from vlcli.errors import UsageError

        if names:
            raise UsageError("Name a task or a recipe, not both.", got=f"{names[0]} and --recipe {recipe}")
        run_one(recipe or QUICKSTART, overrides, request, verb="evaluate")
        return
    _evaluate_task(names, overrides, request, checkpoint, split, root)


def _evaluate_task(
    names: list[str],
    overrides: list[str],
    request: RunRequest,
    checkpoint: Path | None,
    split: str | None,
    root: Path | None,
) -> None:
    from vlcli import registry
    from vlcli.cli import console, render
    from vlcli.errors import UsageError
    from vlcli.recipe import stage_record

    if len(names) > 1:
        raise UsageError("Name one task.", got=" ".join(names), hint="list them: vlcli ls tasks")
    entry = registry.find("tasks", names[0])
    given = checkpoint and stage_record.earlier(request.output, str(checkpoint))
    folder = given or checkpoint or newest(entry.name, request.output)
    if not request.quiet:
        console.err(f"checkpoint: {folder}")
    value = task_recipe(names[0], folder, split, root)
    resolved = _resolved(entry.name, value, overrides)
    place = request.output / "eval"
    carry_out(resolved, replace(request, kind=None, only=None, folder=place), render, console)


def newest(task: str, output: Path) -> Path:
    """The fine-tuning of ``task`` in the newest run that has one.

    Where that run holds several (controls, say), the one named after the task is meant, else the one whose task has the
    fewest options, else one that starts from pre-trained weights, else the newest.

    Raises:
        DataError: there is none (with the command that makes one).
    """
    from vlcli.errors import DataError
    from vlcli.recipe import stage_record

    found = [
        (folder, record)
        for folder, record in stage_record.finished_stages(output)
        if record.kind == "finetune" and (record.config.get("task") or {}).get("name") == task
    ]
    if found:
        run = found[0][0].parent
        return min((row for row in found if row[0].parent == run), key=lambda row: _preference(task, row[1]))[0]
    raise DataError(
        f"No finished fine-tuning of {task!r} was found.",
        where=str(output),
        expected="a finetune stage with this task, or --checkpoint FOLDER",
        hint=f"make one: vlcli finetune --recipe RECIPE (one with a finetune stage of task {task}; vlcli ls recipes)",
    )


def _preference(task: str, record: Any) -> tuple[bool, int, bool]:
    return record.stage != task, len(record.config["task"]), not record.config.get("from")


def task_recipe(task: str, checkpoint: Path, split: str | None, root: Path | None) -> dict[str, Any]:
    """A recipe of one evaluate stage, its data root and features taken from the checkpoint's record.

    Raises:
        DataError: the checkpoint is not there.
    """
    from vlcli.errors import DataError
    from vlcli.recipe import stage_record

    if not checkpoint.exists():
        expected = "a stage's or model's folder, or RECIPE/STAGE of an earlier run"
        raise DataError("The checkpoint is not there.", where=str(checkpoint), expected=expected)
    record = stage_record.read(checkpoint) or stage_record.read(checkpoint.parent)
    stage: dict[str, Any] = {"kind": "evaluate", "from": [str(checkpoint)], "task": {"name": task}}
    if split is not None:
        stage["split"] = split
    if record is not None and root is None:
        stage["features"] = [path for path in record.features if Path(path).exists()]
    where = root or (Path(record.root) if record is not None and record.root else Path())
    return {"name": "eval", "about": f"{task} of {checkpoint}", "root": str(where), "stages": {"evaluate": stage}}


def _resolved(task: str, value: dict[str, Any], overrides: list[str]) -> Any:
    """The recipe with its overrides, its stage named after the task and what decides the result."""
    from vlcli.recipe import stage_record
    from vlcli.recipe.load import from_mapping, slug

    changed = from_mapping("eval", value, overrides)
    stage = changed.stages["evaluate"]
    name = (
        f"{slug(task)}-{stage_record.digest([changed.recipe.root, stage.model_dump(mode='json', exclude={'fit'})])[:8]}"
    )
    recipe = changed.recipe.model_copy(update={"stages": {name: stage}})
    changed.recipe = recipe
    return changed
