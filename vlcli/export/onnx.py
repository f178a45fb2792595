"""The exporter ``onnx``: predictions, encoders and generation steps as ONNX graphs with free sizes."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from vlcli.errors import VlcliError
from vlcli.export.base import Exported, Exporter, Trained
from vlcli.export.generation import Step, generation
from vlcli.export.graph import Graph, encoders, hidden_states, predicting, prediction, refuse
from vlcli.export.preprocessing import FILE as PREPROCESSING
from vlcli.export.preprocessing import copy_tokenizer, preprocessing
from vlcli.files import write_json, written
from vlcli.progress import Progress
from vlcli.registry.contract import blame

FILE = "model.onnx"
TRIALS = ((1, 5, 3), (5, 9, 7), (4, 12, 11))
"""Batch, words, regions at which a graph is compared; cut to what the model takes."""
EXAMPLE = (3, 7, 5)
"""Batch, words, regions with which a graph is traced."""


class Onnx(Exporter):
    """ONNX graphs of what a model does (dynamo exporter), each compared with PyTorch through onnxruntime.

    Writes ``model.onnx`` for a prediction (one file for each objective that predicts, named after it, where there are
    several), ``text.onnx`` and ``image.onnx`` for a model that ranks by vectors, ``start.onnx`` and ``step.onnx`` for
    one that says sentences; beside each its inputs and outputs (``.onnx.json``), and for all of them
    ``preprocessing.json`` and the vocabulary.

    Args:
        objective: whose prediction alone; None: all that the model can do.
        opset: ONNX operator set.
        tolerance: the largest difference of any output that is accepted.
        int8: write each file with weights of 8 bits too (``.int8.onnx``); the stage then scores both.
        class_probs: regions come with the probabilities of all classes (``class_probs`` of the store), which DiMBERT
            then reads instead of the best class.
    """

    packages: ClassVar[tuple[str, ...]] = ("onnx", "onnxscript", "onnxruntime")
    install: ClassVar[str] = "pip install 'vlcli[onnx]'"

    def __init__(
        self,
        *,
        objective: str | None = None,
        opset: int = 18,
        tolerance: float = 1e-4,
        int8: bool = False,
        class_probs: bool = False,
    ) -> None:
        self.objective, self.opset, self.tolerance = objective, opset, tolerance
        self.int8, self.class_probs = int8, class_probs

    def export(self, trained: Trained, folder: Path, progress: Progress) -> Exported:
        trained.module.cpu().eval()
        found = graphs(trained, self.objective, self.class_probs)
        made = Exported({})
        with progress.task("onnx", 2 * len(found), "step") as bar:
            for graph in found:
                if graph.stem == "start":
                    graph.kept = ("logits", *names_of(folder / "step.onnx")[0][1:])
                self._one(graph, folder, made, bar)
        self._sentences(found, folder, made)
        made.metrics = {"max_difference": max(made.metrics.values()), **(made.metrics if len(found) > 1 else {})}
        describe_all(found, trained, folder, made)
        return made

    def _sentences(self, found: list[Graph], folder: Path, made: Exported) -> None:
        known = {graph.stem: graph for graph in found}
        start, step = known.get("start"), known.get("step")
        if start is None or not isinstance(step, Step):
            return
        difference = compare_sentences(start, step, folder)
        made.metrics["max_difference/sentences"] = difference
        made.notes.append(f"start.onnx and step.onnx together: largest difference of a logit {difference:.2g}")
        self._check(difference, "start.onnx, step.onnx")

    def _check(self, difference: float, where: str) -> None:
        if not difference <= self.tolerance:
            what, got = "The graph does not give the model's numbers.", f"an output differs by {difference:.3g}"
            raise VlcliError(what, where=where, got=got, expected=f"{self.tolerance:g} at most")

    def _one(self, graph: Graph, folder: Path, made: Exported, bar: Any) -> None:
        file = folder / f"{graph.stem}.onnx"
        with written(file) as beside:
            write(graph, beside, self.opset)
            bar.advance()
            difference = compare(graph, beside)
            bar.advance()
            self._check(difference, file.name)
        made.files[role(graph)] = file.name
        made.metrics[f"max_difference/{graph.stem}"] = difference
        made.notes.append(
            f"{file.name}: {graph.about}; onnxruntime agrees with PyTorch: largest difference {difference:.2g} "
            f"over {len(TRIALS)} sizes"
        )
        if self.int8:
            made.files[f"{role(graph)}_int8"] = quantize(file)


def role(graph: Graph) -> str:
    """The role of a file in the stage's record; that of the only prediction is ``onnx``, as ever."""
    return "onnx" if graph.stem == "model" else f"onnx_{graph.stem}"


def graphs(trained: Trained, objective: str | None, probabilities: bool = False) -> list[Graph]:
    """The graphs of all that a model does, in the order in which they are written.

    Raises:
        ComponentError: there is no such prediction.
    """
    able, embeds = predicting(trained)
    if objective in able:
        return [prediction(trained, objective, "model", probabilities)]
    if objective in embeds:
        return encoders(trained, objective, probabilities)
    if objective is not None:
        raise refuse(trained, objective, [*able, *embeds])
    made = [prediction(trained, name, "model" if len(able) == 1 else name, probabilities) for name in able]
    made += encoders(trained, embeds[0], probabilities) if embeds else []
    if any({"generate", "decode"} & part.requires for part in trained.module.objectives.values()):
        start, step = generation(trained, probabilities)
        made += [step, start]  # what the step reads decides what the start gives
    return made or [hidden_states(trained, probabilities)]


def write(graph: Graph, path: Path, opset: int) -> None:
    """Export ``graph`` with named axes that may change; inputs that nothing reads are left out.

    Raises:
        VlcliError: torch's exporter cannot follow the model, or ONNX lacks one of its operations.
    """
    example = graph.example(*EXAMPLE)
    with torch.no_grad():
        names = [*graph.outputs(*example)]
    try:
        with _quiet(), torch.no_grad():
            torch.onnx.export(
                graph,
                example,
                str(path),
                input_names=graph.names(),
                output_names=names,
                dynamic_shapes=(tuple(_sizes(graph)),),
                opset_version=opset,
                dynamo=True,
                external_data=_size(graph) > 1 << 30,
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        raise _refused(error) from error
    _prune(path)


def _refused(error: BaseException) -> VlcliError:
    cause = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    place = blame(cause)
    return VlcliError(
        "The model cannot be written as an ONNX graph.",
        where="" if "site-packages" in place else place,
        got=f"{type(cause).__name__}: {str(cause).strip().split(chr(10))[0]}",
        expected="operations that ONNX has, on tensors alone",
        hint="write the operation with others in the code of the model or of its position encodings (torch.cdist, "
        "for example, as a difference and a norm); -vv shows the traceback",
    )


def _sizes(graph: Graph) -> list[dict[int, Any]]:
    known: dict[str, Any] = {name: torch.export.Dim(name) for name in ("batch", "regions")}
    known["words"] = torch.export.Dim("words", min=3, max=max(4, graph.form.data_spec.text_length))
    free = torch.export.Dim.DYNAMIC
    return [{place: known.get(str(size), free) for place, size in row.items()} for row in graph.axes()]


def _prune(path: Path) -> None:
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    read = {name for node in model.graph.node for name in node.input} | {one.name for one in model.graph.output}
    idle = [one for one in model.graph.input if one.name not in read]
    for one in idle:
        model.graph.input.remove(one)
    if idle:
        path.write_bytes(model.SerializeToString())


def session_of(path: Path) -> Any:
    """An onnxruntime session of a file, on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def compare(graph: Graph, path: Path) -> float:
    """The largest difference of an output between onnxruntime and PyTorch, over :data:`TRIALS`.

    Raises:
        VlcliError: the graph does not run at one of these sizes.
    """
    session, worst = session_of(path), 0.0
    for seed, (batch, words, regions) in enumerate(TRIALS):
        inputs = graph.example(batch, words, regions, seed)
        with torch.no_grad():
            wanted = graph(*inputs)
        try:
            found = run(session, graph, inputs)
        except Exception as error:  # onnxruntime's own classes have no common base
            raise VlcliError(
                "The graph does not run at other sizes than those that it was traced with.",
                where=f"{batch} examples, {words} word pieces, {regions} regions or patches",
                got=" ".join(str(error).split()),
                expected="a graph whose batch and sequence lengths are free",
                hint="in the model's code, use tensor.shape[0] instead of len(tensor), and no int() of a size",
            ) from error
        pairs = zip([item.name for item in session.get_outputs()], wanted, found, strict=True)
        seen = [_difference(*pair) for name, *pair in pairs if graph.compared is None or name in graph.compared]
        worst = max(worst, *seen)
    return worst


def compare_sentences(start: Graph, step: Step, folder: Path, words: int = 4) -> float:
    """The largest difference of a logit over sentences said by both files, and by PyTorch."""
    first, further = session_of(folder / "start.onnx"), session_of(folder / "step.onnx")
    worst = 0.0
    for seed, size in enumerate(TRIALS):
        inputs = start.example(*size, seed)
        with torch.no_grad():
            wanted = step.say(inputs, words)
        worst = max(
            worst,
            *(_difference(*pair) for pair in zip(wanted, _said(first, further, start, inputs, words), strict=True)),
        )
    return worst


def _said(first: Any, further: Any, start: Graph, inputs: tuple[Tensor, ...], words: int) -> list[Tensor]:
    state = dict(zip([item.name for item in first.get_outputs()], run(first, start, inputs), strict=True))
    made = [state.pop("logits")]
    names = [item.name for item in further.get_outputs()]
    for _ in range(words):
        given = {name: value.numpy() for name, value in state.items()} | {"ids": made[-1].argmax(-1).numpy()}
        found = dict(zip(names, map(torch.from_numpy, further.run(None, given)), strict=True))
        made.append(found.pop("logits"))
        state |= {name.removeprefix("next."): value for name, value in found.items()}
    return made


def _difference(wanted: Tensor, found: Tensor) -> float:
    if wanted.shape != found.shape:
        return float("inf")
    apart = (wanted.double() - found.double()).abs()
    apart = apart[~(wanted.isnan() & found.isnan())] if wanted.is_floating_point() else apart
    return float(apart.max()) if apart.numel() else 0.0


def run(session: Any, graph: Graph, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Every output of an onnxruntime session."""
    taken = {item.name for item in session.get_inputs()}
    given = {name: value.numpy() for name, value in zip(graph.names(), inputs, strict=True) if name in taken}
    return tuple(torch.from_numpy(value) for value in session.run(None, given))


def quantize(file: Path) -> str:
    """Write a file's weights of matrix products with 8 bits; returns the new file's name."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    made = file.with_suffix(".int8.onnx")
    with written(made) as beside, _quiet():
        quantize_dynamic(str(file), str(beside), op_types_to_quantize=["MatMul", "Gemm"], weight_type=QuantType.QInt8)
    return made.name


def describe_all(found: list[Graph], trained: Trained, folder: Path, made: Exported) -> None:
    """Signatures, ``preprocessing.json`` and the vocabulary."""
    for graph in found:
        made.files["signature" if graph.stem == "model" else f"signature_{graph.stem}"] = describe(
            graph, trained, folder
        )
    write_json(folder / PREPROCESSING, preprocessing(trained))
    made.files["preprocessing"] = PREPROCESSING
    if copy_tokenizer(trained, folder):
        made.files["vocabulary"] = "vocab"


def describe(graph: Graph, trained: Trained, folder: Path) -> str:
    """Write what the inputs and outputs mean; returns the file's name."""
    needs, data_spec, file = graph.form.needs, graph.form.data_spec, f"{graph.stem}.onnx"
    inputs, outputs = names_of(folder / file)
    text = {
        "about": graph.about,
        "inputs": {name: graph.meaning(name) for name in inputs},
        "outputs": outputs,
        "pictures": graph.form.pictures,
        "text_length": data_spec.text_length,
        "region_dim": data_spec.region_dim if needs.regions else None,
        "pixels": {"size": needs.size, "mean": needs.mean, "std": needs.std} if needs.pixels else None,
        "text": trained.text_options,
        "ids": {"pad": data_spec.pad_id, "cls": data_spec.cls_id, "sep": data_spec.sep_id},
        "answers": list(data_spec.answers),
        "model": str(getattr(trained.model, "spec_in_recipe", "")),
        **graph.facts,
    }
    write_json(folder / f"{file}.json", text)
    return f"{file}.json"


def names_of(path: Path) -> tuple[list[str], dict[str, str]]:
    """Inputs of a file, and its outputs with their shapes."""
    session = session_of(path)
    outputs = {item.name: f"({_shape(item.shape)}) {item.type[7:-1]}" for item in session.get_outputs()}
    return [item.name for item in session.get_inputs()], outputs


def _shape(sizes: list[Any]) -> str:
    known = ("batch", "words", "regions")
    named = [size if isinstance(size, int) or size in known else "*" for size in sizes]
    return ", ".join(str(size) for size in (["batch", *named[1:]] if named and named[0] == "*" else named))


def _size(graph: Graph) -> int:
    return sum(value.numel() * value.element_size() for value in graph.parameters())


@contextmanager
def _quiet() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "onnxscript", "onnx_ir", "root", "")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
