"""Makes the tokenizer of a training stage."""

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
"""Objectives that train generation."""


def make_tokenizer(context: StageContext, text: TextOptions, bundle: Bundle | None, model: Spec | None = None) -> Any:
    """Returns the source's tokenizer unless the stage has ``text``; else trains or loads the recipe's.

    If the recipe names no vocabulary and ``model`` starts from a folder with a tokenizer, that one is loaded.
    """
    if bundle is not None and bundle.tokenizer is not None and getattr(context.config, "text", None) is None:
        return bundle.tokenizer
    if model is not None and "vocabulary" not in text.model_fields_set:
        folder = registry.of(Model).load(model["name"]).vocabulary_folder(model)
        text = text if folder is None else text.model_copy(update={"vocabulary": folder})
    return _vocabulary(context, text).reading(text.model_dump())


def _vocabulary(context: StageContext, text: TextOptions) -> Any:
    from vlcli.data.vocabulary import Tokenizer

    words, lowercase = text.vocabulary, text.lowercase
    if isinstance(words, TrainVocabulary):
        readers = open_readers(words.train, context.root, cache=context.cache)
        texts = (example.text for reader in readers for example in reader.examples() if example.text)
        return Tokenizer.train(texts, words.size, lowercase=lowercase, min_frequency=words.min_frequency)
    inside = context.root / words  # else a path here, or a hub name
    return Tokenizer.load(str(inside) if inside.exists() else words, lowercase)


def refuse_endless(context: StageContext, text: TextOptions, task: Task | None, objectives: list[Spec]) -> None:
    """Refuses to train generation on sentences without an end.

    Raises:
        RecipeError: the text has no end, and the stage trains generation.
    """
    saying = isinstance(task, Captioning) or any(spec["name"] in SAYING for spec in objectives)
    if saying and text.end == "none":
        what = "sentences without [SEP] never end, so saying them cannot be learned"
        problem = Problem(f"stages.{context.name}.text.end", what, got="none", expected="sep")
        raise RecipeError([problem])
