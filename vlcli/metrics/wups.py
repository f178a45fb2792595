"""WUPS: accuracy of sets of answers, softened by the Wu-Palmer similarity of words (Malinowski and Fritz 2014, 4.1)."""

from collections.abc import Callable, Collection
from functools import lru_cache
from importlib.util import find_spec
from math import prod

METRICS = {"wups_0.9": 0.9, "wups_0.0": 0.0}  # the thresholds that papers print, by name of the metric
LOWERED = 0.1  # factor of a similarity below the threshold


def lacking() -> str | None:
    """Return one line on why WUPS cannot be computed here; None where it can."""
    command = "python -m nltk.downloader wordnet"
    if find_spec("nltk") is None:
        return f"WUPS is left out, it needs WordNet: pip install nltk && {command}"
    from nltk.corpus import wordnet

    try:
        wordnet.ensure_loaded()
    except LookupError:
        return f"WUPS is left out, it needs WordNet: {command}"
    return None


@lru_cache(maxsize=1 << 18)
def similarity(first: str, second: str) -> float:
    """Return the highest Wu-Palmer similarity of two words as nouns of WordNet; 1 of equal words, 0 of no nouns."""
    if first == second:
        return 1.0
    from nltk.corpus import wordnet

    nouns = [wordnet.synsets(word.replace(" ", "_"), pos=wordnet.NOUN) for word in (first, second)]
    return max((one.wup_similarity(other) or 0.0 for one in nouns[0] for other in nouns[1]), default=0.0)


def wups(
    truth: Collection[str], said: Collection[str], threshold: float, alike: Callable[[str, str], float] = similarity
) -> float:
    """Return the score of a set of answers against the true set, in [0, 1].

    It is the smaller of two products: of every true answer's membership in ``said``, and the reverse. Membership is the
    highest similarity to an answer of the set; similarities below ``threshold`` count a tenth.
    """

    def member(answer: str, answers: Collection[str]) -> float:
        best = max(alike(answer, other) for other in answers)
        return best if best >= threshold else LOWERED * best

    if not truth or not said:
        return float(not truth and not said)
    return min(prod(member(one, said) for one in truth), prod(member(one, truth) for one in said))
