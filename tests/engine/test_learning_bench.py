"""The learning bench: its questions are answered by their scenes, and it prints what it says it prints."""

import json
import os
import sys
from collections import Counter
from pathlib import Path

import forked
import pytest

BENCH = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCH))
import symbols  # noqa: E402

sys.path.remove(str(BENCH))


def named(scene, words):
    """The thing a sentence calls ``red circle``."""
    return next(t for t in scene if symbols.name(t) == words)


def truth(task, question):
    """The answer by another way than the maker's."""
    scene, words = question.scenes[0], question.text.split()
    if task == "attribute":
        return int(any(symbols.name(t) == " ".join(words[-2:]) for t in scene))
    if task == "place":
        thing = named(scene, " ".join(words[2:4]))
        sides = {"top": thing[2] < 2, "bottom": thing[2] >= 2, "left": thing[3] < 2, "right": thing[3] >= 2}
        return int(sides[words[-1]])
    if task.startswith("relation"):
        one, two = named(scene, " ".join(words[3:5])), named(scene, " ".join(words[8:10]))
        assert (one[2] == two[2]) != (one[3] == two[3])
        return (0 if one[3] < two[3] else 1) if one[2] == two[2] else (2 if one[2] < two[2] else 3)
    if task == "same":
        place = ("colour", "kind").index(words[-1])
        return int(scene[0][place] == scene[1][place])
    if task == "count":
        names = [(symbols.COLOURS[c], symbols.KINDS[k] + "s") for c, k, *_ in scene]
        return sum(words[2] in name for name in names) - 1
    wanted = " ".join(words[-2:])
    return int(all(any(symbols.name(t) == wanted for t in one) for one in question.scenes))


def bench(folder, *options):
    """The lines that the bench prints."""
    ran = forked.run(options, folder, os.environ, 300, BENCH / "learning.py")
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


@pytest.mark.parametrize("task", symbols.TASKS)
def test_answers_are_true_and_balanced(task):
    asked = list(symbols.questions(task, 600, 7))
    assert [truth(task, one) for one in asked] == [one.answer for one in asked]
    shares = Counter(one.answer for one in asked)
    assert set(shares) == set(range(symbols.TASKS[task].answers))
    assert min(shares.values()) > 0.8 * 600 / len(shares)
    assert list(symbols.questions(task, 5, 7)) == asked[:5]


def test_one_scene_of_a_pair_does_not_decide():
    asked = list(symbols.questions("pair", 2000, 1))
    for place in (0, 1):
        holds = [any(symbols.name(t) == one.text[-len(symbols.name(t)) :] for t in one.scenes[place]) for one in asked]
        answers = [one.answer for one, there in zip(asked, holds, strict=True) if there]
        assert 0.6 < sum(answers) / len(answers) < 0.73  # two of three


@pytest.mark.slow
def test_a_small_lxmert_learns_with_its_defaults(tmp_path):
    """Within 16,640 examples; the plain encoder needs 48,000 (docs/learning.md)."""
    file = tmp_path / "curves.jsonl"
    options = ["--models", "lxmert", "--tasks", "same", "--seeds", "1", "--steps", "260", "--json", str(file)]
    bench(tmp_path, *options)
    (kept,) = [json.loads(line) for line in file.read_text().splitlines()]
    assert kept["held_out"] >= 0.95


def test_the_table_and_the_curves(tmp_path):
    file = tmp_path / "curves.jsonl"
    options = ["--models", "plain-post", "vlmo", "--tasks", "pair", "--seeds", "1", "--steps", "50"]
    lines = bench(tmp_path, *options, "--batch", "16", "--json", str(file))
    assert [line.split()[:2] for line in lines[2:]] == [[model, "pair"] for model in options[1:3]]
    kept = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(kept) == 2
    assert all(row["curve"][0][0] == 800 and 0 <= row["held_out"] <= 1 for row in kept)


@pytest.mark.slow
def test_examples_of_an_easier_task_before_count(tmp_path):
    file = tmp_path / "curves.jsonl"
    options = ["--models", "plain-pre", "--tasks", "relation-4", "--first", "attribute:50", "place:100", "--seeds", "1"]
    options += ["--steps", "50", "--batch", "8", "--json", str(file)]
    bench(tmp_path, *options)
    (kept,) = [json.loads(line) for line in file.read_text().splitlines()]
    assert kept["first"] == [["attribute", 50], ["place", 100]]
    assert [row[0] for row in kept["curve"]] == [8 * (50 + 100 + 50)]
