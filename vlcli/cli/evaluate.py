"""``vlcli eval``: scores the newest matching checkpoint, a recipe's evaluate stages, or a file of predictions."""

import shlex
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from vlcli import registry
from vlcli.cli import console, options
from vlcli.cli.guard import RunRequest, one_stage, requested
from vlcli.cli.run import QUICKSTART, carry_out, run_kind
from vlcli.errors import DataError, UsageError, VlcliError
from vlcli.recipe import stage_record
from vlcli.recipe.load import load, slug

_TASK = options.names("[TASK] [KEY=VALUE]...", "A task, then overrides of the evaluation.", options.complete_tasks)
_CHECKPOINT = "RECIPE/STAGE, or a model's folder (of probes also CLIP's, SigLIP's, BLIP's)."


@requested()
def evaluate(
    request: RunRequest,
    words: Annotated[list[str] | None, _TASK] = None,
    recipe: options.RunRecipe = None,
    checkpoint: Annotated[Path | None, Option("--stage", help=_CHECKPOINT)] = None,
    split: Annotated[str | None, Option(help="Which part of the data.")] = None,
    root: options.Root = None,
    predictions: Annotated[Path | None, Option(help="Score this file of predictions, without a model.")] = None,
) -> None:
    """Score a trained model, or a file of predictions.

    vlcli eval nlvr2
    vlcli eval vqa --stage runs/lxmert/vqa --split val --root DATA
    vlcli eval --recipe quickstart
    vlcli eval --predictions answers.jsonl --stage runs/quickstart/test
    """
    names, overrides = options.split_words(words)
    tasks = registry.names("tasks")
    if given := next((name for name in names if Path(name).is_dir() and name.lower() not in tasks), None):
        hint = shlex.join(["vlcli", "eval", *[name for name in names if name != given], "--stage", given])
        raise UsageError("A trained model is named by --stage.", got=given, hint=hint)
    stage = checkpoint and (stage_record.earlier(request.output, str(checkpoint)) or checkpoint)
    if predictions is not None:
        if overrides or len(names) > 1:
            raise UsageError(
                "Predictions are scored against the data of a task or a finished stage.",
                got=" ".join([*names[1:], *overrides]),
                expected="one task with --root and --split, --stage STAGE, or --recipe RECIPE --only STAGE",
                hint="for data of your own, run an evaluate stage once and name it: --stage runs/RECIPE/STAGE",
            )
        if recipe is not None and request.only:
            name = Path(recipe).stem if Path(recipe).is_file() else recipe
            stage = request.output / slug(name) / request.only
        _rescore(predictions, stage, names, split, root, request)
    elif names and recipe is not None:
        raise UsageError("Name a task or a recipe, not both.", got=f"{names[0]} and --recipe {recipe}")
    elif stage is not None and recipe is not None:
        what, hint = "Name a stage or a recipe, not both.", f"vlcli eval --recipe {recipe} --only STAGE"
        raise UsageError(what, got=f"--stage {stage} and --recipe {recipe}", hint=hint)
    elif not names and stage is None:
        if split is not None or root is not None:
            hint = "name the task; of a recipe's stages they are keys: stages.STAGE.split=SPLIT, root=DATA"
            raise UsageError("--split and --root belong to a task or a stage.", got=str(split or root), hint=hint)
        run_kind(recipe, "evaluate", overrides, request, verb="eval")
    else:
        name, overrides = options.one_name(words, "task") if names else (_task_of(stage), overrides)
        task = registry.find("tasks", name).name
        folder = stage or newest(task, request.output)
        if not request.quiet:
            console.err(f"checkpoint: {folder}")
        resolved = one_stage(task_recipe(name, folder, split, root), overrides, task, exclude={"fit"})
        home = request.output / "eval"
        carry_out(resolved, replace(request, only=None, folder=home))
        if not (request.json_ or request.quiet or request.dry_run):
            _tell_metrics(home / next(iter(resolved.stages)))


def _task_of(stage: Path | None) -> str:
    record = stage and (stage_record.read(stage) or stage_record.read(stage.parent))
    if record and record.kind in ("evaluate", "finetune") and record.config.get("task"):
        return str(record.config["task"]["name"])
    raise UsageError("Name the task.", where=str(stage), got="a stage without one", hint="list them: vlcli ls tasks")


def _tell_metrics(stage: Path) -> None:
    from vlcli.metrics.clusters import read_clusters
    from vlcli.metrics.rows import measured, read_lines
    from vlcli.tables.cells import number, show_estimate
    from vlcli.tables.statistics import PREDICTIONS, Estimate

    folder, record = stage_record.finished(stage) or (stage, None)
    rows = []
    for one in measured(record.metrics if record else {}, read_lines(folder / PREDICTIONS)[0], read_clusters(folder)):
        count, what = (one.images, "image") if one.images else (one.count, "example")
        over = f"{count:,} {what}{'s' * (count > 1)}" if count else ""
        beside = "" if one.baseline is None else f"{one.by} {number(one.baseline)}"
        rows.append([one.name, show_estimate(Estimate(one.value, one.low, one.high)), over, beside])
    if rows:
        console.table(["metric", "with 95 % interval", "over", "beside"], rows)


def newest(task: str, output: Path) -> Path:
    """Returns the fine-tuning of ``task`` in the newest run that has one.

    Where that run holds several (controls, say), the one named after the task is meant, else the one whose task has the
    fewest options, else one that starts from pre-trained weights, else the newest. Raises DataError: there is none.
    """
    tuned = [
        (folder, record)
        for folder, record in stage_record.finished_stages(output)
        if record.kind == "finetune" and (record.config.get("task") or {}).get("name") == task
    ]

    def preference(row: tuple[Path, Any]) -> tuple[bool, int, bool]:
        return row[1].stage != task, len(row[1].config["task"]), not row[1].config.get("from")

    if tuned:
        return min((row for row in tuned if row[0].parent == tuned[0][0].parent), key=preference)[0]
    what, hint = f"No finished fine-tuning of {task!r} was found.", f"make one: vlcli run {_recipe_of(task)}"
    raise DataError(what, where=str(output), expected="a finetune stage with this task, or --stage FOLDER", hint=hint)


def _recipe_of(task: str) -> str:
    names = registry.names("recipes")
    for name in sorted(names, key=lambda name: (name != QUICKSTART, not name.startswith("tiny/"), name)):
        with suppress(VlcliError):  # a table
            resolved = load(name, plugins=False)
            tuned = [getattr(resolved.stages[one], "task", None) for one in resolved.of_kind("finetune")]
            if task in (spec["name"] for spec in tuned if spec is not None):
                return name
    return f"RECIPE, one with a finetune stage of task {task} (vlcli ls recipes)"


def task_recipe(task: str, checkpoint: Path, split: str | None, root: Path | None) -> dict[str, Any]:
    """Returns a recipe of one evaluate stage, its data root and features taken from the checkpoint's record."""
    if not checkpoint.exists():
        expected = "a stage's or model's folder, or RECIPE/STAGE of an earlier run"
        raise DataError("The checkpoint is not there.", where=str(checkpoint), expected=expected)
    record = stage_record.read(checkpoint) or stage_record.read(checkpoint.parent)
    stage: dict[str, Any] = {"kind": "evaluate", "from": [str(checkpoint)], "task": {"name": task}}
    if split is not None:
        stage["split"] = split
    if record is not None and root is None:
        stage["features"] = [path for path in record.features if Path(path).exists()]
        root = Path(record.root)
    about = f"{task} of {checkpoint}"
    return {"name": "eval", "about": about, "root": str(root or Path()), "stages": {"evaluate": stage}}


def _rescore(
    file: Path, stage: Path | None, names: list[str], split: str | None, root: Path | None, request: RunRequest
) -> None:
    from vlcli.tools.scoring import score, source_of_stage, source_of_task

    task = {"name": registry.find("tasks", names[0]).name} if names else None
    if stage is not None:
        record = stage_record.read(stage)
        if record is None:
            hint = "name the folder of a finished stage, or a task: vlcli eval TASK --predictions FILE --root DATA"
            raise UsageError("There is no finished stage here.", where=str(stage), hint=hint)
        record.config |= {"task": task} if task else {}
        source = source_of_stage(stage, record, split, root)
    elif task is not None:
        source = source_of_task(task, root or Path(), split)
    else:
        what = "Say what the predictions are scored against."
        expected = "a task with --root DATA, --stage STAGE, or --recipe RECIPE --only STAGE"
        raise UsageError(what, expected=expected, hint="vlcli eval vqa --predictions FILE --root DATA --split val")
    metrics = score(source, file, request.progress()).metrics
    if request.json_:
        console.out_json({"predictions": str(file), "metrics": metrics})
    elif metrics:
        console.table(["metric", "value"], [[name, f"{value:.4f}"] for name, value in metrics.items()])
    else:
        console.err("the data have no labels: nothing was scored")
