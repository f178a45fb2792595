"""Exports a trained model in another format, and scores its 8-bit files."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from vlcli import registry
from vlcli.builders.context import StageContext, StageResult
from vlcli.builders.resolve import resolve_stage
from vlcli.engine.bundle import WEIGHTS, Bundle, find_bundle, load_bundle, record_weights
from vlcli.engine.evaluation import TaskRunner
from vlcli.errors import VlcliError
from vlcli.export.base import Exporter
from vlcli.export.graph import Graph
from vlcli.features import FeatureStore
from vlcli.files import follow_mask
from vlcli.nn.forward_passes import ForwardPasses
from vlcli.recipe import stage_record
from vlcli.recipe.schema import Evaluate, Export
from vlcli.stages import evaluate


def run(context: StageContext) -> StageResult:
    """Writes the model that ``from`` names in the stage's format."""
    source = evaluate.source_of(context)
    exporter: Exporter = registry.of(Exporter).build(context.section(Export).format)
    bundle = load_bundle(source, "cpu")
    bundle.info |= {"extractor": extractor_of(source)} if bundle.model.input_spec().regions else {}
    exported = exporter.export(bundle, context.folder, context.progress)
    if getattr(exporter, "int8", False):
        from vlcli.export.onnx import graphs

        known = graphs(bundle, getattr(exporter, "objective", None), getattr(exporter, "class_probs", False))
        metrics, notes = cost(context, bundle, {graph.objective or graph.stem: graph for graph in known})
        exported.metrics |= metrics
        exported.notes += notes
    paths = [context.folder / name for name in exported.files.values()]
    for folder in (find_bundle(path) for path in paths if path.is_dir()):
        if folder is not None and (folder / WEIGHTS).is_file():
            record_weights(folder)
    follow_mask(paths)  # safetensors writes for the owner alone
    for note in exported.notes:
        context.progress.info(note)
    return StageResult(exported.metrics, exported.files, exported.notes, {"model": str(bundle.folder)})


def extractor_of(source: Path) -> dict[str, Any] | None:
    """Returns the provenance of the regions that a stage trained on, if their store exists."""
    record = stage_record.read(source)
    file = next((file for file in (record.features if record is not None else []) if Path(file).is_file()), None)
    return None if file is None else FeatureStore([file]).provenance


Run = Callable[[str, tuple[Tensor, ...]], dict[str, Tensor]]
"""Runs the file of a graph (its stem) on inputs; returns the outputs by name."""


class FileRunner(TaskRunner):
    """Runs exported files in place of the model; ``graphs`` are by objective, or ``text`` and ``image``."""

    def __init__(self, module: Any, data: Any, batch_size: int, graphs: dict[str, Graph], run: Run) -> None:
        super().__init__(module, data, batch_size=batch_size)
        self.graphs, self.run = graphs, run

    def predict(self, step: ForwardPasses, only: str | None = None) -> dict[str, dict[str, Tensor]]:
        return {
            name: self.run(graph.stem, graph.form.inputs(step.batch))
            for name, graph in self.graphs.items()
            if only in (None, name) and graph.stem not in ("text", "image")
        }

    def embed(self, step: ForwardPasses, objective: str, side: Literal["text", "image"]) -> Tensor:
        return self.run(side, self.graphs[side].form.inputs(step.batch, unique=True))["vectors"]


def cost(context: StageContext, bundle: Bundle, graphs: dict[str, Graph]) -> tuple[dict[str, float], list[str]]:
    """Returns the metric of the float and of the 8-bit files on the evaluation split, their difference, and a note.

    Args:
        graphs: the exported ones by objective, or ``text`` and ``image``.
    """
    try:
        section, task, data = _evaluation(context, bundle)
        evaluation = section.batch_size, task, data, bundle, graphs
        scores = [_scored(context.folder, ending, *evaluation) for ending in ("", ".int8")]
    except (VlcliError, KeyError) as error:
        reason = error.what if isinstance(error, VlcliError) else f"no file computes {error}"
        return {}, [f"the 8-bit files were not scored: {reason}"]
    name = task.metric
    if any(name not in metrics for metrics in scores):
        return {}, [f"the 8-bit files were not scored: the data give no {name}"]
    whole, small = (metrics[name] for metrics in scores)
    split = section.split or task.eval_split
    line = f"int8: {name} {small:.4g}, float {whole:.4g}, difference {small - whole:+.2g}, on {split}"
    return {f"float/{name}": whole, f"int8/{name}": small, f"int8_difference/{name}": small - whole}, [line]


def _evaluation(context: StageContext, bundle: Bundle) -> tuple[Evaluate, Any, Any]:
    # the recipe's evaluation of the same model, or else the task's own split
    named, stages = set(context.config.source), context.recipe.stages.values()
    sections = (one for one in stages if isinstance(one, Evaluate) and named & set(one.source) and not one.task)
    section = next(sections, None) or Evaluate(kind="evaluate", **{"from": list(named)})
    record = stage_record.read(next(iter(context.sources())))
    if record is not None:
        features = section.features or [path for path in record.features if Path(path).is_file()]
        section = section.model_copy(update={"features": features})
        context = replace(context, root=Path(record.root) if record.root else context.root)
    context = replace(context, config=section)
    resolved = resolve_stage(context)
    task = evaluate.choose_task(context, resolved)
    return section, task, evaluate.assemble(context, bundle, evaluate.readers_of(context, resolved), task)


def _scored(
    folder: Path, ending: str, batch_size: int, task: Any, data: Any, bundle: Bundle, graphs: dict[str, Graph]
) -> dict[str, float]:
    from vlcli.export.onnx import run as run_file
    from vlcli.export.onnx import session_of

    files = {graph.stem: (graph, session_of(folder / f"{graph.stem}{ending}.onnx")) for graph in graphs.values()}
    asked: set[str] = set()

    def run(stem: str, inputs: tuple[Tensor, ...]) -> dict[str, Tensor]:
        graph, session = files[stem]
        asked.add(stem)
        names = [item.name for item in session.get_outputs()]
        return dict(zip(names, run_file(session, graph, inputs), strict=True))

    with torch.no_grad():
        metrics: dict[str, float] = task.evaluate(FileRunner(bundle.module, data, batch_size, graphs, run)).metrics
    if not asked:
        raise KeyError("what the task scores")  # it has asked the model itself
    return metrics
