"""Chooses the words to mask by their role: words of place, number or attribute, or of a list of the user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vlcli import registry
from vlcli.data.language.phrases import phrases, plain
from vlcli.data.language.roles import Role, content
from vlcli.data.sample import TextSample
from vlcli.errors import ComponentError
from vlcli.registry import Spec

ROLE_OPTIONS = ("roles", "role_share", "phrase")
"""Options on roles that every objective of masked words has."""
KEPT = 200_000  # The number of sentences whose words are cached


def role_picker(roles: Sequence[Spec | str], share: float, phrase: bool) -> RolePicker | None:
    """Return the picker of an objective's options; None where they name neither roles nor phrases."""
    if not 0 <= share <= 1:
        raise ComponentError("A share must lie between 0 and 1.", where="role_share", got=str(share))
    return RolePicker(roles, share, phrase) if roles or phrase else None


class RolePicker:
    """Finds the words of the given roles in a sentence, and draws the words to mask.

    Words are decoded from the tokens, so that changes which another objective made to the sentence are respected.

    Args:
        roles: a spec for each role; empty for no restriction to roles.
        share: the share of the sentences with such words that are masked by role; the others are masked as usual.
        phrase: mask whole phrases: "to the left of", "a small red circle".
    """

    def __init__(self, roles: Sequence[Spec | str], share: float, phrase: bool) -> None:
        self.roles: list[Role] = [registry.of(Role).build(role) for role in roles]
        self.share, self.phrase = share, phrase
        self._tokenizer: Any = None
        self._known: dict[tuple[int, ...], tuple[list[list[int]], list[list[int]]]] = {}

    def ready(self, tokenizer: Any) -> None:
        """Set the tokenizer that decodes tokens to words."""
        self._tokenizer = tokenizer
        self._known.clear()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_known": {}}  # every process builds the cache for itself

    def pick(
        self, text: TextSample, rng: np.random.Generator, probability: float, limit: int | None
    ) -> list[int] | None:
        """Return indices of the tokens to mask, ascending and at least one; None where any word may be masked.

        At least one token is not masked: a sentence that consists of a single such word is masked as usual.

        Args:
            text: the sentence.
            rng: source of randomness.
            probability: of masking each word (or phrase) of the roles; if none is drawn, one is masked.
            limit: the maximum number of masked tokens.
        """
        groups = self.groups(text)[0] if self.roles else []
        if not groups or rng.random() >= self.share:
            return None
        draws = rng.random(len(groups))
        order = np.argsort(draws, kind="stable").tolist()
        room = sum(not special for special in text.special) - 1
        chosen: list[int] = []
        for number in [number for number in order if draws[number] < probability] or order[:1]:
            if len(chosen) + len(groups[number]) <= min(room, limit or room):
                chosen += groups[number]
        return sorted(chosen) or None

    def groups(self, text: TextSample) -> tuple[list[list[int]], list[list[int]]]:
        """Return indices of tokens that are masked together: those of the roles, and those of the whole sentence."""
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
        for role in self.roles:
            for span in role.spans(words):
                members = range(*span) if self.phrase else content(words, span)
                if taken.isdisjoint(members):
                    taken.update(members)
                    units = [list(members)] if self.phrase else [[member] for member in members]
                    of_roles += [[index for member in unit for index in pieces[member]] for unit in units]
        spans = phrases(words) if self.phrase else []
        covered = {member for span in spans for member in range(*span)}
        spans = sorted([*spans, *((member, member + 1) for member in range(len(words)) if member not in covered)])
        of_all = [[index for member in range(*span) for index in pieces[member]] for span in spans]
        return sorted(of_roles), of_all
