"""Tokenisation: BERT's ids, truncation, words, and vocabularies that come out the same every time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.spawned import as_in_a_worker
from vlcli.data.vocabulary import Tokenizer
from vlcli.data.wordpiece import learn
from vlcli.errors import DataError

TEXTS = ["A red circle is left of a blue square.", "Two green stars, one yellow circle!", "the circles are red"]


@pytest.fixture(scope="module")
def bert(shared_module: Path) -> Tokenizer:
    return Tokenizer.load(shared_module / "data/text/bert-base-uncased-vocab.txt")


@pytest.fixture(scope="module")
def shared_module(request: pytest.FixtureRequest) -> Path:
    return request.getfixturevalue("shared")


@pytest.fixture(scope="module")
def captions(shared_module: Path) -> list[str]:
    rows = json.loads((shared_module / "data/annotations/coco_subset/captions.json").read_text())["annotations"]
    return [row["caption"] for row in rows][:500]


def test_ids_equal_those_of_transformers(bert: Tokenizer, captions: list[str], tmp_path: Path) -> None:
    import transformers

    bert.save(tmp_path)
    peer = transformers.BertTokenizer.from_pretrained(str(tmp_path))
    odd = [
        "Crème brûlée — 3½ €",
        "x" * 150,
        "",
        "  two   spaces ",
        "[MASK] it",
        "don't-stop",
        "日本語 text",
        "a\u200bb",
    ]
    for text in [*captions, *odd]:
        assert bert.encode(text).ids == peer(text)["input_ids"], text
        assert bert.encode(text, length=9).ids == peer(text, truncation=True, max_length=9)["input_ids"], text


def test_data_spec_fields_of_bert(bert: Tokenizer) -> None:
    from vlcli.nn.model import DataSpec

    names = ("vocab_size", "pad_id", "unk_id", "cls_id", "sep_id", "mask_id")
    assert bert.data_spec_fields() == {name: getattr(DataSpec(), name) for name in names}


def test_pieces_know_their_words(bert: Tokenizer) -> None:
    sample = bert.encode("A surfboarder rides, unbelievably.", "k", length=20)
    assert bert.tokens(sample.ids)[:4] == ["[CLS]", "a", "surf", "##board"]
    assert sample.words == [-1, 0, 1, 1, 1, 2, 2, 3, 3, 3, 3, 3, 3, -1]
    assert sample.special == [True, *[False] * (len(sample.ids) - 2), True]
    assert (sample.key, bert.decode(sample.ids)) == ("k", "a surfboarder rides, unbelievably.")


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=60), st.integers(2, 12))
def test_lengths_and_specials_hold_for_any_text(text: str, length: int) -> None:
    sample = MADE.encode(text, length=length)
    assert len(sample.ids) == len(sample.special) == len(sample.words) <= length
    assert (sample.ids[0], sample.ids[-1]) == (MADE.ids["cls"], MADE.ids["sep"])
    assert sample.words == [*sorted(sample.words[:-1]), -1]
    assert max(sample.words) < max(len(text.split()), 1)


MADE = Tokenizer.train(TEXTS, 120)


def test_a_trained_vocabulary_is_the_same_in_every_process(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from vlcli.data.vocabulary import Tokenizer;"
        f"Tokenizer.train({TEXTS!r} * 3, 60).save(pathlib.Path(sys.argv[1]))"
    )
    for number in (1, 2):
        env = {**os.environ, "PYTHONHASHSEED": str(number)}
        subprocess.run([sys.executable, "-c", code, str(tmp_path / str(number))], check=True, env=env)
    for name in ("vocab.txt", "tokenizer.json"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


def test_saved_and_loaded_and_pickled_vocabularies_are_equal(tmp_path: Path) -> None:
    MADE.save(tmp_path)
    (tmp_path / "only").mkdir()
    (tmp_path / "vocab.txt").copy(tmp_path / "only/vocab.txt") if hasattr(Path, "copy") else (
        tmp_path / "only/vocab.txt"
    ).write_bytes((tmp_path / "vocab.txt").read_bytes())
    others = [Tokenizer.load(tmp_path), Tokenizer.load(tmp_path / "only"), Tokenizer.load(tmp_path / "vocab.txt")]
    for other in [*others, as_in_a_worker(MADE)]:
        assert [other.encode(text) for text in TEXTS] == [MADE.encode(text) for text in TEXTS]
        assert other.data_spec_fields() == MADE.data_spec_fields()


def test_case_is_kept_where_asked(tmp_path: Path) -> None:
    cased = Tokenizer.train(["Red red RED"], 40, lowercase=False)
    cased.save(tmp_path)
    again = Tokenizer.load(tmp_path)  # the folder says it, whatever the caller's default
    assert not again.lowercase
    assert len(set(again.encode("Red red RED").ids[1:-1])) == 3


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.text("abcde", min_size=1, max_size=6), st.integers(1, 9), min_size=1, max_size=12))
def test_enough_room_makes_every_word_one_piece(counts: dict[str, int]) -> None:
    pieces = learn(counts, 1000)
    assert len(set(pieces)) == len(pieces)
    assert set(counts) <= set(pieces)


def test_size_is_kept() -> None:
    assert len(MADE) <= 120
    small = Tokenizer.train(TEXTS, 60)
    assert len(small) == 60
    assert small.decode(small.encode(TEXTS[2]).ids) == TEXTS[2]


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda folder: Tokenizer.load(folder / "none.txt"), "not here"),
        (Tokenizer.load, "holds no vocabulary"),
        (lambda folder: Tokenizer.load(_write(folder / "v.txt", "a\nb\n")), "lacks a special token"),
        (lambda folder: Tokenizer.load(_write(folder / "v.txt", "[UNK]\na\na\n")), "twice"),
        (lambda folder: Tokenizer.load(_write(folder / "v.json", "{")), "damaged"),
        (lambda folder: Tokenizer.load("no-such/vocabulary-anywhere"), "not here"),
        (lambda folder: Tokenizer.train([], 100), "cannot be made"),
        (lambda folder: Tokenizer.train(TEXTS, 12), "cannot be made"),
    ],
)
def test_faults_are_data_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: object, what: str) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(DataError, match=what):
        make(tmp_path)


def test_a_byte_order_mark_is_no_part_of_the_first_piece(tmp_path: Path) -> None:
    file = _write(tmp_path / "vocab.txt", "\ufeff[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    assert Tokenizer.load(file).ids["pad"] == 0


def _write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path
