"""Loads an example: the token ids of its sentence, the regions, pixels and visual concepts of its images."""

from collections.abc import Callable, Iterable, Sequence

from vlcli.data.columns.table import ColumnExamples
from vlcli.data.columns.tokens import Tokens, tokens_of
from vlcli.data.pictures import Draw, Pictures, normalised
from vlcli.data.reader import Reader
from vlcli.data.region_table import FILLS, RegionTable
from vlcli.data.sample import Example, ImageSample, TextSample, copied
from vlcli.data.sources import ConceptSource
from vlcli.data.transforms import Transform
from vlcli.data.vocabulary import Tokenizer
from vlcli.errors import DataError
from vlcli.features import FeatureStore, Record
from vlcli.images.shards import is_there
from vlcli.nn.model import InputSpec

# Fields that are read of a store besides features and boxes, where it has them.
FIELDS = ("scores", "classes", "class_scores", "attributes", "attribute_scores", "class_probs", "box_ids")
# Tokenized sentences that a process keeps (100 MB); further ones are tokenized each time.
REMEMBERED = 100_000


class Sentences:
    """Tokenizes sentences, and keeps the first :data:`REMEMBERED` of a process.

    Args:
        tokenizer: None where the model reads no text.
        wanted: whether the model reads text.
        length: longest text in pieces; None: no limit.
    """

    def __init__(self, tokenizer: Tokenizer | None, wanted: bool, length: int | None) -> None:
        self.tokenizer, self.wanted, self.length = tokenizer, wanted, length
        self._known: dict[tuple[str, str], TextSample] = {}

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_known": {}}

    def encode(self, text: str | None, key: str) -> TextSample | None:
        """Tokenize a sentence into arrays that the caller may change; None where there is none or none is read."""
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
    """Images loaded as a model needs them.

    Args:
        readers: data sets whose pictures these are.
        needs: what the model is fed.
        store: region features.
        concepts: visual concepts.
        transform: how pictures become pixels; None squashes them.
    """

    def __init__(
        self,
        readers: Sequence[Reader],
        needs: InputSpec,
        store: FeatureStore | None = None,
        concepts: ConceptSource | None = None,
        transform: Transform | None = None,
    ) -> None:
        self.needs, self.store, self.concepts = needs, store, concepts
        self.pictures = Pictures(readers, needs, transform)
        self.fields = tuple(name for name in FIELDS if store is not None and needs.regions and name in store.fields)

    @property
    def loads(self) -> bool:
        """Whether the model reads anything of an image."""
        return bool(self.needs.regions or self.needs.pixels or self.needs.concepts)

    @property
    def regions_of(self) -> Callable[[str], int] | None:
        """Returns the number of regions of a picture; None where the model reads no regions."""
        return self.store.count if self.needs.regions and self.store is not None else None

    def load(self, name: str, draw: Draw | None = None) -> ImageSample:
        """Load one image; ``draw`` holds what a random transform drew for its example."""
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
        needs = self.needs
        if self.store is None or not needs.regions or needs.pixels or needs.concepts:
            return {}
        chosen = list(dict.fromkeys(names))
        return RegionTable(self.store, chosen, self.fields, multiple).images() if chosen else {}

    def absent(self, names: list[str]) -> set[str]:
        """Return the images whose features, file or concepts are missing."""
        absent: set[str] = set()
        if self.needs.regions and self.store is not None:
            absent.update(self.store.missing(names))
        if self.needs.pixels:
            absent.update(name for name in names if name not in absent and not is_there(self.pictures.files[name]))
        if self.needs.concepts and self.concepts is not None:
            absent.update(name for name in names if name not in self.concepts)
        return absent

    def missing_error(self, label: str, absent: set[str], total: int) -> DataError:
        """Make the error for ``absent`` of the ``total`` images of the data set ``label``."""
        first = min(absent)
        where, kind, action = str(self.pictures.files.get(first, "concepts")), "a picture", "check `root` and `images`"
        if self.needs.regions and self.store is not None and self.store.missing([first]):
            where, kind, action = f"the feature store {self.store.where}", "features", self.store.hint
        return DataError(
            f"{len(absent)} of {total} images of {label} are missing, the first is {first!r}.",
            where=where,
            got=", ".join(sorted(absent)[:3]) + (", ..." if len(absent) > 3 else ""),
            expected=f"{kind} for every image the data name",
            hint=f"{action}; or leave these examples out: missing=drop",
        )


def fill_regions(image: ImageSample, record: Record) -> None:
    """Fill an image with the regions of a stored record, their boxes divided by the image's width and height."""
    image.size, image.features = record.size, record.features
    image.boxes = normalised(record.boxes, record.size)
    fields = {name: getattr(record, name) for name in FILLS}
    if record.class_scores is None:
        fields["class_scores"] = record.scores
    image.fields = {name: array for name, array in fields.items() if array is not None}
    image.box_ids = None if record.box_ids is None else [str(name) for name in record.box_ids]
