"""Describes the extraction of a feature store, for the same extraction of other pictures.

A training stage writes it into the config of its bundle.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from vlcli.data.pipeline import Pipeline
from vlcli.engine.bundle import WEIGHTS
from vlcli.errors import VlcliError
from vlcli.features import FeatureStore
from vlcli.features.concepts import CONCEPTS, WORDS, ConceptStore
from vlcli.features.file import set_names
from vlcli.features.schema import DEFAULT_SET, HISTORY
from vlcli.recipe import stage_record
from vlcli.recipe.stage_record import StageRecord

STORE = "features.h5"


@dataclass(frozen=True)
class Extraction:
    """An extractor with everything that decides its features.

    Attributes:
        spec: of the extractor, without ``weights``.
        set: box set that it wrote.
        dtype: float type that the features were rounded to.
        weights: absolute path; empty if there are none, or if it is not known.
        beside: the same path from the folder of the bundle, for a run folder that was moved.
        provenance: of the store, without versions.
        source: extraction of the regions that the extractor reads instead of pictures.
    """

    spec: dict[str, Any]
    set: str
    dtype: str
    weights: str = ""
    beside: str = ""
    provenance: dict[str, Any] = field(default_factory=dict)
    source: Extraction | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Extraction:
        """Reverses :meth:`as_dict`, without unknown keys. Raises ValueError: a key is missing or of a wrong type."""
        return TypeAdapter(Extraction).validate_python(value)

    def with_bundle(self, folder: Path) -> Extraction:
        """Returns a copy whose weights lie beside the bundle in ``folder`` if the absolute path is gone."""
        weights, moved = self.weights, os.path.normpath(folder / self.beside)  # before a link of `folder` is followed
        if self.beside and not (weights and Path(weights).exists()) and Path(moved).exists():
            weights = moved
        return replace(self, weights=weights, source=self.source and self.source.with_bundle(folder))

    def beside_bundle(self, folder: Path) -> Extraction:
        """Returns a copy with ``beside`` for the bundle in ``folder``."""
        path = os.path.relpath(self.weights, folder) if self.weights else ""
        return replace(self, beside=path, source=self.source and self.source.beside_bundle(folder))


def extractions_of(stores: Sequence[str | Path]) -> list[Extraction]:
    """Returns the extractions of the box sets of stores (files or folders), each set once; without absent ones."""
    sets: dict[str, Extraction] = {}
    for store in stores:
        path = Path(store) / STORE if (Path(store) / STORE).is_file() else Path(store)
        if path.is_file():
            with suppress(VlcliError):  # several box sets in one file, or a damaged one: its reader raises this
                for name in set_names(FeatureStore(path).paths[0]):
                    sets.setdefault(name, of_store(path, name))
    regions = sets.get(DEFAULT_SET) or next((one for one in sets.values() if one.set != CONCEPTS), None)
    return [one for one in sets.values() if one is regions or one.set == CONCEPTS]


def extractions_read(data: Pipeline) -> list[Extraction]:
    """Returns the extractions of the regions and concepts of training data."""
    concepts = data.dataset.images.concepts
    stores = [data.store, concepts.store if isinstance(concepts, ConceptStore) else None]
    return extractions_of([path for store in stores if store is not None for path in store.paths])


def of_store(path: Path, name: str) -> Extraction:
    """Returns the extraction of one box set: from the record of the store's stage, else from its provenance."""
    store = FeatureStore(path, name)
    facts = {key: value for key, value in store.provenance.items() if key not in (*HISTORY, "source")}
    record = stage_record.read(path.parent)
    if record is None or record.kind != "extract" or not isinstance(record.config.get("extractor"), dict):
        extractor, parameters = facts.get("extractor"), facts.get("parameters")
        spec = {"name": extractor, **parameters} if extractor and isinstance(parameters, dict) else {}
        return Extraction(spec, name, str(store.dtype), provenance=facts)
    spec = dict(record.config["extractor"])
    weights = _weights(record, path.parent, spec.pop("weights", None))
    if spec.get("boxes") == "auto" and "boxes" in facts:  # decided by the labels of the data
        spec["boxes"] = facts["boxes"]
    if isinstance(spec.get("words"), str):  # a file: the store has its words
        spec["words"] = list(facts.get(WORDS) or facts.get("classes") or ())
    stores = [one for word in record.config.get("features") or [] for one in _artifacts(record, path.parent, str(word))]
    source = next((one for one in extractions_of(stores) if one.set != CONCEPTS), None)
    return Extraction(spec, name, str(store.dtype), weights, provenance=facts, source=source)


def _weights(record: StageRecord, folder: Path, named: str | None) -> str:
    if named:
        return os.path.normpath(Path(record.root or ".").absolute() / Path(named).expanduser())
    artifacts = [one for word in record.config.get("from") or [] for one in _artifacts(record, folder, str(word))]
    files = (artifact / "model" / WEIGHTS for artifact in artifacts)
    return next((str(file.absolute()) for file in files if file.is_file()), "")


def _artifacts(record: StageRecord, folder: Path, name: str) -> list[Path]:
    recorded, beside = record.inputs.get(name, {}).get("path"), stage_record.finished(folder.parent / name)
    return [Path(one) for one in (recorded, beside and beside[0], name) if one]
