"""Warns of models that give the same answer to every example."""

from collections import deque
from collections.abc import Mapping
from typing import Any

from vlcli.engine.outcome import TrainingOutcome
from vlcli.engine.schedule import batch_of, rule
from vlcli.engine.trackers import Tracker
from vlcli.engine.training_module import TrainingModule
from vlcli.metrics.baseline import ONE_ANSWER
from vlcli.nn.batch import Batch
from vlcli.progress import Progress
from vlcli.recipe.schema import Training

AFTER, LEAST, EXAMPLES = 1000, 100, 20_000
"""Steps from which the loss is judged, and at the end; examples whose answers are counted for it."""


class CollapseWatch(Tracker):
    """Warns once of each sign of collapse: one answer in validation, or a loss that a constant answer also reaches."""

    def __init__(self, module: TrainingModule, data: Any, config: Training, progress: Progress) -> None:
        self.module, self.data, self.config, self.progress = module, data, config, progress
        examples = getattr(data, "examples", [])
        targets = [examples[row].targets for row in range(0, len(examples), max(1, len(examples) // EXAMPLES))]
        losses = {name: objective.constant_loss(targets) for name, objective in module.objectives.items()}
        self.constants = {name: loss for name, loss in losses.items() if loss}  # of objectives that can compute it
        self._last: dict[str, deque[float]] = {name: deque(maxlen=20) for name in self.constants}
        self._told: set[str] = set()

    def log(self, step: int, values: Mapping[str, float]) -> None:
        if f"eval/{ONE_ANSWER}" in values:
            self._warn(ONE_ANSWER, self._one_sided(values[f"eval/{ONE_ANSWER}"]))
        for name, losses in self._last.items():
            if f"loss/{name}" in values:
                losses.append(values[f"loss/{name}"])
            if step >= AFTER and self._flat(name):
                self._warn(name, self._unlearnt(name))

    def verdict(self, outcome: TrainingOutcome) -> str:
        """Return the sign of collapse in the returned weights, or ""."""
        if ONE_ANSWER in outcome.metrics:
            return f"{self._one_sided(outcome.metrics[ONE_ANSWER])}; likely cause: {self.cause()}"
        for name, losses in self._last.items():  # a run resumed at its end has logged nothing
            if not losses and f"loss/{name}" in outcome.losses:
                losses.append(outcome.losses[f"loss/{name}"])
        flat = [name for name in self.constants if outcome.steps >= LEAST and self._flat(name)]
        return f"{self._unlearnt(flat[0])}; likely cause: {self.cause()}" if flat else ""

    def cause(self) -> str:
        """Return the likeliest cause of a collapse, with a remedy."""
        shape, optimizer = self.module.model.network_shape, self.config.optimizer
        rate, chosen = optimizer.lr or 0.0, rule(shape, batch_of(self.config, len(self.data)))
        layers = f"{shape.depth} post-norm layers of width {shape.width}"
        if self._alike():
            return "the features of all pictures are the same"
        if rate > 2 * chosen and optimizer.ruled:
            return f"optimizer.lr {rate:g}, where the engine would choose {chosen:g}: leave `lr` out"
        if shape.post_norm and not self.config.schedule.warmup:
            return f"no warm-up for {layers}: set schedule.warmup{', or leave `lr` out' * optimizer.ruled}"
        if shape.post_norm and shape.depth > 3:
            return f"{layers} on {len(self.data):,} examples: fewer layers, or a lower optimizer.lr"
        return "too few steps for these data, or a question that they do not answer"

    def _one_sided(self, share: float) -> str:
        return f"one answer for {share:.0%} of the validation examples"

    def _unlearnt(self, name: str) -> str:
        mean = sum(self._last[name]) / len(self._last[name])
        return f"loss {name} {mean:.3f}, where always giving the most frequent answers has {self.constants[name]:.3f}"

    def _flat(self, name: str) -> bool:
        losses = self._last[name]
        return bool(losses) and sum(losses) / len(losses) >= 0.99 * self.constants[name]

    def _warn(self, sign: str, text: str) -> None:
        if sign not in self._told:
            self._told.add(sign)
            self.progress.warn(f"collapsed: {text}; likely cause: {self.cause()}")

    def _alike(self) -> bool:
        batch: Batch | None = next(iter(self.data.loader(min(16, len(self.data)), shuffle=True, epoch=0)), None)
        images = batch.clean.images if batch is not None else None
        if images is None or len(images) < 2:
            return False
        read = [images.regions.features.float()] if images.regions else []
        read += [images.pixels.images.float()] if images.pixels else []
        return any(float(rows.std(0).mean()) <= 1e-4 * float(rows.abs().mean()) for rows in read)
