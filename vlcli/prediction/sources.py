"""Finds a trained model, and the extractor and stores of its regions."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vlcli.builders.extractions import STORE, Extraction, extractions_of
from vlcli.builders.readers import open_stores
from vlcli.engine.bundle import WEIGHTS, Bundle, find_bundle, load_bundle, read_bundle
from vlcli.engine.training_module import build_training_module
from vlcli.engine.weights import load_exactly, read_tensors
from vlcli.errors import DataError, VlcliError
from vlcli.features.concepts import CONCEPTS
from vlcli.images.boxes import read_boxes
from vlcli.nn.model import InputSpec
from vlcli.prediction.extracting import OnTheFly
from vlcli.recipe import stage_record
from vlcli.recipe.stage_record import earlier, made_in, similar


@dataclass
class Sources:
    """Sources of regions: the extractor, and the ``trained`` and ``trained_concepts`` stores that are still there."""

    fresh: OnTheFly = field(default_factory=OnTheFly)
    stores: dict[str, Any] = field(default_factory=dict)


def find_sources(
    bundle: Bundle,
    needs: InputSpec,
    *,
    features_from: str | Path | None = None,
    extractor: Mapping[str, Any] | None = None,
    boxes: str | Path | None = None,
    device: str = "cpu",
) -> Sources:
    """Return the extractor of a model's training data: the one named, else its config's, else its stage's record's.

    An ``extractor`` without ``name`` changes options of the known one.

    Raises:
        DataError: ``features_from`` names no store, or the boxes cannot be read.
    """
    if not (needs.regions or needs.concepts):
        return Sources()
    recorded = _recorded_stores(bundle.folder)
    known: list[Extraction] = []
    if features_from is None:
        with suppress(ValueError):  # written by a later version: the stage's record may still say it
            known = [Extraction.from_dict(one).with_bundle(bundle.folder) for one in bundle.extraction]
        known = known or extractions_of(recorded)
    elif not (known := extractions_of([features_from])):
        expected = f"the folder of an extract stage, with {STORE}, or a store"
        raise DataError("There is no feature store here.", where=str(features_from), expected=expected)
    changed = filter(None, (_changed(one, extractor) for one in (known or (None,))))
    read = dict(read_boxes(boxes)) if boxes is not None else {}
    strict = extractor is None or "name" not in extractor
    sources = Sources(OnTheFly(list(changed), device, read, str(bundle.folder), strict))
    with suppress(VlcliError):  # a store that is damaged or half there: only ids of pictures would be read from it
        stores = open_stores(recorded, needs)
        sources.stores = {"trained": stores.regions, "trained_concepts": stores.concepts}
    return sources


# Where the stores lay that the model's stage read, else beside the stage (a moved run folder).
def _recorded_stores(folder: Path) -> list[Path]:
    record = stage_record.read(folder) or stage_record.read(folder.parent)
    stage = folder if stage_record.has_record(folder) else folder.parent
    stores = []
    for path in map(Path, record.features if record is not None else ()):
        beside = stage.parent / path.parent.name / path.name
        stores += [one for one in (path, beside) if one.exists()][:1]
    return stores


def _changed(known: Extraction | None, extractor: Mapping[str, Any] | None) -> Extraction | None:
    if not extractor or (known is not None and known.set == CONCEPTS):
        return known
    spec = dict(extractor)
    weights = str(Path(spec.pop("weights")).expanduser().absolute()) if spec.get("weights") else ""
    if "name" in spec:
        dtype, provenance = ("float16", {}) if known is None else (known.dtype, known.provenance)
        return Extraction(spec, "boxes", dtype, weights, provenance=provenance)
    return known and replace(known, spec={**known.spec, **spec}, weights=weights or known.weights)


RUNS = "runs"
# Name and folder of the model that comes with vlcli; scripts/small_model.py makes it
SMALL, SMALL_FOLDER = "small", Path(__file__).with_name("small")


def find_model(name: str | Path, runs: Path = Path(RUNS)) -> Path:
    """Return a model's folder as named, or under ``runs/``, also of another run. Raises DataError: there is none."""
    if (path := earlier(runs, str(name))) is not None:
        return made_in(path)
    if str(name) == SMALL:
        return SMALL_FOLDER / "questions"
    expected = f"a folder, or RECIPE/STAGE under {runs}/"
    hint = similar(runs, str(name)) or "train it: vlcli run RECIPE"
    raise DataError("There is no such model.", got=str(name), expected=expected, hint=hint)


def load_any(path: Path, device: str) -> Bundle:
    """Load a bundle, or the weights of a checkpoint in the bundle of its stage."""
    if find_bundle(path) is not None or not ((path / WEIGHTS).is_file() and find_bundle(path.parent.parent)):
        return load_bundle(path, device)
    bundle = read_bundle(path.parent.parent)
    module = build_training_module(bundle.model_spec, bundle.objectives_specs, bundle.data_spec)
    load_exactly(module, read_tensors(path / WEIGHTS), str(path / WEIGHTS))
    bundle.module, bundle.folder = module.to(device).eval(), path
    return bundle
