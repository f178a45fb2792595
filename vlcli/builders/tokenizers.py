"""How a training stage's sentences become ids: options, vocabulary, and what they do not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vlcli.builders.context import StageContext
from vlcli.builders.readers import open_readers
from vlcli.engine.bundle import Bundle
from vlcli.errors import Problem, RecipeError
from vlcli.recipe.schema import TextOptions, TrainVocabulary
from vlcli.registry import Spec
from vlcli.tasks.base import Task
from vlcli.tasks.captioning import Captioning

if TYPE_CHECKING:
    from vlcli.builders.training import Plan

SAYING = ("scst",)
"""Objectives by which a model learns to say sentences."""


def make_tokenizer(context: StageContext, plan: Plan) -> Any:
    """A source's tokenizer unless the stage asks for another; else trained, or loaded from where the recipe says."""
    if plan.bundle is not None and plan.bundle.tokenizer is not None and plan.config.text is None:
        return plan.bundle.tokenizer
    return _vocabulary(context, plan).reading(plan.text.model_dump())


def _vocabulary(context: StageContext, plan: Plan) -> Any:
    from vlcli.data.vocabulary import Tokenizer

    words, lowercase = plan.text.vocabulary, plan.text.lowercase
    if isinstance(words, TrainVocabulary):
        readers = open_readers(words.train, context.root)
        texts = (example.text for reader in readers for example in reader.examples() if example.text)
        return Tokenizer.train(texts, words.size, lowercase=lowercase, min_frequency=words.min_frequency)
    return Tokenizer.load(_vocabulary_place(context, words), lowercase)


def _vocabulary_place(context: StageContext, words: str) -> str:
    """A path under the data root or here where there is one, else a hub name."""
    inside = context.root / words
    return str(inside) if inside.exists() else words


def text_of(bundle: Bundle | None) -> TextOptions | None:
    """A bundle's text options; its tokenizer stands for the vocabulary."""
    if bundle is None or bundle.tokenizer is None:
        return None
    known = {key: value for key, value in bundle.text_options.items() if key in TextOptions.model_fields}
    return TextOptions(**known)


def refuse_endless(context: StageContext, text: TextOptions, task: Task | None, objectives: list[Spec]) -> None:
    """What learns to say sentences must see their end.

    Raises:
        RecipeError: the text has no end, and the stage trains on saying it.
    """
    saying = isinstance(task, Captioning) or any(spec["name"] in SAYING for spec in objectives)
    if saying and text.end == "none":
        what = "sentences without [SEP] never end, so saying them cannot be learned"
        problem = Problem(f"stages.{context.name}.text.end", what, got="none", expected="sep")
        raise RecipeError([problem])
