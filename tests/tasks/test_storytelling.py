"""Storytelling: scored by album as AREL does, a file for the challenge, sentences in the order of their pictures."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vlcli.data.concepts import REFERENCES
from vlcli.data.readers.vist import ALBUM, PHOTOS, VIST
from vlcli.metrics.captions import tokenize
from vlcli.progress import Silent
from vlcli.tasks.base import Result
from vlcli.tasks.storytelling import Storytelling, in_order, normalised, sentences

STORIES = {
    "a": [("s1", "12345", "we went to the fair . it was fun . we ate . we ran . we slept ."),
          ("s2", "12356", "the fair was fun . we ate a lot . we saw a cow . dark came . home at last .")],
    "b": [("s3", "67890", "a dog ran . a cat hid . it rained . the dog slept . the end ."),
          ("s4", "67890", "the dog ran fast . the cat hid well . rain fell . all slept . it was over .")],
    "c": [("s5", "vwxyz", "a red car stood there . it drove off . it stopped . it was sold . gone .")],
}  # fmt: skip
SAID = {
    "s1": "we went to the fair . it was great . we ate a lot . we ran . home at last .",
    "s2": "another story of the same album .",
    "s3": "a dog ran . the cat hid . rain fell . the dog slept . it was over .",
    "s4": "this one comes second .",
    "s5": "a red car stood here . it drove . it stopped . it was sold . gone .",
}


def world(root: Path) -> Path:
    rows = [
        {
            "album_id": album,
            "story_id": key,
            "photo_flickr_id": photo,
            "worker_arranged_photo_order": order,
            "text": f"{text} .",
            "original_text": text,
        }
        for album, stories in STORIES.items()
        for key, photos, story in stories
        for order, (photo, text) in enumerate(zip(photos, story.rstrip(" .").split(" . "), strict=True))
    ]
    (root / "test.story-in-sequence.json").write_text(json.dumps({"annotations": [[row] for row in rows]}))
    return root


def rows_of(task: Storytelling, root: Path) -> list[dict[str, Any]]:
    """What :meth:`predictions` gives where a model says what ``SAID`` has."""
    examples = task.arrange([VIST(root, split="test")])[0].examples()
    return [
        {
            "key": example.key,
            "prediction": SAID[example.key],
            REFERENCES: example.targets[REFERENCES],
            ALBUM: example.targets[ALBUM],
            PHOTOS: example.targets[PHOTOS],
            "sentences": sentences(SAID[example.key]),
        }
        for example in examples
    ]


def evaluated(task: Storytelling, root: Path, monkeypatch: pytest.MonkeyPatch) -> Result:
    rows = rows_of(task, root)
    found = Result(task.score(rows), rows)
    monkeypatch.setattr("vlcli.tasks.base.Task.evaluate", lambda self, runner: found)
    return task.evaluate(SimpleNamespace(progress=Silent()))


@pytest.mark.parametrize("told", ["album", "sequence"])
def test_an_album_counts_once_against_all_its_stories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Any
) -> None:
    pytest.importorskip("pycocoevalcap")
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.rouge.rouge import Rouge

    task = Storytelling(story_per=told, metrics=("bleu", "rouge_l", "cider_d"))
    result = evaluated(task, world(tmp_path), monkeypatch)
    assert len(result.predictions) == (3 if told == "album" else 5)
    assert result.metrics["pictures"] == 3
    # AREL's evaluation: album -> stories, album -> the first prediction; the words as ours splits them
    truth = {album: [" ".join(tokenize(text)) for *_, text in stories] for album, stories in STORIES.items()}
    said = {album: [" ".join(tokenize(SAID[stories[0][0]]))] for album, stories in STORIES.items()}
    bleu = Bleu(4).compute_score(truth, said, verbose=0)[0]
    for order, value in enumerate(bleu, 1):
        assert result.metrics[f"bleu_{order}"] == pytest.approx(value, abs=1e-6)
    assert result.metrics["rouge_l"] == pytest.approx(Rouge().compute_score(truth, said)[0], abs=1e-6)
    assert result.metrics["cider_d"] == pytest.approx(Cider().compute_score(truth, said)[0], abs=1e-6)


def test_training_sees_every_story(tmp_path: Path) -> None:
    examples = Storytelling().arrange_training([VIST(world(tmp_path), split="test")])[0].examples()
    assert [example.key for example in examples] == ["s1", "s2", "s3", "s4", "s5"]
    assert len(examples[0].targets[REFERENCES]) == len(examples[1].targets[REFERENCES]) == 2
    assert not any(example.choices for example in examples)  # a story belongs to its own pictures


def test_the_challenge_s_file_has_a_story_a_sequence(tmp_path: Path) -> None:
    task = Storytelling(story_per="sequence", team="ours")
    rows = rows_of(task, world(tmp_path))
    rows[0]["prediction"] = "[ male ] went there. It rained!"
    (path,) = task.submission(rows, tmp_path)
    document = json.loads(path.read_text())
    assert (path.name, document["team_name"], "evaluation_info" in document) == ("challenge.json", "ours", True)
    told = document["output_stories"]
    assert [story["photo_sequence"] for story in told] == [list(s) for s in ("12345", "12356", "67890", "vwxyz")]
    assert told[0] == {
        "album_id": "a",
        "photo_sequence": list("12345"),
        "story_text_normalized": "[male] went there . it rained !",
    }
    assert told[2]["story_text_normalized"] == SAID["s3"]  # the first of two on the same photographs
    assert normalised("A  b,c.") == "a b , c ."


NAMED = [["red star"], ["blue ring", "green cross"], ["red ring"], ["blue star"], ["red star"]]
TRUE = [f"then it met a {names[-1]} ." for names in NAMED]


@pytest.mark.parametrize(
    ("told", "hits"),
    [
        (TRUE, 5),
        ([TRUE[1], TRUE[0], *TRUE[2:]], 3),
        (TRUE[:4], 4),
        (TRUE[1:], 0),  # one left out: nothing stands at its place
        ([*TRUE, "and so on ."], 0),
        (["it met a red starfish .", *TRUE[1:]], 4),
        ([], 0),
    ],
)
def test_sentences_in_the_order_of_their_pictures(told: list[str], hits: int) -> None:
    story = " ".join(told)
    assert sentences(story) == told
    assert sum(in_order(sentences(story), NAMED)) == hits
    row = {"prediction": story, "sentences": told, PHOTOS: list("12345"), "in_order": in_order(told, NAMED)}
    found = Storytelling().score([row])
    assert found["in_order"] == hits / 5
    assert found["in_order/stories"] == (hits == 5)
    assert found["sentences"] == len(told)
    assert found["five_sentences"] == (len(told) == 5)


def test_a_story_may_be_of_120_pieces() -> None:
    assert Storytelling().settings.max_length == 120
    assert Storytelling().generation(SimpleNamespace(pieces=lambda word: [7])).max_length == 120
