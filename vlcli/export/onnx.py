"""The exporter ``onnx``: predictions, encoders and generation steps as ONNX graphs with free sizes."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from vlcli.errors import ComponentError, VlcliError
from vlcli.export.base import Exported, Exporter, Trained
from vlcli.export.generation import Step, generation
from vlcli.export.graph import Graph, encoders, hidden_states, predicting, prediction
from vlcli.export.preprocessing import FILE as PREPROCESSING
from vlcli.export.preprocessing import copy_tokenizer, preprocessing
from vlcli.files import write_json, written
from vlcli.progress import Progress
from vlcli.registry.contract import blame

FILE = "model.onnx"
# Batch, words, regions at which a graph is compared; cut to what the model takes
TRIALS = ((1, 5, 3), (5, 9, 7), (4, 12, 11))
_EXAMPLE = (3, 7, 5)  # batch, words, regions with which a graph is traced


class Onnx(Exporter):
    """ONNX graphs of a model (dynamo exporter), each compared with PyTorch through onnxruntime.

    Writes ``model.onnx`` for a prediction (or one file for each objective that predicts, named after it), ``text.onnx``
    and ``image.onnx`` for a model that ranks by vectors, ``start.onnx`` and ``step.onnx`` for one that generates; for
    each its inputs and outputs (``.onnx.json``), and for all ``preprocessing.json`` and the vocabulary.

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
        by_stem = {graph.stem: graph for graph in graphs(trained, self.objective, self.class_probs)}
        exported = Exported({})
        with progress.task("onnx", 2 * len(by_stem), "step") as bar:
            for stem, graph in by_stem.items():
                if stem == "start":
                    graph.kept = ("logits", *names_of(folder / "step.onnx")[0][1:])
                self._one(graph, folder, exported, bar)
        step = by_stem.get("step")
        if isinstance(step, Step):
            difference = compare_sentences(by_stem["start"], step, folder)
            exported.metrics["max_difference/sentences"] = difference
            exported.notes.append(f"start.onnx and step.onnx together: largest difference of a logit {difference:.2g}")
            self._check(difference, "start.onnx, step.onnx")
        each = exported.metrics if len(by_stem) > 1 else {}
        exported.metrics = {"max_difference": max(exported.metrics.values()), **each}
        for stem, graph in by_stem.items():
            exported.files["signature" if stem == "model" else f"signature_{stem}"] = describe(graph, trained, folder)
        write_json(folder / PREPROCESSING, preprocessing(trained))
        exported.files["preprocessing"] = PREPROCESSING
        if copy_tokenizer(trained, folder):
            exported.files["vocabulary"] = "vocab"
        return exported

    def _check(self, difference: float, where: str) -> None:
        if not difference <= self.tolerance:
            what, got = "The graph does not give the model's numbers.", f"an output differs by {difference:.3g}"
            raise VlcliError(what, where=where, got=got, expected=f"{self.tolerance:g} at most")

    def _one(self, graph: Graph, folder: Path, exported: Exported, bar: Any) -> None:
        file = folder / f"{graph.stem}.onnx"
        with written(file) as beside:
            write(graph, beside, self.opset)
            bar.advance()
            difference = compare(graph, beside)
            bar.advance()
            self._check(difference, file.name)
        role = "onnx" if graph.stem == "model" else f"onnx_{graph.stem}"  # the only prediction is ``onnx``
        exported.files[role] = file.name
        exported.metrics[f"max_difference/{graph.stem}"] = difference
        exported.notes.append(
            f"{file.name}: {graph.about}; onnxruntime agrees with PyTorch: largest difference {difference:.2g} "
            f"over {len(TRIALS)} sizes"
        )
        if self.int8:
            exported.files[f"{role}_int8"] = quantize(file)


def graphs(trained: Trained, objective: str | None, probabilities: bool = False) -> list[Graph]:
    """Return a model's graphs in the order of writing; ComponentError if the objective predicts nothing."""
    able, embeds = predicting(trained)
    if objective in able:
        return [prediction(trained, objective, "model", probabilities)]
    if objective in embeds:
        return encoders(trained, objective, probabilities)
    if objective is not None:
        what, hint = "This objective has no prediction that can be exported.", "format: {name: onnx, objective: NAME}"
        got, expected = repr(objective), " or ".join([*able, *embeds]) or "a model with an objective that predicts"
        raise ComponentError(what, where=str(trained.folder), got=got, expected=expected, hint=hint)
    every = [prediction(trained, name, "model" if len(able) == 1 else name, probabilities) for name in able]
    every += encoders(trained, embeds[0], probabilities) if embeds else []
    if any({"generate", "decode"} & part.requires for part in trained.module.objectives.values()):
        start, step = generation(trained, probabilities)
        every += [step, start]  # the start returns what the step reads
    return every or [hidden_states(trained, probabilities)]


def write(graph: Graph, path: Path, opset: int) -> None:
    """Export ``graph`` with named dynamic axes, without inputs that nothing reads.

    Raises VlcliError if torch's exporter cannot follow the model, or ONNX lacks one of its operations.
    """
    example = graph.example(*_EXAMPLE)
    size = sum(value.numel() * value.element_size() for value in graph.parameters())
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
                external_data=size > 1 << 30,
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        line = blame(cause)
        raise VlcliError(
            "The model cannot be written as an ONNX graph.",
            where="" if "site-packages" in line else line,
            got=f"{type(cause).__name__}: {str(cause).strip().split(chr(10))[0]}",
            expected="operations that ONNX has, on tensors alone",
            hint="write the operation with others in the code of the model or of its position encodings (torch.cdist, "
            "for example, as a difference and a norm); -vv shows the traceback",
        ) from error
    _prune(path)


def _sizes(graph: Graph) -> list[dict[int, Any]]:
    known: dict[str, Any] = {name: torch.export.Dim(name) for name in ("batch", "regions")}
    known["words"] = torch.export.Dim("words", min=3, max=max(4, graph.form.data_spec.text_length))
    free = torch.export.Dim.DYNAMIC
    return [{axis: known.get(str(size), free) for axis, size in row.items()} for row in graph.axes()]


def _prune(path: Path) -> None:
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    read = {name for node in model.graph.node for name in node.input} | {one.name for one in model.graph.output}
    if idle := [one for one in model.graph.input if one.name not in read]:
        for one in idle:
            model.graph.input.remove(one)
        path.write_bytes(model.SerializeToString())


def session_of(path: Path) -> Any:
    """Open a file in onnxruntime, on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def compare(graph: Graph, path: Path) -> float:
    """Return the largest difference of an output from PyTorch's over :data:`TRIALS`; VlcliError if a size fails."""
    session, differences = session_of(path), [0.0]
    for seed, (batch, words, regions) in enumerate(TRIALS):
        inputs = graph.example(batch, words, regions, seed)
        with torch.no_grad():
            wanted = graph(*inputs)
        try:
            actual = run(session, graph, inputs)
        except Exception as error:  # onnxruntime's own classes have no common base
            what = "The graph does not run at other sizes than those that it was traced with."
            where = f"{batch} examples, {words} word pieces, {regions} regions or patches"
            got, expected = " ".join(str(error).split()), "a graph whose batch and sequence lengths are free"
            hint = "in the model's code, use tensor.shape[0] instead of len(tensor), and no int() of a size"
            raise VlcliError(what, where=where, got=got, expected=expected, hint=hint) from error
        for output, *pair in zip(session.get_outputs(), wanted, actual, strict=True):
            if graph.compared is None or output.name in graph.compared:
                differences.append(_difference(*pair))
    return max(differences)


def compare_sentences(start: Graph, step: Step, folder: Path, words: int = 4) -> float:
    """Return the largest difference of a logit over sentences of both files and of PyTorch."""
    first, further = session_of(folder / "start.onnx"), session_of(folder / "step.onnx")
    differences: list[float] = []
    for seed, size in enumerate(TRIALS):
        inputs = start.example(*size, seed)
        with torch.no_grad():
            wanted = step.say(inputs, words)
        differences += map(_difference, wanted, _said(first, further, start, inputs, words))
    return max(differences)


def _said(first: Any, further: Any, start: Graph, inputs: tuple[Tensor, ...], words: int) -> list[Tensor]:
    state = dict(zip([item.name for item in first.get_outputs()], run(first, start, inputs), strict=True))
    logits = [state.pop("logits")]
    names = [item.name for item in further.get_outputs()]
    for _ in range(words):
        arrays = {name: value.numpy() for name, value in state.items()} | {"ids": logits[-1].argmax(-1).numpy()}
        outputs = dict(zip(names, map(torch.from_numpy, further.run(None, arrays)), strict=True))
        logits.append(outputs.pop("logits"))
        state |= {name.removeprefix("next."): value for name, value in outputs.items()}
    return logits


def _difference(wanted: Tensor, actual: Tensor) -> float:
    if wanted.shape != actual.shape:
        return float("inf")
    other = (wanted != actual) & ~(wanted.isnan() & actual.isnan())  # infinities may be equal too
    apart = (wanted.double() - actual.double()).abs()[other].nan_to_num(torch.inf, torch.inf)
    return float(apart.max()) if apart.numel() else 0.0


def run(session: Any, graph: Graph, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return every output of an onnxruntime session."""
    taken = {item.name for item in session.get_inputs()}
    arrays = {name: value.numpy() for name, value in zip(graph.names(), inputs, strict=True) if name in taken}
    return tuple(torch.from_numpy(value) for value in session.run(None, arrays))


def quantize(file: Path) -> str:
    """Write a file with weights of matrix products in 8 bits, and return its name."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantized = file.with_suffix(".int8.onnx")
    with written(quantized) as beside, _quiet():
        quantize_dynamic(str(file), str(beside), op_types_to_quantize=["MatMul", "Gemm"], weight_type=QuantType.QInt8)
    return quantized.name


def describe(graph: Graph, trained: Trained, folder: Path) -> str:
    """Write the meaning of inputs and outputs, and return the file's name."""
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
    """Return the inputs of a file, and its outputs with their shapes."""
    session = session_of(path)
    outputs = {item.name: f"({_shape(item.shape)}) {item.type[7:-1]}" for item in session.get_outputs()}
    return [item.name for item in session.get_inputs()], outputs


def _shape(sizes: list[Any]) -> str:
    known = ("batch", "words", "regions")
    named = [str(size) if isinstance(size, int) or size in known else "*" for size in sizes]
    return ", ".join(["batch", *named[1:]] if named[:1] == ["*"] else named)


@contextmanager
def _quiet() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
