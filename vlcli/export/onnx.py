"""The exporter ``onnx``: one prediction as an ONNX graph with free batch, text and region sizes."""

from __future__ import annotations

import logging
import shutil
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
from vlcli.export.graph import INPUTS, Form, Graph
from vlcli.files import write_json, written
from vlcli.progress import Progress

FILE = "model.onnx"
SIGNATURE = "model.onnx.json"
TRIALS = ((1, 5, 3), (5, 9, 7), (4, 12, 11))
"""Batch, words, regions at which the graph is compared; cut to what the model takes."""


class Onnx(Exporter):
    """An ONNX graph of one prediction (dynamo exporter), compared with PyTorch through onnxruntime.

    Writes ``model.onnx``, ``model.onnx.json`` (inputs, outputs, answers) and the vocabulary.

    Args:
        objective: whose logits; None: of the only objective that predicts.
        opset: ONNX operator set.
        tolerance: the largest difference of any logit that is accepted.
    """

    packages: ClassVar[tuple[str, ...]] = ("onnx", "onnxscript", "onnxruntime")
    install: ClassVar[str] = "pip install 'vlcli[onnx]'"

    def __init__(self, *, objective: str | None = None, opset: int = 18, tolerance: float = 1e-4) -> None:
        self.objective, self.opset, self.tolerance = objective, opset, tolerance

    def export(self, trained: Trained, folder: Path, progress: Progress) -> Exported:
        """Write the graph beside, compare it, then give it its name.

        Raises:
            ComponentError: the model has no such prediction.
            VlcliError: the graph gives other numbers than the model, or is fixed to one size.
        """
        graph = Graph(trained, self.objective).cpu().eval()
        with written(folder / FILE) as beside, progress.task("onnx", 2, "step") as bar:
            write(graph, beside, self.opset)
            bar.advance()
            difference = compare(graph, beside)
            bar.advance()
            if difference > self.tolerance:
                what, got = "The graph does not give the model's numbers.", f"a logit differs by {difference:.3g}"
                raise VlcliError(what, got=got, expected=f"{self.tolerance:g} at most")
        files = {"onnx": FILE, "signature": describe(graph, trained, folder)}
        vocabulary = trained.folder / "vocab"
        if vocabulary.is_dir():
            shutil.copytree(vocabulary, folder / "vocab", dirs_exist_ok=True)
            files["vocabulary"] = "vocab"
        note = (
            f"onnxruntime agrees with PyTorch: largest difference of a logit {difference:.2g} over {len(TRIALS)} sizes"
        )
        return Exported(files, [note], {"max_difference": difference})


def write(graph: Graph, path: Path, opset: int) -> None:
    """Export ``graph`` with named axes that may change."""
    sizes = {"batch": torch.export.Dim("batch"), "regions": torch.export.Dim("regions")}
    sizes["words"] = torch.export.Dim("words", max=graph.form.data_spec.text_length)
    axes = [{dim: sizes[name] for dim, name in row.items()} for row in graph.form.axes()]
    with _quiet(), torch.no_grad():
        torch.onnx.export(
            graph,
            graph.form.example(3, min(7, graph.form.data_spec.text_length), 5),
            str(path),
            input_names=graph.form.names(),
            output_names=["logits"],
            dynamic_shapes=(tuple(axes),),
            opset_version=opset,
            dynamo=True,
            external_data=_size(graph) > 1 << 30,
            verbose=False,
        )


def compare(graph: Graph, path: Path) -> float:
    """The largest difference of a logit between onnxruntime and PyTorch, over :data:`TRIALS`.

    Raises:
        VlcliError: the graph does not run at one of these sizes.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    worst = 0.0
    for seed, (batch, words, regions) in enumerate(TRIALS):
        inputs = graph.form.example(batch, min(words, graph.form.data_spec.text_length), regions, seed)
        with torch.no_grad():
            wanted = graph(*inputs)
        try:
            found = run(session, graph.form, inputs)
        except Exception as error:  # onnxruntime's own classes have no common base
            raise VlcliError(
                "The graph does not run at other sizes than those that it was traced with.",
                where=f"{batch} examples, {words} word pieces, {regions} regions or patches",
                got=" ".join(str(error).split()),
                expected="a graph whose batch and sequence lengths are free",
                hint="in the model's code, use tensor.shape[0] instead of len(tensor), and no int() of a size",
            ) from error
        worst = max(worst, float((wanted - found).abs().max()))
    return worst


def run(session: Any, form: Form, inputs: tuple[Tensor, ...]) -> Tensor:
    """``logits`` of an onnxruntime session."""
    taken = {item.name for item in session.get_inputs()}
    given = {name: value.numpy() for name, value in zip(form.names(), inputs, strict=True) if name in taken}
    return torch.from_numpy(session.run(["logits"], given)[0])


def describe(graph: Graph, trained: Trained, folder: Path) -> str:
    """Write what the inputs and outputs mean; returns the file's name."""
    needs, data_spec = graph.form.needs, graph.form.data_spec
    text = {
        "inputs": {name: INPUTS[name] for name in graph.form.names()},
        "outputs": {"logits": "(batch, classes) float32"},
        "pictures": graph.form.pictures,
        "text_length": data_spec.text_length,
        "region_dim": data_spec.region_dim if needs.regions else None,
        "pixels": {"size": needs.size, "mean": needs.mean, "std": needs.std} if needs.pixels else None,
        "text": trained.text_options,
        "ids": {"pad": data_spec.pad_id, "cls": data_spec.cls_id, "sep": data_spec.sep_id},
        "answers": list(data_spec.answers),
        "model": str(getattr(trained.model, "spec_in_recipe", "")),
    }
    write_json(folder / SIGNATURE, text)
    return SIGNATURE


def _size(graph: Graph) -> int:
    return sum(value.numel() * value.element_size() for value in graph.parameters())


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter's own chatter is not this stage's report."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")]
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
