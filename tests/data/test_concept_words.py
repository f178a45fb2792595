"""The vocabulary of visual concepts: words, parts of speech, files."""

from __future__ import annotations

import json

import pytest

from vlcli.data.concepts import ByImage, Word, build_vocabulary, read_vocabulary, tokens, write_vocabulary
from vlcli.data.english import FUNCTION_WORDS, GROUPS, part_of_speech
from vlcli.data.readers.captions import Captions, read_captions
from vlcli.errors import DataError, UsageError

CAPTIONS = [
    ["A man is riding a red horse.", "A man rides the horses"],
    ["Two red dogs on a table", "the man's dog isn't red"],
    ["A dog"],
]
AUTHORS_FUNCTION_WORDS = "a on of the in with and is to an two at next are"


def test_tokens_are_those_of_the_treebank_without_punctuation():
    found = tokens("The man's dog isn't \u201con\u201d a hot-dog: 2, don\u2019t!")
    assert " ".join(found) == "the man 's dog is n't on a hot-dog 2 do n't"


def test_most_frequent_words_that_can_be_seen():
    words = build_vocabulary(CAPTIONS, 4)
    assert words == [
        Word("man", "NN", 3, 2),
        Word("red", "JJ", 3, 2),
        Word("dog", "NN", 2, 2),
        Word("dogs", "NN", 1, 1),
    ]
    everything = build_vocabulary(CAPTIONS, 0, pos=GROUPS, function_words=True)
    assert everything[0] == Word("a", "DT", 5, 3)
    assert {word.word for word in everything} == {word for texts in CAPTIONS for text in texts for word in tokens(text)}
    assert [word.word for word in build_vocabulary(CAPTIONS, 0, pos=["VB"])] == ["rides", "riding"]
    assert build_vocabulary(CAPTIONS, 0, pos=["VB"], function_words=True)[0].word == "is"
    assert len(build_vocabulary(CAPTIONS, 0, min_count=3)) == 2


def test_nothing_left_and_unknown_parts_are_told():
    with pytest.raises(DataError, match="No word is left"):
        build_vocabulary([["a the of"]])
    with pytest.raises(UsageError, match="part of speech"):
        build_vocabulary(CAPTIONS, pos=["NOUN"])


@pytest.mark.parametrize("name", ["words.txt", "words.json"])
def test_vocabulary_files_are_read_as_written(tmp_path, name):
    words = build_vocabulary(CAPTIONS)
    found = read_vocabulary(write_vocabulary(tmp_path / "new" / name, words))
    assert [(w.word, w.pos, w.count) for w in found] == [(w.word, w.pos, w.count) for w in words]
    assert [path.name for path in (tmp_path / "new").iterdir()] == [name]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "no word"),
        ("a\nb\na\n", "twice"),
        ("a, NN, many\n", "words.txt:1"),
        ("a, NN, ²\n", "words.txt:1"),
        ('["a", 3]', "words"),
        ("[", "JSON"),
    ],
)
def test_damaged_vocabularies_are_told(tmp_path, content, told):
    path = tmp_path / "words.txt"
    path.write_text(content)
    with pytest.raises(DataError) as caught:
        read_vocabulary(path)
    assert told in f"{caught.value.what} {caught.value.where} {caught.value.got}"


def test_plain_words_and_lists(tmp_path):
    (tmp_path / "a.txt").write_text("Man\nred\n")
    (tmp_path / "b.json").write_text(json.dumps(["Man", "red"]))
    expected = [Word("man", "NN"), Word("red", "JJ")]
    assert read_vocabulary(tmp_path / "a.txt") == read_vocabulary(tmp_path / "b.json") == expected


def test_parts_of_speech_agree_with_the_published_list(shared):
    published = read_vocabulary(shared / "data/annotations/visual_concepts/vocab_words.txt")
    assert len(published) == 1000
    same = [part_of_speech(word.word) == word.pos for word in published]
    assert sum(same) >= 940
    assert set(AUTHORS_FUNCTION_WORDS.split()) <= FUNCTION_WORDS


def test_words_of_real_captions_are_mostly_the_published_ones(shared):
    captions = read_captions(shared / "data/annotations/coco/captions_val2017.json")
    assert len(captions) == 5000
    ours = {word.word for word in build_vocabulary(captions, pos=GROUPS, function_words=True)}
    published = {w.word for w in read_vocabulary(shared / "data/annotations/visual_concepts/vocab_words.txt")}
    assert len(ours & published) >= 900


def test_captions_by_picture(tmp_path):
    rows = [{"image": f"{i}.jpg", "captions": texts} for i, texts in enumerate(CAPTIONS)]
    (tmp_path / "captions.json").write_text(json.dumps(rows))
    data = ByImage(Captions(tmp_path, file="captions.json", images="."))
    assert [example.images for example in data.examples()] == [["0"], ["1"], ["2"]]
    assert data.examples()[2].targets["words"] == ["a", "dog"]
    assert data.locate("1") == tmp_path / "1.jpg"
    sampled = ByImage(Captions(tmp_path, file="captions.json", images=".", captions="sample"))
    assert [e.targets for e in sampled.examples()] == [e.targets for e in data.examples()]


def test_caption_files_are_told_by_their_content(tmp_path):
    coco = {
        "images": [{"id": 7, "file_name": "a.jpg"}],
        "annotations": [{"id": 1, "image_id": 7, "caption": "a dog"}, {"id": 2, "image_id": 7, "caption": "a cat"}],
    }
    split = {"filename": "a.jpg", "split": "train", "sentences": [{"raw": "a dog", "sentid": 1}]}
    files = {
        "coco.json": coco,
        "karpathy.json": {"images": [split, {**split, "split": "val"}]},
        "plain.json": {"a.jpg": ["a dog"]},
    }
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    (tmp_path / "lines.txt").write_text("a dog\n\n[a] cat\n")
    assert read_captions(tmp_path / "coco.json") == [["a dog", "a cat"]]
    assert read_captions(tmp_path / "karpathy.json") == [["a dog"]]
    assert read_captions(tmp_path / "plain.json") == [["a dog"]]
    assert read_captions(tmp_path / "lines.txt") == [["a dog"], ["[a] cat"]]
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(DataError, match="no captions"):
        read_captions(tmp_path / "empty.txt")


def test_command(cli, tmp_path):
    (tmp_path / "captions.txt").write_text("\n".join(text for texts in CAPTIONS for text in texts))
    ended = cli("data", "concepts", "captions.txt", "--out", "words.json", "--size", "3", "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["words"] == 3
    assert [row["word"] for row in json.loads((tmp_path / "words.json").read_text())["words"]] == ["man", "red", "dog"]
    wrong = cli("data", "concepts", "captions.txt", "--pos", "NOUN")
    assert wrong.code != 0
    assert "NN, VB, JJ" in wrong.err
