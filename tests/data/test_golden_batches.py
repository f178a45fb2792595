"""Golden batches: what a fixed pipeline gives, tensor by tensor, must never change by an improvement in speed.

The digests were taken before tokens were kept, stores were read by batch and corruptions drew in arrays.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from vlcli_dimbert.ablations import HideRegions, SwapBidirectional
from vlcli_dimbert.language import MaskCaption
from vlcli_lxmert.masked_object import MaskRegions

from vlcli.data import Example, Reader
from vlcli.data.pipeline import Pipeline
from vlcli.data.sample import Corruption
from vlcli.data.vocabulary import Tokenizer
from vlcli.features import FeatureStore, FeatureWriter, Record
from vlcli.nn.batch import Tensors
from vlcli.nn.model import DataSpec, InputSpec
from vlcli.objectives.matching import SwapSentence
from vlcli.objectives.mlm import MaskWords

WORDS = ["red", "green", "blue", "circle", "square", "star", "left", "right", "of", "a", "above", "no", "café"]
TOKENIZER = Tokenizer.train(WORDS[:8], 60)
DIM, IMAGES = 5, 40


class Made(Reader):
    """Captions over pictures, some with several sentences to choose from."""

    def __init__(self, root: Path, count: int = 90, name: str = "a", images: int = 1) -> None:
        super().__init__(root)
        self.count, self.name, self.per = count, name, images

    def files(self) -> list[Path]:
        return []

    def read(self) -> list[Example]:
        rng = np.random.default_rng(5 + self.count)
        return [self._one(number, rng) for number in range(self.count)]

    def _one(self, number: int, rng: np.random.Generator) -> Example:
        text = " ".join(rng.choice(WORDS, 2 + number % 7)) + "." * (number % 2)
        choices = [" ".join(rng.choice(WORDS, 3)) for _ in range(2 * (number % 5 == 0))]
        names = [f"i{(number // 2 + k) % IMAGES}" for k in range(self.per)]
        return Example(f"{self.name}{number}", text, names, targets={"label": number % 3}, choices=choices)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> FeatureStore:
    path = tmp_path_factory.mktemp("golden") / "features.h5"
    rng = np.random.default_rng(0)
    with FeatureWriter(path, {"extractor": "made"}) as writer:
        for number in range(IMAGES):
            count = 1 + number % 6
            corners = np.sort(rng.random((count, 2, 2)) * [64, 48], axis=1).reshape(count, 4).astype(np.float32)
            labels = {"classes": rng.integers(0, 7, count), "class_scores": rng.random(count).astype(np.float32)}
            labels |= {"attributes": rng.integers(0, 4, count), "attribute_scores": rng.random(count)}
            features = rng.standard_normal((count, DIM))
            writer.append(Record(f"i{number}", features, corners, (48, 64), **labels))
        writer.finish()
    return FeatureStore(path)


DATA_SPEC = DataSpec(region_dim=DIM, text_length=9, **TOKENIZER.data_spec_fields())
SHARES = (0.8, 0.1)


def corruptions(which: str) -> tuple[Corruption, ...]:
    """Those of LXMERT's pre-training, of VLMo's and of DiMBERT's, and none."""
    words: Any = lambda **options: MaskWords(DATA_SPEC, 0.3, SHARES, **options)  # noqa: E731
    return {
        "plain": (),
        "lxmert": (words(), MaskRegions(0.3, 0.8, 0.1, "corrupted"), SwapSentence(0.5, 0.0, "corrupted")),
        "foils": (words(whole_word=True), SwapSentence(0.7, 0.6, "corrupted")),
        "vlmo": (words(whole_word=True, rule="count", padded=20), SwapSentence(0.5, 0.0, "other")),
        "count": (words(rule="count", limit=3, end=True),),
        "dimbert": (
            MaskCaption(DATA_SPEC, 0.3, SHARES, 0.25, rule="count", limit=3, end=True),
            SwapBidirectional(0.5, 0.25, "corrupted"),
            HideRegions(0.4, "corrupted"),
        ),
    }[which]


def build(store: FeatureStore, root: Path, which: str, **changes: Any) -> Pipeline:
    options = {"needs": InputSpec(text=True, regions=True), "tokenizer": TOKENIZER, "data_spec": DATA_SPEC, "seed": 3}
    acting = corruptions("plain" if which in ("pair", "weights") else which)
    readers = [Made(root, images=2 if which == "pair" else 1)]
    if which == "weights":
        readers.append(Made(root, 30, "b"))
        readers[1].weight = 2.5
    return Pipeline(readers, store=store, corruptions=acting, **(options | changes))


FORMER = {"mask_labels": "marks"}
"""Fields that had another name when the digests were taken; their contents are the same."""


def digest(value: Any) -> str:
    """A number for every tensor, string and None of a batch, in their order."""
    seen = hashlib.sha256()

    def add(item: Any) -> None:
        if isinstance(item, torch.Tensor):
            seen.update(f"{item.dtype}{tuple(item.shape)}".encode() + item.contiguous().numpy().tobytes())
        elif isinstance(item, Tensors):
            for one in fields(item):
                add(FORMER.get(one.name, one.name))
                add(getattr(item, one.name))
        elif isinstance(item, dict):
            for name in sorted(item):
                add(name)
                add(item[name])
        elif isinstance(item, list):
            for one in item:
                add(one)
        else:
            seen.update(repr(item).encode())

    add(value)
    return seen.hexdigest()[:12]


def found(data: Pipeline) -> list[str]:
    """The first batch and the last of two epochs, shuffled."""
    chosen = []
    for epoch in (0, 1):
        batches = list(data.loader(16, shuffle=True, epoch=epoch))
        chosen += [digest(batches[0]), digest(batches[-1])]
    return chosen


GOLDEN: dict[str, list[str]] = {
    "count": ["ada94a9fef57", "0a33f7596a93", "62f8d08b33d1", "daade071375f"],
    "dimbert": ["6d2cb28d0792", "a6d431e4044c", "441083352432", "f55e9e84b688"],
    "foils": ["2c01ffae1310", "c44668f9d286", "7f03d9fc3130", "265ceaf8e6b0"],
    "lxmert": ["16e330394f1b", "643a6402fb26", "ec526a4ff807", "c2b199ab6f6d"],
    "pair": ["808dc888d53a", "a7384ff2f874", "6f5df24f3d45", "0330f75e0c45"],
    "plain": ["b500b828ac0e", "a38f8db299b0", "ab72a7daf1bc", "949d63ede994"],
    "vlmo": ["9ef298a63f0e", "83fc8ee69bff", "4a4bfb4bcd89", "7dcba62098ee"],
    "weights": ["0076d5b04522", "c8dadce6acb3", "156f2579417a", "074ee51967f9"],
}


@pytest.mark.parametrize("which", ["plain", "pair", "weights", "lxmert", "foils", "vlmo", "count", "dimbert"])
def test_batches_are_what_they_were(store: FeatureStore, tmp_path: Path, which: str) -> None:
    assert found(build(store, tmp_path, which, multiple=8 if which == "count" else 1)) == GOLDEN[which]
