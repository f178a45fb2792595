"""Loads an example: token ids, regions, pixels and visual concepts; checks that what is loaded fits the model."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vlcli.data.columns.table import ColumnExamples, image_counts
from vlcli.data.columns.tokens import Tokens, tokens_of
from vlcli.data.pictures import Draw, Pictures, normalised
from vlcli.data.reader import Reader
from vlcli.data.sample import Example, ImageSample, TextSample, copied
from vlcli.data.transforms import Transform
from vlcli.data.vocabulary import Tokenizer
from vlcli.errors import DataError
from vlcli.features import FeatureStore, Record
from vlcli.features.concepts import ConceptStore
from vlcli.images.shards import is_there
from vlcli.nn.batch import Regions
from vlcli.nn.model import DataSpec, InputSpec

# Fields that are read of a store besides features and boxes, where it has them.
FIELDS = ("scores", "classes", "class_scores", "attributes", "attribute_scores", "class_probs", "box_ids")
# Tokenized sentences that a process keeps (100 MB); further ones are tokenized each time.
REMEMBERED = 100_000
NOTHING_LEFT = "The data are empty: no example is left."


class Sentences:
    """Tokenizes sentences of at most ``length`` pieces, and keeps the first :data:`REMEMBERED` of a process."""

    def __init__(self, tokenizer: Tokenizer | None, wanted: bool, length: int | None) -> None:
        self.tokenizer, self.wanted, self.length = tokenizer, wanted, length
        self._known: dict[tuple[str, str], TextSample] = {}

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_known": {}}

    def encode(self, text: str | None, key: str) -> TextSample | None:
        """Tokenize a sentence into lists that the caller may change; None where there is none or none is read."""
        if text is None or self.tokenizer is None or not self.wanted:
            return None
        known = self._known.get((text, key))
        if known is None:
            known = self.tokenizer.encode(text, key, self.length)
            if len(self._known) < REMEMBERED:
                self._known[text, key] = known
        return copied(known)

    def beside(self, examples: Sequence[Example]) -> Tokens | None:
        """Return the token ids kept beside examples in columns; None of others, or where no text is read."""
        if self.tokenizer is None or not self.wanted or not isinstance(examples, ColumnExamples):
            return None
        return tokens_of(examples, self.tokenizer, self.length)

    def count(self, text: str | None) -> int:
        """Return the number of a sentence's pieces, specials included, after cutting; 0 without text."""
        return 0 if text is None or self.tokenizer is None else len(self.tokenizer.encode(text, "", self.length).ids)


class Images:
    """Images of ``readers`` loaded as a model needs them.

    Attributes:
        store: region features.
        loads: whether the model reads anything of an image.
    """

    def __init__(
        self,
        readers: Sequence[Reader],
        needs: InputSpec,
        store: FeatureStore | None = None,
        concepts: ConceptStore | None = None,
        transform: Transform | None = None,
    ) -> None:
        self.needs, self.store, self.concepts = needs, store, concepts
        self.loads = bool(needs.regions or needs.pixels or needs.concepts)
        self.pictures = Pictures(readers, needs, transform)
        self.fields = tuple(name for name in FIELDS if store is not None and needs.regions and name in store.fields)

    def load(self, name: str, draw: Draw | None = None) -> ImageSample:
        image = ImageSample(name, (0, 0))
        if self.needs.regions:
            assert self.store is not None
            fill_regions(image, self.store.read(name, self.fields, copy=False))
        if self.needs.pixels:
            self.pictures.fill(image, draw)
        if self.needs.concepts and self.concepts is not None:
            image.concepts = self.concepts.read(name)
        return image

    def read_together(self, names: Iterable[str], multiple: int) -> dict[str, ImageSample]:
        """Load several images at once where only their regions are needed; else none: they are loaded singly."""
        needs, chosen = self.needs, list(dict.fromkeys(names))
        if self.store is None or not needs.regions or needs.pixels or needs.concepts or not chosen:
            return {}
        return RegionTable(self.store, chosen, self.fields, multiple).images()

    def absent(self, names: list[str]) -> set[str]:
        absent = set(self.store.missing(names)) if self.needs.regions and self.store is not None else set()
        if self.needs.pixels:
            absent.update(name for name in names if name not in absent and not is_there(self.pictures.files[name]))
        if self.needs.concepts and self.concepts is not None:
            absent.update(name for name in names if name not in self.concepts)
        return absent

    def missing_error(self, label: str, absent: set[str], total: int) -> DataError:
        first = min(absent)
        where, kind, action = str(self.pictures.files.get(first, "concepts")), "a picture", "check `root` and `images`"
        if self.needs.regions and self.store is not None and self.store.missing([first]):
            where, kind, action = f"the feature store {self.store.where}", "features", self.store.hint
        what = f"{len(absent)} of {total} images of {label} are missing, the first is {first!r}."
        got = ", ".join(sorted(absent)[:3]) + (", ..." if len(absent) > 3 else "")
        hint = f"{action}; or leave these examples out: missing=drop"
        return DataError(what, where=where, got=got, expected=f"{kind} for every image the data name", hint=hint)


def fill_regions(image: ImageSample, record: Record) -> None:
    """Fill an image with the regions of a stored record, their boxes divided by the image's width and height."""
    image.size, image.features = record.size, record.features
    image.boxes = normalised(record.boxes, record.size)
    fields = {name: getattr(record, name) for name in FILLS}
    if record.class_scores is None:
        fields["class_scores"] = record.scores
    image.fields = {name: array for name, array in fields.items() if array is not None}
    image.box_ids = None if record.box_ids is None else [str(name) for name in record.box_ids]


# Fields of regions in a batch, and their values at padding.
FILLS = {"classes": -1, "class_scores": 0, "attributes": -1, "attribute_scores": 0, "class_probs": 0}


class RegionTable:
    """The regions of different pictures of a store, padded to a multiple of ``multiple``.

    The table has no references to the pictures made from it: in a reference cycle, the arrays would be freed only by
    Python's cyclic garbage collector. Raises DataError: the store lacks a picture, or a record is damaged.
    """

    def __init__(self, store: FeatureStore, names: Sequence[str], fields: Collection[str], multiple: int = 1) -> None:
        stored = store.read_batch(names, ("features", "boxes", *(name for name in fields if name != "box_ids")))
        self.sizes = stored.pop("sizes")  # (M, 2)
        count = stored["mask"].shape[1]
        if added := -(-max(count, 1) // multiple) * multiple - count:
            pads = {name: [(0, 0), (0, added), *[(0, 0)] * (array.ndim - 2)] for name, array in stored.items()}
            stored = {name: np.pad(array, pads[name]) for name, array in stored.items()}
        self.mask = stored.pop("mask")  # (M, R)
        self.features = np.asarray(stored["features"], np.float32)  # (M, R, D)
        scale = self.sizes[:, None, [1, 0, 1, 0]].astype(np.float32)  # (M, 1, 4)
        self.boxes = np.clip(stored["boxes"].astype(np.float32) / scale, 0, 1)  # (M, R, 4)
        if "scores" in stored:
            stored.setdefault("class_scores", stored["scores"])
        self.fields: dict[str, NDArray[Any]] = {}
        for name, fill in FILLS.items():
            if name in stored:
                array = stored[name].astype(np.float32 if stored[name].dtype.kind == "f" else np.int64)
                array[~self.mask] = fill
                self.fields[name] = array
        read = (store.read(name, ("box_ids",), copy=False).box_ids if "box_ids" in fields else None for name in names)
        self.box_ids = [None if ids is None else list(map(str, ids)) for ids in read]
        self._names, self._parts = list(names), self._views(stored)

    def images(self) -> dict[str, ImageSample]:
        """Return an ``ImageSample`` for each row, by name. Its arrays have the store's types and are read-only."""
        rows = enumerate(zip(self._names, self.sizes.tolist(), self._parts, strict=True))
        return {name: ImageSample(name, tuple(size), *parts, row=(self, row)) for row, (name, size, parts) in rows}

    def _views(self, stored: dict[str, NDArray[Any]]) -> list[tuple[Any, Any, dict[str, Any], list[str] | None]]:
        views = {name: stored[name].view() for name in ("features", *self.fields)} | {"boxes": self.boxes.view()}
        for view in views.values():
            view.flags.writeable = False
        parts = []
        for row, count in enumerate(self.mask.sum(1).tolist()):
            fields = {name: view[row, :count] for name, view in views.items()}
            parts.append((fields.pop("features"), fields.pop("boxes"), fields, self.box_ids[row]))
        return parts

    def regions(self, images: Sequence[ImageSample]) -> Regions | None:
        """Return the regions of pictures of this table as a batch; None where more than features was replaced."""
        rows: list[int] = []
        changed: list[tuple[int, NDArray[Any]]] = []
        for number, image in enumerate(images):
            row = image.row[1] if image.row is not None else 0
            features, boxes, fields, ids = self._parts[row]
            if image.boxes is not boxes or image.fields is not fields or image.box_ids is not ids:
                return None
            if image.features is not features:
                if image.features is None or len(image.features) != len(features):
                    return None
                changed.append((number, image.features))
            rows.append(row)
        pick = slice(None) if not changed and rows == list(range(len(self._parts))) else np.array(rows, np.int64)
        features = self.features[pick]  # (B, R, D)
        for number, array in changed:
            features[number, : len(array)] = array
        box_ids = [self.box_ids[row] or [] for row in rows]
        others = {"sizes": self.sizes.astype(np.int64), "boxes": self.boxes, "mask": self.mask, **self.fields}
        tensors: dict[str, Any] = {name: torch.from_numpy(array[pick]) for name, array in others.items()}
        return Regions(features=torch.from_numpy(features), **tensors, box_ids=box_ids if any(box_ids) else None)


class LazyImage(ImageSample):
    """An image of a donor: only its key is known, the rest is loaded on first access."""

    def __init__(self, key: str, load: Callable[[], ImageSample]) -> None:
        self.key, self._pending = key, load

    def __getattribute__(self, name: str) -> Any:
        if name in ImageSample.__dataclass_fields__ and name != "key":
            state = object.__getattribute__(self, "__dict__")
            if "_pending" in state:
                state.update(state.pop("_pending")().__dict__)
                self.__class__ = ImageSample  # type: ignore[assignment]  # so that it copies as any other
        return object.__getattribute__(self, name)


def check_sources(
    needs: InputSpec,
    tokenizer: Any,
    store: FeatureStore | None,
    concepts: ConceptStore | None,
    data_spec: DataSpec | None,
) -> None:
    """Refuse sources that lack inputs of a model, or do not fit the sizes it was built with."""
    if needs.text and tokenizer is None:
        raise DataError("The model reads text, and there is no vocabulary.", hint="set text.vocabulary")
    if needs.concepts and concepts is None:
        raise DataError("The model reads visual concepts, and there are none.", hint="extract them: vlcli extract")
    words = concepts.words if needs.concepts and concepts is not None else ()
    if data_spec is not None and words and data_spec.concepts and words != data_spec.concepts:
        different = next((f"{a!r} for {b!r}" for a, b in zip(words, data_spec.concepts, strict=False) if a != b), "")
        what = "The concepts are numbered in another way than the model knows them."
        got, expected = f"{len(words)} words; {different}", f"{len(data_spec.concepts)} words, as the model was built"
        hint = "extract with the concept model that the training used"
        raise DataError(what, where="the store of concepts", got=got, expected=expected, hint=hint)
    if not needs.regions:
        return
    if store is None:
        hint = "add an extract stage, or name a store: features=FILE"
        raise DataError("The model reads region features, and there is no store of them.", hint=hint)
    if data_spec is not None and len(store) and store.dim != data_spec.region_dim:
        what, got = "The features are not as wide as the model takes them.", f"{store.dim} numbers a region"
        hint = "extract with the extractor the model was trained on, or train a new model"
        expected = f"{data_spec.region_dim}, as the model was built"
        raise DataError(what, where=store.where, got=got, expected=expected, hint=hint)


def check_shapes(examples: Sequence[Example], needs: InputSpec, names: str, dropped: int) -> None:
    """Check that there are examples, all with the same number of images, as a batch needs; else DataError."""
    if not len(examples):
        raise DataError(NOTHING_LEFT, where=names, got=f"dropped: {dropped}")
    numbers, rows = np.unique(image_counts(examples), return_index=True)
    counts = {count: examples[row].key for row, count in sorted(zip(rows.tolist(), numbers.tolist(), strict=True))}
    if len(counts) > 1 and (needs.regions or needs.pixels or needs.concepts):
        what = "The examples have different numbers of images."
        got = ", ".join(f"{key!r} has {count}" for count, key in counts.items())
        expected = "the same number for all data of one stage"
        raise DataError(what, where=names, got=got, expected=expected, hint="give each kind of data a stage of its own")
