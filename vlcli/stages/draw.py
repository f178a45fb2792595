"""Draws pictures of data, of trained models and of results."""

from collections.abc import Mapping
from pathlib import Path

import torch

from vlcli import registry
from vlcli.builders.context import StageContext, StageResult
from vlcli.builders.resolve import resolve_stage, resolve_with
from vlcli.data import Pipeline, Reader
from vlcli.drawings import Drawing
from vlcli.engine import Bundle, TaskRunner, find_bundle, load_bundle
from vlcli.engine.processes import resolve_device, use_threads
from vlcli.errors import DataError, UsageError
from vlcli.features import FeatureStore
from vlcli.recipe import stage_record
from vlcli.recipe.resolve import ResolvedStage
from vlcli.recipe.schema import Draw
from vlcli.stages.evaluate import assemble, open_runner, readers_of
from vlcli.tasks.base import Task


def run(context: StageContext) -> StageResult:
    """Draws the stage's drawing into its folder."""
    config = context.section(Draw)
    use_threads(config.threads)
    drawing: Drawing = registry.of(Drawing).build(config.drawing)
    with torch.no_grad():
        paths = drawing.draw(StageScene(context))
    names = [path.relative_to(context.folder).as_posix() for path in paths]
    files = {f"picture_{number + 1}" if number else "picture": name for number, name in enumerate(names)}
    return StageResult(files=files, notes=names)


class StageScene:
    """The ``vlcli.drawings.DrawingContext`` of a stage."""

    def __init__(self, context: StageContext) -> None:
        self.context, self.config = context, context.section(Draw)
        self.folder, self.root, self.progress = context.folder, context.root, context.progress
        self.sources: Mapping[str, Path] = dict(zip(self.config.source, context.sources(), strict=True))
        self.device = resolve_device(context.device)
        self._trained = [name for name, path in self.sources.items() if find_bundle(path) is not None]
        self._bundles: dict[str, Bundle] = {}

    def bundle(self, source: str | None = None) -> Bundle:
        if not self.sources:
            where, expected = f"stages.{self.context.name}", "from: STAGE, or --stage STAGE"
            raise UsageError("This drawing is of a trained model.", where=where, expected=expected)
        name = source or next(iter([*self._trained, *self.sources]))
        if name not in self._bundles:
            self._bundles[name] = load_bundle(self.sources[name], self.device)
        return self._bundles[name]

    def bundles(self) -> dict[str, Bundle]:
        return {name: self.bundle(name) for name in self._trained}

    def records(self) -> dict[str, stage_record.StageRecord]:
        records = {}
        for name, path in self.sources.items():
            record = stage_record.read(path)
            if record is None or record.status != "done":
                expected = "a folder with stage.json"
                raise DataError("This is no finished stage.", where=str(path), got=name, expected=expected)
            records[name] = record
        return records

    def resolved(self, bundle: Bundle | None = None) -> ResolvedStage:
        """Resolves the stage with a trained model; None: with the first among its sources, if any."""
        return resolve_stage(self.context) if bundle is None else resolve_with(self.context, bundle)

    def task(self, bundle: Bundle | None = None) -> Task | None:
        task: Task | None = self.resolved(bundle).built_task
        if task and bundle:
            task.attach(bundle.data_spec)
        return task

    def readers(self, bundle: Bundle | None = None) -> list[Reader]:
        resolved = self.resolved(bundle)
        if not resolved.data:
            what, where = "This drawing reads data, and none are named.", f"stages.{self.context.name}"
            hint = "say which: data=coco-captions, or data='{name: coco-captions, split: test}'"
            raise UsageError(what, where=where, hint=hint)
        return readers_of(self.context, resolved)

    def data(self, bundle: Bundle, limit: int | None = None) -> Pipeline:
        readers = self.readers(bundle)
        for reader in readers:
            reader.limit = limit if reader.limit is None else min(reader.limit, limit or reader.limit)
        return assemble(self.context, bundle, readers)

    def runner(self, bundle: Bundle, limit: int | None = None) -> TaskRunner:
        return open_runner(self.context, bundle, self.data(bundle, limit))

    def features(self) -> FeatureStore | None:
        files = self.context.feature_files(self.config.features)
        return FeatureStore(files) if files else None
