"""Export: a trained model in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vlcli import registry
from vlcli.builders.context import StageContext, StageResult
from vlcli.engine.bundle import WEIGHTS, Bundle, find_bundle, load_bundle, record_weights
from vlcli.errors import UsageError
from vlcli.export.base import Exported, Exporter
from vlcli.features import FeatureStore
from vlcli.files import follow_mask
from vlcli.recipe import stage_record
from vlcli.recipe.schema import Export


def run(context: StageContext) -> StageResult:
    """Write the model that ``from`` names in the stage's format.

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
    exporter: Exporter = registry.exporters.build(config.format)
    found = next((source for source in sources if find_bundle(source) is not None), sources[0])
    bundle = load_bundle(found, "cpu")
    bundle.info |= {"extractor": extractor_of(found)} if bundle.model.input_spec().regions else {}
    made = exporter.export(bundle, context.folder, context.progress)
    score_int8(context, bundle, exporter, made)
    for folder in (context.folder / name for name in made.files.values()):
        place = find_bundle(folder) if folder.is_dir() else None
        if place is not None and (place / WEIGHTS).is_file():
            record_weights(place)
    follow_mask([context.folder / name for name in made.files.values()])  # safetensors writes for the owner alone
    for note in made.notes:
        context.progress.info(note)
    return StageResult(made.metrics, made.files, made.notes, {"model": str(bundle.folder)})


def score_int8(context: StageContext, bundle: Bundle, exporter: Exporter, made: Exported) -> None:
    """Add to what was made what 8-bit weights cost, where the exporter wrote them."""
    if not getattr(exporter, "int8", False):
        return
    from vlcli.export.onnx import graphs
    from vlcli.stages.quantized import cost

    known = graphs(bundle, getattr(exporter, "objective", None), getattr(exporter, "class_probs", False))
    metrics, notes = cost(context, bundle, {graph.objective or graph.stem: graph for graph in known})
    made.metrics |= metrics
    made.notes += notes


def extractor_of(source: Path) -> dict[str, Any] | None:
    """The extractor of the regions that a stage trained on, as their store tells; None where that is not there."""
    record = stage_record.read(source)
    files = [Path(file) for file in (record.features if record is not None else []) if Path(file).is_file()]
    return FeatureStore(files[:1]).provenance if files else None
