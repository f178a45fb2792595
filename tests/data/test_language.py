"""What words of a caption say, and captions made false in one thing."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vlcli import registry
from vlcli.data.language import phrases
from vlcli.data.language import roles as lexicon
from vlcli.data.language.roles import names, plain
from vlcli.errors import ComponentError, RecipeError

VOCABULARY = """
    a an the two three 7 red blue small large square circle dog dogs man horse table picture left right of above
    behind in on next to and or with no more fewer than at least most riding is are there left. Red, (small) one
"""
WORDS = VOCABULARY.split()
KINDS = ("other-attribute", "swapped-names", "turned-relation", "other-number")
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join)


def said(text):
    return [plain(word) for word in text.split()]


def found(role, text, **options):
    words = said(text)
    return [" ".join(words[a:b]) for a, b in registry.build("roles", {"name": role, **options}).spans(words)]


def all_of(kind, text, **options):
    """Every sentence that a rewrite makes of a caption."""
    rewrite = registry.build("rewrites", {"name": kind, **options})
    return {rewrite(text, np.random.default_rng(seed)) for seed in range(60)}


@pytest.mark.parametrize(
    ("role", "text", "spans"),
    [
        ("place", "A red circle is to the left of a blue square.", ["to the left of"]),
        ("place", "He has left the room behind him", ["behind"]),
        ("place", "the left picture shows a cup in front of a box", ["left", "in front of"]),
        ("number", "At least two dogs, 12 birds and a couple of cats", ["at least", "two", "12", "a couple of"]),
        ("attribute", "A small RED circle beside a square on a wooden table", ["small", "red", "wooden"]),
        ("noun", "a small dog behind the green tables", ["dog", "tables"]),
    ],
)
def test_roles_find_their_words(role, text, spans):
    assert found(role, text) == spans


def test_a_list_and_patterns_of_ones_own():
    options = {"words": ["Gauche de", "haut"], "patterns": ["[a-z]+most", "nothing at all"]}
    assert found("words", "the topmost cup, a gauche de la table, haut", **options) == ["topmost", "gauche de", "haut"]
    with pytest.raises(ComponentError, match="needs words or patterns"):
        registry.build("roles", "words")
    with pytest.raises(RecipeError, match="not a regular expression"):
        registry.build("roles", {"name": "words", "patterns": ["(left"]})


def test_a_pattern_without_end_is_stopped(monkeypatch):
    monkeypatch.setattr("vlcli.recipe.patterns.MOST_SECONDS", 0.2)
    with pytest.raises(RecipeError, match="takes longer"):
        found("words", "a" * 60 + "!b", patterns=["(a|aa)+c"])


def test_phrases_are_relations_and_names():
    words = said("There are two small red circles to the left of a dog.")
    assert [" ".join(words[a:b]) for a, b in phrases(words)] == ["two small red circles", "to the left of", "a dog"]


@settings(max_examples=100, deadline=None)
@given(texts)
def test_spans_lie_inside_and_do_not_overlap(text):
    words = said(text)
    for spans in (
        phrases(words),
        names(words),
        *(registry.build("roles", r).spans(words) for r in ("place", "number")),
    ):
        places = [place for span in spans for place in range(*span)]
        assert places == sorted(set(places))
        assert all(0 <= place < len(words) for place in places)


@pytest.mark.parametrize(
    ("kind", "text", "one_of"),
    [
        ("other-attribute", "A small dog runs.", {"A large dog runs.", "A big dog runs.", "A huge dog runs."}),
        ("other-attribute", "A red apple.", {"An orange apple.", "A blue apple."}),
        ("swapped-names", "A red circle is left of a blue square.", {"A blue square is left of a red circle."}),
        ("swapped-names", "A man riding a horse next to a car.", {"A horse riding a man next to a car."}),
        ("swapped-names", "There are more circles than squares.", {"There are more squares than circles."}),
        ("turned-relation", "A cup on top of a box", {"A cup under a box", "A cup underneath a box"}),
        ("turned-relation", "There are more dogs than cats", {"There are fewer dogs than cats"}),
        ("turned-relation", "It is at the top.", {"It is at the bottom."}),
        ("other-number", "Three dogs, 2 cats.", {"Two dogs, 2 cats.", "Three dogs, 4 cats."}),
        ("other-number", "there are at least two dogs", {"there are fewer than two dogs"}),
    ],
)
def test_rewrites_change_one_thing(kind, text, one_of):
    assert one_of <= all_of(kind, text)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("swapped-names", "A circle next to a square"),  # holds both ways
        ("swapped-names", "a man and a woman"),
        ("swapped-names", "a picture of a dog"),
        ("swapped-names", "a dog above a dog"),
        ("swapped-names", "a dog above the dog"),
        ("swapped-names", "there are three shapes in total"),
        ("other-attribute", "a circle and a square"),
        ("other-attribute", "there is no red circle"),  # no blue one either, perhaps
        ("other-attribute", "a red or blue circle"),
        ("turned-relation", "two more dogs"),
        ("turned-relation", "trees all over a hill"),
        ("other-number", "one dog"),  # the noun's form would give it away
        ("other-number", "nearly ten dogs"),
        ("other-number", ""),
    ],
)
def test_what_would_stay_true_or_gives_itself_away_is_left_alone(kind, text):
    assert all_of(kind, text) == {None}


def test_an_attribute_never_becomes_one_that_the_sentence_names():
    made = all_of("other-attribute", "a red circle and a blue circle and a green circle")
    assert len(made) > 5
    for text in made:
        colours = [word for word in said(text) if word in lexicon.ATTRIBUTE]
        assert len(set(colours)) == 3


@settings(max_examples=150, deadline=None)
@given(texts, st.sampled_from(KINDS), st.integers(0, 999))
def test_rewrites_are_drawn_by_the_generator_alone_and_never_say_the_same(text, kind, seed):
    rewrite = registry.build("rewrites", kind)
    made, again = (rewrite(text, np.random.default_rng(seed)) for _ in range(2))
    assert made == again
    if made is not None:
        assert [w for w in said(made) if w not in ("a", "an")] != [w for w in said(text) if w not in ("a", "an")]
        assert lexicon.NEGATION.isdisjoint(said(text))
        if kind == "swapped-names":
            assert sorted(w[:1] for w in said(made)) == sorted(w[:1] for w in said(text))


def test_words_of_ones_own():
    trees = {"groups": [["oak oaken", "birch", "big pine"]], "builtin": False}
    assert all_of("other-attribute", "a red oak", **trees) == {"a red birch", "a red big", "a red pine"}
    slopes = {"opposites": [("uphill from", "downhill from")], "builtin": False}
    assert all_of("turned-relation", "A tree uphill from a lake.", **slopes) == {"A tree downhill from a lake."}
    for kind, wrong in (
        ("other-attribute", {"groups": [["oak"]]}),
        ("turned-relation", {"builtin": False}),
        ("turned-relation", {"opposites": [("up", "Up.")]}),
        ("other-number", {"most": 2}),
    ):
        with pytest.raises(ComponentError, match=kind):
            registry.build("rewrites", {"name": kind, **wrong})


def test_opposites_work_both_ways_and_are_no_synonyms():
    known = lexicon.opposites()
    assert all(one in known[other] for one, found in known.items() for other in found)
    assert all(one not in found for one, found in known.items())


def test_the_page_lists_the_words():
    page = (Path(__file__).parents[2] / "docs" / "objectives.md").read_text()
    listed = set(re.findall(r"[a-z]+", page))
    for words in (lexicon.PLACE, lexicon.NUMBER, lexicon.ATTRIBUTE):
        assert words <= listed
