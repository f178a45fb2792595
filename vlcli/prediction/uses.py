"""Lists the uses of a trained model: the task it was fine-tuned on, and the heads of its objectives."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from vlcli import registry
from vlcli.engine.evaluation import TaskRunner
from vlcli.engine.training_module import TrainingModule
from vlcli.errors import ComponentError, UsageError
from vlcli.images.boxes import BoxList
from vlcli.nn.forward_passes import ForwardPasses
from vlcli.nn.model import DataSpec
from vlcli.objectives.answering import AnswerHead
from vlcli.objectives.base import Objective
from vlcli.objectives.hard_matching import MatchingHead
from vlcli.objectives.matching import Matching
from vlcli.prediction.records import Kind, Use
from vlcli.registry import Spec
from vlcli.tasks.answering import Answering
from vlcli.tasks.base import Task
from vlcli.tasks.captioning import Writing
from vlcli.tasks.classification import NLVR2, Classification
from vlcli.tasks.detection import Detection
from vlcli.tasks.grounding import Grounding
from vlcli.tasks.outputs import logits_of
from vlcli.tasks.ranking import match_score
from vlcli.tasks.referring import Referring
from vlcli.tasks.retrieval import Retrieval
from vlcli.tasks.storytelling import Storytelling

KINDS: tuple[tuple[type[Task], Kind, str], ...] = (
    (Answering, "answer", "answers of its table with probabilities"),
    (NLVR2, "verdict", "true or false with a probability"),
    (Classification, "label", "labels with probabilities"),
    (Retrieval, "match", "how well they fit"),
    (Writing, "caption", "a text"),
    (Referring, "box", "the box that the text speaks of"),
    (Grounding, "box", "the box that the text speaks of"),
    (Detection, "boxes", "boxes with labels and scores"),
    (Task, "other", "what the task predicts"),
)
# The task that reads the head of an objective; answer tables, matching and vectors are found by their classes
HEADS = {
    "region-selection": "referring",
    "image-classification": "image-classification",
    "detection": "detection",
    "s2slm": "captioning",
}


@dataclass
class Asked:
    """A use with the task that carries it out."""

    use: Use
    task: Task


def uses_of(module: TrainingModule, task: Task | None, spec: Spec | None, data_spec: DataSpec) -> dict[str, Asked]:
    """Return a model's uses by name: its task first, then heads of objectives that the task does not train."""
    reads = module.model.input_spec().text
    uses: dict[str, Asked] = {}
    if task is not None and spec is not None:
        uses[str(spec["name"])] = _asked(str(spec["name"]), task, reads)
        head = next((part for part in module.objectives.values() if isinstance(part, AnswerHead)), None)
        if isinstance(task, Answering) and head is not None:
            task.loss = head.loss
    trained: set[str] = set()
    with suppress(NotImplementedError, ComponentError):
        trained = {str(one.get("as", one["name"])) for one in task.objectives()} if task is not None else set()
    for name, part in module.objectives.items():
        kind = str(module.parts[name].spec["name"])
        if trained.isdisjoint((kind, name)) and (head_task := _of_head(name, kind, part)) is not None:
            head_task.attach(data_spec)
            uses.setdefault(name, _asked(name, head_task, reads))
    return uses


def _of_head(name: str, kind: str, part: Objective) -> Task | None:
    if isinstance(part, AnswerHead):
        spec: Spec = {"name": "vqa", "loss": part.loss}
    elif isinstance(part, Matching | MatchingHead):
        spec = {"name": "retrieval", "objective": name}
    elif type(part).embed is not Objective.embed:
        spec = {"name": "retrieval", "objective": None, "first": name}
    else:
        return registry.of(Task).build(HEADS[kind]) if kind in HEADS else None
    return registry.of(Task).build(spec)


def _asked(name: str, task: Task, reads: bool) -> Asked:
    kind, answer = next((kind, answer) for base, kind, answer in KINDS if isinstance(task, base))
    needed = reads and ("fuse" in task.requires or kind == "match")
    images = 0 if isinstance(task, Storytelling) else task.images
    text = {"answer": " and a question", "box": " and an expression"}.get(kind, " and a sentence") if needed else ""
    pictures = {0: "images", 1: "an image"}.get(images, f"{images} images")
    return Asked(Use(name, kind, images, "needed" if needed else "none", f"{pictures}{text} -> {answer}"), task)


def choose(asked: dict[str, Asked], name: str | None, where: str, heads: Sequence[str]) -> Asked:
    """Return the use of that name; None: the first. Raises UsageError: the model has none of that name, or none."""
    if name in asked:
        return asked[name]
    if name is None and asked:
        return next(iter(asked.values()))
    able = "; ".join(f"{one.use.name} ({one.use.about})" for one in asked.values())
    what = "This model cannot be asked anything." if name is None else f"This model cannot do {name}."
    got, expected = f"objectives {', '.join(heads) or 'none'}", able or "a model with a task or a head that predicts"
    hint = "leave --task out" if asked else "fine-tune it first: vlcli finetune --recipe RECIPE"
    raise UsageError(what, where=where, got=got, expected=expected, hint=hint)


def rows_of(
    asked: Asked, module: TrainingModule, step: ForwardPasses, tokenizer: Any, regions: dict[str, BoxList]
) -> list[dict[str, Any]]:
    """Return the task's rows of one batch; grounding chooses among the pictures' ``regions`` in pixels.

    Raises:
        UsageError: the task does not predict single examples.
    """
    task = asked.task
    if isinstance(task, Retrieval):
        return _match_rows(task, module, step)
    if isinstance(task, Grounding):
        return task.rows(TaskRunner(module, None), step.batch, regions)
    try:
        return task.predictions(step, module.predict, tokenizer)
    except NotImplementedError:
        what = f"The task {asked.use.name} does not predict single examples."
        raise UsageError(what, expected="a task with `decode` or `predictions`", hint="vlcli eval scores it") from None


def _match_rows(task: Retrieval, module: TrainingModule, step: ForwardPasses) -> list[dict[str, Any]]:
    scores = shown = step.batch.seeds.new_zeros(len(step.batch), dtype=torch.float32)
    if task.first is not None:
        texts, images = (module.embed(step, task.first, side).float() for side in ("text", "image"))
        text_rows, image_rows = step.pairs()
        scores = shown = (texts[text_rows] * images[image_rows]).sum(-1)  # (B,)
    if task.objective is not None:
        logits = logits_of(module.predict(step, task.objective), task.objective)
        scores = match_score(logits, task.scoring) + (scores if task.scoring == "sum" else 0)
        shown = match_score(logits).sigmoid()
    rows = zip(step.batch.keys, shown.tolist(), scores.tolist(), strict=True)
    return [{"key": key, "prediction": chance, "score": score} for key, chance, score in rows]
