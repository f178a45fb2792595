"""Exports a trained model in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vlcli import registry
from vlcli.builders.context import StageContext, StageResult
from vlcli.engine.bundle import WEIGHTS, find_bundle, load_bundle, record_weights
from vlcli.errors import UsageError
from vlcli.export.base import Exporter
from vlcli.features import FeatureStore
from vlcli.files import follow_mask
from vlcli.recipe import stage_record
from vlcli.recipe.schema import Export


def run(context: StageContext) -> StageResult:
    """Writes the model that ``from`` names in the stage's format.

    Raises:
        UsageError: ``from`` names nothing.
        ComponentError: the format is unknown, or its extra is not installed.
    """
    config = context.config
    assert isinstance(config, Export)
    sources = context.sources()
    if not sources:
        where = f"stages.{context.name}"
        raise UsageError("This stage does not say which model to take.", where=where, expected="from: STAGE")
    exporter: Exporter = registry.of(Exporter).build(config.format)
    source = next((source for source in sources if find_bundle(source) is not None), sources[0])
    bundle = load_bundle(source, "cpu")
    bundle.info |= {"extractor": extractor_of(source)} if bundle.model.input_spec().regions else {}
    exported = exporter.export(bundle, context.folder, context.progress)
    if getattr(exporter, "int8", False):
        from vlcli.export.onnx import graphs
        from vlcli.stages.quantized import cost

        known = graphs(bundle, getattr(exporter, "objective", None), getattr(exporter, "class_probs", False))
        metrics, notes = cost(context, bundle, {graph.objective or graph.stem: graph for graph in known})
        exported.metrics |= metrics
        exported.notes += notes
    paths = [context.folder / name for name in exported.files.values()]
    for path in paths:
        folder = find_bundle(path) if path.is_dir() else None
        if folder is not None and (folder / WEIGHTS).is_file():
            record_weights(folder)
    follow_mask(paths)  # safetensors writes for the owner alone
    for note in exported.notes:
        context.progress.info(note)
    return StageResult(exported.metrics, exported.files, exported.notes, {"model": str(bundle.folder)})


def extractor_of(source: Path) -> dict[str, Any] | None:
    """Returns the extractor of the regions that a stage trained on; None where their store is not there."""
    record = stage_record.read(source)
    files = [Path(file) for file in (record.features if record is not None else []) if Path(file).is_file()]
    return FeatureStore(files[:1]).provenance if files else None
