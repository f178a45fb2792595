"""Prepares sentences before tokenization as published models do: signs, spaces, most words.

The rules are those of the released code of ALBEF and of BLIP (LAVIS has the same for its ALBEF), oddities included:
questions keep runs of spaces, and an empty "word" between two spaces counts as a word. SigLIP reads no punctuation.
"""

import re
import string
from collections.abc import Mapping
from dataclasses import dataclass, replace

_SPACES = re.compile(r"\s{2,}")


@dataclass(frozen=True)
class Preparation:
    """One way to prepare sentences: fold case (``lower``), then apply ``gone``, ``blank``, ``names`` and ``tidy``.

    Attributes:
        gone: signs that are left out.
        blank: signs that become a space.
        names: replacements of strings.
        tidy: strip both ends and join runs of spaces; else strip the right end alone.
        words: most words; None: all.
    """

    gone: str = ""
    blank: str = ""
    names: Mapping[str, str] | None = None
    tidy: bool = False
    words: int | None = None
    lower: bool = True

    def __call__(self, sentence: str) -> str:
        if self.lower:
            table = str.maketrans(dict.fromkeys(self.gone) | dict.fromkeys(self.blank, " "))
            sentence = sentence.lower().translate(table)
            for name, replacement in (self.names or {}).items():
                sentence = sentence.replace(name, replacement)
            sentence = _SPACES.sub(" ", sentence).rstrip("\n").strip(" ") if self.tidy else sentence.rstrip(" ")
        if self.words is None:
            return sentence
        parts = sentence.split(" ")
        return sentence if len(parts) <= self.words else " ".join(parts[: self.words])


_ALBEF, _BLIP = ",.'!?\"()*#:;~", '.!"()*#:;~'
# By the name that a recipe gives them.
PREPARATIONS = {
    "as-written": Preparation(lower=False),
    "albef-caption": Preparation(_ALBEF, "-/", {"<person>": "person"}, tidy=True, words=30),
    "albef-question": Preparation(_ALBEF, "-/", words=30),
    "blip-caption": Preparation("", _BLIP, tidy=True, words=50),
    "blip-question": Preparation(_BLIP, words=50),
    "siglip": Preparation(string.punctuation, tidy=True),
}


def preparation(name: str, words: int | None = None) -> Preparation:
    """Return the rule of that name, with another number of words where one is given."""
    return PREPARATIONS[name] if words is None else replace(PREPARATIONS[name], words=words)
