"""From a training stage's config and inputs to a learner and its data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from vlcli import registry
from vlcli.data.pipeline import Pipeline
from vlcli.data.reader import Reader
from vlcli.engine.bundle import Bundle, find_bundle, read_bundle, read_weights
from vlcli.engine.learner import Learner, build_learner
from vlcli.engine.weights import Loader, LoadReport
from vlcli.errors import DataError, Problem, RecipeError
from vlcli.features import FeatureStore
from vlcli.features.weights import read_weights as read_foreign
from vlcli.nn.model import Facts, Model, Needs
from vlcli.recipe.schema import TextOptions, Training, TrainVocabulary
from vlcli.registry import Spec, as_spec
from vlcli.stages.base import StageContext
from vlcli.stages.readers import open_readers
from vlcli.tasks.base import Task

T = TypeVar("T")
NO_WEIGHTS = ("extract", "make")
"""Kinds of stages that ``from`` may name for their features or data, not for weights."""
WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")


@dataclass
class Assembly:
    """Everything a training stage needs.

    Attributes:
        learner: model and objectives, loaded.
        data: training data.
        validation: held-out data, or None.
        tokenizer: or None where the model reads no text.
        facts: sizes and answers.
        task: of a fine-tuning, or None.
        task_spec: the recipe's words on it.
        model_spec: what builds the model.
        objectives_specs: the recipe's entries.
        text: how sentences become ids.
        report: what the weights came from; None: from scratch.
    """

    learner: Learner
    data: Pipeline
    validation: Pipeline | None
    tokenizer: Any
    facts: Facts
    task: Task | None
    task_spec: Spec | None
    model_spec: Spec
    objectives_specs: list[Spec]
    text: TextOptions
    report: LoadReport | None = None

    @property
    def text_options(self) -> dict[str, Any]:
        """What a bundle keeps of the text options."""
        return {"lowercase": self.text.lowercase, "length": self.text.length}


@dataclass
class Plan:
    """A training stage's choices, before anything costs time.

    Attributes:
        config: the stage's section.
        task: or None.
        task_spec: or None.
        sources: folders or files that weights come from.
        bundle: config of the first that is a bundle.
        model_spec: what builds the model.
        objectives_specs: entries of the recipe, or the task's own.
        text: how sentences become ids.
    """

    config: Training
    task: Task | None
    task_spec: Spec | None
    sources: list[Path]
    bundle: Bundle | None
    model_spec: Spec
    objectives_specs: list[Spec]
    text: TextOptions
    data_specs: list[Spec] = field(default_factory=list)


def assemble(context: StageContext) -> Assembly:
    """Build everything: data first (they give the sizes), then model, objectives and weights.

    Raises:
        RecipeError: a choice is missing or does not fit another.
        DataError: data, features or weights are missing or do not fit.
    """
    plan = choose(context)
    needs = model_needs(plan)
    readers = open_readers(plan.data_specs, context.root, context.progress)
    validation = open_readers(plan.config.validation, context.root)
    tokenizer = make_tokenizer(context, plan) if needs.text else None
    store = open_store(context, plan) if needs.regions or needs.concepts else None
    facts = gather_facts(plan, readers, tokenizer, store)
    learner = build_learner(plan.model_spec, plan.objectives_specs, facts, seed=context.seed)
    check_inputs(context, needs, store)
    report = load_sources(learner, plan.sources, plan.config.allow_unmatched)
    facts_of_data = {"needs": needs, "facts": facts, "missing": plan.config.missing, "seed": context.seed}
    make = _pipelines(learner, tokenizer, store, facts_of_data)
    return Assembly(
        learner=learner,
        data=make(readers),
        validation=make(validation, plan.task is None) if validation else None,
        tokenizer=tokenizer,
        facts=facts,
        task=plan.task,
        task_spec=plan.task_spec,
        model_spec=plan.model_spec,
        objectives_specs=plan.objectives_specs,
        text=plan.text,
        report=report,
    )


def choose(context: StageContext) -> Plan:
    """Resolve what the recipe leaves open.

    Raises:
        RecipeError: no model, no data or no objectives are named.
    """
    config = context.config
    assert isinstance(config, Training)
    sources = [path for name, path in zip(config.source, context.sources(), strict=True) if _gives(context, name, path)]
    found = next((path for path in sources if find_bundle(path) is not None), None)
    bundle = None if found is None else read_bundle(found)
    task_spec = config.task
    task: Task | None = None if task_spec is None else registry.build("tasks", task_spec)
    objectives = config.objectives or ([] if task is None else [as_spec(spec) for spec in task.objectives()])
    model = choose_model(context, config, bundle)
    data = list(config.data) or ([] if task is None else [{"split": "train", **as_spec(task.dataset())}])
    text = config.text or _text_of(bundle) or context.recipe.text
    _refuse_gaps(context, model, objectives, data)
    return Plan(config, task, task_spec, sources, bundle, model or {}, objectives, text, data)


def _gives(context: StageContext, name: str, path: Path) -> bool:
    """Whether a source gives weights (features and data come by other ways)."""
    return context.kinds.get(name) not in NO_WEIGHTS and path.suffix != ".h5"


def _text_of(bundle: Bundle | None) -> TextOptions | None:
    """A bundle's text options; its tokenizer stands for the vocabulary."""
    if bundle is None or bundle.tokenizer is None:
        return None
    known = {key: value for key, value in bundle.text_options.items() if key in TextOptions.model_fields}
    return TextOptions(**known)


def choose_model(context: StageContext, config: Training, bundle: Bundle | None) -> Spec | None:
    """The model: a source's, else the recipe's, changed by the stage's own keys.

    A source outside this recipe is the recipe's model where both have one name; a stage that names another model takes
    nothing of either.
    """
    recipe, own = context.recipe.model, dict(config.model or {})
    base = recipe if bundle is None else bundle.model_spec
    inside = any(name in context.inputs for name in config.source)
    if bundle is not None and recipe is not None and not inside:
        base = {**base, **recipe} if recipe["name"] == bundle.model_spec["name"] else recipe  # type: ignore[dict-item]
    if own.get("name", base["name"] if base else None) != (base or {}).get("name"):
        return own
    return {**(base or {}), **own} or None


def _refuse_gaps(context: StageContext, model: Spec | None, objectives: list[Spec], data: list[Spec]) -> None:
    place = f"stages.{context.name}"
    problems = []
    if not model or "name" not in model:
        problems.append(Problem(f"{place}.model", "no model is named", hint="add `model: {name: ...}` to the recipe"))
    if not objectives:
        problems.append(Problem(f"{place}.objectives", "nothing to train on", hint="add `objectives:` or a `task:`"))
    if not data:
        problems.append(Problem(f"{place}.data", "no data are named", hint="add `data:` (vlcli ls datasets)"))
    if problems:
        raise RecipeError(problems)


def model_needs(plan: Plan) -> Needs:
    """What the model must be fed, asked before its data are there: of one without memory."""
    facts = plan.bundle.facts if plan.bundle else Facts()
    model: Model = without_memory(lambda: registry.build("models", plan.model_spec, facts))
    return model.needs()


def without_memory(make: Callable[[], T]) -> T:
    """What ``make`` builds, on the meta device; in earnest where its construction reads values."""
    try:
        with torch.device("meta"):
            return make()
    except (RuntimeError, NotImplementedError) as error:
        if "meta" not in str(error):
            raise
        return make()


def make_tokenizer(context: StageContext, plan: Plan) -> Any:
    """A source's tokenizer unless the stage asks for another; else trained, or loaded from where the recipe says."""
    from vlcli.data.vocabulary import Tokenizer

    if plan.bundle is not None and plan.bundle.tokenizer is not None and plan.config.text is None:
        return plan.bundle.tokenizer
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


def open_store(context: StageContext, plan: Plan) -> FeatureStore | None:
    """The feature stores the stage names (or every extract stage before it made), as one; None where there is none."""
    named = [n for n in plan.config.source if context.kinds.get(n) == "extract" or n.endswith(".h5")]
    files = context.feature_files(list(plan.config.features) or named)
    return FeatureStore.open(files) if files else None


def check_inputs(context: StageContext, needs: Needs, store: FeatureStore | None) -> None:
    """Refuse a model that reads region features where no store is.

    Raises:
        DataError: what is missing and how it is made.
    """
    if store is None and (needs.regions or needs.concepts):
        raise DataError(
            "The model reads region features, and there is no store of them.",
            where=f"stages.{context.name}",
            expected="`features: STAGE` or a file, or an extract stage before this one",
            hint="make one: vlcli extract",
        )


def gather_facts(plan: Plan, readers: list[Reader], tokenizer: Any, store: FeatureStore | None) -> Facts:
    """The sizes that the data decide; what they leave open comes from the source, else from :class:`Facts`."""
    facts = replace(plan.bundle.facts if plan.bundle else Facts(), text_length=plan.text.length)
    if tokenizer is not None:
        facts = replace(facts, **tokenizer.facts())
    if store is not None:
        facts = replace(facts, regions=store.max_regions, region_dim=store.dim)
        facts = replace(facts, region_classes=_labels(store, "class"), region_attributes=_labels(store, "attribute"))
    elif classes := max((len(reader.class_names()) for reader in readers), default=0):
        attributes = max(len(reader.attribute_names()) for reader in readers)
        facts = replace(facts, region_classes=classes, region_attributes=attributes)
    labels = plan.task.labels(list(readers)) if plan.task is not None else ()
    return replace(facts, answers=tuple(labels)) if labels else facts


def _labels(store: FeatureStore, what: str) -> int:
    """How many classes or attributes a store knows: columns of their distribution, else the highest id it holds."""
    columns = store.classes_count if what == "class" else store.attributes_count
    field_name = "classes" if what == "class" else "attributes"
    if columns or field_name not in store.fields:
        return columns
    tops = [part.block(field_name, 0, int(part.offsets[-1])).max(initial=-1) for part in store.parts()]
    return int(max(tops, default=-1)) + 1


def load_sources(learner: Learner, sources: list[Path], allow_unmatched: list[str]) -> LoadReport | None:
    """Fill the learner from bundles, checkpoints of other tools, or folders that hold one; None where none is named.

    Raises:
        DataError: there are no weights, or the backbone is not complete.
    """
    if not sources:
        return None
    loader = Loader(learner, allow_unmatched)
    for path in sources:
        folder = find_bundle(path)
        if folder is not None:
            loader.add(read_weights(folder), str(path), ours=True)
        else:
            loader.add(read_foreign(_weight_file(path)), str(path), ours=False)
    return loader.finish()


def _weight_file(path: Path) -> Path:
    if path.is_file():
        return path
    found = [path / name for name in WEIGHT_FILES if (path / name).is_file()]
    if not found:
        raise DataError(
            "There are no weights here.",
            where=str(path),
            expected=f"a stage of this recipe, a model folder, {' or '.join(WEIGHT_FILES)}, or a file",
        )
    return found[0]


def _pipelines(
    learner: Learner, tokenizer: Any, store: FeatureStore | None, facts: dict[str, Any]
) -> Callable[..., Pipeline]:
    """Makes the data of some readers, corrupted as the objectives ask unless told not to."""
    corruptions = []
    for name, objective in learner.objectives.items():
        corruption = objective.corruption()  # type: ignore[operator]
        if corruption is not None:
            options = learner.parts[name].options
            corruption.from_epoch, corruption.until_epoch = options.from_epoch, options.until_epoch
            corruptions.append(corruption)

    def make(readers: list[Reader], corrupted: bool = True) -> Pipeline:
        chosen = corruptions if corrupted else []
        return Pipeline(readers, tokenizer=tokenizer, store=store, corruptions=chosen, **facts)

    return make


def check_task(task: Task | None, learner: Learner, stage: str) -> None:
    """Refuse a task that asks for what the model cannot do.

    Raises:
        RecipeError: what it lacks.
    """
    lacking = sorted(task.requires - learner.model.capabilities) if task is not None else []
    if lacking:
        can = ", ".join(sorted(learner.model.capabilities)) or "nothing"
        what = f"the task needs a model that can: {', '.join(lacking)}"
        raise RecipeError([Problem(f"stages.{stage}.task", what, got=f"{type(learner.model).__name__} can: {can}")])
