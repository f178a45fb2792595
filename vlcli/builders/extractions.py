"""What made a feature store, well enough to extract other pictures in the same way.

A training stage writes this into the config of its bundle. For bundles that older versions wrote, it is found through
the stage records of the run folder.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from vlcli.data.pipeline import Pipeline
from vlcli.engine.bundle import WEIGHTS
from vlcli.errors import VlcliError
from vlcli.features import FeatureStore
from vlcli.features.concepts import CONCEPTS, WORDS, ConceptStore
from vlcli.features.inspect import set_names
from vlcli.features.schema import DEFAULT_SET, HISTORY
from vlcli.recipe import stage_record
from vlcli.recipe.stage_record import StageRecord

STORE = "features.h5"


@dataclass(frozen=True)
class Extraction:
    """An extractor with everything that decides its features.

    Attributes:
        spec: the extractor as recipes name it, without ``weights``.
        set: the box set that it wrote.
        dtype: float type that the features were rounded to.
        weights: absolute path of its weights; empty where it has none, or where nobody knows.
        beside: the same path from the folder of the bundle, for a run folder that was moved.
        provenance: what the store says of its extraction, without versions.
        source: what made the regions that the extractor reads instead of pictures.
    """

    spec: dict[str, Any]
    set: str
    dtype: str
    weights: str = ""
    beside: str = ""
    provenance: dict[str, Any] = field(default_factory=dict)
    source: Extraction | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for a bundle's config."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Extraction:
        """The reverse of :meth:`as_dict`; keys that are not known are ignored.

        Raises:
            TypeError: a key is missing or of the wrong type.
        """
        given = {name: value[name] for name in cls.__dataclass_fields__ if name in value}
        texts = ("set", "dtype", "weights", "beside")
        plain = all(isinstance(given.get(name, ""), str) for name in texts)
        if not plain or not all(isinstance(given.get(name, {}), dict) for name in ("spec", "provenance")):
            raise TypeError("extraction: expected strings and mappings")
        source = given.pop("source", None)
        return cls(**given, source=None if source is None else cls.from_dict(source))

    def with_bundle(self, folder: Path) -> Extraction:
        """The same, with the weights found from the bundle in ``folder`` where the absolute path leads nowhere."""
        moved = Path(os.path.normpath(folder / self.beside)) if self.beside else None
        source = None if self.source is None else self.source.with_bundle(folder)
        if moved is not None and moved.exists() and not Path(self.weights).exists():
            return replace(self, weights=str(moved), source=source)
        return replace(self, source=source)

    def beside_bundle(self, folder: Path) -> Extraction:
        """The same, with the path of the weights from the bundle in ``folder``."""
        path = os.path.relpath(self.weights, folder) if self.weights else ""
        return replace(self, beside=path, source=None if self.source is None else self.source.beside_bundle(folder))


def extractions_of(stores: Sequence[str | Path]) -> list[Extraction]:
    """What made the box sets of some stores, each set once; stores that are not there any more are passed over.

    Args:
        stores: files, or folders of extract stages.
    """
    found: dict[str, Extraction] = {}
    for place in stores:
        path = Path(place) / STORE if (Path(place) / STORE).is_file() else Path(place)
        if path.is_file():
            for name in _sets(path):
                found.setdefault(name, of_store(path, name))
    named = [one for name, one in found.items() if name != CONCEPTS]
    regions = found.get(DEFAULT_SET) or next(iter(named), None)  # the set that a model reads
    return [one for one in found.values() if one is regions or one.set == CONCEPTS]


def extractions_read(data: Pipeline) -> list[Extraction]:
    """What made the regions and concepts that training data are read with."""
    concepts = data.dataset.images.concepts
    stores = [data.store, concepts.store if isinstance(concepts, ConceptStore) else None]
    return extractions_of([path for store in stores if store is not None for path in store.paths])


def _sets(path: Path) -> list[str]:
    try:
        return list(set_names(FeatureStore(path).paths[0]))
    except VlcliError:  # several box sets in one file, or a damaged one: whoever reads the store says so
        return []


def of_store(path: Path, name: str) -> Extraction:
    """What made one box set: by the record of the stage that made the store, else by the store's own provenance."""
    store = FeatureStore(path, name)
    told = {key: value for key, value in store.provenance.items() if key not in (*HISTORY, "source")}
    record = stage_record.read(path.parent)
    made = Extraction(_spec_told(told), name, str(store.dtype), provenance=told)
    if record is None or record.kind != "extract" or not isinstance(record.config.get("extractor"), dict):
        return made
    spec = dict(record.config["extractor"])
    weights = _weights(record, path.parent, spec.pop("weights", None))
    if spec.get("boxes") == "auto" and "boxes" in told:  # what the labels of the data decided then
        spec["boxes"] = told["boxes"]
    if isinstance(spec.get("words"), str):  # a file: the store tells its words
        spec["words"] = list(told.get(WORDS) or told.get("classes") or ())
    return replace(made, spec=spec, weights=weights, source=_source(record, path.parent))


def _spec_told(told: Mapping[str, Any]) -> dict[str, Any]:
    name, parameters = told.get("extractor"), told.get("parameters")
    return {"name": name, **parameters} if isinstance(name, str) and isinstance(parameters, dict) else {}


def _weights(record: StageRecord, folder: Path, named: str | None) -> str:
    if named:
        return os.path.normpath(Path(record.root or ".").absolute() / Path(named).expanduser())
    for source in record.config.get("from") or []:
        for place in _places(record, folder, str(source)):
            if (place / "model" / WEIGHTS).is_file():
                return str((place / "model" / WEIGHTS).absolute())
    return ""


def _places(record: StageRecord, folder: Path, name: str) -> list[Path]:
    known = record.inputs.get(name, {}).get("path")
    beside = stage_record.finished(folder.parent / name)
    return [*([Path(known)] if known else []), *([beside[0]] if beside else []), Path(name)]


def _source(record: StageRecord, folder: Path) -> Extraction | None:
    named = record.config.get("features") or []
    places = [place for name in named for place in _places(record, folder, str(name))]
    return next((one for one in extractions_of(places) if one.set != CONCEPTS), None)
