"""The checks of each kind of component, on invented data and small models."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vlcli import registry
from vlcli.engine.training_module import TrainingModule, build_training_module
from vlcli.errors import Problem, VlcliError
from vlcli.export.graph import Form, Graph, form_of, hidden_states
from vlcli.nn.batch import Batch
from vlcli.nn.forward_passes import ForwardPasses
from vlcli.nn.model import DataSpec, EncoderOutput
from vlcli.progress import Silent
from vlcli.recipe import plan as planning
from vlcli.recipe.dump import to_yaml
from vlcli.recipe.load import load as load_recipe
from vlcli.registry import Entry
from vlcli.runner.execute import context_of
from vlcli.runner.smoke_test import smoke_test
from vlcli.tools.conformance import PASSED, Check, DoesNotApply, Failure, Result, interface, one

SMALL: dict[str, Any] = {
    **dict.fromkeys(("text_layers", "image_layers", "cross_layers", "fused_layers", "encoder_layers"), 1),
    **{"hidden": 16, "heads": 2, "layers": 1, "intermediate": 32, "width": 16, "queries": 4, "classes": None},
    **{"image_size": 32, "patch": 16, "arch": "tiny-conv", "backbone": "tiny-conv", "size": 32},
}
"""Small values of the options that models share (docs/glossary.md); a model takes those that it has."""
_LAYERS = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
_VIT, _BERT = {"model_type": "vit", "image_size": 32, **_LAYERS}, {"model_type": "bert", **_LAYERS}
OWN: dict[str, dict[str, Any]] = {
    "swin": {"hidden": 8, "heads": [1, 2], "layers": [1, 1], "patch": 4, "window": 4},
    "detr": {"decoder_layers": 1, "image_size": [64, 64]},
    "vlmo": {"layers": 2},
    "two-tower": {"image": _VIT, "text": _BERT},
    "two-tower-fused": {"image": _VIT, "text": _BERT},
}
SPEC = DataSpec(vocab_size=97, unk_id=1, cls_id=2, sep_id=3, mask_id=4, text_length=12, region_dim=12, region_classes=7)
"""Sizes of the invented data; every model gets them with three answers and three concepts."""
TOLERANCE, WORDS = 1e-4, 7


def data_spec() -> DataSpec:
    """Sizes of the invented data."""
    words: dict[str, Any] = {"concepts": ("red", "dog", "cat"), "concept_pieces": ((5,), (6, 7), (8,))}
    return replace(SPEC, region_attributes=5, answers=("yes", "no", "red"), **words)


def small(name: str, distribution: str = "") -> dict[str, Any]:
    """A model's entry with small sizes, as far as it takes them."""
    full = f"{distribution}:{name}" if distribution else name
    wanted = SMALL | OWN.get(name, {})
    options = registry.parameters(registry.load("models", full))
    spec = {"name": full, **{key: value for key, value in wanted.items() if key in options}}
    wrong = {problem.key.rpartition(".")[2] for problem in registry.check("models", spec)}
    return {key: value for key, value in spec.items() if key not in wrong}


def built(entry: Entry, seed: int = 1) -> TrainingModule:
    """A small model of an entry, in evaluation mode."""
    return build_training_module(small(entry.name, entry.distribution), [], data_spec(), seed=seed).eval()


def batch_of(module: TrainingModule, rows: int = 3, seed: int = 0) -> tuple[Form, tuple[Tensor, ...], Batch]:
    """An invented batch that the model reads: its form, its tensors, and the batch."""
    form = form_of(trained(module), alone=not module.model.input_spec().text)
    inputs = form.example(rows, 7, 5, seed)
    return form, inputs, batch_from(form, inputs)


def batch_from(form: Form, inputs: Sequence[Tensor]) -> Batch:
    """The batch of inputs, with a box on every image where the model reads boxes."""
    batch = form.batch(inputs)
    images = batch.clean.images
    if form.needs.boxes and images is not None and images.pixels is not None:
        rows = len(images.pixels.images)
        images.pixels.boxes = torch.tensor([[[0.1, 0.1, 0.6, 0.7]]]).expand(rows, 1, 4)
        images.pixels.box_mask = torch.ones(rows, 1, dtype=torch.bool)
        images.pixels.classes = images.pixels.attributes = torch.zeros(rows, 1, dtype=torch.long)
    return batch


def trained(module: TrainingModule) -> Any:
    """A module as exporters see it."""
    none: dict[str, Any] = {"tokenizer": None, "text_options": {}, "info": {}, "folder": Path()}
    return SimpleNamespace(module=module, model=module.model, data_spec=module.model.data_spec, **none)


def outputs(module: TrainingModule, batch: Batch) -> dict[str, EncoderOutput]:
    """What a model's encoders and its fusion return, by capability."""
    step, able = ForwardPasses(module.model, batch, training=False), module.model.capabilities
    made: dict[str, EncoderOutput] = {}
    with torch.no_grad():
        made |= {"text": step.text()} if "text" in able else {}
        made |= {"image": step.image()} if "image" in able else {}
        if "fuse" in able:
            fused = step.fused()
            made |= {"fused text": fused.text, "fused image": fused.image}
            made["fuse"] = EncoderOutput(fused.pooled[:, None], fused.text.layout.cut(0, 1), fused.pooled)
    if not made:
        raise DoesNotApply(f"a model that can {', '.join(sorted(able)) or 'nothing'}")
    return made


def shapes(entry: Entry) -> None:
    """Hidden states are (rows, tokens, dim) as their layout says, pooled vectors (rows, dim), all finite."""
    module = built(entry)
    batch, dim = batch_of(module)[2], module.model.dim
    for name, found in outputs(module, batch).items():
        tokens = found.layout.route.shape[1]
        got = tuple(found.hidden.shape)
        if len(got) != 3 or got[:2] != (3, tokens):
            raise Failure(f"{name}: hidden {got}", f"{(3, tokens, dim)}: rows, tokens of the layout, dim")
        if found.pooled is not None and tuple(found.pooled.shape) != (3, dim):
            raise Failure(f"{name}: pooled {tuple(found.pooled.shape)}", f"{(3, dim)}: rows, dim")
        if not bool(found.hidden.isfinite().all()):
            raise Failure(f"{name}: hidden states are not finite", "finite numbers")


def masks(entry: Entry) -> None:
    """What stands at padding changes no output, and no row changes another."""
    module = built(entry)
    form, inputs, batch = batch_of(module)
    before = outputs(module, batch)
    _same(before, outputs(module, batch_from(form, _repadded(form, inputs))), "what stands at padding changes")
    order = torch.tensor([2, 0, 1])
    turned = outputs(module, batch_from(form, [one[order] for one in inputs]))
    _same({name: found.select(order) for name, found in before.items()}, turned, "the order of rows changes")


def _repadded(form: Form, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    """The same inputs with other values at padding."""
    given = dict(zip(form.names(), (value.clone() for value in inputs), strict=True))
    if "ids" in given:
        given["ids"] = given["ids"].masked_fill(~given["text_mask"], 50)
    if "features" in given:
        given["features"] = given["features"].masked_fill(~given["region_mask"][..., None], 7.0)
    return [given[name] for name in form.names()]


def _same(left: dict[str, EncoderOutput], right: dict[str, EncoderOutput], what: str) -> None:
    for name, found in left.items():
        valid = found.layout.valid.expand(found.hidden.shape[0], -1)[..., None]
        apart = (found.hidden - right[name].hidden).masked_fill(~valid, 0).abs().max()
        if not float(apart) <= TOLERANCE:
            raise Failure(f"{what} {name} by {float(apart):.3g}", f"a difference of at most {TOLERANCE:g}")


def resume(entry: Entry) -> None:
    """Another instance with the saved weights computes the same, and a copy as well."""
    module, other = built(entry, 1), built(entry, 2)
    batch = batch_of(module)[2]
    other.load_state_dict(module.state_dict())
    before = outputs(module, batch)
    _same(before, outputs(other.eval(), batch), "a model with the same weights changes")
    _same(before, outputs(copy.deepcopy(module), batch), "a copy changes")


def gradients(entry: Entry) -> None:
    """The outputs have a finite gradient of some parameter."""
    module = built(entry)
    batch = batch_of(module)[2]
    step, able = ForwardPasses(module.model, batch), module.model.capabilities
    found = step.fused().pooled if "fuse" in able else step.image().hidden if "image" in able else None
    if found is None:
        raise DoesNotApply("a model without fuse and image")
    found.square().sum().backward()
    seen = [value.grad for value in module.parameters() if value.grad is not None]
    if not any(float(grad.abs().sum()) > 0 for grad in seen) or not all(bool(g.isfinite().all()) for g in seen):
        raise Failure("no gradient, or one that is not finite", "a finite gradient of some parameter")


def export(entry: Entry) -> None:
    """The model can be traced with a free batch, and the trace computes the same at another size."""
    module = built(entry)
    able, needs = module.model.capabilities, module.model.input_spec()
    if needs.boxes or not {"fuse", "image"} & able:
        raise DoesNotApply("a model that reads given boxes, or one without fuse and image")
    graph = hidden_states(trained(module))
    traced, given = _traced(graph), graph.example(4, WORDS, 7, 3)
    with torch.no_grad():
        pairs = zip(traced(*given), graph(*given), strict=True)
        apart = max(float((found - wanted).abs().max()) for found, wanted in pairs)
    if not apart <= TOLERANCE:
        raise Failure(f"the traced model differs by {apart:.3g} at another size", f"at most {TOLERANCE:g}")


def _traced(graph: Graph) -> Any:
    free, perhaps = torch.export.Dim.DYNAMIC, torch.export.Dim.AUTO  # a recurrent network is traced word by word
    axes = [{place: perhaps if name == "words" else free for place, name in row.items()} for row in graph.axes()]
    try:
        with torch.no_grad():
            program = torch.export.export(
                graph, graph.example(3, WORDS, 5), dynamic_shapes=(tuple(axes),), strict=False
            )
    except Exception as error:
        text = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        expected = "sizes read by tensor.shape[0], not len(tensor), and no Python number made of a value"
        raise Failure(f"torch.export refuses it: {text}", expected) from error
    return program.module()


def rehearsed(model: dict[str, Any], stages: dict[str, dict[str, Any]]) -> dict[str, list[Problem]]:
    """What a preflight says of stages: a training step of each on invented data."""
    with tempfile.TemporaryDirectory() as folder:
        text = {"vocabulary": {"train": {"name": "plain-text", "split": "train"}, "size": 50}, "length": 12}
        recipe = {"schema": 1, "root": folder, "model": model, "text": text}
        file = Path(folder) / "check.yaml"
        file.write_text(
            to_yaml({**recipe, "stages": {n: {"kind": "pretrain", "steps": 1} | s for n, s in stages.items()}})
        )
        planner, steps = planning.make(load_recipe(str(file)), planning.RunOptions(Path(folder) / "runs"))
        by_name = {step.name: step for step in steps}
        return {name: smoke_test(context_of(planner, name, by_name, Silent())) for name in stages}


class Refused(Failure):
    """Every model was refused."""


PARTNERS = (
    "lxmert",
    "dimbert",
    "albef",
    "vlmo",
    "deit",
    "swin",
    "detr",
    "region-classifier",
    "noisy-or",
    "faster-rcnn",
)
"""Models with which objectives and tasks are tried, in this order."""
DATA = [{"name": "captions", "file": "absent.jsonl"}]


def step_with(stage: dict[str, Any], partners: Iterator[dict[str, Any]]) -> None:
    """A clean training step with some model.

    Raises:
        Failure: a step fails, or every model is refused.
    """
    refusals = []
    for partner in partners:
        try:
            problems = rehearsed(partner, {"check": stage})["check"]
        except VlcliError as error:
            problems = [Problem("check", error.what, got=error.got, expected=error.expected)]
        if not problems:
            return
        failing = [p for p in problems if "one step on invented data" in p.what]
        if failing:
            raise Failure(f"with {partner['name']}: {failing[0].what}: {failing[0].got}", "a training step")
        refusals.append(f"{partner['name']}: {problems[0].what} {problems[0].got}".strip())
    raise Refused("; ".join(refusals[:3]), "a training step with one of the models that vlcli has")


def models_for(entry: Entry) -> Iterator[dict[str, Any]]:
    """The models with which a component is tried: of its own package first."""
    own = [e.name for e in registry.entries("models") if e.distribution == entry.distribution != "vlcli"]
    known = [name for name in PARTNERS if name in registry.names("models")]
    for name in [*own, *known]:
        yield small(name)
    if "albef" in known:
        yield from (small("albef") | more for more in ({"decoder_layers": 1}, {"images": 2}))


def objective_step(entry: Entry) -> None:
    """A training step of an objective, with those that it reads."""
    target = registry.load("objectives", f"{entry.distribution}:{entry.name}")
    reads = [words.split("|")[0] for words in target.reads]
    stage: dict[str, Any] = {"objectives": [*reads, entry.name], "data": DATA}
    usual = next((name for name, own in _tasks().items() if entry.name in own), None)
    try:
        step_with(stage | ({"kind": "finetune", "task": usual} if usual else {}), models_for(entry))
    except Refused:  # a head that needs labels of a task
        step_with(stage | {"kind": "finetune", "task": "snli-ve"}, models_for(entry))


def _tasks() -> dict[str, list[str]]:
    """The objectives that each task trains by default."""
    found = {}
    for name in registry.names("tasks"):
        target = registry.load("tasks", name)
        if not any(parameter.required for parameter in registry.parameters(target).values()):
            try:
                found[name] = [registry.as_spec(spec)["name"] for spec in target().objectives()]
            except (NotImplementedError, VlcliError):
                continue
    return found


def task_step(entry: Entry) -> None:
    """A fine-tuning step of a task with its own objectives."""
    target = registry.load("tasks", f"{entry.distribution}:{entry.name}")
    if getattr(target, "fitted", False):
        raise DoesNotApply("a task that is fitted without a model")
    if entry.name not in _tasks():
        raise DoesNotApply("a task without objectives of its own, or with options that have no default")
    step_with({"kind": "finetune", "task": entry.name, "data": DATA}, models_for(entry))


SLOTS = {
    "mlm": [
        *(("lxmert", "image_position"), ("lxmert", "text_position"), ("uniter", "position")),
        *(("albef", "image_position"), ("albef", "cross_position")),
    ],
    "image-classification": [("deit", "position"), ("swin", "position")],
    "detection": [("detr", "position")],
}
"""Slots in which a position encoding is tried: models and their parameter, by objective."""


def position_step(entry: Entry) -> None:
    """A training step of a model that holds the encoding, in the first slot that takes it."""
    refused: Refused | None = None
    for objective, slots in SLOTS.items():
        stage = {"objectives": [objective], "data": DATA}
        task = {} if objective == "mlm" else {"kind": "finetune", "task": objective}
        try:
            return step_with(stage | task, ({**small(model), slot: entry.name} for model, slot in slots))
        except Refused as reason:
            refused = refused or reason
    raise refused or Refused("no slot takes it", "a slot of a model")


def attention_step(entry: Entry) -> None:
    """A training step of a model with the attention."""
    step_with({"objectives": ["mlm"], "data": DATA}, iter([{**small("lxmert"), "attention": entry.name}]))


def empty_folder(entry: Entry) -> None:
    """Of an empty folder a reader says in one message what is missing."""
    target = registry.load("datasets", f"{entry.distribution}:{entry.name}")
    if any(parameter.required for parameter in registry.parameters(target).values()):
        raise DoesNotApply("a reader with options that have no default")
    with tempfile.TemporaryDirectory() as folder:
        try:
            reader = registry.datasets.build({"name": f"{entry.distribution}:{entry.name}"}, Path(folder))
            reader.require()
        except VlcliError:
            return
    raise Failure("no message", "a DataError that names the missing file")


def pictures(entry: Entry) -> None:
    """A transform returns a picture, and the same one for the same random numbers."""
    from PIL import Image

    from vlcli.data.transforms import TransformInput
    from vlcli.nn.model import InputSpec

    needs = InputSpec(pixels=True, size=(32, 32))
    made = registry.transforms.build({"name": f"{entry.distribution}:{entry.name}"}, needs)
    scene = TransformInput(Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 50, 3), dtype=np.uint8)))
    first, second = (np.asarray(made.train(scene, np.random.default_rng(7)).image) for _ in range(2))
    if first.shape != second.shape or not (first == second).all():
        raise Failure("two pictures from the same random numbers", "one")
    made.evaluate(scene)


OF_KIND: dict[str, tuple[tuple[str, Check, bool], ...]] = {
    "models": (
        ("shapes", shapes, False),
        ("masks", masks, False),
        ("resume", resume, False),
        ("gradients", gradients, False),
        ("export", export, True),
    ),
    "objectives": (("step", objective_step, True),),
    "tasks": (("step", task_step, True),),
    "positions": (("step", position_step, True),),
    "attentions": (("step", attention_step, True),),
    "datasets": (("empty folder", empty_folder, False),),
    "transforms": (("pictures", pictures, False),),
}
"""Name, check, and whether it takes longer than a second, by kind."""


def conform(entry: Entry, *, quick: bool = False) -> Iterator[Result]:
    """Every check of a component; without its interface nothing else is tried, ``quick`` leaves the slow ones out."""
    first = one(entry, "interface", interface)
    yield first
    if first.state == PASSED:
        for name, check, slow in OF_KIND.get(entry.kind, ()):
            if not (quick and slow):
                yield one(entry, name, check)
