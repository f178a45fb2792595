"""Scores a trained model on a task: metrics, predictions, and files for test servers."""

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from PIL.Image import Image

from vlcli import registry
from vlcli.builders.context import StageContext, StageResult
from vlcli.builders.readers import Stores, open_readers, open_stores, require_stores
from vlcli.builders.resolve import resolve_stage, resolve_with
from vlcli.builders.training import check_task, corruptions_for, make_transform
from vlcli.data import Example, Pipeline, Reader
from vlcli.data.images import PictureError, load_image
from vlcli.detection.extraction import Share
from vlcli.engine import processes
from vlcli.engine.bundle import CONFIG, Bundle, find_bundle, load_bundle
from vlcli.engine.evaluation import JointEvaluation, TaskRunner, evaluating
from vlcli.errors import Problem, RecipeError, UsageError
from vlcli.files import write_json
from vlcli.foreign.pairs import PairScorer
from vlcli.metrics.baseline import suspicious
from vlcli.metrics.clusters import IMAGES
from vlcli.nn.model import InputSpec, device_of
from vlcli.recipe.resolve import ResolvedStage
from vlcli.recipe.schema import Evaluate, Reading
from vlcli.tasks.base import Examples, Given, Result, Task, is_joint
from vlcli.tasks.outputs import write_json_lines
from vlcli.tasks.probes import PairTask, pair_row

PREDICTIONS = "predictions.jsonl"
HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def run(context: StageContext) -> StageResult:
    """Scores the model that ``from`` names on its task, or on the task that the stage names."""
    config = context.section(Evaluate)
    processes.use_threads(config.threads)
    if config.fit or (config.task is not None and _is_fitted(registry.of(Task).load(config.task["name"]))):
        return StageResult() if processes.rank() else run_fitted(context, config)
    resolved = resolve_stage(context)
    if processes.rank() and not is_joint(choose_task(context, resolved)):
        return StageResult()  # rank 0 does it
    source, device = source_of(context), processes.resolve_device(context.device)
    task = resolved.built_task
    if isinstance(task, PairTask) and find_bundle(source) is None and (source / CONFIG).is_file():
        return StageResult() if processes.rank() else run_pairs(context, task, PairScorer(source, device), resolved)
    bundle, task = load_bundle(source, device), choose_task(context, resolved)
    check_task(task, bundle.model, context.name)
    data = assemble(context, bundle, readers_of(context, resolved), task)
    runner, meeting = open_runner(context, bundle, data), JointEvaluation()
    if runner.share.count > 1:
        runner.share = meeting.share()
    result = meeting.run(lambda: evaluate(task, runner)) if runner.share.count > 1 else evaluate(task, runner)
    if processes.rank():
        return StageResult()
    return _stage_result(context, task, result, data, suspicious(result.metrics), {"model": str(bundle.folder)})


def run_pairs(context: StageContext, task: PairTask, scorer: PairScorer, resolved: ResolvedStage) -> StageResult:
    """Scores a task's pairs by a model of transformers with its own processor."""
    config = context.section(Evaluate)
    needs, half = InputSpec(text=False, pixels=True), HALVES.get(config.precision)
    data = Pipeline(readers_of(context, resolved), needs=needs, seed=context.seed, missing=config.missing)
    task.read(cast("Examples", Given(data, data, None, context.progress)))
    rows: list[dict[str, Any]] = []
    with (
        context.progress.task("score", data.total, "pairs") as bar,
        torch.autocast(torch.device(scorer.device).type, half) if half else nullcontext(),
    ):
        for start in range(0, data.total, config.batch_size):
            examples = data.examples[start : start + config.batch_size]
            rows += _scored(scorer, data, examples)
            bar.advance(len(examples))
    result = Result(task.score(rows), rows)
    return _stage_result(context, task, result, data, suspicious(result.metrics), {"model": str(scorer.folder)})


def _scored(scorer: PairScorer, data: Pipeline, examples: Sequence[Example]) -> list[dict[str, Any]]:
    pictures = _opened(data, examples)
    known = [example for example in examples if example.images[0] in pictures]
    names, texts = [one.images[0] for one in known], [one.text or "" for one in known]
    scores = scorer(texts, names, pictures) if known else []
    return [pair_row(one.key, score, one.targets) for one, score in zip(known, scores, strict=True)]


def _opened(data: Pipeline, examples: Sequence[Example]) -> dict[str, Image]:
    pictures: dict[str, Image] = {}
    for example in examples:
        name = example.images[0]
        try:
            pictures[name] = pictures.get(name) or load_image(data.pictures.files[name])
        except PictureError as error:
            if data.missing != "drop":
                raise
            data.unreadable[example.key] = f"{error.where}: {error.got or error.what}"
    return pictures


def run_fitted(context: StageContext, config: Evaluate) -> StageResult:
    """Scores a task that needs no model, fitted on the data that ``fit`` names."""
    task = fitted_task(context.name, config)
    needs = task.input_spec(InputSpec(regions=True), False)
    readers = readers_of(context, resolve_stage(context))
    known = open_readers(config.fit, context.root, context.progress, context.cache)
    stores = open_stores(context.feature_files(config.features), needs)
    if needs.regions and stores.regions is None and task.reads_pixels:
        needs = InputSpec(pixels=True)
    require_stores(stores, needs, context.name, "task")
    data, fit = (
        Pipeline(some, needs=needs, store=stores.regions, seed=context.seed, missing=config.missing)
        for some in (readers, known)
    )
    result = task.solve(Given(data, fit, stores.regions, context.progress))
    return _stage_result(context, task, result, data, fit.notes(), {"fitted": fit.total})


def _stage_result(
    context: StageContext, task: Task, result: Result, data: Pipeline, doubts: list[str], facts: dict[str, object]
) -> StageResult:
    notes = [*_notes(result, data), *doubts]
    files = write_result(context, task, result, data)
    for line in notes:
        context.progress.warn(line)
    return StageResult(result.metrics, files, notes, {"examples": data.total, **facts})


def _notes(result: Result, data: Pipeline) -> list[str]:
    if result.metrics:
        return data.notes()
    unlabelled = "the data have no labels: predictions were written, nothing was scored"
    unread = len(data.unreadable) >= data.total
    return ["no example's picture can be read: nothing was scored" if unread else unlabelled, *data.notes()]


def fitted_task(stage: str, config: Evaluate) -> Task:
    """Returns the task of a stage without a model."""
    task: Task | None = None if config.task is None else registry.of(Task).build(config.task)
    key, name = f"stages.{stage}", "no task" if config.task is None else str(config.task["name"])
    if task is None or not _is_fitted(task):
        raise RecipeError([Problem(f"{key}.fit", "`fit` is for tasks that need no model", got=name)])
    if not config.fit:
        what = "this task is fitted without a model, and no data are named to fit it on"
        raise RecipeError([Problem(f"{key}.task", what, got=name, expected="fit: DATA in the stage")])
    if config.source:
        what = "a task that is fitted without a model takes none"
        raise RecipeError([Problem(f"{key}.from", what, got=", ".join(config.source), expected="leave `from` out")])
    return task


def _is_fitted(task: object) -> bool:
    return bool(getattr(task, "fitted", False))  # a stranger's may do without the base class


def source_of(context: StageContext) -> Path:
    """Returns the first trained model among what ``from`` names, else the first thing it names."""
    sources = context.sources()
    if not sources:
        what, expected = "This stage does not say which model to take.", "from: STAGE, or --stage FOLDER"
        raise UsageError(what, where=f"stages.{context.name}", expected=expected)
    return next((source for source in sources if find_bundle(source) is not None), sources[0])


def choose_task(context: StageContext, resolved: ResolvedStage) -> Task:
    """Returns the task that the stage names, else that of the model."""
    if resolved.task is None:
        what, where = "The model was trained on no task.", str(source_of(context))
        raise UsageError(what, where=where, expected="task: NAME in the stage")
    task: Task = resolved.built_task
    return task


def readers_of(context: StageContext, resolved: ResolvedStage) -> list[Reader]:
    """Opens the stage's data sets, arranged by its task."""
    readers = open_readers(resolved.data, context.root, context.progress, context.cache)
    task: Task | None = resolved.built_task
    return readers if task is None else task.arrange(readers)


def assemble(context: StageContext, bundle: Bundle, readers: list[Reader], task: Task | None = None) -> Pipeline:
    """Returns the evaluation data as model and task read them."""
    config = context.section(Reading)
    needs = bundle.model.input_spec() if task is None else task.input_spec(bundle.model.input_spec(), False)
    reads = needs.regions or needs.concepts
    stores = open_stores(context.feature_files(config.features), needs) if reads else Stores()
    require_stores(stores, needs, context.name)
    return Pipeline(
        readers,
        needs=needs,
        tokenizer=bundle.tokenizer,
        data_spec=bundle.data_spec,
        store=stores.regions,
        concepts=stores.concepts,
        transform=make_transform(resolve_with(context, bundle).transform, needs),
        corruptions=corruptions_for(task, bundle.module),
        seed=context.seed,
        missing=config.missing,
    )


def open_runner(context: StageContext, bundle: Bundle, data: Pipeline) -> TaskRunner:
    """Returns the model on the data, in the stage's precision."""
    config = context.section(Reading)
    assert bundle.module is not None
    device, half = device_of(bundle.model).type, HALVES.get(config.precision)
    return TaskRunner(
        bundle.module,
        data,
        batch_size=config.batch_size,
        workers=config.workers,
        progress=context.progress,
        autocast=partial(torch.autocast, device, half) if half else nullcontext,
        folder=context.folder,
        share=Share(processes.rank(), processes.world(), processes.wait, processes.collect),
    )


def evaluate(task: Task, runner: TaskRunner) -> Result:
    """Evaluates a task in evaluation mode without gradients."""
    with evaluating(runner.module), torch.no_grad():
        return task.evaluate(runner)


def write_result(context: StageContext, task: Task, result: Result, data: Pipeline) -> dict[str, str]:
    """Writes metrics, predictions, images and submission; returns the files by role."""
    write_json(context.folder / "metrics.json", result.metrics)
    files = {"metrics": "metrics.json"}
    if result.predictions:
        write_json_lines(context.folder / PREDICTIONS, result.predictions)
        rows = [{"key": example.key, "images": example.images} for example in data.examples if example.images]
        write_json_lines(context.folder / IMAGES, rows)
        files |= {"predictions": PREDICTIONS, "images": IMAGES}
        for number, path in enumerate(task.submission(result.predictions, context.folder)):
            files[f"submission_{number + 1}" if number else "submission"] = path.name
    return files
