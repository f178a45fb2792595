"""How a training stage's sentences become ids: options, vocabulary, and what they do not fit."""

from __future__ import annotations

from typing import Any

from vlcli import registry
from vlcli.builders.context import StageContext
from vlcli.builders.readers import open_readers
from vlcli.engine.bundle import Bundle
from vlcli.errors import Problem, RecipeError
from vlcli.nn.model import Model
from vlcli.recipe.schema import TextOptions, TrainVocabulary
from vlcli.registry import Spec
from vlcli.tasks.base import Task
from vlcli.tasks.captioning import Captioning

SAYING = ("scst",)
"""Objectives by which a model learns to say sentences."""


def make_tokenizer(context: StageContext, text: TextOptions, bundle: Bundle | None, model: Spec | None = None) -> Any:
    """A source's tokenizer unless the stage asks for another; else trained, or loaded from where the recipe says.

    Where the recipe does not say, and ``model`` starts from a folder with a tokenizer, that one is loaded.
    """
    if bundle is not None and bundle.tokenizer is not None and getattr(context.config, "text", None) is None:
        return bundle.tokenizer
    if model is not None and "vocabulary" not in text.model_fields_set:
        own = registry.of(Model).load(model["name"]).vocabulary_folder(model)
        text = text if own is None else text.model_copy(update={"vocabulary": own})
    return _vocabulary(context, text).reading(text.model_dump())


def _vocabulary(context: StageContext, text: TextOptions) -> Any:
    from vlcli.data.vocabulary import Tokenizer

    words, lowercase = text.vocabulary, text.lowercase
    if isinstance(words, TrainVocabulary):
        readers = open_readers(words.train, context.root, cache=context.cache)
        texts = (example.text for reader in readers for example in reader.examples() if example.text)
        return Tokenizer.train(texts, words.size, lowercase=lowercase, min_frequency=words.min_frequency)
    return Tokenizer.load(_vocabulary_place(context, words), lowercase)


def _vocabulary_place(context: StageContext, words: str) -> str:
    inside = context.root / words
    return str(inside) if inside.exists() else words


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
