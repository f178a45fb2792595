"""The bench of objectives: its captions are true, its foils false, its masks hide what they say, its table is whole."""

import json
import os
import re
import sys
from pathlib import Path

import forked
import numpy as np
import pytest

from vlcli.builders.training import corruptions_of
from vlcli.data.sample import Sample, copied
from vlcli.data.vocabulary import Tokenizer
from vlcli.engine.training_module import build_training_module
from vlcli.nn.model import DataSpec

BENCH = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCH))
import captions  # noqa: E402
import symbols  # noqa: E402

sys.path.remove(str(BENCH))
SMALL = ["--steps", "50", "--start", "50", "--batch", "16", "--seeds", "1"]


def things(scene, phrase):
    """Row and column of all things of a phrase's look, and whether they are as many as it says."""
    number, look = phrase.split(" ", 1)
    cells = [thing[2:] for thing in scene if symbols.name(thing) == look.removesuffix("s")]
    return cells, len(cells) == captions.NUMBERS.index(number) + 1


def holds(text, scene):
    """Whether a caption is true, read from the scene by another way than the maker's."""
    one, relation, other = re.fullmatch(rf"(.+) ({'|'.join(captions.RELATIONS)}) (.+)", text).groups()
    (first, counted), (second, also) = things(scene, one), things(scene, other)
    axis, sign = {"left": (1, 1), "right": (1, -1), "above": (0, 1), "below": (0, -1)}[
        next(word for word in captions.PLACES if word in relation)
    ]
    apart = all(sign * a[axis] < sign * b[axis] for a in first for b in second)
    return counted and also and apart


def test_captions_are_true_and_no_other_relation_is():
    for true in captions.captions(400, 3):
        (scene,) = true.scenes
        own = captions.RELATIONS[true.answer]
        others = [true.text.replace(own, relation) for relation in captions.RELATIONS]
        assert [holds(text, scene) for text in others] == [relation == own for relation in captions.RELATIONS]
    assert list(captions.captions(5, 3)) == list(captions.captions(400, 3))[:5]


def test_every_foil_is_false_and_uses_words_of_true_captions():
    known = {word for true in captions.captions(2000, 0) for word in true.text.split()}
    asked = captions.statements(200, 5)
    assert len(asked) == 200 * (1 + len(captions.FOILS))
    for one in asked:
        assert holds(one.text, one.scenes[0]) == (one.answer == 0), one.text
        assert set(one.text.split()) <= known


def hidden(objectives, count=200):
    """The words that a variant hides of each caption."""
    tokenizer = Tokenizer.train([one.text for one in captions.captions(2000, 0)], 200)
    data_spec = DataSpec(text_length=16, regions=4, region_dim=16, **tokenizer.data_spec_fields())
    module = build_training_module({"name": "uniter", "hidden": 16, "heads": 2, "layers": 1}, objectives, data_spec)
    (mask,) = corruptions_of(module, "mlm", data_spec)
    mask.ready(tokenizer, 16)
    found = []
    for number, one in enumerate(captions.captions(count, 9)):
        text = copied(tokenizer.encode(one.text, one.text, 16))
        sample = Sample(str(number), text, [], {})
        mask(sample, np.random.default_rng(number), lambda own=sample: own)
        labels = sample.mask_labels.text["masked_words"]
        found.append((one.text, [tokenizer.decode([label]) for label in labels if label >= 0]))
    return found


def test_masks_by_role_hide_the_word_of_place_alone():
    variants = captions.COMPARED["masking"]
    for options in (variants["role"], [captions.PROBE]):
        assert all(len(words) == 1 and words[0] in captions.PLACES for _, words in hidden(options))
    assert any(set(words) - set(captions.PLACES) for _, words in hidden(variants["random"]))


def test_masks_by_phrase_hide_whole_phrases():
    parts = re.compile("|".join(captions.RELATIONS))
    for text, words in hidden(captions.COMPARED["masking"]["phrase"]):
        phrases = [*(part.strip() for part in parts.split(text)), parts.search(text)[0]]
        left = list(words)
        for phrase in phrases:
            left = left[len(phrase.split()) :] if left[: len(phrase.split())] == phrase.split() else left
        assert sorted(words) == sorted(w for p in phrases if set(p.split()) <= set(words) for w in p.split())


@pytest.mark.slow
@pytest.mark.parametrize("compared", ["masking", "matching"])
def test_the_table_and_the_curves(compared, tmp_path):
    file = tmp_path / "curves.jsonl"
    options = ["--compare", compared, *SMALL, "--json", str(file)]
    ran = forked.run(options, tmp_path, os.environ, 300, BENCH / "objectives.py")
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    variants = list(captions.COMPARED[compared])
    assert lines[1].split() == [compared, "examples", "until", ".9", "held", "out", "saved"]
    kinds = ["all", *(captions.FOILS if compared == "matching" else ["left-right", "above-below"])]
    assert [line.split()[:2] for line in lines[2:]] == [[variant, kind] for variant in variants for kind in kinds]
    assert all(re.search(r" (-|\d+) +\d\.\d{3} +(-|[<>]?\d+\.\d)$", line) for line in lines[2:])
    kept = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["variant"] for row in kept] == variants
    assert all(row["curve"][0][0] == 800 and 0 <= row["held_out"] <= 1 for row in kept)
