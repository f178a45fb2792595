"""Checks that vocabulary, features, concepts and examples fit the model; images that load on demand."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from vlcli.data.columns.table import image_counts
from vlcli.data.sample import Example, ImageSample
from vlcli.errors import DataError
from vlcli.features import FeatureStore
from vlcli.nn.model import DataSpec, InputSpec


class ConceptSource(Protocol):
    """Visual concepts by image."""

    def read(self, name: str) -> dict[str, NDArray[Any]]:
        """Return ``ids`` and ``scores`` of an image, best first."""
        ...

    def __contains__(self, name: object) -> bool: ...


class LazyImage(ImageSample):
    """An image of a donor: only its key is known, all else is loaded on first access."""

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
    concepts: ConceptSource | None,
    data_spec: DataSpec | None,
) -> None:
    """Refuse sources that lack inputs of a model, or do not fit the sizes it was built with."""
    if needs.text and tokenizer is None:
        raise DataError("The model reads text, and there is no vocabulary.", hint="set text.vocabulary")
    if needs.concepts and concepts is None:
        raise DataError("The model reads visual concepts, and there are none.", hint="extract them: vlcli extract")
    words = tuple(getattr(concepts, "words", ())) if needs.concepts else ()
    if data_spec is not None and words and data_spec.concepts and words != data_spec.concepts:
        different = next((f"{a!r} for {b!r}" for a, b in zip(words, data_spec.concepts, strict=False) if a != b), "")
        raise DataError(
            "The concepts are numbered in another way than the model knows them.",
            where="the store of concepts",
            got=f"{len(words)} words; {different}",
            expected=f"{len(data_spec.concepts)} words, as the model was built",
            hint="extract with the concept model that the training used",
        )
    if not needs.regions:
        return
    if store is None:
        hint = "add an extract stage, or name a store: features=FILE"
        raise DataError("The model reads region features, and there is no store of them.", hint=hint)
    if data_spec is not None and len(store) and store.dim != data_spec.region_dim:
        raise DataError(
            "The features are not as wide as the model takes them.",
            where=store.where,
            got=f"{store.dim} numbers a region",
            expected=f"{data_spec.region_dim}, as the model was built",
            hint="extract with the extractor the model was trained on, or train a new model",
        )


def check_shapes(examples: Sequence[Example], needs: InputSpec, names: str, dropped: int) -> None:
    """Check that all examples have the same number of images, as a batch needs.

    Raises:
        DataError: they have not, or there is no example.
    """
    if not len(examples):
        raise DataError("The data are empty: no example is left.", where=names, got=f"dropped: {dropped}")
    numbers, rows = np.unique(image_counts(examples), return_index=True)
    firsts = sorted(zip(rows.tolist(), numbers.tolist(), strict=True))
    counts = {count: examples[row].key for row, count in firsts}
    if len(counts) > 1 and (needs.regions or needs.pixels or needs.concepts):
        got = ", ".join(f"{key!r} has {count}" for count, key in counts.items())
        raise DataError(
            "The examples have different numbers of images.",
            where=names,
            got=got,
            expected="the same number for all data of one stage",
            hint="give each kind of data a stage of its own",
        )
