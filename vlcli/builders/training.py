"""Builds the training module, its tokenizer, its first weights and the data of a training stage."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vlcli import registry
from vlcli.builders.context import StageContext
from vlcli.builders.readers import (
    Stores,
    keep_answered,
    open_readers,
    open_stores,
    refuse_held_out,
    region_sample,
    require_stores,
)
from vlcli.builders.resolve import resolve_stage
from vlcli.data.numbering import class_names, label_names
from vlcli.data.pipeline import Pipeline
from vlcli.data.reader import Reader
from vlcli.data.sample import Corruption
from vlcli.data.transforms import Transform
from vlcli.engine import processes
from vlcli.engine.bundle import Bundle, find_bundle, read_bundle, read_weights, verified
from vlcli.engine.training_module import TrainingModule, build_training_module
from vlcli.engine.weights import LoadReport, WeightLoader
from vlcli.errors import DataError, Problem, RecipeError
from vlcli.features import FeatureStore
from vlcli.nn.fake import without_memory
from vlcli.nn.model import DataSpec, InputSpec, Model
from vlcli.nn.slots import build_model
from vlcli.nn.weights import WEIGHT_FILES, read_states
from vlcli.objectives.base import Objective
from vlcli.recipe.resolve import ResolvedStage
from vlcli.recipe.schema import STAGES, Pretrain, TextOptions, Training, TrainVocabulary
from vlcli.registry import Spec
from vlcli.tasks.base import Task
from vlcli.tasks.captioning import Writing


def load_sources(
    module: TrainingModule, sources: list[Path], allow_unmatched: list[str], **options: Any
) -> LoadReport | None:
    """Loads bundles, checkpoints of other tools, or folders with one of these, if there are any.

    ``options`` are those of :meth:`WeightLoader.add_file`.

    Raises:
        DataError: there are no weights, or the backbone is not complete.
    """
    if not sources:
        return None
    loader = WeightLoader(module, allow_unmatched)
    for path in sources:
        file, states = read_source(path)
        if file is None:
            loader.add(states[""], str(path), ours=True)
        else:
            loader.add_file(file, states, **options)
    return loader.finish()


def read_source(path: Path) -> tuple[Path | None, dict[str, dict[str, Tensor]]]:
    """Reads the states of another tool's file (or folder) by key; of a bundle None and its state under ``""``.

    Raises:
        DataError: there are no weights, or they are damaged.
    """
    if (folder := find_bundle(path)) is not None:
        return None, {"": read_weights(folder)}
    file = next((file for file in (path, *(path / name for name in WEIGHT_FILES)) if file.is_file()), None)
    if file is None:
        expected = f"a stage of this recipe, a model folder, {' or '.join(WEIGHT_FILES)}, or a file"
        raise DataError("There are no weights here.", where=str(path), expected=expected)
    return verified(file), read_states(file)


def make_tokenizer(context: StageContext, text: TextOptions, bundle: Bundle | None, model: Spec | None = None) -> Any:
    """Returns the source's tokenizer unless the stage has ``text``; else trains or loads the recipe's.

    If the recipe names no vocabulary, that of the folder that ``model`` starts from is loaded.
    """
    from vlcli.data.vocabulary import Tokenizer

    if bundle is not None and bundle.tokenizer is not None and getattr(context.config, "text", None) is None:
        return bundle.tokenizer
    if model is not None and "vocabulary" not in text.model_fields_set:
        folder = registry.of(Model).load(model["name"]).vocabulary_folder(model)
        text = text if folder is None else text.model_copy(update={"vocabulary": folder})
    words, lowercase = text.vocabulary, text.lowercase
    if isinstance(words, TrainVocabulary):
        readers = open_readers(words.train, context.root, cache=context.cache)
        texts = (example.text for reader in readers for example in reader.examples() if example.text)
        tokenizer = Tokenizer.train(texts, words.size, lowercase=lowercase, min_frequency=words.min_frequency)
    else:
        inside = context.root / words  # else a path here, or a hub name
        tokenizer = Tokenizer.load(str(inside) if inside.exists() else words, lowercase)
    return tokenizer.reading(text.model_dump())


@dataclass
class Assembly:
    """A training stage with its module (with weights) and data.

    Attributes:
        tokenizer: None if the model reads no text.
        report: of the loaded weights; None: from scratch.
    """

    resolved: ResolvedStage
    module: TrainingModule
    data: Pipeline
    validation: Pipeline | None
    tokenizer: Any
    data_spec: DataSpec
    task: Task | None
    transform_spec: Spec | None = None
    report: LoadReport | None = None


@dataclass
class TrainingPlan:
    """A resolved training stage, with the folders or files of its weights and the first bundle among them."""

    resolved: ResolvedStage
    sources: list[Path]
    bundle: Bundle | None


def assemble(context: StageContext) -> Assembly:
    """Builds a training stage: data, which give the sizes, then model, objectives and weights.

    Raises:
        RecipeError: a choice is missing or does not fit another.
        DataError: data, features or weights are missing or do not fit.
    """
    plan = choose(context)
    config, resolved = context.section(Training), plan.resolved
    task: Task | None = resolved.built_task
    data_spec = plan.bundle.data_spec if plan.bundle else DataSpec()
    needs: InputSpec = without_memory(lambda: build_model(resolved.model or {}, data_spec)).input_spec()
    readers, validation = _open_data(context, resolved)
    tokenizer = make_tokenizer(context, resolved.text, plan.bundle, resolved.model) if needs.text else None
    stores = _open_stores(context, needs) if needs.regions or needs.concepts else Stores()
    data_spec = gather_data_spec(plan, readers, tokenizer, stores)
    module = build_training_module(resolved.model or {}, resolved.objectives, data_spec, seed=context.seed)
    require_stores(stores, needs, context.name)
    if task is None and any(hasattr(objective, "named") for objective in module.objectives.values()):
        label_names([*readers, *validation])  # losses of both are by number
    for objective in module.objectives.values():
        objective.setup(readers, tokenizer, context.folder if processes.rank() == 0 else None)
    options = {"key": config.state_dict, "rename": config.rename}
    report = load_sources(module, plan.sources, config.allow_unmatched, **options)
    if report is None and stores.regions is not None and type(module.model).fit_regions is not Model.fit_regions:
        module.model.fit_regions(region_sample(stores.regions, readers))
    transform = transform_of(resolved, needs)
    pipeline = partial(
        Pipeline,
        tokenizer=tokenizer,
        store=stores.regions,
        concepts=stores.concepts,
        data_spec=data_spec,
        missing=config.missing,
        seed=context.seed,
        transform=make_transform(transform, needs),
    )
    corruptions = [one for name in module.objectives for one in corruptions_of(module, name, data_spec)]
    scored = corruptions if task is None else corruptions_for(task, module)
    loads = _loads(task, needs, module)
    order: dict[str, Any] = {"repeats": config.repeats, "curriculum": config.curriculum, "group": config.group}
    return Assembly(
        resolved=resolved,
        module=module,
        data=pipeline(readers, corruptions=corruptions, training=True, needs=loads[0], **order),
        validation=pipeline(validation, corruptions=scored, needs=loads[1]) if validation else None,
        tokenizer=tokenizer,
        data_spec=data_spec,
        task=task,
        transform_spec=transform,
        report=report,
    )


def _open_data(context: StageContext, resolved: ResolvedStage) -> tuple[list[Reader], list[Reader]]:
    """Returns the readers of training and of validation, as the task arranges them."""
    config, task = context.section(Training), resolved.built_task
    if isinstance(config, Pretrain):
        refuse_held_out(context, resolved.data)
    readers = open_readers(resolved.data, context.root, context.progress, context.cache)
    validation = open_readers(config.validation, context.root, cache=context.cache)
    return (readers, validation) if task is None else (task.arrange_training(readers), task.arrange(validation))


def _open_stores(context: StageContext, needs: InputSpec) -> Stores:
    config = context.section(Training)
    named = [name for name in config.source if context.kinds.get(name) == "extract" or name.endswith(".h5")]
    return open_stores(context.feature_files(list(config.features) or named), needs)


def _loads(task: Task | None, needs: InputSpec, module: TrainingModule) -> list[InputSpec]:
    """Returns what is loaded of each example in training and in validation."""
    if task is not None:
        return [task.input_spec(needs, training) for training in (True, False)]
    if all(objective.text_alone for objective in module.objectives.values()):
        needs = replace(needs, regions=False, grid=None, concepts=False, pixels=False)
    return [needs, needs]


def choose(context: StageContext) -> TrainingPlan:
    """Resolves a training stage and finds its sources.

    Raises:
        RecipeError: no model, no data or no objectives are named, or captions without an end are to be generated.
    """
    config = context.section(Training)
    given = zip(map(context.kinds.get, config.source), context.sources(), strict=True)
    sources = [path for kind, path in given if path.suffix != ".h5" and (kind is None or STAGES[kind].gives_weights)]
    resolved, key = resolve_stage(context), f"stages.{context.name}"
    problems = []
    if "name" not in (resolved.model or {}):
        problems.append(Problem(f"{key}.model", "no model is named", hint="add `model: {name: ...}` to the recipe"))
    if not resolved.objectives:
        problems.append(Problem(f"{key}.objectives", "nothing to train on", hint="add `objectives:` or a `task:`"))
    if not resolved.data:
        problems.append(Problem(f"{key}.data", "no data are named", hint="add `data:` (vlcli ls datasets)"))
    says = isinstance(resolved.built_task, Writing) or any(spec["name"] == "scst" for spec in resolved.objectives)
    if says and resolved.text.end == "none":
        what = "sentences without [SEP] never end, so saying them cannot be learned"
        problems.append(Problem(f"{key}.text.end", what, got="none", expected="sep"))
    if problems:
        raise RecipeError(problems)
    bundle = next((path for path in sources if find_bundle(path) is not None), None)
    return TrainingPlan(resolved, sources, None if bundle is None else read_bundle(bundle))


def transform_of(resolved: ResolvedStage, needs: InputSpec) -> Spec | None:
    """Returns the stage's transform; of a model without pixels only one that the stage itself names."""
    named = getattr(resolved.stage, "transform", None) is not None
    return resolved.transform if needs.pixels or named else None


def make_transform(spec: Spec | None, needs: InputSpec) -> Transform | None:
    """Builds the transform of a model's pictures, if any. Raises RecipeError: the model reads no pixels."""
    if spec is not None and not needs.pixels:
        raise RecipeError([Problem("transform", "the model reads no pixels, so nothing is transformed")])
    return None if spec is None else registry.of(Transform).build(spec, needs)


def gather_data_spec(plan: TrainingPlan, readers: list[Reader], tokenizer: Any, stores: Stores) -> DataSpec:
    """Returns the sizes of the data; other fields are those of the source, else the defaults."""
    store = stores.regions
    sizes: dict[str, Any] = {"text_length": plan.resolved.text.length}
    if tokenizer is not None:
        sizes |= tokenizer.data_spec_fields()
    if store is not None:
        sizes |= {"regions": store.max_regions, "region_dim": store.dim}
        sizes["region_classes"] = _labels(store, "classes", "class_ids")
        sizes["region_attributes"] = _labels(store, "attributes", "attributes")
    elif any(reader.class_names() for reader in readers):
        sizes |= box_labels(readers)
    if stores.concepts is not None:
        sizes["concepts"] = stores.concepts.words
    data_spec = replace(plan.bundle.data_spec if plan.bundle else DataSpec(), **sizes)
    if tokenizer is not None and data_spec.concepts:
        data_spec = replace(data_spec, concept_pieces=tuple(map(tokenizer.pieces, data_spec.concepts)))
    whole = [reader for reader in readers if not reader.augments]
    task: Task | None = plan.resolved.built_task
    labels = () if task is None else tuple(task.labels(whole))
    for spec in plan.resolved.objectives:
        labels = labels or tuple(registry.of(Objective).load(spec["name"]).labels(spec, whole))
    for reader in readers:
        if reader.augments:
            keep_answered(reader, labels or data_spec.answers)
    return replace(data_spec, answers=labels) if labels else data_spec


def box_labels(readers: list[Reader]) -> dict[str, Any]:
    """Returns the classes and attributes of annotated boxes as fields of :class:`DataSpec`.

    Raises:
        DataError: two readers number the classes differently.
    """
    names = class_names(readers)
    named = [reader for reader in readers if reader.class_names()]
    first = next(reader for reader in named if tuple(reader.class_names()) == names)
    attributes = max((tuple(reader.attribute_names()) for reader in named), key=len)
    return {
        "region_classes": len(names),
        "region_attributes": len(attributes),
        "class_names": names,
        "class_ids": tuple(first.class_ids()),
        "attribute_names": attributes,
    }


def _labels(store: FeatureStore, field: str, names: str) -> int:
    columns = store.classes_count if field == "classes" else store.attributes_count
    if columns or field not in store.fields:
        return columns
    tops = [part.block(field, 0, int(part.offsets[-1])).max(initial=-1) for part in store.parts()]
    return max(int(max(tops, default=-1)) + 1, len(store.provenance.get(names, ())))


def corruptions_of(module: TrainingModule, name: str, data_spec: DataSpec) -> list[Corruption]:
    """Returns the corruptions of an objective, one for each phase of its options."""
    part, objective = module.parts[name], module.objectives[name]
    corruptions: list[Corruption] = []
    for start, end, changes in part.options.phases():
        if changes:
            with torch.random.fork_rng():  # heads that are made and thrown away must not move what is drawn later
                objective = registry.of(Objective).build({**part.spec, **changes}, module.model, data_spec)
        corruption = objective.corruption()
        if corruption is not None:
            corruption.from_epoch, corruption.until_epoch = start, end
            corruptions.append(corruption)
    return corruptions


def corruptions_for(task: Task | None, module: TrainingModule | None) -> list[Corruption]:
    """Returns the corruptions of scored examples: those of the objectives in the task's ``corrupted_by``."""
    names = getattr(task, "corrupted_by", ())
    known = [module.objectives[name] for name in names if name in module.objectives] if module is not None else []
    return [one for objective in known if (one := objective.corruption()) is not None]


def check_task(task: Task | None, model: Model, stage: str) -> None:
    """Raises RecipeError if the model lacks capabilities of the task."""
    if task is not None and (lacking := sorted(task.requires - model.capabilities)):
        can = ", ".join(sorted(model.capabilities)) or "nothing"
        what = f"the task needs a model that can: {', '.join(lacking)}"
        raise RecipeError([Problem(f"stages.{stage}.task", what, got=f"{type(model).__name__}, which can: {can}")])
