"""Matching: does the sentence belong to the picture?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vlcli.data.sample import Corruption, Donor, Sample, TextSample
from vlcli.nn.heads import build_head
from vlcli.nn.model import Facts, Fused, Model
from vlcli.nn.step import Step
from vlcli.objectives.base import Mean, Objective, Outcome, full_precision

MARK = "matched"
"""Per example: 1 where the sentence is the picture's own, 0 where it was replaced. Other objectives may read it."""

TRIES = 16
"""How many other samples are drawn before an example is left as it is."""

Word = tuple[int, ...]


class SwapSentence(Corruption):
    """Gives some examples a sentence that is not theirs, and marks which.

    A foil is the example's own sentence with one word exchanged for a word that another sentence uses in the same
    context: with the same neighbour on the left or on the right ("a red circle" beside "a blue circle" gives red for
    blue). Where no sentence drawn offers one, two unlike words of the sentence change places. A foil may happen to be
    true of the picture: that noise is the price of needing no scene graph.

    Args:
        probability: of a sentence that is not the picture's.
        foils: share of these that are foils; the rest are the sentences of other pictures.
        view: the view it belongs to.
    """

    phase = "sentence"

    def __init__(self, probability: float, foils: float, view: str) -> None:
        self.name, self.view = "matching", view
        self.probability, self.foils = probability, foils

    def __call__(self, sample: Sample, rng: np.random.Generator, donor: Donor) -> None:
        """Replace the sentence of ``sample``, or leave it; mark which."""
        sample.marks.example[MARK] = 1
        if sample.text is None or rng.random() >= self.probability:
            return
        foiled = rng.random() < self.foils
        changed = self._foil(sample, rng, donor) if foiled else self._other(sample, donor)
        if changed is not None:
            sample.text, sample.marks.example[MARK] = changed, 0

    @staticmethod
    def _other(sample: Sample, donor: Donor) -> TextSample | None:
        own = {image.key for image in sample.images}
        for _ in range(TRIES):
            drawn = donor()
            unlike = sample.text is not None and drawn.text is not None and drawn.text.ids != sample.text.ids
            if unlike and own.isdisjoint(image.key for image in drawn.images):
                return drawn.text
        return None

    def _foil(self, sample: Sample, rng: np.random.Generator, donor: Donor) -> TextSample | None:
        assert sample.text is not None
        words = split_words(sample.text)
        for _ in range(TRIES):
            drawn = donor().text
            exchanges = [] if drawn is None else _exchanges(words, split_words(drawn))
            if exchanges:
                place, word = exchanges[rng.integers(len(exchanges))]
                return join_words(sample.text, [*words[:place], word, *words[place + 1 :]])
        pairs = [(i, j) for i in range(len(words)) for j in range(i) if words[i] != words[j]]
        if not pairs:
            return None
        left, right = pairs[rng.integers(len(pairs))]
        words[left], words[right] = words[right], words[left]
        return join_words(sample.text, words)


def split_words(text: TextSample) -> list[Word]:
    """The pieces of each whitespace word, specials left out."""
    words: dict[int, list[int]] = {}
    for piece, word, special in zip(text.ids, text.words, text.special, strict=True):
        if not special:
            words.setdefault(word, []).append(piece)
    return [tuple(pieces) for _, pieces in sorted(words.items())]


def join_words(text: TextSample, words: list[Word]) -> TextSample:
    """``text`` with other words between the specials it begins and ends with; never longer than it was."""
    front = next((i for i, special in enumerate(text.special) if not special), len(text.ids))
    back = next((i for i, special in enumerate(reversed(text.special)) if not special), 0)
    end = len(text.ids) - back
    pieces = [(piece, number) for number, word in enumerate(words) for piece in word][: max(end - front, 1)]
    ids = text.ids[:front] + [piece for piece, _ in pieces] + text.ids[end:]
    special = text.special[:front] + [False] * len(pieces) + text.special[end:]
    places = text.words[:front] + [number for _, number in pieces] + text.words[end:]
    key = f"{text.key}#{'-'.join(map(str, ids))}"
    return replace(text, key=key, ids=ids, special=special, words=places)


def _exchanges(own: list[Word], other: list[Word]) -> list[tuple[int, Word]]:
    """Places of ``own``, and unlike words of ``other`` that stand between like neighbours there."""
    found = []
    for place, word in enumerate(own):
        for spot, candidate in enumerate(other):
            left = place > 0 and spot > 0 and own[place - 1] == other[spot - 1]
            right = place + 1 < len(own) and spot + 1 < len(other) and own[place + 1] == other[spot + 1]
            if candidate != word and (left or right):
                found.append((place, candidate))
    return found


class Matching(Objective):
    """Cross-modality matching: a two-way guess whether sentence and picture belong together.

    Class 1 is "belong together", as in LXMERT's code. Marks every example of its view as matched or not, so that others
    (question answering) can leave mismatched ones out.

    Args:
        model: gives the width and the head.
        facts: not used.
        probability: of replacing the sentence by one that is not the picture's.
        foils: share of the replaced that are near misses of their own sentence (see :class:`SwapSentence`) instead of
            another picture's sentence.
        view: the view it shares.
        head: a named head instead of the model's own.
    """

    paper = "LXMERT, Tan and Bansal 2019, section 3.1.3"
    requires = frozenset({"fuse"})

    def __init__(
        self,
        model: Model,
        facts: Facts,
        *,
        probability: float = 0.5,
        foils: float = 0.0,
        view: str = "corrupted",
        head: str | None = None,
    ) -> None:
        super().__init__(model, facts)
        self.view = view
        self._corruption = SwapSentence(probability, foils, view)
        self.head = build_head(model, "matching", self.dim, 2, head)

    def corruption(self) -> SwapSentence:
        """Replace sentences."""
        return self._corruption

    def forward(self, step: Step, others: Mapping[str, Outcome]) -> Outcome:
        """Cross-entropy over examples."""
        matched = step.view(self.view).marks.get(MARK)
        if matched is None:
            return Outcome({})
        logits = full_precision(self.logits(step.fused(self.view)))  # (P, 2)
        truth = matched.long().repeat_interleave(len(logits) // len(matched))
        loss = Mean.of(F.cross_entropy(logits, truth, reduction="none"))
        right = Mean.of((logits.argmax(-1) == truth).float())
        return Outcome({"matching": loss}, outputs={"logits": logits}, metrics={"accuracy": right})

    def logits(self, fused: Fused) -> Tensor:
        """Scores (P, 2) of fused pairs: column 1 speaks for a match."""
        return self.head(fused.pooled)

    def predict(self, step: Step) -> dict[str, Tensor]:
        """``logits`` (B, 2) and ``score`` (B,), the log-odds of a match, of the samples as read."""
        logits = self.logits(step.fused("clean"))
        return {"logits": logits, "score": torch.diff(logits, dim=-1)[..., 0]}
