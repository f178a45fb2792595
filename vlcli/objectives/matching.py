"""Matching: does the sentence belong to the picture?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vlcli import registry
from vlcli.data.language import Rewrite
from vlcli.data.sample import Corruption, Donor, Sample, TextSample, copied
from vlcli.nn import DataSpec, ForwardPasses, FusionOutput, Model, build_head
from vlcli.objectives.base import Mean, Objective, ObjectiveOutput, full_precision
from vlcli.registry import RewriteSpec, Spec, as_spec

# Per example: 1 where the sentence is the picture's own, 0 where it was replaced. Other objectives may read it.
MARK = "matched"

# Per example, where captions are rewritten: 0 its own sentence, 1 another picture's, from 2 on by which rewrite
CHANGE = "change"

TRIES = 16  # How many other samples are drawn before an example is left as it is

Word = tuple[int, ...]


class SwapSentence(Corruption):
    """Gives some examples a sentence that is not theirs, and marks which.

    A foil is the example's own sentence with one word exchanged for a word that another sentence uses in the same
    context: with the same neighbour on the left or on the right ("a red circle" beside "a blue circle" gives red for
    blue). Where no sentence drawn offers one, two unlike words of the sentence change places. A foil may happen to be
    true of the picture: that noise is the price of needing no scene graph.

    With ``rewrites`` a foil is made by one of them instead, drawn evenly; where none can change the sentence, it
    becomes another picture's. The mark ``change`` says what was done.

    Args:
        probability: of a sentence that is not the picture's.
        foils: share of these that are foils; the rest are the sentences of other pictures.
        view: the view it belongs to.
        rewrites: what makes a caption false (see :mod:`vlcli.data.language.rewrites`).
    """

    phase = "sentence"

    def __init__(self, probability: float, foils: float, view: str, rewrites: Sequence[Rewrite] = ()) -> None:
        self.name, self.view = "matching", view
        self.probability, self.foils, self.rewrites = probability, foils, list(rewrites)
        self._tokenizer: Any = None
        self._length: int | None = None

    def ready(self, tokenizer: Any, length: int | None) -> None:
        self._tokenizer, self._length = (tokenizer, length) if self.rewrites else (None, None)

    def __call__(self, sample: Sample, rng: np.random.Generator, donor: Donor) -> None:
        # Replace the sentence of ``sample``, or leave it; mark which
        sample.mask_labels.example[MARK] = 1
        if self.rewrites:
            sample.mask_labels.example[CHANGE] = 0
        if sample.text is None or rng.random() >= self.probability:
            return
        foiled = rng.random() < self.foils
        if self.rewrites and self._rewrite(sample, rng, donor, foiled):
            return
        changed = self._foil(sample, rng, donor) if foiled else self._other(sample, donor)
        if changed is not None:
            sample.text, sample.mask_labels.example[MARK] = changed, 0

    def _rewrite(self, sample: Sample, rng: np.random.Generator, donor: Donor, foiled: bool) -> bool:
        assert sample.text is not None
        own = sample.text
        for number in rng.permutation(len(self.rewrites)).tolist() if foiled else []:
            made = self.rewrites[number](own.raw, rng)
            changed = None if made is None else self._tokenizer.encode(made, f"{own.key}#{made}", self._length)
            if changed is not None and changed.ids != own.ids:  # what lies behind the longest length changes nothing
                sample.text = copied(changed, causal=own.causal)
                sample.mask_labels.example |= {MARK: 0, CHANGE: number + 2}
                return True
        other = self._other(sample, donor)
        if other is not None:
            sample.text = other
            sample.mask_labels.example |= {MARK: 0, CHANGE: 1}
        return True

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
    # Places of ``own``, and unlike words of ``other`` that stand between like neighbours there
    found = []
    for place, word in enumerate(own):
        for spot, candidate in enumerate(other):
            left = place > 0 and spot > 0 and own[place - 1] == other[spot - 1]
            right = place + 1 < len(own) and spot + 1 < len(other) and own[place + 1] == other[spot + 1]
            if candidate != word and (left or right):
                found.append((place, candidate))
    return found


def _names(rewrites: Sequence[Spec | str]) -> list[str]:
    given = [str(as_spec(spec)["name"]) for spec in rewrites]
    return [
        name if given.count(name) == 1 else f"{name}-{given[:place].count(name) + 1}"
        for place, name in enumerate(given)
    ]


class Matching(Objective):
    """Cross-modality matching: a two-way guess whether sentence and picture belong together.

    Class 1 is "belong together", as in LXMERT's code. Marks every example of its view as matched or not, so that others
    (question answering) can leave mismatched ones out.

    Args:
        model: gives the width and the head.
        data_spec: not used.
        probability: of replacing the sentence by one that is not the picture's.
        foils: share of the replaced that are near misses of their own sentence (see :class:`SwapSentence`) instead of
            another picture's sentence.
        view: the view it shares.
        head: a named head instead of the model's own.
        rewrites: how near misses are made: ``other-attribute``, ``swapped-names``, ``turned-relation``,
            ``other-number`` or one of your own. Where none can change a caption, another picture's is taken. Without
            any, words are exchanged by their neighbours (see :class:`SwapSentence`). How often each was used
            (``share``) and found out (``right``) is logged.
    """

    paper = "LXMERT, Tan and Bansal 2019, section 3.1.3"
    requires = frozenset({"fuse"})
    changeable = frozenset({"probability", "foils"})

    def __init__(
        self,
        model: Model,
        data_spec: DataSpec,
        *,
        probability: float = 0.5,
        foils: float = 0.0,
        view: str = "corrupted",
        head: str | None = None,
        rewrites: list[RewriteSpec] = [],  # noqa: B006 (a schema's default)
    ) -> None:
        super().__init__(model, data_spec)
        self.view, self.rewrites = view, _names(rewrites)
        built = [registry.of(Rewrite).build(spec) for spec in rewrites]
        self._corruption = SwapSentence(probability, foils, view, built)
        self.head = build_head(model, "matching", model.pooled_dim, 2, head)

    def corruption(self) -> SwapSentence:
        return self._corruption

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        matched = step.view(self.view).mask_labels.get(MARK)
        if matched is None:
            return ObjectiveOutput({})
        logits = full_precision(self.logits(step.fused(self.view)))  # (P, 2)
        truth = matched.long().repeat_interleave(len(logits) // len(matched))
        loss = Mean.of(F.cross_entropy(logits, truth, reduction="none"))
        right = (logits.argmax(-1) == truth).float()
        metrics = {"accuracy": Mean.of(right), **self._by_change(step, right)}
        return ObjectiveOutput({"matching": loss}, outputs={"logits": logits}, metrics=metrics)

    def _by_change(self, step: ForwardPasses, right: Tensor) -> dict[str, Mean]:
        change = step.view(self.view).mask_labels.get(CHANGE)
        if change is None or not self.rewrites:
            return {}
        change = change.repeat_interleave(len(right) // len(change))
        kinds = {name: change == number + 1 for number, name in enumerate(("other-picture", *self.rewrites))}
        shares = {f"share/{name}": Mean.of(made.to(right.dtype)) for name, made in kinds.items()}
        return shares | {f"right/{name}": Mean.of(right, made) for name, made in kinds.items()}

    def logits(self, fused: FusionOutput) -> Tensor:
        """Scores (P, 2) of fused pairs: column 1 speaks for a match."""
        out: Tensor = self.head(fused.pooled)
        return out

    def predict(self, step: ForwardPasses) -> dict[str, Tensor]:
        # ``logits`` (B, 2) and ``score`` (B,), the log-odds of a match, of the samples as read
        logits = self.logits(step.fused("clean"))
        return {"logits": logits, "score": torch.diff(logits, dim=-1)[..., 0]}
