"""Trains a stage and writes the bundle of the best weights."""

from dataclasses import dataclass
from pathlib import Path

import torch

from vlcli import registry
from vlcli.builders.context import StageContext, StageResult
from vlcli.builders.extractions import extractions_read
from vlcli.builders.training import Assembly, assemble, check_task
from vlcli.detection.extraction import Share
from vlcli.engine import processes
from vlcli.engine.bundle import save_bundle
from vlcli.engine.collapse import CollapseWatch
from vlcli.engine.evaluation import Autocast, JointEvaluation, TaskRunner, mean_losses, score_task
from vlcli.engine.optim import freeze
from vlcli.engine.trackers import Tracker, read_log
from vlcli.engine.trainer import Score, Trainer, TrainingOutcome
from vlcli.files import write_json
from vlcli.metrics.baseline import suspicious
from vlcli.progress import Progress, Silent
from vlcli.recipe.schema import Training
from vlcli.report.curves import draw_curves, loss_series, mean_score, score_series
from vlcli.tasks.base import is_joint

MODEL = "model"


def run_training(context: StageContext) -> StageResult:
    """Trains and writes ``model/``, a bundle of the best weights (the last without validation).

    Called by every process; only rank 0 writes.

    Raises:
        VlcliError: the loss is not finite, the disk is full, or data or weights do not fit.
    """
    config = context.section(Training)
    context.folder.mkdir(parents=True, exist_ok=True)
    first = processes.rank() == 0
    progress = context.progress if first else Silent()
    threads = processes.use_threads(config.threads)
    processes.set_hang_timeout(context.recipe.hang_timeout)
    processes.start(context.device, config.precision)  # joins the other processes before anything takes long
    parts = assemble(context)
    check_task(parts.task, parts.module.model, context.name)
    evaluator = None
    if parts.validation is not None:
        joint = processes.world() > 1 and (parts.task is None or is_joint(parts.task))
        evaluator = Validation(parts, config, context.seed, progress, joint)
    for line in _sources(parts):
        progress.info(line)
    counts = freeze(parts.module, config.trainable, config.frozen)
    progress.info(f"training {counts['trained']:,} of {counts['total']:,} parameters on {len(parts.data):,} examples")
    trainer = Trainer(
        parts.module,
        parts.data,
        config,
        context.folder,
        seed=context.seed,
        device=context.device,
        progress=progress,
        evaluate=evaluator,
        trackers=[registry.of(Tracker).build(spec, context.folder) for spec in config.trackers] if first else [],
        resume=context.resume,
    )
    if trainer.rate_line:
        progress.info(trainer.rate_line)
    watch = CollapseWatch(parts.module, parts.data, trainer.config, progress)
    trainer.trackers += [watch] if first else []
    outcome = trainer.run()
    if outcome.stopped:
        progress.info(f"stopped: {outcome.stopped}")
    if first:
        outcome = _write_model(context, parts, trainer, outcome)
    processes.wait()
    facts: dict[str, object] = {**counts, "threads": threads, "processes": processes.world()}
    facts |= {"learning_rate": trainer.rate_line} if trainer.rate_line else {}
    facts |= {"collapsed": collapsed} if first and (collapsed := watch.verdict(outcome)) else {}
    return _result(context, parts, outcome, facts)


def _sources(parts: Assembly) -> list[str]:
    if parts.report:
        return parts.report.lines()
    if named := ", ".join(parts.module.model.tower_folders(parts.resolved.model or {}).values()):
        return [f"weights from {named}; the rest is drawn from the seed"]
    return ["weights drawn from the seed: training from scratch"]


@dataclass(frozen=True)
class Validation:
    """Scores the validation data by the task, else by the losses; ``joint``: all processes share the work."""

    parts: Assembly
    config: Training
    seed: int
    progress: Progress
    joint: bool

    def __call__(self, autocast: Autocast, epoch: int) -> Score:
        """Called by the trainer on rank 0, or on all processes if ``joint``."""
        if not self.joint:
            return self.alone(autocast, epoch)
        meeting = JointEvaluation()
        return meeting.run(lambda: self._score(autocast, epoch, meeting.share()))

    def alone(self, autocast: Autocast, epoch: int) -> Score:
        """Called by the trainer on rank 0 while the other processes wait."""
        return self._score(autocast, epoch, Share())

    def _score(self, autocast: Autocast, epoch: int, share: Share) -> Score:
        runner = TaskRunner(
            self.parts.module,
            self.parts.validation,
            progress=self.progress,
            label="validate",
            batch_size=self.config.batch_size,
            workers=self.config.workers,
            autocast=autocast,
            share=share,
        )
        task = self.parts.task
        if task is None:
            metrics = mean_losses(self.parts.module, runner, epoch=epoch, seed=self.seed)
            return Score(metrics, -metrics["loss"])
        metrics = score_task(task, runner)
        if share.rank != 0:
            return Score(metrics, 0.0)
        if task.metric not in metrics:  # the later score is then the better
            lacks = f"the validation data give no {task.metric}"
            self.progress.warn(f"{lacks}: the last evaluated weights are kept, not the best")
        return Score(metrics, metrics.get(task.metric, float(epoch)))


def _write_model(context: StageContext, parts: Assembly, trainer: Trainer, outcome: TrainingOutcome) -> TrainingOutcome:
    outcome, state = trainer.select_weights(outcome)
    resolved = parts.resolved
    save_bundle(
        context.folder / MODEL,
        parts.module,
        tokenizer=parts.tokenizer,
        data_spec=parts.data_spec,
        model_spec=resolved.model or {},
        objectives_specs=resolved.objectives,
        task_spec=resolved.task,
        text_options=resolved.text.model_dump(exclude={"vocabulary"}),
        transform_spec=parts.transform_spec,
        info={
            "stage": context.name,
            "step": outcome.best if outcome.best >= 0 else outcome.steps,
            "seed": context.seed,
        },
        extraction=[one.beside_bundle(context.folder / MODEL).as_dict() for one in extractions_read(parts.data)],
        report=parts.report,
        state=state,
    )
    write_json(context.folder / "metrics.json", {"train": outcome.losses, "validation": outcome.metrics})
    return outcome


def _result(context: StageContext, parts: Assembly, outcome: TrainingOutcome, facts: dict[str, object]) -> StageResult:
    files = {"model": MODEL, "checkpoints": "checkpoints", "metrics": "metrics.json"}
    log = context.folder / "log.jsonl"
    files |= {"log": log.name} if log.is_file() else {}
    curve = draw_curve(log) if processes.rank() == 0 else None
    files |= {"curve": curve.name} if curve else {}
    doubts, left_out = suspicious(outcome.metrics), parts.data.notes()
    facts |= {"stopped": outcome.stopped} if outcome.stopped else {}
    collapsed = [f"collapsed: {facts['collapsed']}"] if "collapsed" in facts else []
    for line in [*(f"validation: {line}" for line in doubts), *left_out, *collapsed]:
        context.progress.warn(line)
    chosen = f"step {outcome.best}, the best on the validation data" if outcome.best >= 0 else "the last step"
    notes = [*(parts.report.lines() if parts.report else []), *left_out, *doubts]
    notes += [f"{name}: {facts[name]}" for name in ("learning_rate", "stopped") if name in facts]
    notes += [*collapsed, f"{MODEL}/ holds {chosen}"]
    facts |= {"steps": outcome.steps, "examples": outcome.examples, "torch_threads": torch.get_num_threads()}
    facts |= {"best_step": outcome.best, "load": parts.report.summary() if parts.report else None}
    facts["dropped"] = parts.data.dropped
    metrics = {f"train/{name}": value for name, value in outcome.losses.items() if name not in ("lr", "grad_norm")}
    metrics |= outcome.metrics
    if parts.task is not None and parts.validation is not None and log.is_file():
        mean = mean_score(read_log(log), parts.task.metric)
        metrics |= {} if mean is None else {f"mean/{parts.task.metric}": mean}
    return StageResult(metrics, files, notes, facts)


def draw_curve(log: Path) -> Path | None:
    """Draws losses and validation scores over the steps as ``loss.png``; None without a log or matplotlib."""
    rows = read_log(log)
    return draw_curves(loss_series(rows), log.with_name("loss.png"), scores=score_series(rows))
