"""CIDEr-D as a reward: captions scored in a thread of their own while the network goes on."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from vlcli.metrics.captions.cider import Cider, DocumentFrequency
from vlcli.metrics.captions.tokens import tokenize

END = "<eos>"
"""Counts as a word of captions and references, or captions learn to break off (Rennie et al.'s later code)."""


class CiderReward:
    """Scores captions against their pictures' references.

    Args:
        frequency: of word runs in the training references, ends included where ``end``.
        end: whether the end of a caption is a word.
    """

    def __init__(self, frequency: DocumentFrequency, *, end: bool = True) -> None:
        self.cider, self.end = Cider(frequency), end
        self._known: dict[str, list[str]] = {}
        self._thread = ThreadPoolExecutor(1, "reward")

    @staticmethod
    def words(caption: str, *, ended: bool) -> list[str]:
        """Return a caption's words, and its end where it has one."""
        return [*tokenize(caption), END] if ended else tokenize(caption)

    def submit(
        self, captions: Sequence[str], ended: Sequence[bool], references: Sequence[Sequence[str]]
    ) -> Future[list[float]]:
        """Begin to compute scores in the thread, one call after another."""
        return self._thread.submit(self.score, captions, ended, references)

    def score(self, captions: Sequence[str], ended: Sequence[bool], references: Sequence[Sequence[str]]) -> list[float]:
        """Return CIDEr-D of every caption, in [0, 10]."""
        said = [self.words(text, ended=self.end and done) for text, done in zip(captions, ended, strict=True)]
        return self.cider.score(said, [[self._reference(text) for text in group] for group in references])

    def _reference(self, text: str) -> list[str]:
        if text not in self._known:
            self._known[text] = self.words(text, ended=self.end)
        return self._known[text]
