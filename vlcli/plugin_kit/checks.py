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
from vlcli.errors import VlcliError
from vlcli.export.graph import Form, Graph, form_of, hidden_states
from vlcli.nn.batch import Batch
from vlcli.nn.forward_passes import ForwardPasses
from vlcli.nn.model import DataSpec, EncoderOutput
from vlcli.plugin_kit.conformance import PASSED, Check, DoesNotApply, Failure, Result, interface, one
from vlcli.plugin_kit.trials import TRIALS, small, step
from vlcli.plugin_kit.two_processes import Pair, difference, share_of
from vlcli.registry import Entry

SPEC = DataSpec(vocab_size=97, unk_id=1, cls_id=2, sep_id=3, mask_id=4, text_length=12, region_dim=12, region_classes=7)
"""Sizes of the invented data; every model gets them with three answers and three concepts."""
TOLERANCE, WORDS = 1e-4, 7
APART = 1e-5
WHOLE = (
    f"the losses and the gradient of one process with the whole batch (within {APART:g}): a loss is a sum and a count "
    "over the process's own rows (vlcli.objectives.Mean), and what it compares with other rows comes from step.gather"
)


def data_spec() -> DataSpec:
    """Sizes of the invented data."""
    words: dict[str, Any] = {"concepts": ("red", "dog", "cat"), "concept_pieces": ((5,), (6, 7), (8,))}
    return replace(SPEC, region_attributes=5, answers=("yes", "no", "red"), **words)


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


_pair: list[Pair] = []
"""The two processes of :func:`two_processes`, once they are started."""


def two_processes(entry: Entry) -> None:
    """Two processes compute the losses and the gradient that one process computes from the whole batch."""
    trial = TRIALS[entry.kind](entry)
    one = share_of(trial)
    try:
        two = _two().step(trial)
    except Failure:
        _end_pair()
        raise
    if one.apart:
        raise DoesNotApply(f"each process computes something for itself: {'; '.join(one.apart)}")
    if said := difference(one, two, APART):
        stage = trial.stage.get("task") or ", ".join(trial.stage["objectives"])
        raise Failure(f"with {trial.model['name']} and {stage}: {said}", WHOLE)


def _two() -> Pair:
    """The two processes, started anew where they do not know a component."""
    if _pair and not _pair[0].current:
        _end_pair()
    if not _pair:
        _pair.append(Pair())
    return _pair[0]


def _end_pair() -> None:
    while _pair:
        _pair.pop().close()


OF_KIND: dict[str, tuple[tuple[str, Check, bool], ...]] = {
    "models": (
        ("shapes", shapes, False),
        ("masks", masks, False),
        ("resume", resume, False),
        ("gradients", gradients, False),
        ("export", export, True),
        ("processes", two_processes, True),
    ),
    "objectives": (("step", step, True), ("processes", two_processes, True)),
    "tasks": (("step", step, True),),
    "positions": (("step", step, True),),
    "attentions": (("step", step, True),),
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
