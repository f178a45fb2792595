"""Finds the words of a sentence with one role: place, number, attribute, noun."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vlcli.data.english import FUNCTION_WORDS, part_of_speech
from vlcli.data.language.lexicon import ATTRIBUTE, NUMBER, NUMBER_PHRASES, PLACE, PLACE_PHRASES
from vlcli.data.language.phrases import Finder, Span, as_phrases, is_verb_left, matches
from vlcli.errors import ComponentError
from vlcli.recipe.patterns import Searcher


class Role:
    """Base class of roles."""

    paper = ""

    def spans(self, words: Sequence[str]) -> list[Span]:
        """Return positions of the words with this role; called once per sentence whose words are masked by role.

        Args:
            words: of a sentence, lower case and without punctuation at their ends; empty where nothing was left.

        Returns:
            Runs of words that belong together; they may overlap those of another role.

        Raises:
            NotImplementedError: the subclass does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} finds no words")


class Listed(Role):
    """Words and phrases of a list, and matches of regular expressions."""

    def __init__(self, words: Iterable[str], patterns: Sequence[Searcher] = ()) -> None:
        self._finder, self._patterns = Finder(as_phrases(words)), list(patterns)

    def spans(self, words: Sequence[str]) -> list[Span]:
        spans = self._finder.find(words)
        covered = {index for span in spans for index in range(*span)}
        for span in matches(words, self._patterns):
            if covered.isdisjoint(range(*span)):
                spans.append(span)
                covered.update(range(*span))
        return sorted(spans)


class Place(Listed):
    """Words of place in English: left of, above, in the middle, behind, next to (the lists are in docs/training.md).

    ``left`` as a verb ("has left the room") does not count.
    """

    def __init__(self) -> None:
        super().__init__([*PLACE, *PLACE_PHRASES])

    def spans(self, words: Sequence[str]) -> list[Span]:
        spans = super().spans(words)
        return [(a, b) for a, b in spans if b - a > 1 or words[a] != "left" or not is_verb_left(words, a)]


class Number(Listed):
    """Words of number in English: two, more, several, 12 (the lists are in docs/training.md)."""

    def __init__(self) -> None:
        super().__init__([*NUMBER, *NUMBER_PHRASES], [Searcher(r"\b\d+\b", "role number")])


class Attribute(Listed):
    """Words of attribute in English: red, small, wooden, open (the lists are in docs/training.md)."""

    def __init__(self) -> None:
        super().__init__(ATTRIBUTE)


class Noun(Role):
    """Names of things in English, one word each: nouns by a list and by their endings."""

    def spans(self, words: Sequence[str]) -> list[Span]:
        return [(index, index + 1) for index, word in enumerate(words) if word and _is_noun(word)]


def _is_noun(word: str) -> bool:
    return part_of_speech(word) == "NN" and not any(word in listed for listed in _NO_NOUNS)


_NO_NOUNS = (PLACE, NUMBER, ATTRIBUTE, FUNCTION_WORDS)


class Words(Listed):
    """A list of one's own, of any language: words, phrases, regular expressions.

    Args:
        words: words and phrases; capitals do not matter.
        patterns: regular expressions over the lower-case sentence without punctuation at the ends of its words; a
            match counts where it begins and ends with a word.

    Raises:
        ComponentError: both are empty.
        RecipeError: a pattern is no regular expression.
    """

    def __init__(self, *, words: list[str] = [], patterns: list[str] = []) -> None:  # noqa: B006 (a schema's default)
        if not words and not patterns:
            what = "The role `words` needs words or patterns."
            raise ComponentError(what, where="role words", hint="words: [left of, above], or patterns: ['[a-z]+most']")
        super().__init__(words, [Searcher(pattern, "role words.patterns") for pattern in patterns])


def content(words: Sequence[str], span: Span) -> list[int]:
    """Return the indices of a run without "of", "the" and the like, unless nothing else is there."""
    kept = [index for index in range(*span) if words[index] not in _GRAMMAR]
    return kept or list(range(*span))


_GRAMMAR = frozenset(["of", "the", "a", "an", "to", "on", "at", "in", "is", "are", "from", "than", "by"])
