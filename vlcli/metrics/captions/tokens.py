"""Captions as words, in the manner of the Penn Treebank, punctuation left out."""

import re
from collections import Counter
from collections.abc import Sequence

Words = Sequence[str]
Grams = Counter[tuple[str, ...]]

# Tokens that the COCO caption evaluation leaves out; brackets stay, as their names are lower-cased
DROPPED = frozenset(["''", "'", "``", "`", ".", "?", "!", ",", ":", "-", "--", "..", "...", ";"])

_BRACKETS = {"(": "-lrb-", ")": "-rrb-", "{": "-lcb-", "}": "-rcb-", "[": "-lsb-", "]": "-rsb-"}
_TOGETHER = {word: (word[:3], word[3:]) for word in ("cannot", "gonna", "gotta", "wanna", "lemme", "gimme")}
_ALWAYS = """
jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu thurs fri mr mrs ms dr drs prof sgt gen lt col
capt cmdr maj gov sen rep hon rev pres st mt ft supt cpl pvt adm insp messrs mme inc cos co corp ltd plc rt bancorp bhd
assn univ intl sys bros jr sr esq ave blvd rd dept etc vs al calif ky fla va conn ariz ext tel p cf seq bldg sq ct est
"""
_CAPITAL = "Miss Tex Mass Pa Ore Wash"  # words as well, where they are not names
_BEFORE_NUMBERS = "pp no nos fig figs art ca"
_STARTS = "A An The This That It In He She They We You There One Some At But As If What"
_NAMED = (
    rf"(?:{'|'.join(_ALWAYS.split())}|ph\.d|(?-i:{'|'.join(_CAPITAL.split())}|{'|'.join(_CAPITAL.upper().split())}))\."
)
_ABBREVIATION = (
    rf"(?:(?:[a-z]\.){{2,}}|[a-z]\.(?!\s*$|\s+(?-i:{'|'.join(_STARTS.split())})\b)|{_NAMED})(?![a-z0-9])|"
    rf"(?:{'|'.join(_BEFORE_NUMBERS.split())})\.(?=\s*\d)"
)
_LETTERS = r"[a-z0-9\u00c0-\u024f]+"
_HYPHENED = rf"\d+(?:[.,]\d+)*(?:/\d+)?(?:-{_LETTERS})+(?:/\d+)?"
_NUMBER = (
    rf"(?<=\d\s)\d+/\d+|{_HYPHENED}|-?\d+(?:(?::\d+)+|(?:[.,]\d+)+|(?:/\d+)+(?![a-z0-9])|(?:st|nd|rd|th|s)?(?![a-z0-9]|[-/][a-z0-9]))|"
    r"'\d\ds?(?![a-z0-9])"
)
_CLITIC = r"'(?:s|d|m|ll|re|ve)(?![a-z])"
_WORD = rf"{_LETTERS}(?:(?:[-_/&.]|(?!{_CLITIC})')(?={_LETTERS}){_LETTERS})*"
_STOPPED = rf"{_LETTERS}(?:[-_]{_LETTERS})*\.(?=[,;:])"  # a full stop before a comma ends no sentence
_TOKEN = re.compile(
    rf"n't(?![a-z])|{_ABBREVIATION}|{_STOPPED}|{_NUMBER}|{_WORD}|{_CLITIC}|\.{{2,}}|-{{2,}}|[!?]{{2,}}|``|''|[^\s\w]|\S",
    re.IGNORECASE,
)
_NEGATION = re.compile(r"([a-z]+)n't(?![a-z])", re.IGNORECASE)


def tokenize(caption: str) -> list[str]:
    """Split a caption as Stanford's PTB tokenizer with ``-lowerCase`` in the COCO caption evaluation, without Java.

    Words are lower-cased, contractions split, punctuation dropped. A number with a fraction ("22 3/4") is one token
    there, which BLEU and CIDEr part and ROUGE-L counts as one word, as here. One thing differs: the full stop behind a
    letter at a caption's end ("plan A.") goes, while there it depends on how the next caption begins.
    """
    text = caption.replace("\n", " ").replace("\u2019", "'").replace("\u2018", "'")
    text = text.replace("\u201c", " '' ").replace("\u201d", " '' ").replace('"', " '' ")
    text = _NEGATION.sub(r"\1 n't", text)
    words: list[str] = []
    for token in _TOKEN.findall(text):
        word = _BRACKETS.get(token, token.lower())
        words += _TOGETHER.get(word, (word,))
    return [word for word in words if word not in DROPPED]


LONGEST = 4


def grams(words: Words) -> Grams:
    """Count every run of one to :data:`LONGEST` words."""
    return Counter(tuple(words[i : i + n]) for n in range(1, LONGEST + 1) for i in range(len(words) - n + 1))
