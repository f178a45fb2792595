"""The pipeline: batches do not depend on workers or resumes, donors are lazy, and faults are named before training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from PIL import Image

from tests.spawned import as_in_a_worker
from vlcli.data import Corruption, Donor, Example, Reader, Sample
from vlcli.data.pipeline import Pipeline
from vlcli.data.transforms import Transform
from vlcli.data.vocabulary import Tokenizer
from vlcli.errors import DataError
from vlcli.features import FeatureStore, FeatureWriter, Record
from vlcli.images.boxes import BoxList
from vlcli.nn.batch import Batch
from vlcli.nn.model import DataSpec, InputSpec

WORDS = ["red", "green", "blue", "circle", "square", "star", "left", "right", "of", "a"]
TOKENIZER = Tokenizer.train(WORDS, 90)
REGIONS = InputSpec(text=True, regions=True)
DIM = 6


class Made(Reader):
    """Examples made on the spot: ``count`` captions on ``count / 2`` images."""

    def __init__(self, root: Path, count: int = 12, name: str = "i", images: int = 1) -> None:
        super().__init__(root)
        self.count, self.name, self.per = count, name, images

    def files(self) -> list[Path]:
        return []

    def read(self) -> list[Example]:
        rng = np.random.default_rng(5)
        return [
            Example(
                f"e{number}",
                " ".join(rng.choice(WORDS, 3 + number % 4)),
                [f"{self.name}{(number // 2 + k) % 6}" for k in range(self.per)],
                targets={"label": number % 3},
            )
            for number in range(self.count)
        ]

    def boxes(self) -> dict[str, BoxList]:
        box = np.array([[0, 0, 8, 4], [2, 2, 6, 6]], np.float32)
        return {f"i{n}": BoxList(box, classes=np.array([n, 1]), attributes=np.array([0, -1])) for n in range(6)}


class Hide(Corruption):
    """Replaces pieces by [MASK]."""

    name, view, phase = "hide", "corrupted", "tokens"

    def __call__(self, sample: Sample, rng: np.random.Generator, donor: Donor) -> None:
        chosen = rng.random(len(sample.text.ids)) < 0.4
        labels = [piece if hide else -1 for piece, hide in zip(sample.text.ids, chosen, strict=True)]
        ids = [4 if hide else piece for piece, hide in zip(sample.text.ids, chosen, strict=True)]
        sample.text = replace(sample.text, ids=ids)
        sample.mask_labels.text["hide"] = labels


class Swap(Corruption):
    """Takes a donor's sentence half of the time."""

    name, view, phase = "swap", "corrupted", "sentence"

    def __call__(self, sample: Sample, rng: np.random.Generator, donor: Donor) -> None:
        swapped = rng.random() < 0.5
        if swapped:
            sample.text = donor().text
        sample.mask_labels.example["swap"] = int(swapped)


class Borrow(Corruption):
    """Takes a donor's region features."""

    name, view, phase = "borrow", "regions", "regions"

    def __call__(self, sample: Sample, rng: np.random.Generator, donor: Donor) -> None:
        other = donor().images[0]
        sample.images[0] = replace(other, key="borrowed")
        sample.mask_labels.regions["borrow"] = np.ones(len(other.features), np.float32)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> FeatureStore:
    path = tmp_path_factory.mktemp("store") / "features.h5"
    rng = np.random.default_rng(0)
    with FeatureWriter(path, {"extractor": "made"}) as writer:
        for number in range(6):
            boxes = np.array([[0, 0, 10, 5], [1, 1, 20, 10], [5, 5, 6, 6]], np.float32)[: 1 + number % 3]
            features = rng.standard_normal((len(boxes), DIM))
            writer.append(Record(f"i{number}", features, boxes, (10, 20), classes=np.full(len(boxes), number)))
        writer.finish()
    return FeatureStore(path)


def build(
    store: FeatureStore, root: Path, corruptions: tuple = (Hide(), Swap(), Borrow()), **changes: object
) -> Pipeline:
    options = {
        "needs": REGIONS,
        "tokenizer": TOKENIZER,
        "data_spec": DataSpec(region_dim=DIM, text_length=8),
        "seed": 3,
    }
    return Pipeline([Made(root, 13)], store=store, corruptions=corruptions, **(options | changes))


def same(one: object, other: object) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if hasattr(one, "__dataclass_fields__"):
        return all(same(getattr(one, name), getattr(other, name)) for name in one.__dataclass_fields__)
    return one == other


def all_same(one: list[Batch], other: list[Batch]) -> bool:
    return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_change_nothing(store: FeatureStore, tmp_path: Path, context: str) -> None:
    data = build(store, tmp_path)
    for epoch in (0, 1) if context == "fork" else (0,):
        alone = list(data.loader(4, shuffle=True, epoch=epoch))
        helped = list(data.loader(4, shuffle=True, epoch=epoch, workers=2 if context == "fork" else 1, context=context))
        assert all_same(alone, helped)
        assert helped[0].views["corrupted"].images is helped[0].clean.images  # identity survives the trip


def test_a_resume_sees_what_was_left(store: FeatureStore, tmp_path: Path) -> None:
    whole = list(build(store, tmp_path).loader(4, shuffle=True, epoch=2))
    assert all_same(list(build(store, tmp_path).loader(4, shuffle=True, epoch=2, start_batch=2)), whole[2:])
    data = build(store, tmp_path)
    next(iter(data.loader(4, shuffle=True, epoch=2, workers=1)))  # left in the middle
    assert all_same(list(data.loader(4, shuffle=True, epoch=2, start_batch=1, workers=1)), whole[1:])


def test_two_processes_see_one_batch(store: FeatureStore, tmp_path: Path) -> None:
    data = build(store, tmp_path)
    whole = list(data.loader(4, shuffle=True))
    halves = [list(data.loader(4, shuffle=True, rank=rank, world=2)) for rank in (0, 1)]
    for number, batch in enumerate(whole[:3]):
        for rank in (0, 1):
            part = halves[rank][number]
            assert part.keys == batch.keys[rank::2]
            assert torch.equal(part.seeds, batch.seeds[rank::2])
            marks = part.views["corrupted"].mask_labels["swap"]
            assert torch.equal(marks, batch.views["corrupted"].mask_labels["swap"][rank::2])


def test_epochs_draw_anew_and_repetitions_too(store: FeatureStore, tmp_path: Path) -> None:
    data = build(store, tmp_path)
    first, second = data.batch(range(13), 0), data.batch(range(13), 1)
    assert not torch.equal(first.seeds, second.seeds)
    assert (
        first.views["corrupted"].mask_labels["hide"].tolist() != second.views["corrupted"].mask_labels["hide"].tolist()
    )
    assert not torch.equal(first.seeds, data.batch(range(13, 26)).seeds)
    assert same(first.clean, second.clean)


def test_views_follow_their_phases(store: FeatureStore, tmp_path: Path) -> None:
    batch = build(store, tmp_path).batch(range(13))
    corrupted, regions = batch.views["corrupted"], batch.views["regions"]
    labels, ids = corrupted.mask_labels["hide"], corrupted.text.ids
    restored = torch.where(labels >= 0, labels, ids)
    clean = batch.clean.text.ids[batch.clean.text_rows]
    for row, swapped in enumerate(corrupted.mask_labels["swap"].tolist()):
        own = [piece for piece in clean[row].tolist() if piece]
        got = [piece for piece in restored[row].tolist() if piece]
        assert swapped or own == got  # words are hidden in the sentence that is finally used
    assert 0 < corrupted.mask_labels["swap"].sum() < 13
    assert regions.text is batch.clean.text
    assert set(regions.images.keys) == {"borrowed"}
    assert regions.mask_labels["borrow"].shape == regions.images.regions.mask.shape
    assert regions.images.regions.features.shape[0] == 13


def test_donors_read_no_picture_unless_asked(
    store: FeatureStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = build(store, tmp_path, (Swap(),))
    read: list[str] = []
    plain = FeatureStore.read

    def noted(self: FeatureStore, name: str, *args: object, **options: object) -> Record:
        read.append(name)
        return plain(self, name, *args, **options)

    at_once = FeatureStore.read_batch

    def noted_together(self: FeatureStore, names: list[str], *args: object, **options: object) -> object:
        read.extend(names)
        return at_once(self, names, *args, **options)

    monkeypatch.setattr(FeatureStore, "read", noted)
    monkeypatch.setattr(FeatureStore, "read_batch", noted_together)
    batch = data.batch(range(4))
    assert sorted(read) == sorted(batch.clean.images.keys)
    donors = [data.dataset.draw_donor(0, 0, np.random.default_rng(seed)) for seed in range(40)]
    assert len(read) == len(batch.clean.images.keys)
    assert {donor.key for donor in donors} == {f"e{n}" for n in range(1, 13)}  # any but itself
    assert donors[0].images[0].features.shape[1] == DIM
    assert len(read) == len(batch.clean.images.keys) + 1


def test_features_and_boxes_arrive(store: FeatureStore, tmp_path: Path) -> None:
    images = build(store, tmp_path, ()).batch([2]).clean.images
    assert images.keys == ["i1"]
    record = store.read("i1")
    assert np.array_equal(images.regions.features[0].numpy(), record.features.astype(np.float32))
    assert images.regions.boxes[0].tolist() == [[0, 0, 0.5, 0.5], pytest.approx([0.05, 0.1, 1, 1])]
    assert images.regions.sizes.tolist() == [[10, 20]]
    assert images.regions.classes.tolist() == [[1, 1]]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_damaged_record_ends_an_epoch_with_one_message(store: FeatureStore, tmp_path: Path, workers: int) -> None:
    path = tmp_path / "features.h5"
    path.write_bytes(store.paths[0].read_bytes())
    with h5py.File(path, "r+") as file:
        file["sets/boxes/features"][-1] += 1
    data = build(FeatureStore(path), tmp_path)
    with pytest.raises(DataError, match="does not match its checksum") as caught:
        list(data.loader(4, shuffle=True, workers=workers))
    assert (caught.value.exit_code, caught.value.where) == (5, str(path))
    assert "Traceback" not in str(caught.value)


def test_missing_features_are_an_error_or_counted(store: FeatureStore, tmp_path: Path) -> None:
    readers = [Made(tmp_path, 13), Made(tmp_path, 4, name="j")]
    with pytest.raises(DataError, match="2 of 2 images of Made") as caught:
        Pipeline(readers, needs=REGIONS, tokenizer=TOKENIZER, store=store)
    for fact in ("j0", store.where, "vlcli extract", "missing=drop"):
        assert fact in str(caught.value)
    data = Pipeline(readers, needs=REGIONS, tokenizer=TOKENIZER, store=store, missing="drop")
    assert (len(data), data.dropped) == (13, 4)
    assert list(data.reader_counts.values()) == [13, 0]
    with pytest.raises(DataError, match="no example is left"):
        Pipeline(readers[1:], needs=REGIONS, tokenizer=TOKENIZER, store=store, missing="drop")


def test_what_does_not_fit_is_refused(store: FeatureStore, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not as wide") as caught:
        build(store, tmp_path, data_spec=DataSpec(region_dim=2048))
    assert caught.value.got == "6 numbers a region"
    for changes, what in (({"tokenizer": None}, "no vocabulary"), ({"store": None}, "no store")):
        with pytest.raises(DataError, match=what):
            Pipeline([Made(tmp_path)], **({"needs": REGIONS, "tokenizer": TOKENIZER, "store": store} | changes))
    with pytest.raises(DataError, match="different numbers of images"):
        Pipeline([Made(tmp_path), Made(tmp_path, images=2)], needs=REGIONS, tokenizer=TOKENIZER, store=store)


def test_weights_mix_data_sets(store: FeatureStore, tmp_path: Path) -> None:
    readers = [Made(tmp_path, 10), Made(tmp_path, 12)]
    readers[1].weight = 0.5
    data = Pipeline(readers, needs=REGIONS, tokenizer=TOKENIZER, store=store)
    assert (len(data), data.total) == (16, 22)
    assert sum(len(batch) for batch in data.loader(5, shuffle=True)) == 16
    assert sum(len(batch) for batch in data.loader(5)) == 22


def test_a_batch_grouped_by_picture_loads_each_picture_once(store: FeatureStore, tmp_path: Path) -> None:
    data = Pipeline([Made(tmp_path, 36)], needs=REGIONS, tokenizer=TOKENIZER, store=store, group="image")
    whole = list(data.loader(6, shuffle=True, epoch=1))
    assert [len(batch.clean.images) for batch in whole] == [1] * 6
    assert sorted(key for batch in whole for key in batch.keys) == sorted(f"e{number}" for number in range(36))
    assert all_same(list(data.loader(6, shuffle=True, epoch=1, start_batch=4)), whole[4:])
    halves = [list(data.loader(6, shuffle=True, epoch=1, rank=rank, world=2)) for rank in (0, 1)]
    assert [batch.keys for batch in halves[1]] == [batch.keys[1::2] for batch in whole]


def pictures(folder: Path, count: int = 6) -> None:
    folder.mkdir()
    for number in range(count):
        Image.fromarray(np.full((8, 16, 3), number * 40, np.uint8)).save(folder / f"i{number}.png", compress_level=0)


PIXELS = InputSpec(text=True, pixels=True, boxes=True, size=(4, 4), mean=(0, 0, 0), std=(1, 1, 1))


def test_pixels_with_boxes(tmp_path: Path) -> None:
    pictures(tmp_path / "images")
    data = Pipeline([Made(tmp_path)], needs=PIXELS, tokenizer=TOKENIZER)
    pixels = data.batch([4, 5, 6]).clean.images.pixels
    assert pixels.images.shape == (2, 3, 4, 4)
    assert pixels.images[0].unique().tolist() == pytest.approx([80 / 255])
    assert pixels.boxes[0].tolist() == [[0, 0, 0.5, 0.5], [0.125, 0.25, 0.375, 0.75]]
    assert pixels.classes.tolist() == [[2, 1], [3, 1]]
    assert pixels.attributes.tolist() == [[0, -1], [0, -1]]
    assert pixels.sizes.tolist() == [[8, 16], [8, 16]]


def test_joint_transforms_are_drawn_per_example(tmp_path: Path) -> None:
    pictures(tmp_path / "images")
    data = Pipeline(
        [Made(tmp_path)], needs=PIXELS, tokenizer=TOKENIZER, transform=Transform(PIXELS, flip=0.5), training=True
    )
    batch = data.batch(range(12))
    flipped = batch.clean.images.pixels.boxes[:, 0, 0] > 0
    assert len(batch.clean.images) == 12  # each example has its own picture
    assert 0 < flipped.sum() < 12
    assert same(batch, data.batch(range(12)))


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (lambda path: path.write_bytes(b""), "empty"),
        (lambda path: path.write_bytes(path.read_bytes()[:200]), ""),
        (lambda path: path.write_text("no picture"), ""),
    ],
)
@pytest.mark.parametrize("workers", [0, 1])
def test_bad_pictures_are_named(tmp_path: Path, spoil: Callable, what: str, workers: int) -> None:
    pictures(tmp_path / "images")
    spoil(tmp_path / "images/i3.png")
    data = Pipeline([Made(tmp_path)], needs=PIXELS, tokenizer=TOKENIZER)
    with pytest.raises(DataError, match="cannot be read") as caught:
        list(data.loader(4, workers=workers))
    assert caught.value.where.endswith("i3.png")
    assert what in caught.value.got
    assert caught.value.got


def test_missing_pictures(tmp_path: Path) -> None:
    pictures(tmp_path / "images", 4)
    with pytest.raises(DataError, match="2 of 6 images"):
        Pipeline([Made(tmp_path)], needs=PIXELS, tokenizer=TOKENIZER)
    assert Pipeline([Made(tmp_path)], needs=PIXELS, tokenizer=TOKENIZER, missing="drop").dropped == 4


class Several(Made):
    """One example an image, its caption drawn each epoch."""

    def read(self) -> list[Example]:
        return [Example("e", "red", ["i0"], choices=["green", "blue"])]


def test_captions_are_drawn_each_epoch(store: FeatureStore, tmp_path: Path) -> None:
    data = Pipeline([Several(tmp_path)], needs=REGIONS, tokenizer=TOKENIZER, store=store)
    drawn = [data.batch([0], epoch).clean.text.raw[0] for epoch in range(30)]
    assert set(drawn) == {"red", "green", "blue"}
    assert drawn == [data.batch([0], epoch).clean.text.raw[0] for epoch in range(30)]


def test_lengths_and_pickling(store: FeatureStore, tmp_path: Path) -> None:
    data = build(store, tmp_path)
    list(data.loader(4, workers=1))
    copy = as_in_a_worker(data)
    assert same(copy.batch(range(5)), data.batch(range(5)))
    assert data.lengths.tolist() == [int(data.batch([n]).clean.text.mask.sum()) for n in range(13)]
    assert data.lengths.max() == 8  # cut to the model's length
    assert data[3].key == "e3"
