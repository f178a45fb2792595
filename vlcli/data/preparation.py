"""How published models prepare a sentence before it is cut into pieces: signs left out, spaces, most words.

The rules are those of the released code of ALBEF and of BLIP (LAVIS has the same for its ALBEF), oddities included:
questions keep runs of spaces, and an empty "word" between two spaces counts as a word. SigLIP reads sentences without
punctuation.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from dataclasses import dataclass, replace

_SPACES = re.compile(r"\s{2,}")


@dataclass(frozen=True)
class Preparation:
    """One way to prepare sentences.

    Attributes:
        gone: signs that are left out.
        blank: signs that become a space.
        names: strings that are written otherwise.
        tidy: spaces become one and leave both ends; else they leave the right end alone.
        words: most words; None: all.
        lower: fold case.
    """

    gone: str = ""
    blank: str = ""
    names: Mapping[str, str] | None = None
    tidy: bool = False
    words: int | None = None
    lower: bool = True

    def __call__(self, sentence: str) -> str:
        """The sentence as the model reads it."""
        if self.lower:
            made = sentence.lower().translate(str.maketrans(dict.fromkeys(self.gone) | dict.fromkeys(self.blank, " ")))
            for name, plain in (self.names or {}).items():
                made = made.replace(name, plain)
            sentence = _SPACES.sub(" ", made).rstrip("\n").strip(" ") if self.tidy else made.rstrip(" ")
        if self.words is None:
            return sentence
        parts = sentence.split(" ")
        return sentence if len(parts) <= self.words else " ".join(parts[: self.words])


_ALBEF, _BLIP = ",.'!?\"()*#:;~", '.!"()*#:;~'
PREPARATIONS = {
    "as-written": Preparation(lower=False),
    "albef-caption": Preparation(_ALBEF, "-/", {"<person>": "person"}, tidy=True, words=30),
    "albef-question": Preparation(_ALBEF, "-/", words=30),
    "blip-caption": Preparation("", _BLIP, tidy=True, words=50),
    "blip-question": Preparation(_BLIP, words=50),
    "siglip": Preparation(string.punctuation, tidy=True),
}
"""By the name that a recipe gives them."""


def preparation(name: str, words: int | None = None) -> Preparation:
    """The rule of that name, with another number of words where one is given."""
    found = PREPARATIONS[name]
    return found if words is None else replace(found, words=words)
