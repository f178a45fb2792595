"""BLEU, ROUGE-L, METEOR and SPICE, and all caption metrics of a set at once."""

import importlib.util
import math
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import accumulate
from operator import mul, or_
from pathlib import Path
from statistics import fmean
from typing import Literal

from vlcli.metrics.captions.cider import Cider, DocumentFrequency
from vlcli.metrics.captions.tokens import LONGEST, Words, grams, tokenize

PARTS = ("Object", "Relation", "Attribute", "Color", "Cardinality", "Size")  # SPICE's categories (DiMBERT, Table 7)


def lacking(metric: str) -> str | None:
    """Return one line on why ``meteor`` or ``spice`` cannot be computed here; None where it can."""
    if importlib.util.find_spec("pycocoevalcap") is None:
        return f"{metric} is left out: pip install pycocoevalcap"
    if shutil.which("java") is None:
        return f"{metric} is left out: it needs Java (java is not on the path)"
    spec = importlib.util.find_spec("pycocoevalcap")
    folders = (spec.submodule_search_locations if spec else None) or []  # a package without a module of its own
    if metric != "spice" or any(any(Path(one).glob("spice/lib/stanford-corenlp-*-models.jar")) for one in folders):
        return None
    return "spice is left out: it needs Stanford CoreNLP's files (pycocoevalcap/get_stanford_models.sh fetches them)"


def meteor(candidates: Sequence[Words], references: Sequence[Sequence[Words]]) -> dict[str, float]:
    """Return METEOR 1.5 of captions as words."""
    from pycocoevalcap.meteor.meteor import Meteor

    scorer = Meteor()
    try:
        return {"meteor": float(scorer.compute_score(*_by_number(candidates, references))[0])}
    finally:
        scorer.meteor_p.kill()


def spice(candidates: Sequence[Words], references: Sequence[Sequence[Words]]) -> dict[str, float]:
    """Return SPICE, and by category where any caption has one: ``spice``, ``spice/object`` ..."""
    from pycocoevalcap.spice.spice import Spice

    total, each = Spice().compute_score(*_by_number(candidates, references))
    parts = {part: [float(one.get(part, {}).get("f", math.nan)) for one in each] for part in PARTS}
    known = {part: [value for value in values if not math.isnan(value)] for part, values in parts.items()}
    return {"spice": float(total)} | {f"spice/{part.lower()}": fmean(some) for part, some in known.items() if some}


def _by_number(candidates: Sequence[Words], references: Sequence[Sequence[Words]]) -> list[dict[int, list[str]]]:
    sides = references, [[words] for words in candidates]
    return [{number: [" ".join(words) for words in group] for number, group in enumerate(side)} for side in sides]


_FRACTION = re.compile(r"(?<!\S)(\d+) (\d+/\d+)(?!\S)")
RECALL_WEIGHT = 1.2  # Beta of the F measure in the COCO caption evaluation


def rouge_l(candidates: Sequence[Words], references: Sequence[Sequence[Words]]) -> float:
    """Return the mean over captions of F between the best precision and the best recall of any reference."""
    pairs = zip(candidates, references, strict=True)
    scores = [_score(_one_number(words), [_one_number(other) for other in known]) for words, known in pairs]
    return sum(scores) / max(len(scores), 1)


def _one_number(words: Words) -> Words:
    # "2 1/2" as one word, which only ROUGE-L of the COCO evaluation does not part
    return _FRACTION.sub("\\1\u00a0\\2", " ".join(words)).split(" ") if any("/" in word for word in words) else words


def _score(words: Words, references: Sequence[Words]) -> float:
    common = [longest_common(words, reference) for reference in references]
    precision = max(common) / max(len(words), 1)
    recall = max(length / max(len(reference), 1) for length, reference in zip(common, references, strict=True))
    if not precision or not recall:
        return 0.0
    return (1 + RECALL_WEIGHT**2) * precision * recall / (recall + RECALL_WEIGHT**2 * precision)


def longest_common(left: Words, right: Words) -> int:
    """Return the length of the longest common subsequence."""
    row = [0] * (len(right) + 1)
    for word in left:
        before = 0
        for column, other in enumerate(right, 1):
            above = row[column]
            row[column] = before + 1 if word == other else max(above, row[column - 1])
            before = above
    return row[-1]


# Added by the COCO caption evaluation to numerator and denominator, so that no fraction divides by zero
NEARLY_NONE, SPARE = 1e-15, 1e-9


def bleu(candidates: Sequence[Words], references: Sequence[Sequence[Words]]) -> list[float]:
    """Return BLEU-1 to BLEU-4 of a whole set, with each caption's closest reference length."""
    right, total = [0] * LONGEST, [0] * LONGEST
    length = closest = 0
    for words, known in zip(candidates, references, strict=True):
        most = reduce(or_, map(grams, known))
        for run, count in (grams(words) & most).items():
            right[len(run) - 1] += count
        total = [count + max(0, len(words) - n) for n, count in enumerate(total)]
        length += len(words)
        closest += min((abs(len(reference) - len(words)), len(reference)) for reference in known)[1]
    ratio = (length + NEARLY_NONE) / (closest + SPARE)
    brevity = math.exp(1 - 1 / ratio) if ratio < 1 else 1.0
    precisions = ((hits + NEARLY_NONE) / (count + SPARE) for hits, count in zip(right, total, strict=True))
    return [product ** (1 / n) * brevity for n, product in enumerate(accumulate(precisions, mul), 1)]


Metric = Literal["bleu", "rouge_l", "cider_d", "cider", "meteor", "spice"]
NAMES: tuple[Metric, ...] = ("bleu", "rouge_l", "cider_d", "cider", "meteor", "spice")
SOME = 60  # captions that are tried as the one for every picture, and pictures that they are tried on


@dataclass
class Measured:
    """Scores of a set of captions.

    Attributes:
        metrics: ``bleu_1`` to ``bleu_4``, ``rouge_l``, ``cider_d`` (the COCO evaluation's CIDEr), ``cider``,
            ``meteor``, ``spice``, ``spice/object`` ..., as fractions; the two CIDErs reach 10.
        each: CIDEr-D of every caption.
        notes: one line for each metric that could not be computed.
    """

    metrics: dict[str, float]
    each: list[float]
    notes: list[str] = field(default_factory=list)


def measure(captions: Sequence[str], references: Sequence[Sequence[str]], names: Sequence[str] = NAMES) -> Measured:
    """Score captions against every picture's references."""
    said, known = [tokenize(text) for text in captions], [[tokenize(text) for text in group] for group in references]
    frequency = DocumentFrequency.of(known)
    each = Cider(frequency).score(said, known)
    metrics: dict[str, float] = {}
    if "bleu" in names:
        metrics |= {f"bleu_{n}": value for n, value in enumerate(bleu(said, known), 1)}
    if "rouge_l" in names:
        metrics["rouge_l"] = rouge_l(said, known)
    if "cider_d" in names:
        metrics["cider_d"] = sum(each) / max(len(each), 1)
    if "cider" in names:
        metrics["cider"] = Cider(frequency, d=False).mean(said, known)
    notes: list[str] = []
    for name, scores in (("meteor", meteor), ("spice", spice)):
        if name in names:
            reason = lacking(name)
            metrics |= {} if reason else scores(said, known)
            notes += [reason] if reason else []
    return Measured(metrics, each, notes)


def same_for_all(references: Sequence[Sequence[str]]) -> tuple[str, float]:
    """Return the reference that scores best for every picture, and its CIDEr-D: what a model must surpass."""
    known = [[tokenize(text) for text in group] for group in references]
    cider = Cider.of(known)
    texts = [text for group in references for text in group]
    tried = list(dict.fromkeys(texts[:: max(1, len(texts) // SOME)]))
    part = known[:: max(1, len(known) // SOME)]
    best = max(tried, key=lambda text: cider.mean([tokenize(text)] * len(part), part))
    return best, cider.mean([tokenize(best)] * len(known), known)
