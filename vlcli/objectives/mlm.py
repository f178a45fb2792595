"""Masked language modelling: guesses hidden words from the rest of the sentence, and from the picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from vlcli import registry
from vlcli.data.language.roles import Role, content, phrases, plain
from vlcli.data.sample import Corruption, Donor, Sample, TextSample, copied
from vlcli.errors import ComponentError, DataError
from vlcli.nn import DataSpec, ForwardPasses, Model, build_head
from vlcli.objectives.base import Objective, ObjectiveOutput, classified, full_precision
from vlcli.registry import RoleSpec, Spec

ROLE_OPTIONS = ("roles", "role_share", "phrase")
"""Options on roles that every objective of masked words has."""
KEPT = 200_000  # The number of sentences whose words are cached


def role_picker(roles: Sequence[Spec | str], share: float, phrase: bool) -> RolePicker | None:
    """Return the :class:`RolePicker` of an objective's options; None where they name neither roles nor phrases."""
    return RolePicker(roles, share, phrase) if roles or phrase else None


class RolePicker:
    """Finds the words of the given roles in a sentence, as other objectives changed it, and draws the words to mask.

    Args:
        roles: a spec for each role; empty for no restriction to roles.
        share: of the sentences with such words that are masked by role; the others are masked as usual.
        phrase: mask whole phrases: "to the left of", "a small red circle".
    """

    def __init__(self, roles: Sequence[Spec | str], share: float, phrase: bool) -> None:
        self.roles: list[Role] = [registry.of(Role).build(role) for role in roles]
        self.share, self.phrase = share, phrase
        self._tokenizer: Any = None
        self._known: dict[tuple[int, ...], tuple[list[list[int]], list[list[int]]]] = {}

    def ready(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._known.clear()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_known": {}}  # every process builds the cache for itself

    def pick(self, text: TextSample, rng: np.random.Generator, chance: float, limit: int | None) -> list[int] | None:
        """Return indices of the tokens to mask, ascending; None where any word may be masked.

        Each word or phrase of the roles is masked by ``chance``, and one at least; one token at least stays.
        """
        groups = self.groups(text)[0] if self.roles else []
        if not groups or rng.random() >= self.share:
            return None
        draws = rng.random(len(groups))
        order = np.argsort(draws, kind="stable").tolist()
        room = text.special.count(False) - 1
        drawn = [number for number in order if draws[number] < chance] or order[:1]
        return _fitting([groups[number] for number in drawn], min(room, limit or room)) or None

    def groups(self, text: TextSample) -> tuple[list[list[int]], list[list[int]]]:
        """Return indices of tokens that are masked together: of the roles, and of the whole sentence."""
        key = (*text.ids, -1, *text.words)
        if key not in self._known:
            if len(self._known) >= KEPT:
                self._known.clear()
            self._known[key] = self._groups(text)
        return self._known[key]

    def _groups(self, text: TextSample) -> tuple[list[list[int]], list[list[int]]]:
        by_word: dict[int, list[int]] = {}
        for index, (word, special) in enumerate(zip(text.words, text.special, strict=True)):
            if not special and word >= 0:
                by_word.setdefault(word, []).append(index)
        pieces = list(by_word.values())
        words = [plain(self._tokenizer.decode([text.ids[index] for index in group])) for group in pieces]
        taken: set[int] = set()
        of_roles: list[list[int]] = []
        for span in (span for role in self.roles for span in role.spans(words)):
            members = range(*span) if self.phrase else content(words, span)
            if taken.isdisjoint(members):
                taken.update(members)
                groups = [pieces[member] for member in members]
                of_roles += [list(chain(*groups))] if self.phrase else groups
        spans = phrases(words) if self.phrase else []
        covered = {member for span in spans for member in range(*span)}
        spans = sorted([*spans, *((member, member + 1) for member in range(len(words)) if member not in covered)])
        return sorted(of_roles), [list(chain(*pieces[slice(*span)])) for span in spans]


def _fitting(groups: Sequence[list[int]], budget: int) -> list[int]:
    # the indices of one group after another, in order; a group that would exceed the budget is passed over
    chosen: list[int] = []
    for group in groups:
        if len(chosen) + len(group) <= budget:
            chosen += group
    return sorted(chosen)


MARK = "masked_words"
"""Per piece: the id that was hidden, -1 where none was."""


@dataclass(eq=False)
class MaskWords(Corruption):
    """Hides pieces of the sentence and marks what they were; options as of :class:`MaskedLanguageModelling`.

    Args:
        probability: of hiding a piece, or the share of pieces to hide.
        shares: of the hidden that become the mask and that become a random piece; the rest stay as they are.
        end: whether the last separator may be hidden too, so that a generator learns to stop.
        picker: hides words by their role, or whole phrases; None: any word.
    """

    name = "mlm"
    data_spec: InitVar[DataSpec]
    probability: float
    shares: tuple[float, float]
    _: KW_ONLY
    whole_word: bool = False
    rule: Literal["bernoulli", "count"] = "bernoulli"
    limit: int | None = None
    end: bool = False
    padded: int | None = None
    view: str = "corrupted"
    picker: RolePicker | None = None

    def __post_init__(self, data_spec: DataSpec) -> None:
        self.mask_id, self.vocab_size = data_spec.mask_id, data_spec.vocab_size

    def ready(self, tokenizer: Any, length: int | None) -> None:
        if self.picker is not None:
            self.picker.ready(tokenizer)

    def __call__(self, sample: Sample, rng: np.random.Generator, donor: Donor) -> None:
        if sample.text is None:
            return
        ids, labels = list(sample.text.ids), [-1] * len(sample.text.ids)
        for index in self.choose(sample.text, rng):
            labels[index], draw = ids[index], rng.random()
            if draw < self.shares[0]:
                ids[index] = self.mask_id
            elif draw < sum(self.shares):
                ids[index] = int(rng.integers(self.vocab_size))
        sample.text = copied(sample.text, ids=ids)
        sample.mask_labels.text[MARK] = labels

    def choose(self, text: TextSample, rng: np.random.Generator) -> list[int]:
        """Return the indices to hide, ascending: by role where the sentence has such words, else by :meth:`usual`."""
        chosen = None if self.picker is None else self.picker.pick(text, rng, self.probability, self.limit)
        return self.usual(text, rng) if chosen is None else chosen

    def usual(self, text: TextSample, rng: np.random.Generator) -> list[int]:
        groups = self._groups(text)
        if self.rule == "bernoulli":
            draws = rng.random(len(groups)).tolist()
            return [i for group, draw in zip(groups, draws, strict=True) if draw < self.probability for i in group]
        pieces = sum(len(group) for group in groups)
        if self.padded is not None:
            pieces = max(self.padded, len(text.ids))
            groups = [*groups, *([index] for index in range(len(text.ids), pieces))]
        budget = min(max(1, round(self.probability * pieces)), self.limit or pieces) if pieces else 0
        chosen = _fitting([groups[number] for number in rng.permutation(len(groups))], budget)
        return [index for index in chosen if index < len(text.ids)]

    def _groups(self, text: TextSample) -> list[list[int]]:
        # indices that are hidden together: single pieces, or the pieces of a word or phrase; specials never
        last = len(text.ids) - 1
        if self.picker is not None and self.picker.phrase:
            return self.picker.groups(text)[1] + ([[last]] if self.end and text.special[last] else [])
        free = [i for i, special in enumerate(text.special) if not special or (self.end and i == last)]
        if not self.whole_word:
            return [[index] for index in free]
        words: dict[tuple[int, int], list[int]] = {}
        for index in free:
            words.setdefault((text.words[index], index if text.words[index] < 0 else 0), []).append(index)
        return list(words.values())


class MaskedLanguageModelling(Objective):
    """Masked language modelling over text, with the picture where the model fuses one.

    The head's decoder is the model's word table unless the head has its own.

    Args:
        probability: of hiding a piece.
        mask_share: of the hidden that become [MASK].
        random_share: of the hidden that become a random piece of the whole vocabulary; the rest stay.
        whole_word: hide all pieces of a word or none.
        rule: ``bernoulli``: each piece (word) by its own coin; ``count``: round(probability * pieces), at least one.
        limit: most hidden pieces of a sentence, with ``count``.
        padded: with ``count``: the share is of this length, and padding is drawn like any piece, then dropped (the
            masking of VLMo's code: 40).
        mask_end: the last separator may be hidden too (sequence-to-sequence training).
        on: states to guess from: ``fused`` with the picture, ``text`` alone; ``auto``: fused where model and batch
            allow.
        view: the view whose words are hidden; objectives that name one view share its passes.
        head: a named head instead of the model's own.
        roles: hide words of these roles: ``place``, ``number``, ``attribute``, ``noun``, or ``words`` with a list or
            patterns of your own: each with ``probability``, one at least, and not all words of the sentence. A
            sentence without such a word is masked like any other.
        role_share: share of the sentences with such words that are masked by role.
        phrase: hide whole phrases: the words of a role that belong together ("to the left of"); without ``roles`` also
            names with their attributes ("a small red circle").
    """

    paper = "BERT, Devlin et al. 2019, section 3.1; cross-modal: LXMERT, Tan and Bansal 2019, section 3.1.1"
    predicts_hidden = True
    inputs = frozenset({"text"})
    calls = frozenset({"word_table"})
    changeable = frozenset(ROLE_OPTIONS).union(
        ("probability", "mask_share", "random_share", "whole_word", "rule", "limit", "padded", "mask_end")
    )

    def __init__(
        self,
        model: Model,
        data_spec: DataSpec,
        *,
        probability: float = 0.15,
        mask_share: float = 0.8,
        random_share: float = 0.1,
        whole_word: bool = False,
        rule: Literal["bernoulli", "count"] = "bernoulli",
        limit: int | None = None,
        padded: int | None = None,
        mask_end: bool = False,
        on: Literal["auto", "fused", "text"] = "auto",
        view: str = "corrupted",
        head: str | None = None,
        roles: list[RoleSpec] = [],  # noqa: B006 (a schema's default)
        role_share: float = 1.0,
        phrase: bool = False,
    ) -> None:
        super().__init__(model, data_spec)
        if mask_share + random_share > 1:
            got = f"mask_share {mask_share}, random_share {random_share}"
            raise ComponentError("Shares of hidden words must sum to 1 at most.", where="mlm", got=got)
        needed = {"fused": "fuse", "text": "text"}.get(on)
        if needed is not None and needed not in model.capabilities:
            got = f"{type(model).__name__}: {', '.join(sorted(model.capabilities))}"
            raise ComponentError(f"mlm with on: {on} needs a model that can {needed!r}.", where="mlm.on", got=got)
        self.on, self.view, self.fuses = on, view, "fuse" in model.capabilities
        self.text_alone = on == "text"
        picker, shares = role_picker(roles, role_share, phrase), (mask_share, random_share)
        options: dict[str, Any] = {"whole_word": whole_word, "rule": rule, "limit": limit, "view": view}
        options |= {"end": mask_end, "padded": padded, "picker": picker}
        self._corruption = MaskWords(data_spec, probability, shares, **options)
        self.head = build_head(model, "mlm", self.dim, data_spec.vocab_size, head)

    def setup(self, readers: Sequence[Any], tokenizer: Any, folder: Path | None) -> None:
        if not getattr(tokenizer, "maskable", True) and self._corruption.shares[0] > 0:  # CLIP's and SigLIP's
            what, where = "Words cannot be masked: the vocabulary has no [MASK].", "text.vocabulary"
            expected = "a vocabulary with a mask, such as BERT's or RoBERTa's"
            hint = "another text tower, or mlm with mask_share: 0 and random_share: 1"
            raise DataError(what, where=where, got=str(getattr(tokenizer, "source", "")), expected=expected, hint=hint)

    def corruption(self) -> MaskWords:
        return self._corruption

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        if MARK not in step.view(self.view).mask_labels:
            return ObjectiveOutput({})
        loss, right = classified(*self.scores(step))
        return ObjectiveOutput({"mlm": loss}, metrics={"accuracy": right})

    def scores(self, step: ForwardPasses, head: nn.Module | None = None) -> tuple[Tensor, Tensor]:
        """Return scores (K, V) by ``head`` or the objective's, and the hidden ids (K,)."""
        hidden, labels = self._states(step)
        rows = (labels.flatten() >= 0).nonzero()[:, 0]  # (K,)
        states = hidden.flatten(0, 1).index_select(0, rows)  # (K, D)
        logits = full_precision((head or self.head)(states, step.model.word_table().weight))
        return logits, labels.flatten().index_select(0, rows)

    def predict(self, step: ForwardPasses) -> dict[str, Tensor]:
        # ``right`` and ``hidden`` (B,): hidden pieces that are guessed, and all; nothing where none are hidden
        view = step.view(self.view)
        if MARK not in view.mask_labels:
            return {}
        labels = self._states(step)[1]  # (P, T)
        logits, truth = self.scores(step)
        right = torch.zeros_like(labels).masked_scatter(labels >= 0, (logits.argmax(-1) == truth).to(labels))
        sums = torch.stack([right.sum(1), (labels >= 0).sum(1)]).float()  # (2, P)
        rows = view.text_rows
        sums = sums.view(2, len(rows), -1).sum(2) if self._fused(step) else sums.index_select(1, rows)
        return {"right": sums[0], "hidden": sums[1]}

    def _fused(self, step: ForwardPasses) -> bool:
        return self.on == "fused" or (self.on == "auto" and self.fuses and step.view(self.view).images is not None)

    def _states(self, step: ForwardPasses) -> tuple[Tensor, Tensor]:
        # hidden states (P, T, D) and what was hidden (P, T), by example where fused, else by unique text
        view = step.view(self.view)
        labels = view.mask_labels[MARK]
        if not self._fused(step):
            return step.text(self.view).hidden, labels
        pairs = step.fused(self.view, rows="text")
        rows = view.text_rows.repeat_interleave(len(pairs.pooled) // len(view.text_rows), 0)
        return pairs.text.hidden, labels.index_select(0, rows)
