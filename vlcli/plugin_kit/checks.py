"""Checks of each kind of component, on invented data and small models."""

import copy
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vlcli import registry
from vlcli.ahead import THREAD
from vlcli.data.reader import Reader
from vlcli.engine.training_module import TrainingModule, build_training_module
from vlcli.errors import VlcliError
from vlcli.export.graph import Form, Graph, form_of, hidden_states
from vlcli.nn.batch import Batch
from vlcli.nn.forward_passes import ForwardPasses
from vlcli.nn.model import DataSpec, EncoderOutput
from vlcli.plugin_kit.conformance import PASSED, Check, DoesNotApply, Failure, Result, interface, one
from vlcli.plugin_kit.trials import TRIALS, Trial, small, step
from vlcli.plugin_kit.two_processes import Pair, Share, difference, registered, share_of
from vlcli.registry import Entry

TOLERANCE, WORDS = 1e-4, 7
APART = 1e-5
EXACT = 1e-9  # of a step in double precision, which is repeated where single precision differs by more
WHOLE = (
    f"the losses and the gradient of one process with the whole batch (within {APART:g}): a loss is a sum and a count "
    "over the process's own rows (vlcli.objectives.Mean), and what it compares with other rows comes from step.gather"
)
_SPEC = DataSpec(vocab_size=97, unk_id=1, cls_id=2, sep_id=3, mask_id=4, text_length=12, region_dim=12)
_LABELS: dict[str, Any] = {"region_classes": 7, "region_attributes": 5, "answers": ("yes", "no", "red")}
_CONCEPTS: dict[str, Any] = {"concepts": ("red", "dog", "cat"), "concept_pieces": ((5,), (6, 7), (8,))}


def built(entry: Entry, seed: int = 1) -> TrainingModule:
    """Return a small model of the component, without objectives, in evaluation mode."""
    spec = replace(_SPEC, **_LABELS, **_CONCEPTS)
    return build_training_module(small(entry.name, entry.distribution), [], spec, seed=seed).eval()


def batch_of(module: TrainingModule) -> tuple[Form, tuple[Tensor, ...], Batch]:
    """Return an invented batch of three rows: its form, its tensors, and the batch."""
    form = form_of(_trained(module), alone=not module.model.input_spec().text)
    inputs = form.example(3, 7, 5, 0)
    return form, inputs, _batch_from(form, inputs)


def _batch_from(form: Form, inputs: Sequence[Tensor]) -> Batch:
    batch = form.batch(inputs)
    images = batch.clean.images
    if form.needs.boxes and images is not None and images.pixels is not None:
        rows = len(images.pixels.images)
        images.pixels.boxes = torch.tensor([[[0.1, 0.1, 0.6, 0.7]]]).expand(rows, 1, 4)  # (rows, boxes, 4)
        images.pixels.box_mask = torch.ones(rows, 1, dtype=torch.bool)  # (rows, boxes)
        images.pixels.classes = images.pixels.attributes = torch.zeros(rows, 1, dtype=torch.long)
    return batch


def _trained(module: TrainingModule) -> Any:
    none: dict[str, Any] = {"tokenizer": None, "text_options": {}, "info": {}, "folder": Path()}
    return SimpleNamespace(module=module, model=module.model, data_spec=module.model.data_spec, **none)


def _outputs(module: TrainingModule, batch: Batch) -> dict[str, EncoderOutput]:
    step, able = ForwardPasses(module.model, batch, training=False), module.model.capabilities
    outputs: dict[str, EncoderOutput] = {}
    with torch.no_grad():
        outputs |= {"text": step.text()} if "text" in able else {}
        outputs |= {"image": step.image()} if "image" in able else {}
        if "fuse" in able:
            fused = step.fused()
            outputs |= {"fused text": fused.text, "fused image": fused.image}
            outputs["fuse"] = EncoderOutput(fused.pooled[:, None], fused.text.layout.cut(0, 1), fused.pooled)
    if not outputs:
        raise DoesNotApply(f"a model that can {', '.join(sorted(able)) or 'nothing'}")
    return outputs


def shapes(entry: Entry) -> None:
    """Hidden states are (rows, tokens, dim) as their layout says, pooled vectors (rows, dim), all finite."""
    module = built(entry)
    batch, dim = batch_of(module)[2], module.model.dim
    for name, output in _outputs(module, batch).items():
        tokens, got = output.layout.route.shape[1], tuple(output.hidden.shape)
        if len(got) != 3 or got[:2] != (3, tokens):
            raise Failure(f"{name}: hidden {got}", f"{(3, tokens, dim)}: rows, tokens of the layout, dim")
        if output.pooled is not None and tuple(output.pooled.shape) != (3, dim):
            raise Failure(f"{name}: pooled {tuple(output.pooled.shape)}", f"{(3, dim)}: rows, dim")
        if not bool(output.hidden.isfinite().all()):
            raise Failure(f"{name}: hidden states are not finite", "finite numbers")


def masks(entry: Entry) -> None:
    """Values at padding change no output, and no row changes another."""
    module = built(entry)
    form, inputs, batch = batch_of(module)
    before = _outputs(module, batch)
    padded = dict(zip(form.names(), (value.clone() for value in inputs), strict=True))
    if "ids" in padded:
        padded["ids"] = padded["ids"].masked_fill(~padded["text_mask"], 50)
    if "features" in padded:
        padded["features"] = padded["features"].masked_fill(~padded["region_mask"][..., None], 7.0)
    _same(before, _outputs(module, _batch_from(form, list(padded.values()))), "what stands at padding changes")
    order = torch.tensor([2, 0, 1])
    turned = _outputs(module, _batch_from(form, [one[order] for one in inputs]))
    _same({name: output.select(order) for name, output in before.items()}, turned, "the order of rows changes")


def _same(left: dict[str, EncoderOutput], right: dict[str, EncoderOutput], what: str) -> None:
    for name, output in left.items():
        valid = output.layout.valid.expand(output.hidden.shape[0], -1)[..., None]  # (rows, tokens, 1)
        apart = float((output.hidden - right[name].hidden).masked_fill(~valid, 0).abs().max())
        if not apart <= TOLERANCE:
            raise Failure(f"{what} {name} by {apart:.3g}", f"a difference of at most {TOLERANCE:g}")


def resume(entry: Entry) -> None:
    """Another instance with the saved weights computes the same, and a copy as well."""
    module, other = built(entry, 1), built(entry, 2)
    batch = batch_of(module)[2]
    other.load_state_dict(module.state_dict())
    before = _outputs(module, batch)
    _same(before, _outputs(other.eval(), batch), "a model with the same weights changes")
    _same(before, _outputs(copy.deepcopy(module), batch), "a copy changes")


def gradients(entry: Entry) -> None:
    """The outputs have a finite gradient of some parameter."""
    module = built(entry)
    step, able = ForwardPasses(module.model, batch_of(module)[2]), module.model.capabilities
    output = step.fused().pooled if "fuse" in able else step.image().hidden if "image" in able else None
    if output is None:
        raise DoesNotApply("a model without fuse and image")
    output.square().sum().backward()
    grads = [value.grad for value in module.parameters() if value.grad is not None]
    if not any(float(grad.abs().sum()) > 0 for grad in grads) or not all(bool(g.isfinite().all()) for g in grads):
        raise Failure("no gradient, or one that is not finite", "a finite gradient of some parameter")


def export(entry: Entry) -> None:
    """The model can be traced with a free batch, and the trace computes the same at another size."""
    module = built(entry)
    if module.model.input_spec().boxes or not {"fuse", "image"} & module.model.capabilities:
        raise DoesNotApply("a model that reads given boxes, or one without fuse and image")
    graph = hidden_states(_trained(module))
    traced, inputs = _traced(graph), graph.example(4, WORDS, 7, 3)
    with torch.no_grad():
        pairs = zip(traced(*inputs), graph(*inputs), strict=True)
        apart = max(float((output - expected).abs().max()) for output, expected in pairs)
    if not apart <= TOLERANCE:
        raise Failure(f"the traced model differs by {apart:.3g} at another size", f"at most {TOLERANCE:g}")


def _traced(graph: Graph) -> Any:
    free, perhaps = torch.export.Dim.DYNAMIC, torch.export.Dim.AUTO  # a recurrent network is traced word by word
    axes = tuple({axis: perhaps if name == "words" else free for axis, name in row.items()} for row in graph.axes())
    example = graph.example(3, WORDS, 5)
    try:
        with torch.no_grad():
            return torch.export.export(graph, example, dynamic_shapes=(axes,), strict=False).module()
    except Exception as error:
        text = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        expected = "sizes read by tensor.shape[0], not len(tensor), and no Python number made of a value"
        raise Failure(f"torch.export refuses it: {text}", expected) from error


def empty_folder(entry: Entry) -> None:
    """A reader names in one message what is missing in an empty folder."""
    name = f"{entry.distribution}:{entry.name}"
    if any(parameter.required for parameter in registry.parameters(registry.load("datasets", name)).values()):
        raise DoesNotApply("a reader with options that have no default")
    with tempfile.TemporaryDirectory() as folder:
        try:
            registry.of(Reader).build({"name": name}, Path(folder)).require()
        except VlcliError:
            return
    raise Failure("no message", "a DataError that names the missing file")


def pictures(entry: Entry) -> None:
    """A transform returns a picture, and the same one for the same random numbers."""
    from PIL import Image

    from vlcli.data.transforms import Transform, TransformInput
    from vlcli.nn.model import InputSpec

    needs = InputSpec(pixels=True, size=(32, 32))
    transform = registry.of(Transform).build({"name": f"{entry.distribution}:{entry.name}"}, needs)
    scene = TransformInput(Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 50, 3), dtype=np.uint8)))
    first, second = (np.asarray(transform.train(scene, np.random.default_rng(7)).image) for _ in range(2))
    if first.shape != second.shape or not (first == second).all():
        raise Failure("two pictures from the same random numbers", "one")
    transform.evaluate(scene)
    if not transform.borrows_generators:  # the thread that makes batches refuses transforms that do
        with ThreadPoolExecutor(1, THREAD) as pool:
            pool.submit(transform.train, scene, np.random.default_rng(7)).result()


_pair: list[Pair] = []  # the two processes of `processes`, once they are started


def processes(entry: Entry) -> None:
    """Two processes compute the losses and the gradient that one process computes from the whole batch."""
    trial = TRIALS[entry.kind](entry)
    one = share_of(trial)
    if _pair and _pair[0].components != registered():  # they do not know a component
        _pair.pop().close()
    if not _pair:
        _pair.append(Pair())
    two = _of_two(trial)
    if one.apart:
        raise DoesNotApply(f"each process computes something for itself: {'; '.join(one.apart)}")
    if (text := difference(one, two, APART)) and not _is_rounding(trial):
        stage = trial.stage.get("task") or ", ".join(trial.stage["objectives"])
        raise Failure(f"with {trial.model['name']} and {stage}: {text}", WHOLE)


def _of_two(trial: Trial) -> Share:
    try:
        return _pair[0].step(trial)
    except Failure:
        _pair.pop().close()
        raise


def _is_rounding(trial: Trial) -> bool:
    double = trial._replace(double=True)
    with suppress(Failure, VlcliError, RuntimeError):  # of a component that insists on single precision
        return not difference(share_of(double), _of_two(double), EXACT)
    return False


_OF_KIND: dict[str, tuple[Check, ...]] = {
    "models": (shapes, masks, resume, gradients, export, processes),
    "objectives": (step, processes),
    **dict.fromkeys(("tasks", "positions", "attentions"), (step,)),
    "datasets": (empty_folder,),
    "transforms": (pictures,),
}
_SLOW = (export, step, processes)  # these take longer than a second


def conform(entry: Entry, *, quick: bool = False) -> Iterator[Result]:
    """Run every check of a component; none after a faulty interface, no slow one where ``quick``."""
    first = one(entry, "interface", interface)
    yield first
    if first.state == PASSED:
        for check in _OF_KIND.get(entry.kind, ()):
            if not (quick and check in _SLOW):
                yield one(entry, check.__name__.replace("_", " "), check)
