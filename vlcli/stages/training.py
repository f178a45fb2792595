"""What pre-training and fine-tuning share: assemble, train, leave a model that stands on its own."""

from __future__ import annotations

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
from vlcli.engine.evaluation import Autocast, TaskRunner, mean_losses, score_task
from vlcli.engine.joint_evaluation import JointEvaluation
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
    """Train as the stage says; the artifact is ``model/``, a bundle of the best weights (the last without validation).

    With several processes every one calls this; only rank 0 writes.

    Raises:
        VlcliError: the loss is not finite, the disk is full, or what assembling and loading find.
    """
    config = context.config
    assert isinstance(config, Training)
    context.folder.mkdir(parents=True, exist_ok=True)
    progress = context.progress if processes.rank() == 0 else Silent()
    threads = processes.use_threads(config.threads)
    processes.set_hang_timeout(context.recipe.hang_timeout)
    processes.start(context.device, config.precision)  # joins the other processes before anything takes long
    parts = assemble(context)
    check_task(parts.task, parts.module, context.name)
    counts = _tell_start(parts, config, progress)
    trainer = Trainer(
        parts.module,
        parts.data,
        config,
        context.folder,
        seed=context.seed,
        device=context.device,
        progress=progress,
        evaluate=_evaluator(parts, config, context, progress),
        trackers=_trackers(context, config),
        resume=context.resume,
    )
    if trainer.rate_line:
        progress.info(trainer.rate_line)
    watch = CollapseWatch(parts.module, parts.data, trainer.config, progress)
    trainer.trackers += [watch] if processes.rank() == 0 else []
    outcome = trainer.run()
    if outcome.stopped:
        progress.info(f"stopped: {outcome.stopped}")
    if processes.rank() == 0:
        outcome = _write_model(context, parts, trainer, outcome)
    processes.wait()
    facts: dict[str, object] = {**counts, "threads": threads, "processes": processes.world()}
    facts |= {"learning_rate": trainer.rate_line} if trainer.rate_line else {}
    facts |= {"collapsed": collapsed} if processes.rank() == 0 and (collapsed := watch.verdict(outcome)) else {}
    return _result(context, parts, outcome, facts)


def _tell_start(parts: Assembly, config: Training, progress: Progress) -> dict[str, int]:
    """Freeze what is not to be trained; say what was loaded and what is trained."""
    named = ", ".join(parts.module.model.tower_folders(parts.model_spec).values())
    drawn = (
        f"towers from {named}; the rest is drawn from the seed"
        if named
        else "weights drawn from the seed: training from scratch"
    )
    for line in parts.report.lines() if parts.report else [drawn]:
        progress.info(line)
    counts = freeze(parts.module, config.trainable, config.frozen)
    progress.info(f"training {counts['trained']:,} of {counts['total']:,} parameters on {len(parts.data):,} examples")
    return counts


def _trackers(context: StageContext, config: Training) -> list[Tracker]:
    if processes.rank() != 0:
        return []
    return [registry.of(Tracker).build(spec, context.folder) for spec in config.trackers]


@dataclass(frozen=True)
class Validation:
    """Scores the validation data by the task, or by the objectives' losses where there is no task.

    Attributes:
        parts: model, data and task.
        config: the stage's section.
        seed: the run's seed.
        progress: where to report.
        joint: whether all processes take part.
    """

    parts: Assembly
    config: Training
    seed: int
    progress: Progress
    joint: bool

    def __call__(self, autocast: Autocast, epoch: int) -> Score:
        """The score; with several processes all of them call this, where ``joint``."""
        if not self.joint:
            return self.alone(autocast, epoch)
        meeting = JointEvaluation()
        return meeting.run(lambda: self._score(autocast, epoch, meeting.share()))

    def alone(self, autocast: Autocast, epoch: int) -> Score:
        """The score, by this process."""
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
        if self.parts.task is not None:
            metrics = score_task(self.parts.task, runner)
            value = _value(self.parts.task.metric, metrics, epoch, self.progress) if share.rank == 0 else 0.0
            return Score(metrics, value)
        metrics = mean_losses(self.parts.module, runner, epoch=epoch, seed=self.seed)
        return Score(metrics, -metrics["loss"])


def _evaluator(parts: Assembly, config: Training, context: StageContext, progress: Progress) -> Validation | None:
    if parts.validation is None:
        return None
    joint = processes.world() > 1 and (parts.task is None or is_joint(parts.task))
    return Validation(parts, config, context.seed, progress, joint)


def _value(metric: str, metrics: dict[str, float], epoch: int, progress: Progress) -> float:
    """What chooses the best checkpoint; where the data do not give it, the later one is the better."""
    if metric not in metrics:
        progress.warn(f"the validation data give no {metric}: the last evaluated weights are kept, not the best")
    return metrics.get(metric, float(epoch))


def _write_model(context: StageContext, parts: Assembly, trainer: Trainer, outcome: TrainingOutcome) -> TrainingOutcome:
    """The bundle: best weights where anything was evaluated; averaged ones where they are kept."""
    outcome, state = trainer.select_weights(outcome)
    save_bundle(
        context.folder / MODEL,
        parts.module,
        tokenizer=parts.tokenizer,
        data_spec=parts.data_spec,
        model_spec=parts.model_spec,
        objectives_specs=parts.objectives_specs,
        task_spec=parts.task_spec,
        text_options=parts.text_options,
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
    notes = parts.report.lines() if parts.report else []
    chosen = f"step {outcome.best}, the best on the validation data" if outcome.best >= 0 else "the last step"
    doubts = suspicious(outcome.metrics)
    for line in doubts:
        context.progress.warn(f"validation: {line}")
    left_out = parts.data.notes()
    for line in left_out:
        context.progress.warn(line)
    facts |= {"stopped": outcome.stopped} if outcome.stopped else {}
    told = [f"{name}: {facts[name]}" for name in ("learning_rate", "stopped", "collapsed") if name in facts]
    if "collapsed" in facts:
        context.progress.warn(f"collapsed: {facts['collapsed']}")
    notes += [*left_out, *doubts, *told, f"{MODEL}/ holds {chosen}"]
    facts |= {"steps": outcome.steps, "examples": outcome.examples, "torch_threads": torch.get_num_threads()}
    facts |= {"best_step": outcome.best, "load": parts.report.summary() if parts.report else None}
    dropped = getattr(parts.data, "dropped", 0)
    facts |= {"dropped": dropped if isinstance(dropped, int) else len(dropped)}
    metrics = {f"train/{name}": value for name, value in outcome.losses.items() if name not in ("lr", "grad_norm")}
    return StageResult({**metrics, **outcome.metrics, **_mean(parts, log)}, files, notes, facts)


def _mean(parts: Assembly, log: Path) -> dict[str, float]:
    """``mean/METRIC``: the mean of the task's score over all validations of the training."""
    if parts.task is None or parts.validation is None or not log.is_file():
        return {}
    mean = mean_score(read_log(log), parts.task.metric)
    return {} if mean is None else {f"mean/{parts.task.metric}": mean}


def draw_curve(log: Path) -> Path | None:
    """Losses over the steps, and below them the validation's scores, as ``loss.png`` beside the log.

    None without a log or without matplotlib.
    """
    rows = read_log(log)
    return draw_curves(loss_series(rows), log.with_name("loss.png"), scores=score_series(rows))
