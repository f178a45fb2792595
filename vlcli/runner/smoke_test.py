"""One fake step before anything costs time: a few invented examples go the whole way, from sentence to gradient."""

from __future__ import annotations

import inspect
import itertools
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vlcli import registry
from vlcli.builders.context import StageContext
from vlcli.builders.readers import plain
from vlcli.builders.resolve import resolve_stage
from vlcli.builders.training import make_transform, transform_of, without_memory
from vlcli.data.reader import Reader
from vlcli.data.references import REFERENCES
from vlcli.data.sample import Example
from vlcli.data.vocabulary import Tokenizer
from vlcli.detection.extractor import grid_boxes
from vlcli.engine.optim import freeze, parameter_groups
from vlcli.engine.training_module import Part, TrainingModule, build_training_module, check_capabilities
from vlcli.errors import DataError, Problem, RecipeError, VlcliError
from vlcli.features import FeatureStore, FeatureWriter, Record
from vlcli.features.concepts import CONCEPTS, WORDS, ConceptStore, concept_record
from vlcli.nn.model import DataSpec
from vlcli.objectives.base import Objective
from vlcli.recipe.resolve import ResolvedStage
from vlcli.recipe.schema import Training
from vlcli.registry import as_spec
from vlcli.registry.contract import blame, origin
from vlcli.runner.extractions import refuse_other_grid
from vlcli.runner.start_weights import refuse_other_sizes
from vlcli.tasks.base import Task

LARGEST = 40_000_000
"""Models with more parameters are built on the meta device only: a real step would cost seconds and gigabytes."""
EXAMPLES, REGIONS = 4, 3
READ_WORDS = {"text", "fuse", "generate", "decode"}
"""What an objective that reads sentences asks of its model; one that asks for nothing reads them too."""
ANSWERS = ("yes", "no", "2", "red")
SENTENCES = ("a red circle is left of a blue square", "two green stars", "there is no triangle", "the picture is empty")


def smoke_test(context: StageContext) -> list[Problem]:
    """What would go wrong in this stage, found out in a moment; nothing of its inputs need exist yet.

    Checks capabilities, builds model and objectives on the meta device, sorts the parameters into groups, and, where
    the model is not too large, runs one training step on invented data.
    """
    place = f"stages.{context.name}"
    try:
        resolved = _resolved(context)
        model = registry.models.load(resolved.model["name"])  # type: ignore[index]
        check_capabilities(model, [Part.of(entry) for entry in resolved.objectives])
        reader = _real_reader(context, resolved)
        data_spec = _data_spec(context, resolved, reader)
        module = _on_meta(context, resolved, data_spec)
        refuse_other_sizes(context, _on_meta(context, resolved, data_spec), data_spec)
        _refuse_wordless(module, reader)
        refuse_other_grid(context.recipe.stages, _stores_of(context), module.model.input_spec().grid)
        if sum(p.numel() for p in module.parameters()) <= LARGEST:
            _step(context, resolved, data_spec, reader)
    except RecipeError as error:
        return [replace(problem, key=_inside(place, problem.key)) for problem in error.problems]
    except VlcliError as error:
        what = error.what if not error.where else f"{error.what} ({error.where})"
        return [Problem(place, what, got=error.got, expected=error.expected, hint=error.hint, code=error.exit_code)]
    except Exception as error:
        return [_unforeseen(context, place, error)]
    return []


def _unforeseen(context: StageContext, place: str, error: Exception) -> Problem:
    """A fault nobody has words for, by the component whose code it is in and its author's line."""
    text = (str(error).strip() or "no message").split("\n")[0]
    resolved = _resolved(context)
    named = [("models", resolved.model["name"])]  # type: ignore[index]
    named += [("objectives", as_spec(spec)["name"]) for spec in resolved.objectives]
    targets = {f"{kind[:-1]} {name!r}": registry.load(kind, name) for kind, name in named}
    line = blame(error, *targets.values())
    file = line.rpartition(":")[0]
    whose = [name for name, target in targets.items() if origin(target).rpartition(":")[0] == file]
    what = f"one step on invented data fails in the {whose[0]}" if whose else "one step on invented data fails"
    hint = "the line is in the code that fails; -vv shows the traceback of a run"
    return Problem(place, f"{what} ({line})", got=f"{type(error).__name__}: {text}", hint=hint, code=4)


def _stores_of(context: StageContext) -> list[str]:
    """The extract stages whose stores the stage reads: those it names, else every one before it."""
    named = [*getattr(context.config, "features", []), *context.config.source]
    chosen = [name for name in named if context.kinds.get(name) == "extract"]
    earlier = itertools.takewhile(lambda name: name != context.name, context.recipe.stages)
    return chosen or [name for name in earlier if context.kinds.get(name) == "extract"]


def _inside(place: str, key: str) -> str:
    return key if key.startswith("stages.") else f"{place}.{key}"


def _resolved(context: StageContext) -> ResolvedStage:
    """What the stage will do.

    Raises:
        RecipeError: it has no model or no objectives.
    """
    found = resolve_stage(context)
    missing = [word for word, value in (("model", found.model), ("objectives", found.objectives)) if not value]
    if missing:
        raise RecipeError([Problem(word, "nothing is named", hint=f"add `{word}:`") for word in missing])
    return found


def _data_spec(context: StageContext, resolved: ResolvedStage, reader: Reader | None) -> DataSpec:
    """Small sizes; text as long as the recipe says; the labels of the data where they are there."""
    config = context.config
    assert isinstance(config, Training)
    task: Task | None = resolved.built_task
    known = _labels(config, task, reader)
    answers = ((tuple(reader.label_names()) if reader is not None else ()) or ANSWERS) if known is None else known
    data_spec = DataSpec(
        text_length=resolved.text.length, regions=REGIONS, region_dim=16, region_classes=5, region_attributes=4
    )
    data_spec = replace(data_spec, concepts=("red", "circle", "left"))
    chosen = task is not None or any(_chooses(registry.objectives.load(spec["name"])) for spec in resolved.objectives)
    of_words: dict[str, Any] = _tokenizer().data_spec_fields()
    return replace(data_spec, answers=answers if chosen else (), **of_words)


def _chooses(objective: type[Objective]) -> bool:
    """Whether the head chooses from strings of the data: it has a table of a known size, or finds them itself."""
    found = inspect.getattr_static(objective, "labels") is not inspect.getattr_static(Objective, "labels")
    return found or bool(objective.usual_answers)


def _labels(config: Training, task: Task | None, reader: Reader | None) -> tuple[str, ...] | None:
    """The labels that the data themselves give, maybe none; None where a source or several data sets decide them."""
    if task is None or reader is None or config.source or len(config.data) > 1:
        return None
    return tuple(task.labels([reader]))


def _refuse_wordless(module: TrainingModule, reader: Reader | None) -> None:
    """Refuse data where an objective reads sentences and an example has none."""
    asked = [objective.requires or {"text"} for objective in module.objectives.values()]
    reads = module.model.input_spec().text and any(READ_WORDS & set(one) for one in asked)
    examples = [] if reader is None or not reads else reader.examples()
    lacking = [number for number, example in enumerate(examples) if example.text is None]
    if reader is not None and lacking:
        share = "all" if len(lacking) == len(examples) else f"{len(lacking):,} of {len(examples):,}"
        raise DataError(
            "The stage's objectives read sentences, and examples of the data have none.",
            where=f"{reader.files()[0] if reader.files() else reader.label}: example {lacking[0] + 1}",
            got=f"{reader.label}: {share} examples without a sentence, the first is {examples[lacking[0]].key!r}",
            hint="name the column that holds the sentences (text=COLUMN), or leave the rows without one out",
        )


def _tokenizer() -> Tokenizer:
    return Tokenizer.train(SENTENCES, 100)


def _on_meta(context: StageContext, resolved: ResolvedStage, data_spec: DataSpec) -> TrainingModule:
    config = context.config
    assert isinstance(config, Training)
    module = without_memory(lambda: build_training_module(resolved.model or {}, resolved.objectives, data_spec))
    freeze(module, config.trainable, config.frozen)
    parameter_groups(module, config.optimizer)
    return module


def _step(context: StageContext, resolved: ResolvedStage, data_spec: DataSpec, real: Reader | None) -> None:
    """Forward and backward of one small batch."""
    from vlcli.data.pipeline import Pipeline

    module = build_training_module(resolved.model or {}, resolved.objectives, data_spec)
    needs = model_reads = module.model.input_spec()
    if resolved.built_task is not None:
        needs = resolved.built_task.input_spec(needs, True)
    made = (objective.corruption() for objective in module.objectives.values())
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        pictures = max((int(as_spec(spec).get("images", 1)) for spec in resolved.objectives), default=1)
        examples = _examples(real, data_spec, pictures)
        reader = _Invented(root, examples, needs.grid)
        store = _store(root, reader, data_spec) if needs.regions or needs.concepts else None
        _pictures(reader) if needs.pixels else None
        data = Pipeline(
            [reader],
            needs=needs,
            tokenizer=_tokenizer() if needs.text else None,
            data_spec=data_spec,
            store=store,
            concepts=ConceptStore(store.paths) if store is not None and needs.concepts else None,
            corruptions=[corruption for corruption in made if corruption is not None],
            transform=make_transform(transform_of(resolved, model_reads), needs),
            training=True,
            seed=context.seed,
            missing="error",
        )
        batch = next(iter(data.loader(len(examples), shuffle=False)))
        for objective in module.objectives.values():
            objective.setup([reader], data.tokenizer, None)
    epoch = max(part.options.from_epoch for part in module.parts.values())
    total = module.train()(batch, epoch=epoch).total
    if not total.requires_grad:
        raise _idle(module)
    total.backward()
    module.close_step()


def _idle(module: TrainingModule) -> RecipeError:
    """No objective found anything to do: the model would be saved as it was drawn."""
    return RecipeError(
        [
            Problem(
                "objectives",
                "the objectives have nothing to learn from these data with this model",
                got=", ".join(module.objectives),
                expected="examples with what they read (sentences, pictures, labels), and parameters that are trained",
                hint="vlcli show NAME tells what an objective reads, vlcli data stats RECIPE what the data have",
            )
        ]
    )


class _Invented(Reader):
    """A data set of invented examples."""

    def __init__(self, root: Path, given: list[Example], grid: tuple[int, int] | None = None) -> None:
        super().__init__(root, split="train")
        self.given, self.grid = given, grid

    def files(self) -> list[Path]:
        return []

    def read(self) -> list[Example]:
        return self.given

    def locate(self, name: str) -> Path:
        return self.root / f"{name}.png"

    def label_maps(self) -> dict[str, Path]:
        names = (name for example in self.given for name in example.images)
        return {name: self.root / f"{name}-labels.png" for name in names}

    def boxes(self) -> dict[str, Any]:
        from vlcli.images.boxes import BoxList

        corners = np.array([[1.0, 1.0, 20.0, 20.0], [8.0, 8.0, 30.0, 30.0], [2.0, 4.0, 16.0, 31.0]], np.float32)
        if self.grid is not None:
            corners = grid_boxes((32, 32), self.grid).boxes
        names = sorted({name for example in self.given for name in example.images})
        kinds = np.arange(len(corners)) % REGIONS
        return {name: BoxList(corners, classes=kinds, attributes=kinds) for name in names}

    def class_names(self) -> list[str]:
        return ["circle", "square", "star", "triangle", "other"]

    def attribute_names(self) -> list[str]:
        return ["red", "blue", "green", "other"]


def _examples(reader: Reader | None, data_spec: DataSpec, pictures: int = 1) -> list[Example]:
    """The first examples of the stage's own data where they are there, else invented ones; pictures are invented."""
    real = [] if reader is None else reader.examples()[:EXAMPLES]
    numbers = itertools.count()
    if not real:
        targets: dict[str, Any] = {"label": 1, "answers": {"yes": 1.0}, "kind": "any", "words": ["red"]}
        targets["box"] = [0.1, 0.1, 0.6, 0.6]
        return [
            Example(
                str(i),
                SENTENCES[i],
                [f"p{next(numbers)}" for _ in range(pictures)],
                targets={REFERENCES: [SENTENCES[i]], **(targets if data_spec.answers else {})},
            )
            for i in range(EXAMPLES)
        ]
    return [replace(example, images=[f"p{next(numbers)}" for _ in example.images]) for example in real]


def _real_reader(context: StageContext, resolved: ResolvedStage) -> Reader | None:
    """The first of the stage's data sets that is there and has examples."""
    task: Task | None = resolved.built_task
    for entry in resolved.data:
        try:
            reader: Reader = registry.datasets.build(plain(entry), context.root)
            reader.require()
            arranged: Reader = reader if task is None else task.arrange([reader])[0]
            arranged.examples()
            return arranged
        except DataError:  # made by a stage before this one; whether it is there is checked elsewhere
            continue
    return None


def _store(root: Path, reader: Reader, data_spec: DataSpec) -> FeatureStore:
    """A feature store of the invented pictures."""
    path, draw = root / "features.h5", np.random.default_rng(0)
    with FeatureWriter(path) as writer:
        for name, boxes in reader.boxes().items():
            ids = (np.arange(len(boxes.boxes)) % REGIONS).astype(np.int32)
            record = Record(name, draw.random((len(ids), data_spec.region_dim), np.float32), boxes.boxes, (32, 32))
            record.classes, record.attributes = ids, ids
            record.class_scores = record.attribute_scores = np.ones(len(ids), np.float32)
            writer.append(record)
    with FeatureWriter(path, {WORDS: list(data_spec.concepts)}, set=CONCEPTS) as writer:
        for name in reader.boxes():
            writer.append(concept_record(name, np.arange(REGIONS), np.full(REGIONS, 0.5), (32, 32)))
    return FeatureStore.open([path])


def _pictures(reader: _Invented) -> None:
    for name in reader.boxes():
        Image.new("RGB", (32, 32), (90, 120, 150)).save(reader.locate(name))
    for path in reader.label_maps().values():
        Image.new("L", (32, 32), 1).save(path)
