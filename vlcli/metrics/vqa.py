"""VQA v2: official answer normalisation, accuracy and soft scores (Antol et al. 2015, section 3; Goyal et al. 2017).

The rules are those of the official evaluation, oddities included, since scores must agree with the server's.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from statistics import fmean

PUNCTUATION = ';/[]"{}()=+\\_-><@`,?!'
ARTICLES = frozenset({"a", "an", "the"})
_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
NUMBERS = {"none": "0", **{word: str(number) for number, word in enumerate(_NUMBERS)}}
_COMMA_IN_NUMBER = re.compile(r"\d,\d")
_PERIOD = re.compile(r"\.(?!\d)")
OFFICIAL = 10  # people who answered each question of VQA
SET = ", "  # between the answers of a set
_MOST_PERIODS = 32  # the official call passes a flag (whose value is 32) where a count belongs

_FORMS = """
ain't aren't can't could've couldn't couldn't've didn't doesn't don't hadn't hadn't've hasn't haven't he'd he'd've he's
how'd how'll how's isn't it'd it'd've it'll ma'am mightn't mightn't've might've mustn't must've needn't not've o'clock
oughtn't 'ow's'at shan't she'd've should've shouldn't shouldn't've somebody'd've somebody'll somebody's someone'd
someone'd've someone'll someone's something'd something'd've something'll that's there'd there'd've there're there's
they'd they'd've they'll they're they've 'twas wasn't we'd've we've weren't what'll what're what's what've when's
where'd where's where've who'd who'd've who'll who's who've why'll why're why's won't would've wouldn't wouldn't've
y'all y'all'll y'all'd've you'd you'd've you'll you're you've
"""


# Each contraction by its spellings without one apostrophe. The official table also turns "somebody'd" round;
# "someone'd" it leaves alone.
CONTRACTIONS = {
    form[:index] + form[index + 1 :]: form for form in _FORMS.split() for index, sign in enumerate(form) if sign == "'"
} | {"somebody'd": "somebodyd"}


def strip_punctuation(text: str) -> str:
    """Drop signs beside a space (all signs where a number has a comma), turn others into spaces, drop full stops."""
    numeric, cleaned = _COMMA_IN_NUMBER.search(text), text
    for sign in PUNCTUATION:
        cleaned = cleaned.replace(sign, "" if numeric or f"{sign} " in text or f" {sign}" in text else " ")
    return _PERIOD.sub("", cleaned, count=_MOST_PERIODS)


def strip_words(text: str) -> str:
    """Return lower case, digits for number words, no articles, apostrophes put back into contractions."""
    words = [NUMBERS.get(word, word) for word in text.lower().split()]
    return " ".join(CONTRACTIONS.get(word, word) for word in words if word not in ARTICLES)


def trim(answer: str) -> str:
    """Replace line breaks and tabs by spaces, and remove spaces at the ends."""
    return answer.replace("\n", " ").replace("\t", " ").strip()


@lru_cache(maxsize=1 << 16)
def table_form(answer: str) -> str:
    """Return an answer as answer tables hold it (Teney et al. 2018's code): normalised, the last commas left out."""
    return strip_words(strip_punctuation(answer)).replace(",", "") or trim(answer).lower()


def plain_form(answer: str) -> str:
    """Return an answer of any language: lower case, single spaces in place of spaces and underscores."""
    return " ".join(answer.replace("_", " ").split()).lower()


def set_form(answers: str) -> str:
    """Return a set of answers separated by commas as tables hold it: each once, in alphabetical order, ``a, b``."""
    return SET.join(sorted({table_form(item) for item in answers.split(",")} - {""}))


@lru_cache(maxsize=1 << 16)
def normalise(answer: str) -> str:
    """Return an answer as the official evaluation compares it."""
    return strip_words(strip_punctuation(trim(answer)))


def accuracy(answer: str, people: Sequence[str]) -> float:
    """Return the accuracy of one answer against people's: VQA's rule; exact match with a single one, 0 without any.

    VQA's rule: for each person, min(1, matches among the others / 3); then the mean over people. Both sides are
    normalised alike; only where ten people agree to the letter are answers compared as written, as the official code
    does.
    """
    answer, *people = _alike([answer, *people])
    if len(people) < 2:
        return float(people == [answer])
    matches = sum(item == answer for item in people)
    return fmean(min(1.0, (matches - (item == answer)) / 3) for item in people)


def accuracies(people: Sequence[str]) -> dict[str, float]:
    """Return each of people's answers, as it is compared, with the :func:`accuracy` it would have."""
    return {answer: accuracy(answer, people) for answer in _alike(["", *people])[1:]}


def same(first: str, second: str) -> bool:
    """Return whether two answers are one after normalisation."""
    return first == second or comparable(first) == comparable(second)


def comparable(answer: str) -> str:
    """Return the normalised form; where nothing is left of it (the answer "a"), the answer in lower case."""
    return normalise(answer) or trim(answer).lower()


def _alike(answers: Sequence[str]) -> list[str]:
    plain = [trim(item) for item in answers]
    if len(plain) == OFFICIAL + 1:
        return plain if len(set(plain[1:])) == 1 else [normalise(item) for item in plain]
    return [comparable(item) for item in plain]


def answer_vocabulary(answers: Mapping[str, int], least: int = 9) -> tuple[str, ...]:
    """Return the answers of a classifier: those that occur ``least`` times or more, in alphabetical order."""
    return tuple(sorted(answer for answer, count in answers.items() if count >= least))
