"""Opens the stores of region features and visual concepts that a stage reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vlcli.data.reader import Reader
from vlcli.errors import DataError
from vlcli.features import FeatureStore
from vlcli.features.concepts import ConceptStore, sort_files
from vlcli.nn.model import InputSpec


@dataclass
class Stores:
    """Stores of region features and of visual concepts; None if the model does not read them."""

    regions: FeatureStore | None = None
    concepts: ConceptStore | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the concept ids."""
        return () if self.concepts is None else self.concepts.words


def open_stores(files: Sequence[Path], needs: InputSpec) -> Stores:
    """Opens what the model needs of these files; what none of them has stays None."""
    if not files or not (needs.regions or needs.concepts):
        return Stores()
    regions, concepts = sort_files(files)
    return Stores(
        FeatureStore.open(regions) if regions and needs.regions else None,
        ConceptStore(concepts) if concepts and needs.concepts else None,
    )


def require_stores(stores: Stores, needs: InputSpec, stage: str, who: str = "model") -> None:
    """Refuses a model (or ``who``, a task without one) that reads something that no store has.

    Raises:
        DataError: says what is missing.
    """
    wanted = (
        (needs.regions, stores.regions, "region features", "them"),
        (needs.concepts, stores.concepts, "visual concepts", "concepts"),
    )
    for needed, store, what, held in wanted:
        if needed and store is None:
            raise DataError(
                f"The {who} reads {what}, and there is no store of them.",
                where=f"stages.{stage}",
                expected=f"`features: STAGE` or a file that holds {held}, or an extract stage before this one",
                hint="make one: vlcli extract",
            )


def region_sample(store: FeatureStore, readers: Sequence[Reader], most: int = 20_000) -> Tensor:
    """Returns region features (N, F) of training images chosen evenly by name: about ``most`` rows at most."""
    images = sorted({name for reader in readers for example in reader.examples() for name in example.images})
    known = [name for name in images if name in store]
    batch = store.read_batch(known[:: max(1, len(known) * store.max_regions // most)], ("features",))
    return torch.from_numpy(batch["features"][batch["mask"]].astype(np.float32))
