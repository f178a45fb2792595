"""The official VQA rule, against a second computation on real questions."""

from __future__ import annotations

import gzip
import json
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlcli.data.readers.vqa import SCORES, soft_scores
from vlcli.metrics import vqa

SIGNS = set(';/[]"{}()=+\\_-><@`,?!')
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
DIGITS = {word: str(number) for number, word in enumerate(WORDS)}
DIGITS["none"] = "0"


def by_characters(text: str) -> str:
    """The normalisation once more, sign by sign and word by word, without regular expressions."""
    text = text.replace("\n", " ").replace("\t", " ").strip()
    numeric = any(a.isdigit() and b == "," and c.isdigit() for a, b, c in zip(text, text[1:], text[2:], strict=False))
    gone = {s for s in SIGNS if numeric or f"{s} " in text or f" {s}" in text}
    text = "".join("" if c in gone else " " if c in SIGNS else c for c in text)
    kept = [c for i, c in enumerate(text) if c != "." or text[i + 1 : i + 2].isdigit()]
    words = [DIGITS.get(word, word) for word in "".join(kept).lower().split()]
    known = {
        form.replace("'", ""): form for form in ("don't", "can't", "it's", "isn't", "doesn't", "what's", "o'clock")
    }
    known.pop("its")
    return " ".join(known.get(word, word) for word in words if word not in ("a", "an", "the"))


def by_subsets(answer: str, people: list[str]) -> float:
    """The accuracy as the paper words it: the mean over all subsets of nine people."""
    people = [item.replace("\n", " ").replace("\t", " ").strip() for item in people]
    if len(set(people)) > 1:
        people, answer = [by_characters(item) for item in people], by_characters(answer)
    scores = [min(1.0, others.count(answer) / 3) for others in combinations(people, len(people) - 1)]
    return sum(scores) / len(scores)


def real_questions(shared: Path, parts: tuple[str, ...]) -> list[list[str]]:
    rows = []
    for part in parts:
        file = shared / f"annotations/vqa/nlp1_subset/v2_annotations_{part}.json.gz"
        file = file if file.exists() else shared / f"data/annotations/vqa/nlp1_subset/v2_annotations_{part}.json.gz"
        with gzip.open(file, "rt") as content:
            rows += [[a["answer"] for a in row["answers"]] for row in json.load(content)["annotations"]]
    return rows


def check_agreement(rows: list[list[str]]) -> int:
    for number, people in enumerate(rows):
        answer = people[number % len(people)]
        assert vqa.accuracy(answer, people) == pytest.approx(by_subsets(answer, people), abs=1e-12), people
        same = [by_characters(item) for item in people]
        counts = {item: [0.0, 0.3, 0.6, 0.9, 1.0][min(same.count(item), 4)] for item in same}
        assert soft_scores(map(vqa.normalise, people)) == pytest.approx(counts)
    return len(rows)


def test_agrees_with_a_second_computation_on_real_questions(shared):
    assert check_agreement(real_questions(shared, ("valid", "test"))[::2]) > 3_000


@pytest.mark.slow
def test_agrees_on_all_sixty_thousand(shared):
    assert check_agreement(real_questions(shared, ("train", "valid", "test"))) >= 60_000


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        ("The cat.", "cat"),
        ("two dogs", "2 dogs"),
        ("1,000", "1000"),
        ("black/white", "black white"),
        ("yes, sir", "yes sir"),
        ("3.5", "3.5"),
        ("dont", "don't"),
        ("couldnt've", "couldn't've"),
        ("twas", "'twas"),
        ("none", "0"),
        (" a\tman ", "man"),
        ("somebody'd", "somebodyd"),
        ("its", "its"),
    ],
)
def test_normalisation_rules(raw, wanted):
    assert vqa.normalise(raw) == wanted


def test_answers_are_compared_as_given_where_people_agree():
    assert vqa.accuracy("The Cat", ["The Cat"] * 10) == 1.0
    assert vqa.accuracy("cat", ["The Cat"] * 10) == 0.0
    assert vqa.accuracy("cat", ["The Cat"] * 9 + ["dog"]) == 1.0


@given(st.integers(0, 10))
def test_soft_score_is_the_accuracy_over_ten_people(count):
    people = ["yes"] * count + [f"other {n}" for n in range(10 - count)]
    assert vqa.accuracy("yes", people) == pytest.approx(SCORES[min(count, 4)])


def test_vocabulary_keeps_frequent_answers_in_order():
    assert vqa.answer_vocabulary({"yes": 9, "no": 30, "maybe": 8}) == ("no", "yes")
