"""Joins a model and its objectives to the module that is trained."""

from __future__ import annotations

import copy
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from vlcli import registry
from vlcli.engine import processes
from vlcli.errors import ComponentError, Problem, RecipeError, VlcliError
from vlcli.nn.batch import Batch
from vlcli.nn.forward_passes import ForwardPasses
from vlcli.nn.model import DataSpec, Model, Recorder
from vlcli.nn.slots import build_model
from vlcli.objectives.base import Mean, Objective, ObjectiveOutput
from vlcli.recipe.schema import ObjectiveOptions
from vlcli.registry import Spec, as_spec
from vlcli.registry.contract import origin

OPTION_KEYS = frozenset(ObjectiveOptions.model_fields)
READ = ("concepts", "pixels", "regions", "text")
OTHER_MODEL = "choose another model or drop the objective (vlcli show NAME tells what each can)"


@dataclass(frozen=True)
class Part:
    """One entry of a recipe's ``objectives``, called as its ``as`` or else its component."""

    name: str
    spec: Spec
    options: ObjectiveOptions = field(default_factory=ObjectiveOptions)

    @classmethod
    def of(cls, entry: Any) -> Part:
        """Split a recipe's entry into the component's parameters and :class:`ObjectiveOptions`."""
        spec = as_spec(entry)
        name = str(spec.pop("as", spec["name"]))
        return cls(name, spec, ObjectiveOptions(**{key: spec.pop(key) for key in list(spec) if key in OPTION_KEYS}))

    def active(self, epoch: int) -> bool:
        """Whether the objective counts in this epoch; ``until_epoch`` is the first without it."""
        until = self.options.until_epoch
        return epoch >= self.options.from_epoch and (until is None or epoch < until)


@dataclass
class StepResult:
    """Losses of one batch: the scalar ``total`` for backward, and detached, unweighted means over all processes.

    Attributes:
        sums: totals and counts of the losses, then of the metrics (L, 2), float64.
    """

    total: Tensor
    losses: dict[str, Mean]
    metrics: dict[str, Mean]
    sums: Tensor


class TrainingModule(nn.Module):
    """A model, its objectives and, if one of them needs it, a momentum copy of the model (``teacher``).

    The loss is a mean over the rows of all processes, scaled so that the averaged gradient of data-parallel training
    is the gradient of the whole batch. ``parts`` are the recipe's entries, in its order.
    """

    objectives: Mapping[str, Objective]

    def __init__(self, model: Model, objectives: Mapping[str, Objective], parts: list[Part]) -> None:
        super().__init__()
        self.model = model
        # A ModuleDict, so that parameters are found; typed by what it holds.
        self.objectives = cast("Mapping[str, Objective]", nn.ModuleDict(objectives))
        self.parts = {part.name: part for part in parts}
        self.order, self._reads = _order(self.objectives, self.parts)
        momenta = (objective.teacher_momentum for objective in self.objectives.values())
        self.momentum = max((momentum for momentum in momenta if momentum is not None), default=None)
        self.teacher = None if self.momentum is None else copy.deepcopy(model).requires_grad_(False)
        views = Counter(getattr(objective, "view", None) for objective in self.objectives.values())
        self._shared = {view for view, readers in views.items() if readers > 1}
        self._done: list[tuple[ForwardPasses, dict[str, ObjectiveOutput]]] = []

    def forward(self, batch: Batch, *, epoch: int = 0, index: int = 0, first: bool = True) -> StepResult:
        """Return the losses of one batch; with the ``first`` of an optimizer step momentum copies move."""
        if self.training and first:
            self.open_step(batch, epoch=epoch, index=index)
        step = self.step(batch, epoch=epoch, index=index)
        outcomes = self._outcomes(step, epoch)
        if self.training:
            self._done.append((step, outcomes))
        return self._result(outcomes, epoch)

    def step(self, batch: Batch, *, epoch: int = 0, index: int = 0, record: Recorder | None = None) -> ForwardPasses:
        """Return the forward passes over a batch; in training mode they gather over processes."""
        at: dict[str, Any] = {"epoch": epoch, "index": index, "training": self.training, "shared": self._shared}
        at |= {"gather": processes.gather, "rank": processes.rank()} if self.training else {}
        return ForwardPasses(self.model, batch, teacher=self.teacher, record=record, **at)

    def predict(self, step: ForwardPasses, only: str | None = None) -> dict[str, dict[str, Tensor]]:
        """Return the predictions of every objective that makes any of as many pictures, or of ``only`` one, by name."""
        able = {name: part for name, part in self.objectives.items() if type(part).predict is not Objective.predict}
        if not self.model.many_images and (count := step.view().image_rows.shape[1]):  # of an example
            able = {name: part for name, part in able.items() if getattr(part, "images", count) == count}
        return {name: part.predict(step) for name, part in able.items() if only in (None, name)}

    def embed(self, step: ForwardPasses, objective: str, side: Literal["text", "image"]) -> Tensor:
        return self.embedder(objective).embed(step, side)

    def embedder(self, name: str) -> Objective:
        """Return the named objective; for ``contrast`` also any that alone computes vectors. ComponentError: none."""
        able = {key: part for key, part in self.objectives.items() if type(part).embed is not Objective.embed}
        if name in able or (name == "contrast" and len(able) == 1):
            return able[name if name in able else next(iter(able))]
        what = f"The model has nothing to embed sentences and pictures with: no objective {name!r}."
        expected = "a model trained with contrast, sigmoid-, momentum- or bag-contrast, or anchor-alignment"
        hint = f"name {' or '.join(able)}: search --objective, or `first`" if able else "vlcli ls objectives"
        raise ComponentError(what, got=", ".join(self.objectives) or "no objective", expected=expected, hint=hint)

    def weight(self, loss: str, epoch: int) -> float:
        """Return the weight of a loss in this epoch."""
        part = self.parts[loss.split("/", maxsplit=1)[0]]
        return part.options.weight_in(epoch) if part.active(epoch) else 0.0

    def open_step(self, batch: Batch, *, epoch: int = 0, index: int = 0) -> None:
        """Move momentum copies at the begin of an optimizer step.

        Called before the forward pass: values written to a gathered parameter are lost.
        """
        self._done.clear()
        step = self.step(batch, epoch=epoch, index=index)
        with torch.no_grad():
            if self.teacher is not None and self.momentum is not None:
                follow(self.teacher, self.model, self.momentum)
            for objective in self.objectives.values():
                objective.before_step(step)

    def close_step(self, *, stepped: bool = True) -> None:
        """Move the queues of objectives at the end of an optimizer step, if the optimizer has ``stepped``."""
        with torch.no_grad():
            for step, outcomes in self._done if stepped else ():
                for name, outcome in outcomes.items():
                    self.objectives[name].after_step(step, outcome)
        self._done.clear()

    def _outcomes(self, step: ForwardPasses, epoch: int) -> dict[str, ObjectiveOutput]:
        wanted = {name for name, part in self.parts.items() if part.active(epoch)}
        for name in reversed(self.order):  # and, weightless, those that they read
            if name in wanted:
                wanted |= set(self._reads[name].values())
        outcomes: dict[str, ObjectiveOutput] = {}
        for name in self.order:
            if name in wanted:
                others = {word: outcomes[source] for word, source in self._reads[name].items()}
                outcomes[name] = _whole(name, self.objectives[name], self.objectives[name](step, others))
        return outcomes

    def _result(self, outcomes: dict[str, ObjectiveOutput], epoch: int) -> StepResult:
        losses, metrics = _named(outcomes, "losses"), _named(outcomes, "metrics")
        means = [*losses.values(), *metrics.values()]
        device = means[0].total.device if means else next(self.model.parameters()).device
        world = processes.world() if self.training else 1  # in evaluation mode the means are those of this process
        sums = torch.zeros(0, 2, device=device)
        if means:
            kind = torch.float32 if device.type == "mps" else torch.float64
            flat = [number.detach() for mean in means for number in (mean.total, torch.as_tensor(mean.count))]
            sums = torch.stack([number.to(device, kind) for number in flat]).unflatten(0, (-1, 2))  # (L, 2)
            sums = _agreed(sums, [*losses, *metrics]) if world > 1 else sums
        everywhere = [Mean(*row.unbind()) for row in sums]
        total = torch.zeros((), device=device)
        for (name, mean), whole in zip(losses.items(), everywhere, strict=False):
            count = whole.count.clamp(min=1e-12).to(mean.total.dtype)
            total = total + self.weight(name, epoch) * world * mean.total / count
        of_metrics = dict(zip(metrics, everywhere[len(losses) :], strict=True))
        return StepResult(total, dict(zip(losses, everywhere, strict=False)), of_metrics, sums)


def build_training_module(model: Any, objectives: list[Any], data_spec: DataSpec, *, seed: int = 0) -> TrainingModule:
    """Build a training module from a recipe's entries, with weights drawn from ``seed``.

    Raises:
        RecipeError: an objective does not fit the model, or reads an objective that is not there.
        ComponentError: a component is unknown or a parameter does not fit.
    """
    parts = [Part.of(entry) for entry in objectives]
    names = [part.name for part in parts]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        text = f"two objectives are called {', '.join(map(repr, twice))}"
        raise RecipeError([Problem("objectives", text, hint="tell them apart with `as: NAME`")])
    if bad := [name for name in names if "/" in name or "." in name]:
        raise RecipeError([Problem("objectives", "a name holds '/' or '.'", got=bad[0], hint="use `as: NAME`")])
    check_capabilities(registry.of(Model).load(as_spec(model)["name"]), parts)
    torch.manual_seed(seed)
    built = build_model(model, data_spec)
    check_capabilities(built, parts)
    heads: dict[str, Objective] = {}
    for part in parts:
        torch.manual_seed(seed ^ zlib.crc32(part.name.encode()))  # heads do not depend on one another's order
        heads[part.name] = registry.of(Objective).build(part.spec, built, data_spec)
    return TrainingModule(built, heads, parts)


def check_capabilities(model: Any, parts: list[Part]) -> None:
    """Raise RecipeError if objectives need capabilities that the model (class or instance) lacks.

    Of an instance also inputs (regions, pixels) and methods are checked.
    """
    kind, needs = (type(model), model.input_spec()) if isinstance(model, Model) else (model, None)
    can, reads = sorted(model.capabilities), [field for field in READ if getattr(needs, field, False)]
    problems = []
    for number, part in enumerate(parts):
        objective = registry.of(Objective).load(part.spec["name"])
        unseen = sorted(field for field in objective.inputs if needs is not None and not getattr(needs, field))
        calls = objective.calls if needs is not None else ()
        missing = sorted(method for method in calls if getattr(kind, method) is getattr(Model, method))
        if lacking := sorted(objective.requires - model.capabilities):
            what, got = f"that can: {', '.join(lacking)}", f"can: {', '.join(can) or 'nothing'}"
        elif unseen:
            what, got = f"that reads: {', '.join(unseen)}", f"reads: {', '.join(reads)}"
        elif missing:
            what, got = f"with: {', '.join(missing)}", "has none"
        else:
            continue
        text, got = f"{part.name!r} needs a model {what}", f"{kind.__name__}, which {got}"
        problems.append(Problem(f"objectives[{number}]", text, got=got, hint=OTHER_MODEL))
    if problems:
        raise RecipeError(problems)


@torch.no_grad()
def follow(teacher: nn.Module, model: nn.Module, momentum: float) -> None:
    """Update ``teacher`` to ``momentum * teacher + (1 - momentum) * model``; buffers are copied."""
    for average, parameter in zip(teacher.parameters(), model.parameters(), strict=True):
        average.mul_(momentum).add_(parameter.detach(), alpha=1 - momentum)
    for copied, buffer in zip(teacher.buffers(), model.buffers(), strict=True):
        copied.copy_(buffer)


def _order(
    objectives: Mapping[str, Objective], parts: Mapping[str, Part]
) -> tuple[list[str], dict[str, dict[str, str]]]:
    reads = {name: _sources(name, objective, parts) for name, objective in objectives.items()}
    order: list[str] = []
    while len(order) < len(reads):
        left = [name for name in reads if name not in order]
        ready = [name for name in left if set(reads[name].values()) <= set(order)]
        if not ready:
            raise RecipeError([Problem("objectives", "objectives read one another in a circle", got=", ".join(left))])
        order.append(ready[0])
    return order, reads


def _sources(name: str, objective: Any, parts: Mapping[str, Part]) -> dict[str, str]:
    sources = {}
    for words in objective.reads:
        known = words.split("|")
        by_kind = [part.name for part in parts.values() if part.spec["name"] in known]
        by_name = [word for word in known if word in parts]
        if not by_name and len(by_kind) != 1:
            word = repr(known[0])
            text = f"{word}, and there are several" if by_kind else f"the objective {word}, which is not there"
            problem = Problem("objectives", f"{name!r} reads {text}", got=", ".join(parts), hint=f"add {word}, once")
            raise RecipeError([problem])
        sources[known[0]] = (by_name or by_kind)[0]
    return sources


def _whole(name: str, objective: Objective, outcome: Any) -> ObjectiveOutput:
    means = [*outcome.losses.values(), *outcome.metrics.values()] if isinstance(outcome, ObjectiveOutput) else [outcome]
    if wrong := [one for one in means if not isinstance(one, Mean)]:
        what, expected = f"The objective {name!r} gives no losses.", "ObjectiveOutput({NAME: Mean.of(LOSSES)})"
        raise ComponentError(what, where=origin(type(objective)), got=type(wrong[0]).__name__, expected=expected)
    return cast("ObjectiveOutput", outcome)


def _named(outcomes: dict[str, ObjectiveOutput], what: str) -> dict[str, Mean]:
    # ``mlm`` for an objective's only loss, else ``masked-object/feature``.
    named: dict[str, Mean] = {}
    for name, outcome in outcomes.items():
        means: dict[str, Mean] = getattr(outcome, what)
        alone = what == "losses" and len(means) == 1
        named |= {name if alone or key == name else f"{name}/{key}": mean for key, mean in means.items()}
    return named


def _agreed(values: Tensor, names: list[str]) -> Tensor:
    # Sums over processes, which must hold the same names.
    mark = float(zlib.crc32("\n".join(names).encode()) & 0xFFFF)
    size = torch.tensor([len(names) * 65536 + mark], dtype=values.dtype, device=values.device)
    low = torch.cat([size, -size])
    torch.distributed.all_reduce(low, op=torch.distributed.ReduceOp.MIN)
    if low[0] != -low[1]:
        hint = "an objective must give the same losses on every process: one without terms has count 0"
        raise VlcliError("Processes disagree about which losses a step has.", got=", ".join(names), hint=hint)
    return processes.summed(values)
