"""Makes the objectives' views of an example, from random generators that depend on the example alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from vlcli.data.collate import CLEAN, Item
from vlcli.data.dataset import Examples, LoadImage
from vlcli.data.sample import PHASES, Corruption, TextSample, generators
from vlcli.data.sampler import Pick
from vlcli.data.streams import first_below, generator_of
from vlcli.data.vocabulary import Tokenizer


class CorruptionStep:
    """The corruptions of the objectives by view, in each view in the order of phases.

    Args:
        corruptions: in the objectives' order.
        tokenizer: for models that read text.
        length: longest text in pieces.
        seed: the run's seed.
    """

    def __init__(
        self, corruptions: Sequence[Corruption], tokenizer: Tokenizer | None, length: int | None, seed: int
    ) -> None:
        for corruption in corruptions:
            corruption.ready(tokenizer, length)
        self.seed = seed
        self.views: dict[str, list[Corruption]] = {corruption.view: [] for corruption in corruptions}
        for corruption in sorted(corruptions, key=lambda one: PHASES.index(one.phase)):
            self.views[corruption.view].append(corruption)

    def states(self, picks: Sequence[Pick], keys: Sequence[str]) -> NDArray[np.uint64]:
        """Return the states of each example's generators (B, corruptions + 1, 4); the last draws the example's seed."""
        names = [corruption.name for acting in self.views.values() for corruption in acting]
        return generators(self.seed, [epoch for epoch, _ in picks], list(keys), [*names, ""])

    def seeds(self, states: NDArray[np.uint64]) -> list[int]:
        """Return a seed for each example, of the result of :meth:`states`."""
        seeds: list[int] = first_below(states[:, -1], 2**63 - 1).tolist()
        return seeds

    def item(
        self,
        examples: Examples,
        pick: Pick,
        key: str,
        states: NDArray[np.uint64],
        seed: int,
        image_of: LoadImage,
        texts: dict[int, TextSample],
    ) -> Item:
        """Load an example clean and in every view that a corruption of this epoch makes of it.

        Args:
            examples: where it and its donors come from.
            pick: epoch and code of the example.
            key: of its random draws.
            states: its row of :meth:`states`.
            seed: of :meth:`seeds`.
            image_of: gives an image by name.
            texts: sentences that were read ahead.
        """
        (epoch, code), number = pick, 0
        index = code % len(examples)
        clean = examples.sample(index, epoch, key, image_of, texts)
        views = {CLEAN: clean}
        for name, corruptions in self.views.items():
            for corruption in corruptions:
                if corruption.acts(epoch):
                    view = views.get(name) or views.setdefault(name, clean.fork())
                    rng = generator_of(states[number])
                    corruption(view, rng, partial(examples.draw_donor, index, epoch, rng))
                number += 1
        return Item(views, seed)
