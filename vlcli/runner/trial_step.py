"""Runs one training step on invented examples, from sentence to gradient, before a run begins."""

from __future__ import annotations

import inspect
import itertools
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from vlcli import registry
from vlcli.builders.context import StageContext
from vlcli.builders.readers import Stores, build_reader, require_stores
from vlcli.builders.resolve import kept_by, resolve_stage
from vlcli.builders.training import box_labels, make_transform, transform_of
from vlcli.data.columns.table import without_text
from vlcli.data.reader import Reader
from vlcli.engine.optim import freeze, parameter_groups
from vlcli.engine.training_module import Part, StepResult, TrainingModule, build_training_module, check_capabilities
from vlcli.errors import DataError, Problem, RecipeError, VlcliError
from vlcli.features.concepts import ConceptStore
from vlcli.images.shards import is_there
from vlcli.nn.fake import without_memory
from vlcli.nn.model import DataSpec, InputSpec, Model
from vlcli.objectives.base import Objective
from vlcli.recipe.resolve import ResolvedStage, resolve
from vlcli.recipe.schema import Reading, Training, TrainVocabulary
from vlcli.registry.contract import blame, in_a_line, origin
from vlcli.runner import invented
from vlcli.runner.upstream import refuse_other_grid, refuse_other_sizes
from vlcli.tasks.base import Task

if TYPE_CHECKING:
    from vlcli.data.pipeline import Pipeline
    from vlcli.nn.batch import Batch

# Models with more parameters are built on the meta device only: a real step would cost seconds and gigabytes
LARGEST = 40_000_000
_WORDS_TRIED = 2000  # examples whose sentences give the vocabulary of a trial on real examples
# Capabilities that objectives which read sentences require; one that requires nothing reads them too
READ_WORDS = {"text", "fuse", "generate", "decode"}


def trial_step(context: StageContext, reading: Sequence[str] = ()) -> list[Problem]:
    """Returns the faults of a training stage, whose inputs need not exist yet.

    Args:
        reading: this stage and those that evaluate its model: the stores that it reads must be named for each.

    Checks capabilities, builds model and objectives on the meta device, sorts the parameters into groups, and runs a
    training step on invented data if the model has at most :data:`LARGEST` parameters.
    """
    key = f"stages.{context.name}"
    try:
        resolved = _resolved(context)
        model = registry.of(Model).load(resolved.model["name"])  # type: ignore[index]
        check_capabilities(model, [Part.of(entry) for entry in resolved.objectives])
        reader = _real_reader(context, resolved)
        data_spec = _data_spec(context, resolved, reader)
        module = _on_meta(context, resolved, data_spec)
        refuse_other_sizes(context, lambda: _on_meta(context, resolved, data_spec), data_spec)
        _refuse_wordless(module, reader)
        for name in reading:
            _refuse_storeless(context, name, module.model.input_spec())
        refuse_other_grid(context.recipe.stages, _stores_of(context), module.model.input_spec().grid)
        if sum(p.numel() for p in module.parameters()) <= LARGEST:
            with _rehearsal(context, resolved, data_spec, reader) as rehearsal:
                rehearsal.loss(rehearsal.batch()).total.backward()
                rehearsal.module.close_step()
    except RecipeError as error:
        return [replace(p, key=p.key if p.key.startswith("stages.") else f"{key}.{p.key}") for p in error.problems]
    except VlcliError as error:
        return [Problem.of(key, error)]
    except (Exception, SystemExit) as error:
        return [_unforeseen(context, key, error)]
    return []


def _unforeseen(context: StageContext, key: str, error: BaseException) -> Problem:
    resolved = _resolved(context)
    named = [("models", resolved.model["name"])]  # type: ignore[index]
    named += [("objectives", registry.as_spec(spec)["name"]) for spec in resolved.objectives]
    targets = {(kind, name): registry.load(kind, name) for kind, name in named}
    line = blame(error, *targets.values())
    file = line.rpartition(":")[0]
    whose = [f" in the {k[:-1]} {n!r}" for (k, n), one in targets.items() if origin(one).rpartition(":")[0] == file]
    what = f"one step on invented data fails{''.join(whose[:1])} ({line})"
    others = [f"{n!r} ({origin(t)})" for (k, n), t in targets.items() if registry.find(k, n).distribution != "vlcli"]
    given = f", on what comes from {' and '.join(others)}" if others else ""
    hint = f"the line is in the code that fails{given}; -vv shows the traceback of a run"
    return Problem(key, what, got=in_a_line(error), hint=hint, code=4)


def _stores_of(context: StageContext) -> list[str]:
    # those that the stage names, else every one before it
    named = [*context.section(Training).features, *context.config.source]
    earlier = itertools.takewhile(lambda name: name != context.name, context.recipe.stages)
    chosen, others = ([n for n in names if context.kinds.get(n) == "extract"] for names in (named, earlier))
    return chosen or others


def _resolved(context: StageContext) -> ResolvedStage:
    resolved = resolve_stage(context)
    if missing := [word for word in ("model", "objectives") if not getattr(resolved, word)]:
        raise RecipeError([Problem(word, "nothing is named", hint=f"add `{word}:`") for word in missing])
    return resolved


def _data_spec(context: StageContext, resolved: ResolvedStage, reader: Reader | None) -> DataSpec:
    # small sizes; text as long as the recipe says; the labels of the data where they are there
    config = context.section(Training)
    task: Task | None = resolved.built_task
    if task is None or reader is None or config.source or len(config.data) > 1:  # something else decides the labels
        answers = (tuple(reader.label_names()) if reader is not None else ()) or invented.ANSWERS
    else:
        answers = tuple(task.labels([reader]))
    of_words: dict[str, Any] = invented.invented_tokenizer().data_spec_fields()
    objectives = (registry.load("objectives", spec["name"]) for spec in resolved.objectives)
    return DataSpec(
        text_length=resolved.text.length,
        regions=invented.REGIONS,
        region_dim=16,
        region_classes=5,
        region_attributes=4,
        concepts=("red", "circle", "left"),
        answers=answers if task is not None or any(map(_chooses, objectives)) else (),
        **of_words,
    )


def _chooses(objective: type[Objective]) -> bool:
    # the head has a table of a known size, or finds its labels itself
    finds = inspect.getattr_static(objective, "labels") is not inspect.getattr_static(Objective, "labels")
    return finds or bool(objective.usual_answers)


def _refuse_wordless(module: TrainingModule, reader: Reader | None) -> None:
    asked = [objective.requires or {"text"} for objective in module.objectives.values()]
    if reader is None or not module.model.input_spec().text or not any(READ_WORDS & set(one) for one in asked):
        return
    examples = reader.examples()
    if lacking := without_text(examples):
        share = "all" if len(lacking) == len(examples) else f"{len(lacking):,} of {len(examples):,}"
        raise DataError(
            "The stage's objectives read sentences, and examples of the data have none.",
            where=f"{reader.files()[0] if reader.files() else reader.label}: example {lacking[0] + 1}",
            got=f"{reader.label}: {share} examples without a sentence, the first is {examples[lacking[0]].key!r}",
            hint="name the column that holds the sentences (text=COLUMN), or leave the rows without one out",
        )


def _refuse_storeless(context: StageContext, name: str, needs: InputSpec) -> None:
    stage = cast("Reading", context.recipe.stages[name])
    earlier = itertools.takewhile(lambda other: other != name, context.recipe.stages)
    if stage.features or any(context.recipe.stages[one].kind == "extract" for one in earlier):
        return
    if not any(word.endswith(".h5") for word in stage.source):
        task = resolve(context.recipe, stage, lambda word: kept_by(context, word)).built_task
        needs = needs if task is None else task.input_spec(needs, name == context.name)
        require_stores(Stores(), needs, name)


def _on_meta(context: StageContext, resolved: ResolvedStage, data_spec: DataSpec) -> TrainingModule:
    config = context.section(Training)
    module = without_memory(lambda: build_training_module(resolved.model or {}, resolved.objectives, data_spec))
    freeze(module, config.trainable, config.frozen)
    parameter_groups(module, config.optimizer)
    return module


@dataclass
class Rehearsal:
    """Module and invented examples of a stage; ``epoch`` is the first in which every objective is active."""

    module: TrainingModule
    data: Pipeline
    epoch: int

    def batch(self, rank: int = 0, world: int = 1) -> Batch:
        """Returns all examples as one batch; with several processes, the part of ``rank``."""
        batch: Batch = next(iter(self.data.loader(len(self.data), shuffle=False, rank=rank, world=world)))
        return batch

    def loss(self, batch: Batch) -> StepResult:
        """Returns the loss of a batch. Raises RecipeError: it does not depend on any trained parameter."""
        result: StepResult = self.module.train()(batch, epoch=self.epoch)
        if not result.total.requires_grad:
            what = "the objectives have nothing to learn from these data with this model"
            got = ", ".join(self.module.objectives)
            expected = "examples with what they read (sentences, pictures, labels), and parameters that are trained"
            hint = "vlcli show NAME tells what an objective reads, vlcli data stats RECIPE what the data have"
            raise RecipeError([Problem("objectives", what, got=got, expected=expected, hint=hint)])
        return result


def rehearse(
    context: StageContext, count: int = invented.EXAMPLES, like: DataSpec | None = None, real: bool = False
) -> AbstractContextManager[Rehearsal]:
    """Builds a stage with ``count`` invented examples, whose files lie in a temporary folder.

    Args:
        like: gives the numbers of regions; without ``real``, sentences have full length and no data are read.
        real: the examples are the first of the stage's data, with their pictures; features are invented.
    """
    resolved = _resolved(context)
    reader = _real_reader(context, resolved) if like is None or real else None
    data_spec = _data_spec(context, resolved, reader)
    if like is not None:
        data_spec = replace(data_spec, regions=like.regions, region_dim=like.region_dim)
    return _rehearsal(context, resolved, data_spec, reader, count, like is not None and not real, real)


@contextmanager
def _rehearsal(
    context: StageContext,
    resolved: ResolvedStage,
    data_spec: DataSpec,
    real: Reader | None,
    count: int = invented.EXAMPLES,
    whole: bool = False,
    as_it_is: bool = False,
) -> Iterator[Rehearsal]:
    from vlcli.data.pipeline import Pipeline

    if as_it_is and real is not None:
        vocabulary = resolved.text.vocabulary
        size = vocabulary.size if isinstance(vocabulary, TrainVocabulary) else _WORDS_TRIED
        tokenizer = invented.invented_tokenizer(real.examples()[:_WORDS_TRIED], size)
        learnt: dict[str, Any] = {**tokenizer.data_spec_fields(), **(box_labels([real]) if real.class_names() else {})}
        data_spec = replace(data_spec, **learnt)
        there = (one for one in real.examples() if all(is_there(real.locate(name)) for name in one.images))
        examples = list(itertools.islice(there, count))
    else:
        tokenizer = invented.invented_tokenizer()
        pictures = max((int(registry.as_spec(spec).get("images", 1)) for spec in resolved.objectives), default=1)
        real, examples = None, invented.invented_examples(real, data_spec, pictures, count)
    examples = invented.lengthened(examples, data_spec.text_length) if whole else examples
    module = build_training_module(resolved.model or {}, resolved.objectives, data_spec)
    most = 1 if module.model.many_images else max((len(one.images) for one in examples), default=1)
    if few := [name for name, one in module.objectives.items() if getattr(one, "images", most) < most]:
        what, got = f"The objective {few[0]} reads fewer pictures of an example.", f"{most} in one example"
        hint = "name the column of one picture (image=COLUMN), or take a task that has the option images"
        raise DataError(what, where=context.name, got=got, hint=hint)
    needs = model_reads = module.model.input_spec()
    if resolved.built_task is not None:
        needs = resolved.built_task.input_spec(needs, True)
    corruptions = (objective.corruption() for objective in module.objectives.values())
    with tempfile.TemporaryDirectory() as folder:
        reader = invented.Invented(Path(folder), examples, needs.grid, data_spec.regions, real)
        store = invented.invented_store(Path(folder), reader, data_spec) if needs.regions or needs.concepts else None
        invented.draw_pictures(reader) if needs.pixels and real is None else None
        data = Pipeline(
            [reader],
            needs=needs,
            tokenizer=tokenizer if needs.text else None,
            data_spec=data_spec,
            store=store,
            concepts=ConceptStore(store.paths) if store is not None and needs.concepts else None,
            corruptions=[corruption for corruption in corruptions if corruption is not None],
            transform=make_transform(transform_of(resolved, model_reads), needs),
            training=True,
            seed=context.seed,
            missing=context.config.missing if as_it_is else "error",  # type: ignore[attr-defined]
        )
        for objective in module.objectives.values():
            objective.setup(data.readers, data.tokenizer, None)
        yield Rehearsal(module, data, max(part.options.from_epoch for part in module.parts.values()))


def _real_reader(context: StageContext, resolved: ResolvedStage) -> Reader | None:
    # the first data set that is there and has examples
    task: Task | None = resolved.built_task
    for entry in resolved.data:
        try:
            reader = build_reader(entry, context.root)
            reader.cache = context.cache
            reader.require()
            arranged: Reader = reader if task is None else task.arrange([reader])[0]
            arranged.examples()
            return arranged
        except DataError:  # made by a stage before this one; whether it is there is checked elsewhere
            continue
    return None
