"""Regions and concepts of pictures that are in no store, by the extractor of the store that a model learnt from."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from PIL import Image

from vlcli import registry
from vlcli.builders.extractions import Extraction
from vlcli.data.inputs import fill_regions
from vlcli.data.sample import ImageSample
from vlcli.detection.extractor import Extractor, Prepared
from vlcli.errors import DataError, UsageError
from vlcli.features.concepts import CONCEPTS
from vlcli.features.schema import Record, check_record, normalise
from vlcli.images.boxes import BoxList, boxes_for, image_id
from vlcli.images.labels import Labels

GRID = "the model learnt from given boxes, and this picture has none: a grid is used instead"
EITHER = "this picture has no given boxes, so its regions are cells of a grid"
NAMED = ("weights", "hub")  # parameters by which an extractor's words in a recipe say where its weights are
AT_ONCE = 1 << 27  # pixel values of prepared pictures that wait for one another: 40 photographs of a megapixel
Opener = tuple[str, Callable[[], Image.Image]]  # the name of a picture, and what opens it
ELSE = "--features-from STAGE (the extract stage's folder) or --extractor '{name: EXTRACTOR, weights: FILE}'"


@dataclass
class OnTheFly:
    """Extracts new pictures as the model's own store was extracted; extractors are built at the first picture.

    Attributes:
        extractions: what made the regions and the concepts.
        boxes: given boxes by image id.
        strict: whether weights that the store was not made with are refused.
    """

    extractions: Sequence[Extraction] = ()
    device: str = "cpu"
    boxes: Mapping[str, BoxList] = field(default_factory=dict)
    where: str = ""
    strict: bool = True
    _built: dict[int, Extractor] = field(default_factory=dict, repr=False)
    _gridded: str = field(default="", repr=False)
    # Threads of a search read pictures side by side, and extractors hook into their networks.
    _lock: Any = field(default_factory=threading.Lock, repr=False)

    @property
    def known(self) -> bool:
        return any(one.set != CONCEPTS and one.spec for one in self.extractions)

    def regions(self, pictures: Sequence[Opener]) -> list[ImageSample]:
        """Return pictures with their regions.

        Raises:
            UsageError: the extractor is not known.
            DataError: its weights are missing or others, or a picture gives no regions.
        """
        images = []
        for (name, _), record in zip(pictures, self._read(False, pictures), strict=True):
            image = ImageSample(name, record.size)
            fill_regions(image, record)
            images.append(image)
        return images

    def concepts(self, pictures: Sequence[Opener]) -> list[dict[str, NDArray[Any]]]:
        """Return ``ids`` and ``scores`` of each picture's concepts, best first; errors as of :meth:`regions`."""
        columns = [{"ids": one.classes, "scores": one.class_scores} for one in self._read(True, pictures)]
        return [{name: values for name, values in row.items() if values is not None} for row in columns]

    def build(self) -> None:
        """Build all extractors, so that their faults come before those of pictures."""
        for extraction in self.extractions:
            if extraction.spec:
                self._extractor(extraction)

    def notes(self, pictures: Sequence[str]) -> list[str]:
        """Return what a reader of the answer should know about the pictures' regions."""
        lacking = self._gridded and any(self._boxes_of(name) is None for name in pictures)
        return [self._gridded] if lacking else []

    def _boxes_of(self, picture: str) -> BoxList | None:
        boxes = boxes_for(self.boxes, f"{Path(picture).absolute().parent.as_posix()}/{image_id(picture)}")
        return boxes_for(self.boxes, image_id(picture)) if boxes is None else boxes

    def _read(self, concepts: bool, pictures: Sequence[Opener]) -> list[Record]:
        for extraction in self.extractions:
            if (extraction.set == CONCEPTS) is concepts and extraction.spec:
                with self._lock:
                    return self._records(extraction, pictures)
        read = "visual concepts" if concepts else "region features"
        what = f"This model reads {read}, and what extracted them is not known."
        names = (str(one.provenance.get("extractor", "")) for one in self.extractions)
        got = ", ".join(filter(None, names)) or "no extraction in the model's config"
        hint = "name one of these; or train the model again: its config then names the extractor"
        raise UsageError(what, where=self.where, got=got, expected=ELSE, hint=hint)

    def _records(self, extraction: Extraction, pictures: Sequence[Opener]) -> list[Record]:
        extractor = self._extractor(extraction)
        if extractor.reads != "regions":
            items: Iterable[Prepared] = (self._prepared(extractor, *picture) for picture in pictures)
        elif extraction.source is not None:
            stored = self._records(extraction.source, pictures)
            items = (Prepared(torch.empty(0), one.size, (1.0, 1.0), None, one.id, one) for one in stored)
        else:
            raise DataError("No record names the extractor of the regions that this extractor reads.", where=self.where)
        kept = [replace(normalise(record, extraction.dtype), box_ids=None) for record in _extracted(extractor, items)]
        for record in kept:
            check_record(record, where=self.where)
        return kept

    def _prepared(self, extractor: Extractor, name: str, picture: Callable[[], Image.Image]) -> Prepared:
        try:
            return replace(extractor.preparation(picture(), self._boxes_of(name)), id=name)
        except ValueError as error:
            raise DataError("The regions of the picture cannot be extracted.", where=name, got=str(error)) from None

    def _extractor(self, extraction: Extraction) -> Extractor:
        if id(extraction) not in self._built:
            self._built[id(extraction)] = self._build(extraction)
        return self._built[id(extraction)]

    def _build(self, extraction: Extraction) -> Extractor:
        recorded, weights = extraction.provenance, extraction.weights
        expected = str(recorded.get("weights_sha256") or "")
        named = weights or any(extraction.spec.get(key) for key in NAMED)
        if (weights and not Path(weights).exists()) or (expected and not named):
            option = "--extractor '{weights: FILE}'"
            wanted = f"{option}, or --features-from STAGE"
            with suppress(Exception):  # the extractor's fault is shown when it is built
                helps = registry.of(Extractor).load(extraction.spec["name"]).weights_help
                wanted += f"; {helps}" if helps else ""
            where = weights or str(recorded.get("weights") or "a file that nobody named")
            got = f"extractor {extraction.spec.get('name', '?')}, which the model's features were made with"
            what, hint = "The extractor's weights are missing.", f"name the file: {option}"
            raise DataError(what, where=where, got=got, expected=wanted, hint=hint)
        spec = {**extraction.spec, **({"weights": weights} if weights else {})}
        extractor = registry.of(Extractor).build(spec).to(self.device)
        extractor.attach(Labels(*(tuple(recorded.get(name, ())) for name in ("classes", "class_ids", "attributes"))))
        digest = str(extractor.provenance().get("weights_sha256") or "")
        if self.strict and expected and digest != expected:
            what = "The extractor's weights are not those that the model's features were made with."
            hint = "name the right file: --extractor '{weights: FILE}'; or the extract stage: --features-from STAGE"
            got, expected = f"SHA-256 {digest[:16]}...", f"SHA-256 {expected[:16]}..."
            raise DataError(what, where=weights or self.where, got=got, expected=expected, hint=hint)
        if extractor.preparation.boxes == "given":
            extractor.preparation = replace(extractor.preparation, boxes="given-or-grid")
            self._gridded = GRID
        elif extractor.preparation.boxes == "given-or-grid":
            self._gridded = EITHER
        return extractor


def _extracted(extractor: Extractor, items: Iterable[Prepared]) -> Iterator[Record]:
    waiting: list[Prepared] = []
    for item in items:
        waiting.append(item)
        if len(waiting) >= extractor.batch_size or sum(one.pixels.numel() for one in waiting) > AT_ONCE:
            yield from _together(extractor, waiting)
            waiting = []
    yield from _together(extractor, waiting)


def _together(extractor: Extractor, items: list[Prepared]) -> list[Record]:
    groups: dict[torch.Size, list[int]] = {}
    for row, item in enumerate(items):
        groups.setdefault(item.pixels.shape, []).append(row)
    records: dict[int, Record] = {}
    for rows in groups.values():
        with torch.inference_mode():
            extracted = extractor.extract([items[row] for row in rows])
        records |= {row: replace(record, id=items[row].id) for row, record in zip(rows, extracted, strict=True)}
    return [records[row] for row in range(len(items))]
