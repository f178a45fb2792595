"""``vlcli eval --predictions FILE``: score a file of predictions, whoever made them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vlcli.cli.request import RunRequest


def rescore(
    file: Path,
    names: list[str],
    request: RunRequest,
    *,
    recipe: str | None,
    checkpoint: Path | None,
    split: str | None,
    root: Path | None,
) -> None:
    """Print the metrics of a file of predictions.

    Args:
        file: the predictions.
        names: a task, or none where a stage says it.
        request: the options that verbs share.
        recipe: with ``--only``: a stage of the run of this recipe.
        checkpoint: the folder of a finished stage.
        split: in place of the stage's or the task's.
        root: the data root.

    Raises:
        UsageError: neither a task nor a stage is named.
    """
    from vlcli.cli import console

    source = _source(names, request, recipe, checkpoint, split, root)
    from vlcli.tools.scoring import score

    progress = console.progress(request.verbose, request.quiet)
    found = score(source, file, progress).metrics
    if request.json_:
        console.out_json({"predictions": str(file), "metrics": found})
    elif found:
        console.table(["metric", "value"], [[name, f"{value:.4f}"] for name, value in found.items()])
    else:
        console.err("the data have no labels: nothing was scored")


def _source(
    names: list[str],
    request: RunRequest,
    recipe: str | None,
    checkpoint: Path | None,
    split: str | None,
    root: Path | None,
) -> Any:
    from vlcli.errors import UsageError

    stage = _stage(request, recipe, checkpoint)
    if stage is None and not names:
        raise UsageError(
            "Say what the predictions are scored against.",
            expected="a task with --root DATA, --checkpoint STAGE, or --recipe RECIPE --only STAGE",
            hint="vlcli eval vqa --predictions FILE --root DATA --split val",
        )
    from vlcli.recipe import stage_record
    from vlcli.tools.scoring import built, source_of_stage, source_of_task

    if stage is None:
        return source_of_task(built(names[0]), root or Path(), split)
    record = stage_record.read(stage)
    if record is None:
        hint = "name the folder of a finished stage, or a task: vlcli eval TASK --predictions FILE --root DATA"
        raise UsageError("There is no finished stage here.", where=str(stage), hint=hint)
    if names:
        record.config["task"] = built(names[0])
    return source_of_stage(stage, record, split, root)


def _stage(request: RunRequest, recipe: str | None, checkpoint: Path | None) -> Path | None:
    """The stage that is named by its folder, or by its recipe and ``--only``."""
    from vlcli.recipe.load import slug

    if recipe is not None and request.only:
        return request.output / slug(Path(recipe).stem if Path(recipe).is_file() else recipe) / request.only
    if checkpoint is None:
        return None
    under = request.output / checkpoint
    return under if not checkpoint.exists() and under.exists() else checkpoint
