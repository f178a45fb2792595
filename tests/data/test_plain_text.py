"""Plain text: both layouts, packed so that nothing is lost and nothing is too long."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vlcli.data.pipeline import Pipeline
from vlcli.data.readers.plain_text import PlainText
from vlcli.data.vocabulary import Tokenizer
from vlcli.errors import DataError
from vlcli.nn import DataSpec, InputSpec

WORDS = ["red", "circle", "square", "blue", "left", "of", "the", "a", "big"]
LINES = st.lists(st.sampled_from(WORDS), min_size=1, max_size=15)
TOKENIZER = Tokenizer.train([" ".join(WORDS)], 60)


def write(root: Path, documents: list[list[str]], name: str = "text/train.txt") -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join("\n".join(lines) for lines in documents) + "\n")


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(LINES, min_size=1, max_size=4), min_size=1, max_size=4), st.integers(4, 20), st.booleans())
def test_nothing_is_lost_and_nothing_is_too_long(
    tmp_path_factory: pytest.TempPathFactory, documents: list[list[list[str]]], length: int, across: bool
) -> None:
    root = tmp_path_factory.mktemp("r")
    write(root, [[" ".join(line) for line in lines] for lines in documents])
    reader = PlainText(root, across=across)
    reader.fit(TOKENIZER, length)
    texts = [example.text for example in reader.examples()]
    flat = [word for lines in documents for line in lines for word in line]
    assert " ".join(str(text) for text in texts).split() == flat
    assert all(len(TOKENIZER.pieces(str(text))) <= length - 2 for text in texts)
    if across:  # no two neighbours could have been one
        sizes = [len(TOKENIZER.pieces(str(text))) for text in texts]
        assert all(left > 0 for left in sizes)


def test_layout_of_extracted_wikipedia(tmp_path: Path) -> None:
    text = '<doc id="1" title="A">\nThe red circle. The blue square.\n</doc>\n\n<doc id="2">\nA big circle.\n</doc>\n'
    folder = tmp_path / "wiki" / "AA"
    folder.mkdir(parents=True)
    (folder / "wiki_00").write_text(text)
    reader = PlainText(tmp_path, files="wiki")
    reader.fit(TOKENIZER, 64)
    assert [example.text for example in reader.examples()] == ["The red circle. The blue square.", "A big circle."]


def test_json_lines_and_a_bad_one(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text('{"text": "a red circle\\nthe square"}\n\n{"text": "left"}\n')
    reader = PlainText(tmp_path, files="*.jsonl")
    reader.fit(TOKENIZER, 64)
    assert [example.text for example in reader.examples()] == ["a red circle the square", "left"]
    (tmp_path / "c.jsonl").write_text('{"text": "a"}\n{"words": 1}\n')
    with pytest.raises(DataError) as caught:
        PlainText(tmp_path, files="*.jsonl").examples()
    assert "c.jsonl:2" in str(caught.value.where)


def test_files_that_are_not_there_and_paths_that_leave(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="missing"):
        PlainText(tmp_path).examples()
    with pytest.raises(DataError, match="leaves"):
        PlainText(tmp_path, files="../x").examples()


def test_a_pipeline_packs(tmp_path: Path) -> None:
    write(tmp_path, [["a red circle", "the blue square", "left of the big square"]])
    data_spec = DataSpec(vocab_size=60, text_length=10)
    data = Pipeline([PlainText(tmp_path)], needs=InputSpec(text=True), tokenizer=TOKENIZER, data_spec=data_spec)
    batch = data.batch(range(len(data)))
    assert batch.clean.images is None
    assert len(data) == 2
    assert batch.clean.text.ids.shape[1] <= 10
