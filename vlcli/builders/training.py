"""From a training stage's config and inputs to a training module and its data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch

from vlcli import registry
from vlcli.builders.context import StageContext
from vlcli.builders.readers import keep_answered, open_readers, refuse_held_out
from vlcli.builders.resolve import resolve_stage
from vlcli.builders.start_weights import load_sources
from vlcli.builders.stores import Stores, open_stores, region_sample, require_stores
from vlcli.builders.tokenizers import make_tokenizer, refuse_endless
from vlcli.data.pipeline import Pipeline
from vlcli.data.reader import Reader
from vlcli.data.sample import Corruption
from vlcli.data.transforms import Transform
from vlcli.engine import processes
from vlcli.engine.bundle import Bundle, find_bundle, read_bundle
from vlcli.engine.training_module import TrainingModule, build_training_module
from vlcli.engine.weights import LoadReport
from vlcli.errors import DataError, Problem, RecipeError
from vlcli.features import FeatureStore
from vlcli.nn.model import DataSpec, InputSpec, Model
from vlcli.nn.slots import build_model
from vlcli.nn.undrawn import without_memory
from vlcli.objectives.base import Objective
from vlcli.recipe.resolve import ResolvedStage
from vlcli.recipe.schema import STAGES, Pretrain, TextOptions, Training
from vlcli.registry import Spec
from vlcli.tasks.base import Task

T = TypeVar("T")


@dataclass
class Assembly:
    """Everything a training stage needs.

    Attributes:
        module: model and objectives, loaded.
        data: training data.
        validation: held-out data, or None.
        tokenizer: or None where the model reads no text.
        data_spec: sizes and answers.
        task: of a fine-tuning, or None.
        task_spec: the recipe's words on it.
        model_spec: what builds the model.
        objectives_specs: the recipe's entries.
        text: how sentences become ids.
        transform_spec: how pictures become pixels, or None.
        report: what the weights came from; None: from scratch.
    """

    module: TrainingModule
    data: Pipeline
    validation: Pipeline | None
    tokenizer: Any
    data_spec: DataSpec
    task: Task | None
    task_spec: Spec | None
    model_spec: Spec
    objectives_specs: list[Spec]
    text: TextOptions
    transform_spec: Spec | None = None
    report: LoadReport | None = None

    @property
    def text_options(self) -> dict[str, Any]:
        """What a bundle keeps of the text options."""
        return self.text.model_dump(exclude={"vocabulary"})


@dataclass
class TrainingPlan:
    """A training stage's choices with the sources that exist, before anything costs time.

    Attributes:
        config: the stage's section.
        resolved: model, task, objectives, data, text and transform.
        sources: folders or files that weights come from.
        bundle: config of the first that is a bundle.
    """

    config: Training
    resolved: ResolvedStage
    sources: list[Path]
    bundle: Bundle | None

    @property
    def task(self) -> Task | None:
        """The stage's task."""
        made: Task | None = self.resolved.built_task
        return made


def assemble(context: StageContext) -> Assembly:
    """Build everything: data first (they give the sizes), then model, objectives and weights.

    Raises:
        RecipeError: a choice is missing or does not fit another.
        DataError: data, features or weights are missing or do not fit.
    """
    plan = choose(context)
    resolved, needs = plan.resolved, model_needs(plan)
    if isinstance(plan.config, Pretrain):
        refuse_held_out(context, resolved.data)
    arrange = plan.task.arrange if plan.task is not None else list
    arrange_training = plan.task.arrange_training if plan.task is not None else list
    readers = arrange_training(open_readers(resolved.data, context.root, context.progress, context.cache))
    validation = arrange(open_readers(plan.config.validation, context.root, cache=context.cache))
    tokenizer = make_tokenizer(context, resolved.text, plan.bundle, resolved.model) if needs.text else None
    stores = open_stores(_feature_files(context, plan), needs) if needs.regions or needs.concepts else Stores()
    data_spec = gather_data_spec(plan, readers, tokenizer, stores)
    module = build_training_module(resolved.model or {}, resolved.objectives, data_spec, seed=context.seed)
    require_stores(stores, needs, context.name)
    for objective in module.objectives.values():
        objective.setup(readers, tokenizer, context.folder if processes.rank() == 0 else None)
    config = plan.config
    report = load_sources(module, plan.sources, config.allow_unmatched, config.state_dict, config.rename)
    if report is None and stores.regions is not None and type(module.model).fit_regions is not Model.fit_regions:
        module.model.fit_regions(region_sample(stores.regions, readers))
    loads = _loads(plan.task, needs, module)
    transform = transform_of(resolved, needs)
    made = make_transform(transform, needs)
    make = _pipelines(module, Shared(tokenizer, stores, data_spec, plan.config.missing, context.seed, made))
    order = {"repeats": plan.config.repeats, "curriculum": plan.config.curriculum, "group": plan.config.group}
    return Assembly(
        module=module,
        data=make(readers, training=True, needs=loads[0], **order),
        validation=make(validation, plan.task, needs=loads[1]) if validation else None,
        tokenizer=tokenizer,
        data_spec=data_spec,
        task=plan.task,
        task_spec=resolved.task,
        model_spec=resolved.model or {},
        objectives_specs=resolved.objectives,
        text=resolved.text,
        transform_spec=transform,
        report=report,
    )


def choose(context: StageContext) -> TrainingPlan:
    """Resolve what the recipe leaves open, and find the sources.

    Raises:
        RecipeError: no model, no data or no objectives are named.
    """
    config = context.config
    assert isinstance(config, Training)
    sources = [path for name, path in zip(config.source, context.sources(), strict=True) if _gives(context, name, path)]
    found = next((path for path in sources if find_bundle(path) is not None), None)
    resolved = resolve_stage(context)
    _refuse_gaps(context, resolved)
    refuse_endless(context, resolved.text, resolved.built_task, resolved.objectives)
    return TrainingPlan(config, resolved, sources, None if found is None else read_bundle(found))


def _gives(context: StageContext, name: str, path: Path) -> bool:
    kind = context.kinds.get(name)
    return path.suffix != ".h5" and (kind is None or STAGES[kind].gives_weights)


def _refuse_gaps(context: StageContext, resolved: ResolvedStage) -> None:
    place = f"stages.{context.name}"
    problems = []
    if "name" not in (resolved.model or {}):
        problems.append(Problem(f"{place}.model", "no model is named", hint="add `model: {name: ...}` to the recipe"))
    if not resolved.objectives:
        problems.append(Problem(f"{place}.objectives", "nothing to train on", hint="add `objectives:` or a `task:`"))
    if not resolved.data:
        problems.append(Problem(f"{place}.data", "no data are named", hint="add `data:` (vlcli ls datasets)"))
    if problems:
        raise RecipeError(problems)


def model_needs(plan: TrainingPlan) -> InputSpec:
    """What the model must be fed, asked before its data are there: of one without memory."""
    data_spec = plan.bundle.data_spec if plan.bundle else DataSpec()
    model: Model = without_memory(lambda: build_model(plan.resolved.model or {}, data_spec))
    return model.input_spec()


def _loads(task: Task | None, needs: InputSpec, module: TrainingModule) -> list[InputSpec]:
    if task is not None:
        return [task.input_spec(needs, training) for training in (True, False)]
    if all(objective.text_alone for objective in module.objectives.values()):
        needs = replace(needs, regions=False, grid=None, concepts=False, pixels=False)
    return [needs, needs]


def transform_of(resolved: ResolvedStage, needs: InputSpec) -> Spec | None:
    """The stage's transform; that of a source which read pixels is left out where the model reads none."""
    named = getattr(resolved.stage, "transform", None) is not None
    return resolved.transform if needs.pixels or named else None


def make_transform(spec: Spec | None, needs: InputSpec) -> Transform | None:
    """How a model's pictures become pixels; None where nothing is asked for.

    Raises:
        RecipeError: it is asked for, and the model reads no pixels.
    """
    if spec is not None and not needs.pixels:
        raise RecipeError([Problem("transform", "the model reads no pixels, so nothing is transformed")])
    made: Transform | None = None if spec is None else registry.of(Transform).build(spec, needs)
    return made


def _feature_files(context: StageContext, plan: TrainingPlan) -> list[Path]:
    named = [n for n in plan.config.source if context.kinds.get(n) == "extract" or n.endswith(".h5")]
    return context.feature_files(list(plan.config.features) or named)


def gather_data_spec(plan: TrainingPlan, readers: list[Reader], tokenizer: Any, stores: Stores) -> DataSpec:
    """The sizes that the data decide; what they leave open comes from the source, else from :class:`DataSpec`."""
    store = stores.regions
    data_spec = replace(plan.bundle.data_spec if plan.bundle else DataSpec(), text_length=plan.resolved.text.length)
    if tokenizer is not None:
        data_spec = replace(data_spec, **tokenizer.data_spec_fields())
    if store is not None:
        data_spec = replace(data_spec, regions=store.max_regions, region_dim=store.dim)
        data_spec = replace(data_spec, region_classes=_labels(store, "class"))
        data_spec = replace(data_spec, region_attributes=_labels(store, "attribute"))
    elif any(reader.class_names() for reader in readers):
        data_spec = replace(data_spec, **_box_labels(readers))
    if stores.concepts is not None:
        data_spec = replace(data_spec, concepts=stores.words)
    if tokenizer is not None and data_spec.concepts:
        data_spec = replace(data_spec, concept_pieces=tuple(map(tokenizer.pieces, data_spec.concepts)))
    labels = _answers(plan, [reader for reader in readers if not reader.augments])
    for reader in readers:
        if reader.augments:
            keep_answered(reader, labels or data_spec.answers)
    return replace(data_spec, answers=labels) if labels else data_spec


def _answers(plan: TrainingPlan, readers: list[Reader]) -> tuple[str, ...]:
    found = tuple(plan.task.labels(readers)) if plan.task is not None else ()
    for spec in plan.resolved.objectives:
        found = found or tuple(registry.of(Objective).load(spec["name"]).labels(spec, readers))
    return found


def _box_labels(readers: list[Reader]) -> dict[str, Any]:
    named = [reader for reader in readers if reader.class_names()]
    first = max(named, key=lambda reader: len(reader.class_names()))
    names = tuple(first.class_names())
    for reader in named:
        own = tuple(reader.class_names())
        if own != names[: len(own)]:
            raise DataError(
                "Two data sets number the classes of their boxes differently.",
                where=f"{first.label} and {reader.label}",
                got=f"{', '.join(names[:4])} ... and {', '.join(own[:4])} ...",
                expected="the same categories in the same order",
            )
    attributes = max((tuple(reader.attribute_names()) for reader in named), key=len)
    return {
        "region_classes": len(names),
        "region_attributes": len(attributes),
        "class_names": names,
        "class_ids": tuple(first.class_ids()),
        "attribute_names": attributes,
    }


def _labels(store: FeatureStore, what: str) -> int:
    columns = store.classes_count if what == "class" else store.attributes_count
    field_name = "classes" if what == "class" else "attributes"
    if columns or field_name not in store.fields:
        return columns
    tops = [part.block(field_name, 0, int(part.offsets[-1])).max(initial=-1) for part in store.parts()]
    told = store.provenance.get("class_ids" if what == "class" else "attributes", ())
    return max(int(max(tops, default=-1)) + 1, len(told))


@dataclass(frozen=True)
class Shared:
    """What the training and the validation data of a stage have in common.

    Attributes:
        tokenizer: of the model's texts; None where the model reads none.
        stores: of regions and concepts.
        data_spec: sizes that come from the data.
        missing: whether an example without its features is an error or is left out.
        seed: of the stage.
        transform: of pixels, or None.
    """

    tokenizer: Any
    stores: Stores
    data_spec: DataSpec
    missing: Literal["error", "drop"]
    seed: int
    transform: Transform | None


def _pipelines(module: TrainingModule, shared: Shared) -> Callable[..., Pipeline]:
    corruptions = [found for name in module.objectives for found in corruptions_of(module, name, shared.data_spec)]

    def make(readers: list[Reader], task: Task | None = None, **options: Any) -> Pipeline:
        chosen = corruptions if task is None else corruptions_for(task, module)
        return Pipeline(
            readers,
            tokenizer=shared.tokenizer,
            corruptions=chosen,
            store=shared.stores.regions,
            concepts=shared.stores.concepts,
            data_spec=shared.data_spec,
            missing=shared.missing,
            seed=shared.seed,
            transform=shared.transform,
            **options,
        )

    return make


def corruptions_of(module: TrainingModule, name: str, data_spec: DataSpec) -> list[Corruption]:
    """How an objective changes samples, in each stretch of epochs with options of its own."""
    part, objective = module.parts[name], module.objectives[name]
    found: list[Corruption] = []
    for start, end, own in part.options.phases():
        if own:
            with torch.random.fork_rng():  # heads that are made and thrown away must not move what is drawn later
                objective = registry.of(Objective).build({**part.spec, **own}, module.model, data_spec)
        corruption = objective.corruption()
        if corruption is not None:
            corruption.from_epoch, corruption.until_epoch = start, end
            found.append(corruption)
    return found


def corruptions_for(task: Task | None, module: TrainingModule | None) -> list[Corruption]:
    """How examples are corrupted that a task scores: as by the objectives it names, whatever their epochs."""
    names = getattr(task, "corrupted_by", ())
    known = [module.objectives[name] for name in names if name in module.objectives] if module is not None else []
    return [found for objective in known if (found := objective.corruption()) is not None]


def check_task(task: Task | None, module: TrainingModule, stage: str) -> None:
    """Refuse a task that asks for what the model cannot do.

    Raises:
        RecipeError: what it lacks.
    """
    lacking = sorted(task.requires - module.model.capabilities) if task is not None else []
    if lacking:
        can = ", ".join(sorted(module.model.capabilities)) or "nothing"
        what = f"the task needs a model that can: {', '.join(lacking)}"
        raise RecipeError([Problem(f"stages.{stage}.task", what, got=f"{type(module.model).__name__} can: {can}")])
