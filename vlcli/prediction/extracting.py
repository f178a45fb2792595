"""Regions and concepts of pictures that are in no store, by the extractor that made the store a model learnt from."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
NAMED = ("weights", "hub")
"""Parameters by which an extractor's words in a recipe say where its weights are."""
AT_ONCE = 1 << 27
"""Pixel values of prepared pictures that wait for one another: 40 photographs of a megapixel."""
Opener = tuple[str, Callable[[], Image.Image]]
"""The name of a picture, and what opens it."""
ELSE = "--features-from STAGE (the extract stage's folder) or --extractor '{name: EXTRACTOR, weights: FILE}'"


@dataclass
class OnTheFly:
    """Extracts new pictures as the model's own store was extracted; extractors are built at the first picture.

    Attributes:
        extractions: what made the regions and the concepts.
        device: where extractors run.
        boxes: given boxes by image id.
        where: the model, for messages.
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
        """Whether an extractor of regions is known."""
        return any(one.set != CONCEPTS and one.spec for one in self.extractions)

    def regions(self, pictures: Sequence[Opener]) -> list[ImageSample]:
        """The regions of pictures with their names.

        Raises:
            UsageError: nobody knows the extractor.
            DataError: its weights are missing or others, or a picture gives no regions.
        """
        made = self._one(CONCEPTS, False)
        with self._lock:
            records = self._records(made, pictures)
        images = []
        for (name, _), record in zip(pictures, records, strict=True):
            image = ImageSample(name, record.size)
            fill_regions(image, record)
            images.append(image)
        return images

    def concepts(self, pictures: Sequence[Opener]) -> list[dict[str, NDArray[Any]]]:
        """``ids`` and ``scores`` of the concepts of each picture, best first."""
        made = self._one(CONCEPTS, True)
        with self._lock:
            records = self._records(made, pictures)
        return [{"ids": _there(record.classes), "scores": _there(record.class_scores)} for record in records]

    def build(self) -> None:
        """Build all extractors, so that what is wrong with them is said before any picture is."""
        for made in self.extractions:
            if made.spec:
                self._extractor(made)

    def notes(self, pictures: Sequence[str]) -> list[list[str]]:
        """For each picture what a reader of the answer should know about its regions."""
        lacking = (self._given(name) is None for name in pictures)
        return [[self._gridded] if self._gridded and lacks else [] for lacks in lacking]

    def _given(self, picture: str) -> BoxList | None:
        found = boxes_for(self.boxes, f"{Path(picture).absolute().parent.as_posix()}/{image_id(picture)}")
        return boxes_for(self.boxes, image_id(picture)) if found is None else found

    def _one(self, set: str, equal: bool) -> Extraction:
        found = next((one for one in self.extractions if (one.set == set) is equal and one.spec), None)
        if found is not None:
            return found
        what = "visual concepts" if equal else "region features"
        raise UsageError(
            f"This model reads {what}, and what extracted them is not known.",
            where=self.where,
            got=_told(self.extractions),
            expected=ELSE,
            hint="name one of these; or train the model again: its config then names the extractor",
        )

    def _records(self, made: Extraction, pictures: Sequence[Opener]) -> list[Record]:
        extractor = self._extractor(made)
        if extractor.reads != "regions":
            items: Iterable[Prepared] = (self._prepared(extractor, *picture) for picture in pictures)
        elif made.source is not None:
            stored = self._records(made.source, pictures)
            items = [Prepared(torch.empty(0), one.size, (1.0, 1.0), None, one.id, one) for one in stored]
        else:
            raise DataError("What made the regions that the extractor reads is not known.", where=self.where)
        kept = [normalise(record, made.dtype) for record in _extracted(extractor, items)]
        for record in kept:
            check_record(record, where=self.where)
        return [replace(record, box_ids=None) for record in kept]

    def _prepared(self, extractor: Extractor, name: str, picture: Callable[[], Image.Image]) -> Prepared:
        try:
            prepared = extractor.preparation(picture(), self._given(name))
        except ValueError as error:
            raise DataError("The regions of the picture cannot be extracted.", where=name, got=str(error)) from None
        prepared.id = name
        return prepared

    def _extractor(self, made: Extraction) -> Extractor:
        if id(made) not in self._built:
            self._built[id(made)] = self._build(made)
        return self._built[id(made)]

    def _build(self, made: Extraction) -> Extractor:
        digest = str(made.provenance.get("weights_sha256") or "")
        if made.weights and not Path(made.weights).exists():
            raise self._no_weights(made.weights, made)
        if digest and not made.weights and not any(made.spec.get(key) for key in NAMED):
            raise self._no_weights(str(made.provenance.get("weights") or "a file that nobody named"), made)
        spec = {**made.spec, **({"weights": made.weights} if made.weights else {})}
        extractor: Extractor = registry.of(Extractor).build(spec)
        extractor = extractor.to(self.device)
        told = made.provenance
        extractor.attach(Labels(*(tuple(told.get(name, ())) for name in ("classes", "class_ids", "attributes"))))
        found = str(extractor.provenance().get("weights_sha256") or "")
        if self.strict and digest and found != digest:
            raise DataError(
                "The extractor's weights are not those that the model's features were made with.",
                where=made.weights or self.where,
                got=f"SHA-256 {found[:16]}...",
                expected=f"SHA-256 {digest[:16]}...",
                hint="name the right file: --extractor '{weights: FILE}'; or the extract stage: --features-from STAGE",
            )
        if extractor.preparation.boxes == "given":
            extractor.preparation = replace(extractor.preparation, boxes="given-or-grid")
            self._gridded = GRID
        elif extractor.preparation.boxes == "given-or-grid":
            self._gridded = EITHER
        return extractor

    def _no_weights(self, path: str, made: Extraction) -> DataError:
        helps = ""
        try:
            helps = registry.of(Extractor).load(made.spec["name"]).weights_help
        except Exception:  # the extractor's own fault is shown when it is built
            helps = ""
        return DataError(
            "The extractor's weights are missing.",
            where=path,
            got=f"extractor {made.spec.get('name', '?')}, which the model's features were made with",
            expected="--extractor '{weights: FILE}', or --features-from STAGE" + (f"; {helps}" if helps else ""),
            hint="name the file: --extractor '{weights: FILE}'",
        )


def _extracted(extractor: Extractor, items: Iterable[Prepared]) -> Iterator[Record]:
    waiting: list[Prepared] = []
    for item in items:
        waiting.append(item)
        if len(waiting) >= extractor.batch_size or sum(one.pixels.numel() for one in waiting) > AT_ONCE:
            yield from _together(extractor, waiting)
            waiting = []
    yield from _together(extractor, waiting)


def _together(extractor: Extractor, items: list[Prepared]) -> list[Record]:
    groups: dict[tuple[int, ...], list[int]] = {}
    for place, item in enumerate(items):
        groups.setdefault(tuple(item.pixels.shape), []).append(place)
    found: dict[int, Record] = {}
    for places in groups.values():
        with torch.inference_mode():
            made = extractor.extract([items[place] for place in places])
        found |= {place: replace(record, id=items[place].id) for place, record in zip(places, made, strict=True)}
    return [found[place] for place in range(len(items))]


def _there(values: NDArray[Any] | None) -> NDArray[Any]:
    assert values is not None
    return values


def _told(extractions: Sequence[Extraction]) -> str:
    names = [str(one.provenance.get("extractor", "")) for one in extractions]
    return ", ".join(name for name in names if name) or "no extraction in the model's config"
