"""What a recipe's model costs: parameters per part and multiply-accumulates."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from vlcli.engine.bundle import find_bundle, read_bundle
from vlcli.engine.learner import build_learner
from vlcli.errors import UsageError
from vlcli.nn.count import count_model
from vlcli.nn.model import Facts
from vlcli.progress import Silent
from vlcli.recipe import plan as planning
from vlcli.recipe.load import Resolved
from vlcli.recipe.schema import Training, TrainVocabulary
from vlcli.registry import build
from vlcli.stages.base import StageContext
from vlcli.stages.rehearsal import planned_model
from vlcli.stages.runner import context_of


def count(
    resolved: Resolved,
    stage: str | None = None,
    *,
    answers: int | None = None,
    output: Path = Path("runs"),
    heads: bool = True,
) -> dict[str, Any]:
    """Count the model of a recipe's training stage on the meta device.

    Sizes that the data decide come from the finished stage where there is one; else they are the papers' (30,522 words,
    36 regions of 2048 numbers) with the recipe's own text length and vocabulary size.

    Args:
        resolved: the recipe.
        stage: a training stage; None: the first pre-training, else the first fine-tuning.
        answers: rows of an answer head.
        output: folder of all runs.
        heads: whether the objectives' heads count too.

    Raises:
        UsageError: the recipe has no such training stage.
    """
    training = [name for name, item in resolved.stages.items() if isinstance(item, Training)]
    name = stage or next(iter(resolved.of_kind("pretrain") + training), "")
    config = resolved.stages.get(name)
    if not isinstance(config, Training):
        raise UsageError(
            "This is no training stage of the recipe.",
            where=resolved.reference,
            got=stage or "none",
            expected=", ".join(training) or "a pretrain or finetune stage",
        )
    planner, steps = planning.make(resolved, planning.Options(output))
    context = context_of(planner, name, {step.name: step for step in steps}, Silent())
    model = planned_model(context, config)
    if not model:
        raise UsageError("The stage names no model.", where=f"stages.{name}.model")
    task = None if config.task is None else build("tasks", config.task)
    objectives = (config.objectives or ([] if task is None else task.objectives())) if heads else []
    artifact = next((step.artifact for step in steps if step.name == name), None)
    facts = _facts(context, config, artifact, answers)
    with torch.device("meta"):
        learner = build_learner(model, [dict(o) if isinstance(o, dict) else {"name": o} for o in objectives], facts)
    images = max((int(o.get("images", 1)) for o in objectives if isinstance(o, dict)), default=1)
    found = count_model(learner.model, facts=facts, objectives=dict(learner.objectives.items()), images=images)
    return {"stage": name, "model": model, "images": images, **found}


def _facts(context: StageContext, config: Training, artifact: Path | None, answers: int | None) -> Facts:
    if artifact is not None and find_bundle(artifact) is not None:
        facts = read_bundle(artifact).facts
    else:
        text = config.text or context.recipe.text
        facts = Facts(text_length=text.length)
        if isinstance(text.vocabulary, TrainVocabulary):
            facts = replace(facts, vocab_size=text.vocabulary.size)
    if answers is not None:
        facts = replace(facts, answers=tuple(f"answer {i}" for i in range(answers)))
    return facts
