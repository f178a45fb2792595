"""WUPS against a second implementation of its published definition, on a taxonomy of a few words."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from math import prod
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_batches import SMALL, make_batch

from vlcli import registry
from vlcli.metrics import wups

PARENTS = {
    "thing": None,
    "furniture": "thing",
    "seat": "furniture",
    "chair": "seat",
    "garbage_bin": "thing",
    "desk_lamp": "lamp",
    "lamp": "furniture",
}
"""Each noun's parent."""
WORDS = [*(word.replace("_", " ") for word in PARENTS), "no such word", "2"]


def path(word: str) -> list[str]:
    """A noun and all above it."""
    above: str | None = word
    nouns = []
    while above is not None:
        nouns.append(above)
        above = PARENTS[above]
    return nouns


@dataclass(frozen=True)
class Sense:
    """A noun of the taxonomy, as nltk has it."""

    word: str

    def wup_similarity(self, other: Sense) -> float:
        """Twice the depth of the lowest noun above both, by the sum of their depths; the root has depth 1."""
        shared = next(noun for noun in path(self.word) if noun in path(other.word))
        return 2 * len(path(shared)) / (len(path(self.word)) + len(path(other.word)))


def wordnet(senses: bool = True) -> ModuleType:
    """A module like ``nltk.corpus`` over the taxonomy; without its files where there are no senses."""

    class Reader:
        NOUN = "n"

        def ensure_loaded(self) -> None:
            if not senses:
                raise LookupError("Resource wordnet not found.")

        def synsets(self, word: str, pos: str) -> list[Sense]:
            return [Sense(word)] if word in PARENTS and pos == self.NOUN else []

    corpus = ModuleType("nltk.corpus")
    vars(corpus)["wordnet"] = Reader()
    return corpus


@pytest.fixture
def taxonomy(monkeypatch: pytest.MonkeyPatch) -> None:
    wups.similarity.cache_clear()
    monkeypatch.setattr(wups, "find_spec", lambda name: name)
    monkeypatch.setitem(sys.modules, "nltk", ModuleType("nltk"))
    monkeypatch.setitem(sys.modules, "nltk.corpus", wordnet())


def published(truth: list[str], said: list[str], threshold: float) -> float:
    """min(prod max WUP', prod max WUP') with WUP' a tenth below the threshold, written down from the paper."""
    table = {}
    for a in {*truth, *said}:
        for b in {*truth, *said}:
            nouns = [word.replace(" ", "_") for word in (a, b)]
            known = all(noun in PARENTS for noun in nouns)
            value = 1.0 if a == b else Sense(nouns[0]).wup_similarity(Sense(nouns[1])) if known else 0.0
            table[a, b] = value * (1.0 if value >= threshold else 0.1)
    left = prod(max(table[a, b] for b in said) for a in truth)
    return min(left, prod(max(table[b, a] for a in truth) for b in said))


@given(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=4, unique=True),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=4, unique=True),
    st.sampled_from([0.0, 0.5, 0.9, 1.0]),
)
def test_it_is_the_published_score(truth: list[str], said: list[str], threshold: float) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "nltk.corpus", wordnet())
        wups.similarity.cache_clear()
        score = wups.wups(truth, said, threshold)
        assert score == pytest.approx(published(truth, said, threshold))
        assert score == wups.wups(truth[::-1], said[::-1], threshold) == wups.wups(said, truth, threshold)
        assert 0 <= score <= 1
    wups.similarity.cache_clear()


@pytest.mark.usefixtures("taxonomy")
def test_a_near_word_counts_and_a_further_one_a_tenth() -> None:
    assert wups.similarity("seat", "chair") == pytest.approx(6 / 7)
    assert wups.wups(["seat"], ["chair"], 0.0) == pytest.approx(6 / 7)
    assert wups.wups(["seat"], ["chair"], 0.9) == pytest.approx(0.6 / 7)
    assert wups.wups(["2"], ["2"], 0.9) == 1
    assert wups.wups(["2"], ["3"], 0.0) == 0
    assert (wups.wups([], [], 0.9), wups.wups(["lamp"], [], 0.0)) == (1, 0)


def scores(predictions: list[str]) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """The rows and metrics of three answers to a set, a single answer and a set."""
    truths = [{"desk lamp, garbage bin": 1.0}, {"chair": 1.0}, {"lamp, seat": 1.0}]
    kinds = ["set", "single", "set"]
    task = registry.build("tasks", {"name": "vqa", "wups": True})
    task.attach(replace(SMALL, answers=("2",)))
    task.read(Told())
    batch = replace(make_batch(), targets={"answers": truths, "answer_type": kinds})
    rows = task.judge([{"prediction": answer} for answer in predictions], batch)
    return rows, task.score(rows)


class Told:
    """Where a task warns."""

    lines: list[str] = []  # noqa: RUF012 (shared by all)

    @property
    def progress(self) -> Told:
        return self

    def warn(self, line: str) -> None:
        """Keep the line."""
        self.lines.append(line)


@pytest.mark.usefixtures("taxonomy")
def test_the_task_scores_sets_in_any_order() -> None:
    rows, metrics = scores(["garbage_bin, desk_lamp", "seat", "seat, desk lamp"])
    assert [row["accuracy"] for row in rows] == [1, 0, 0]
    assert [row["wups_0.0"] for row in rows] == pytest.approx([1, 6 / 7, 6 / 7])
    assert [row["wups_0.9"] for row in rows] == pytest.approx([1, 0.6 / 7, 0.6 / 7])
    assert metrics["wups_0.0"] == pytest.approx((1 + 12 / 7) / 3)
    assert metrics["wups_0.0/single"] == pytest.approx(6 / 7)
    assert metrics["accuracy/single"] == 0
    assert metrics["wups_0.0/set"] == pytest.approx((1 + 6 / 7) / 2)


@pytest.mark.parametrize("installed", [True, False])
def test_without_wordnet_one_line_has_the_command(monkeypatch: pytest.MonkeyPatch, *, installed: bool) -> None:
    monkeypatch.setattr(wups, "find_spec", lambda name: name if installed else None)
    monkeypatch.setitem(sys.modules, "nltk", ModuleType("nltk"))
    monkeypatch.setitem(sys.modules, "nltk.corpus", wordnet(senses=False))
    Told.lines.clear()
    _, metrics = scores(["garbage_bin, desk_lamp", "seat", "seat, desk lamp"])
    assert not any(name.startswith("wups") for name in metrics)
    assert len(Told.lines) == 1
    assert Told.lines[0].endswith("python -m nltk.downloader wordnet")
    assert ("pip install nltk" in Told.lines[0]) is not installed
