"""Which words to hide by what they say: words of place, of number, of attribute, or a list of one's own."""

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
"""What an objective that masks words lets a recipe say of roles."""
KEPT = 200_000
"""How many sentences' words are remembered."""


def role_picker(roles: Sequence[Spec | str], share: float, phrase: bool) -> RolePicker | None:
    """The picker that an objective's options ask for; None where any word is as good as another.

    Raises:
        ComponentError: ``share`` is no share, or a role is unknown or does not take its parameters.
    """
    if not 0 <= share <= 1:
        raise ComponentError("A share must lie between 0 and 1.", where="role_share", got=str(share))
    return RolePicker(roles, share, phrase) if roles or phrase else None


class RolePicker:
    """Finds the words of some roles in a sentence, and draws those to hide.

    Words are read from the pieces, so that a sentence which another objective has changed is seen as it is now.

    Args:
        roles: recipe's words on each; none: any word.
        share: of the sentences with such words that are masked by role; the rest are masked like any sentence.
        phrase: hide whole phrases: "to the left of", "a small red circle".
    """

    def __init__(self, roles: Sequence[Spec | str], share: float, phrase: bool) -> None:
        self.roles: list[Role] = [registry.build("roles", role) for role in roles]
        self.share, self.phrase = share, phrase
        self._tokenizer: Any = None
        self._known: dict[tuple[int, ...], tuple[list[list[int]], list[list[int]]]] = {}

    def ready(self, tokenizer: Any) -> None:
        """Take the vocabulary that turns pieces back into words."""
        self._tokenizer = tokenizer
        self._known.clear()

    def __getstate__(self) -> dict[str, Any]:
        """Without what is remembered, which every process finds anew."""
        return {**self.__dict__, "_known": {}}

    def pick(
        self, text: TextSample, rng: np.random.Generator, probability: float, limit: int | None
    ) -> list[int] | None:
        """The places to hide, in order, at least one; None where the sentence is to be masked like any other.

        At least one word stays: a sentence of nothing else than one such word is masked like any other, too.

        Args:
            text: the sentence.
            rng: decides.
            probability: of hiding each word (or phrase) of the roles; where none is drawn, one is.
            limit: most pieces.
        """
        groups = self.groups(text)[0] if self.roles else []
        if not groups or rng.random() >= self.share:
            return None
        draws = rng.random(len(groups))
        order = np.argsort(draws, kind="stable").tolist()
        kept = [number for number in order if draws[number] < probability] or order[:1]
        room = sum(not special for special in text.special) - 1
        return self._within([groups[number] for number in kept], min(room, limit or room))

    @staticmethod
    def _within(groups: list[list[int]], room: int) -> list[int] | None:
        chosen: list[int] = []
        for group in groups:
            chosen += group if len(chosen) + len(group) <= room else []
        return sorted(chosen) or None

    def groups(self, text: TextSample) -> tuple[list[list[int]], list[list[int]]]:
        """Places that are hidden together: those of the roles, and those of the whole sentence."""
        key = (*text.ids, -1, *text.words)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= KEPT:
                self._known.clear()
            found = self._known[key] = self._groups(text)
        return found

    def _groups(self, text: TextSample) -> tuple[list[list[int]], list[list[int]]]:
        pieces: dict[int, list[int]] = {}
        for place, (word, special) in enumerate(zip(text.words, text.special, strict=True)):
            if not special and word >= 0:
                pieces.setdefault(word, []).append(place)
        places = list(pieces.values())
        words = [plain(self._tokenizer.decode([text.ids[place] for place in group])) for group in places]
        return self._of_roles(words, places), self._of_all(words, places)

    def _of_roles(self, words: list[str], places: list[list[int]]) -> list[list[int]]:
        taken: set[int] = set()
        found: list[list[int]] = []
        for role in self.roles:
            for span in role.spans(words):
                members = range(*span) if self.phrase else content(words, span)
                if taken.isdisjoint(members):
                    taken.update(members)
                    units = [list(members)] if self.phrase else [[member] for member in members]
                    found += [[place for member in unit for place in places[member]] for unit in units]
        return sorted(found)

    def _of_all(self, words: list[str], places: list[list[int]]) -> list[list[int]]:
        spans = phrases(words) if self.phrase else []
        covered = {member for span in spans for member in range(*span)}
        spans = sorted([*spans, *((member, member + 1) for member in range(len(words)) if member not in covered)])
        return [[place for member in range(*span) for place in places[member]] for span in spans]
