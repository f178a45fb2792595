"""A batch that is read in one go, and sent from a worker in one piece, is the batch that single reads give."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.spawned import as_in_a_worker
from vlcli.data import Example
from vlcli.data.columns import index
from vlcli.data.columns.table import ColumnExamples, ExamplesWriter
from vlcli.data.dataset import Examples
from vlcli.data.loader import SMALL, Parcel
from vlcli.data.pipeline import Pipeline
from vlcli.data.readers.generic import JsonLines
from vlcli.data.sample import Corruption
from vlcli.data.vocabulary import Tokenizer
from vlcli.images.boxes import BoxList
from vlcli.nn.batch import Batch, Text, View
from vlcli.nn.model import InputSpec

names = st.text(st.characters(exclude_characters="\0"), max_size=6)
boxes = st.integers(0, 3).map(lambda n: BoxList(np.full((n, 4), 1.5, np.float32), classes=np.arange(n)))
targets = st.fixed_dictionaries(
    {},
    optional={
        "label": st.integers() | st.none(),
        "answers": st.dictionaries(names, st.floats(0, 1)),
        "boxes": boxes,
        "pair": st.tuples(names, st.none() | st.booleans()),
    },
)
examples = st.builds(
    Example,
    names,
    st.none() | st.text(max_size=20),
    st.lists(names, max_size=3),
    names,
    targets,
    st.lists(names, max_size=2),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(examples, min_size=1, max_size=12), st.data())
def test_examples_of_every_kind(written, data):
    indices = data.draw(st.lists(st.integers(0, len(written) - 1), max_size=20))
    with tempfile.TemporaryDirectory() as place:
        with ExamplesWriter(Path(place)) as writer:
            for example in written:
                writer.append(example)
        once, singly = ColumnExamples(Path(place)), ColumnExamples(Path(place))
        assert repr(once.together(indices)) == repr([singly[number] for number in indices])
        assert repr(list(once)) == repr(written) == repr(once.together(range(len(written))))
        assert list(once.texts()) == [example.text for example in written]
        assert [once.image_names(number) for number in indices] == [written[number].images for number in indices]


class Swaps(Corruption):
    """Gives a sentence a word of another's, and masks one of its own."""

    name = "swaps"

    def __call__(self, sample, rng, donor):
        other = donor().text
        if sample.text is None:
            return
        ids = list(sample.text.ids)
        ids[int(rng.integers(len(ids)))] = other.ids[1] if other is not None else 0
        sample.text.ids = ids
        sample.mask_labels.text["place"] = list(range(len(ids)))


def write(root: Path, count: int, **more: object) -> Path:
    root.mkdir()
    words = ["red", "green", "dog", "café", "street"]
    rng = np.random.default_rng(count)
    rows = [
        {"id": f"e{n}", "image": f"{n // 2}.jpg", "text": " ".join(rng.choice(words, n % 7 + 1))} for n in range(count)
    ]
    rows = [row | more for row in rows]
    (root / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return root


def tensors(value: object, name: str = "") -> dict[str, object]:
    """Everything that a batch holds, by name."""
    if isinstance(value, dict):
        return {key: one for part, item in value.items() for key, one in tensors(item, f"{name}.{part}").items()}
    if hasattr(value, "_items"):
        return tensors(dict(value._items()), name)
    return {name: (value.dtype, value.tolist()) if isinstance(value, torch.Tensor) else value}


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Three data sets with weights: one with boxes and answers, one with labels, one without sentences in columns."""
    place, made = tmp_path_factory.mktemp("mixed"), []
    more = [{"answers": {"yes": 1.0}, "boxes": [[1, 2, 3, 4]]}, {"label": 3}, {}]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(index.SMALLEST, "0")
        for number, given_more in enumerate(more):
            reader = JsonLines(write(place / str(number), 11 + 7 * number, **given_more))
            reader.cache, reader.weight = None if number == 2 else reader.root / "cache", (0.5, 2.5, 1)[number]
            made.append(reader)
        tokenizer = Tokenizer.train(["red", "green", "dog"], 40)
        return Pipeline(made, needs=InputSpec(text=True), tokenizer=tokenizer, length=8, seed=5, corruptions=[Swaps()])


def test_the_batches_of_several_data_sets(mixed, monkeypatch):
    assert sum(isinstance(part, ColumnExamples) for part in mixed.dataset._parts) == 2
    together = [tensors(batch) for batch in mixed.loader(9, shuffle=True, epoch=2)]
    with monkeypatch.context() as patch:
        patch.setattr(Examples, "read_together", lambda *_: {})
        singly = [tensors(batch) for batch in mixed.loader(9, shuffle=True, epoch=2)]
    assert repr(together) == repr(singly)
    assert [tensors(batch) for batch in mixed.loader(9, shuffle=True, epoch=2, workers=1)] == together


def test_an_example_that_comes_twice_in_a_batch_shares_nothing_that_may_change(mixed):
    batch = mixed.batch([1, 1 + mixed.total, 1])
    assert batch.keys == ["e1"] * 3
    assert len(batch.clean.text) == 1
    assert batch.seeds[0] == batch.seeds[2] != batch.seeds[1]


def test_a_parcel_gives_the_batch_that_was_put_in():
    text = Text(
        torch.arange(6).reshape(2, 3).t(), torch.ones(3, 2, dtype=torch.bool), torch.zeros(0, 4), torch.tensor(7)
    )
    view = View(
        text, None, torch.arange(2), torch.zeros(2, 0), mask_labels={"half": torch.ones(3, dtype=torch.bfloat16)}
    )
    batch = Batch(
        {"clean": view, "other": View(text, None, view.text_rows, view.image_rows)},
        {"big": torch.arange(SMALL), "words": ["a", None]},
        ["x", "y"],
        torch.tensor([2**62, 1]),
    )
    found = as_in_a_worker(Parcel(batch)).opened()
    assert repr(tensors(found)) == repr(tensors(batch))
    assert found.views["other"].text is found.clean.text
    assert found.views["other"].text_rows is found.clean.text_rows
    found.clean.text.ids.zero_()
    assert found.seeds.tolist() == [2**62, 1]
