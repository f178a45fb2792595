"""Joint transforms: against timm and DETR's rules, together with boxes, label maps and sentences."""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from PIL import Image
from timm.data import create_transform

from vlcli import registry
from vlcli.ahead import THREAD
from vlcli.builders.readers import build_reader
from vlcli.data import Example, Reader
from vlcli.data.images import to_array
from vlcli.data.pipeline import Pipeline
from vlcli.data.transforms import Transform, TransformInput, crop, flip, may_flip, resize
from vlcli.data.transforms.base import lent, mirrored, mirrored_targets
from vlcli.data.transforms.detection import scaled_size
from vlcli.data.transforms.vl_augment import OPERATIONS, apply, randaugment
from vlcli.errors import ComponentError, DataError
from vlcli.images.boxes import BoxList
from vlcli.nn.model import InputSpec

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
NEEDS = InputSpec(pixels=True, size=(64, 64), mean=MEAN, std=STD)


def picture(height: int = 90, width: int = 120, seed: int = 0) -> Image.Image:
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (9, 12, 3), np.uint8))
    return small.resize((width, height), Image.Resampling.BICUBIC)


def as_input(transform: object, scene: TransformInput, rng: np.random.Generator) -> torch.Tensor:
    return torch.from_numpy(transform.finish(to_array(scene.image, NEEDS.size, MEAN, STD), rng))


@pytest.mark.parametrize("options", [{}, {"augment": "", "jitter": 0.4}, {"flip": 0.0, "interpolation": "bilinear"}])
def test_imagenet_draws_what_timm_draws(options: dict) -> None:
    """Same seeds, same pixels; erasing is drawn apart, since it comes after normalising."""
    transform = registry.build("transforms", {"name": "imagenet", "erasing": 0.0, **options}, NEEDS)
    named = {"auto_augment": options.get("augment", "rand-m9-mstd0.5-inc1") or None, "hflip": options.get("flip", 0.5)}
    named |= {"color_jitter": 0.4, "interpolation": options.get("interpolation", "bicubic"), "re_prob": 0.0}
    theirs = create_transform(64, is_training=True, mean=MEAN, std=STD, **named)
    for seed in range(12):
        scene = transform.train(TransformInput(picture(seed=seed)), np.random.default_rng(seed))
        with lent(np.random.default_rng(seed)):
            expected = theirs(picture(seed=seed))
        torch.testing.assert_close(as_input(transform, scene, np.random.default_rng(0)), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("options", [{"augment": "original"}, {"augment": "rand-m9-zz3"}, {"interpolation": "cubic"}])
def test_what_imagenet_refuses(options: dict) -> None:
    with pytest.raises(ComponentError, match=r"RandAugment|interpolation"):
        registry.build("transforms", {"name": "imagenet", **options}, NEEDS)


def test_imagenet_erases_as_timm_does() -> None:
    transform = registry.build("transforms", {"name": "imagenet", "erasing": 1.0}, NEEDS)
    theirs = create_transform(64, is_training=True, re_prob=1.0, re_mode="pixel", mean=MEAN, std=STD).transforms[-1]
    before = torch.from_numpy(to_array(picture(64, 64), None, MEAN, STD))
    with lent(np.random.default_rng(3)):
        expected = theirs(before.clone())
    found = torch.from_numpy(transform.finish(before.numpy(), np.random.default_rng(3)))
    assert not torch.equal(found, before)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("size", [(90, 120), (120, 77), (64, 64), (50, 300)])
def test_imagenet_scores_the_centre(size: tuple[int, int]) -> None:
    transform = registry.build("transforms", "imagenet", NEEDS)
    theirs = create_transform(64, is_training=False, mean=MEAN, std=STD, interpolation="bicubic", crop_pct=0.875)
    found = to_array(transform.evaluate(TransformInput(picture(*size))).image, NEEDS.size, MEAN, STD)
    torch.testing.assert_close(torch.from_numpy(found), theirs(picture(*size)), atol=1e-6, rtol=0)


def test_library_generators_are_given_back() -> None:
    torch.manual_seed(1)
    np.random.seed(1)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    with lent(np.random.default_rng(0)):
        torch.rand(3)
        np.random.rand(3)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()


def marked() -> TransformInput:
    """A black picture with a white rectangle: its box, and its label map."""
    pixels = np.zeros((40, 60, 3), np.uint8)
    pixels[10:30, 6:18] = 255
    boxes = np.array([[6, 10, 18, 30], [50, 0, 60, 5]], np.float32)
    labels = Image.fromarray((pixels[..., 0] > 0).astype(np.int32) * 7)
    return TransformInput(Image.fromarray(pixels), boxes, labels=labels, text="the white one on the left")


def bounds(image: Image.Image) -> list[int]:
    rows, columns = np.nonzero(np.asarray(image.convert("I")) > 6)
    return [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]


def test_everything_flips_together() -> None:
    scene = flip(marked())
    assert scene.boxes.tolist() == [[42, 10, 54, 30], [0, 0, 10, 5]]
    assert bounds(scene.image) == bounds(scene.labels) == [42, 10, 54, 30]
    assert scene.text == "the white one on the right"
    assert scene.flipped
    assert flip(scene).boxes.tolist() == marked().boxes.tolist()


def test_everything_is_cut_and_resized_together() -> None:
    scene = crop(marked(), 5, 10, 20, 30)
    assert scene.boxes.tolist() == [[0, 5, 8, 20]]
    assert scene.kept.tolist() == [0]  # the other box lies outside
    assert bounds(scene.labels) == [0, 5, 8, 20]
    scene = resize(scene, 40, 60)
    assert scene.boxes.tolist() == [[0, 10, 16, 40]]
    assert bounds(scene.labels) == [0, 10, 16, 40]
    assert crop(crop(marked(), 0, 30, 40, 30), 0, 5, 40, 25).kept.tolist() == [1]


def test_sentences_about_several_pictures_are_not_mirrored() -> None:
    scene = replace(marked(), pictures=2, text="The left image shows a cup")
    assert not may_flip(scene)
    assert may_flip(replace(scene, text="one image shows a cup"))
    assert may_flip(replace(scene, pictures=1))


def test_words_of_sides() -> None:
    assert mirrored("Left of the RIGHT, leftmost; a bright, leftover left-hand cup") == (
        "Right of the LEFT, rightmost; a bright, leftover right-hand cup"
    )
    targets = {"answers": {"left": 1.0, "on right": 0.3}, "raw_answers": ["left"], "label": 3, "kind": "left"}
    swapped = {"answers": {"right": 1.0, "on left": 0.3}, "raw_answers": ["right"], "label": 3, "kind": "left"}
    assert mirrored_targets(targets) == swapped


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_of_randaugment(name: str) -> None:
    image = picture().point(lambda value: value // 2 + 40)  # so that stretching the contrast does something
    assert np.array_equal(np.asarray(apply(image, name, 7, 1)), np.asarray(image)) == (name == "Identity")
    turned = name.startswith(("Shear", "Translate", "Rotate"))
    one, other = (np.asarray(apply(image, name, 7, sign)) for sign in (1, -1))
    assert np.array_equal(one, other) != turned


def test_brightness_has_albefs_strength() -> None:
    """Level 7 of 10 is a factor of 0.7 * 1.8 + 0.1."""
    grey = Image.new("RGB", (4, 4), (100, 100, 100))
    assert np.asarray(apply(grey, "Brightness", 7, 1)).max() == 136


def test_pictures_with_boxes_stay_in_place() -> None:
    """Only colours change: the rectangle is where its box says, whatever is drawn."""
    for seed in range(40):
        image = randaugment(marked().image, np.random.default_rng(seed), in_place=True)
        found = np.asarray(image).astype(int).sum(-1)
        inside = found[12:28, 8:16].mean()
        assert inside > found[:, 24:].mean() + 100


def test_vl_augment_flips_words(tmp_path: Path) -> None:
    transform = registry.build("transforms", {"name": "vl-augment", "scale": [1.0, 1.0], "operations": 0}, NEEDS)
    texts = [transform.train(marked(), np.random.default_rng(seed)).text for seed in range(30)]
    assert {"the white one on the left", "the white one on the right"} == set(texts)


@pytest.mark.parametrize(
    ("size", "short", "longest", "wanted"),
    [((480, 640), 800, 1333, (800, 1066)), ((480, 640), 480, 1333, (480, 640)), ((200, 1000), 800, 1333, (267, 1335))],
)
def test_detectors_sizes(size: tuple, short: int, longest: int, wanted: tuple) -> None:
    """As torchvision-era DETR: the limit is rounded first, the longer side cut to whole pixels."""
    assert scaled_size(size, short, longest) == wanted


def test_detection_keeps_boxes_on_their_content() -> None:
    options = {"shorts": [48, 64], "longest": 120, "before_crop": [40, 50], "crop_sides": [24, 48]}
    transform = registry.build("transforms", {"name": "detection", **options}, replace(NEEDS, size=None))
    sizes = set()
    for seed in range(60):
        scene = transform.train(marked(), np.random.default_rng(seed))
        sizes.add(scene.size)
        kept = [0, 1] if scene.kept is None else scene.kept.tolist()
        if 0 in kept and (np.asarray(scene.labels) == 7).any():
            box = scene.boxes[kept.index(0)]
            assert np.abs(box - bounds(scene.labels)).max() <= 2.5
    assert len(sizes) > 4
    assert transform.evaluate(marked()).size == (64, 96)


class Placed(Reader):
    """Six pictures with boxes, label maps and sentences."""

    def files(self) -> list[Path]:
        return []

    def read(self) -> list[Example]:
        facts = {"targets": {"answers": {"left": 1.0}}}
        return [Example(f"e{n}", "a cup on the left", [f"i{n}"], **facts) for n in range(6)]

    def locate(self, name: str) -> Path:
        return self.root / f"{name}.png"

    def boxes(self) -> dict[str, BoxList]:
        return {f"i{n}": BoxList(np.array([[6, 10, 18, 30]], np.float32), classes=np.array([n])) for n in range(6)}

    def label_maps(self) -> dict[str, Path]:
        return {f"i{n}": self.root / f"m{n}.png" for n in range(6)}


@pytest.fixture
def placed(tmp_path: Path) -> Placed:
    scene = marked()
    for number in range(6):
        scene.image.save(tmp_path / f"i{number}.png")
        Image.fromarray(np.asarray(scene.labels).astype(np.uint8)).save(tmp_path / f"m{number}.png")
    return Placed(tmp_path)


def pipeline(reader: Reader, **options: object) -> Pipeline:
    needs = InputSpec(pixels=True, boxes=True, label_maps=True, size=(40, 60), mean=(0, 0, 0), std=(1, 1, 1))
    transform = registry.build("transforms", {"name": "resize", "flip": 0.5}, needs)
    return Pipeline([reader], needs=needs, transform=transform, **{"training": True, **options})


def test_the_pipeline_hands_everything_on(placed: Placed) -> None:
    batch = pipeline(placed).batch(range(6))
    pixels = batch.clean.images.pixels
    assert pixels.label_map.shape == (6, 40, 60)
    assert torch.equal(pixels.label_map == 7, pixels.images[:, 0] > 0.5)
    sides = {
        (round(box[0, 0].item(), 2), *target)
        for box, target in zip(pixels.boxes, batch.targets["answers"], strict=True)
    }
    assert sides == {(0.1, "left"), (0.7, "right")}  # a flip moves box and answer


def test_epochs_differ_and_workers_do_not(placed: Placed) -> None:
    def flips(workers: int, epoch: int) -> list[bool]:
        batches = pipeline(placed).loader(6, shuffle=False, epoch=epoch, workers=workers)
        return [bool(box[0, 0] > 0.5) for batch in batches for box in batch.clean.images.pixels.boxes]

    drawn = [flips(0, epoch) for epoch in range(4)]
    assert len({tuple(found) for found in drawn}) > 1
    assert flips(1, 2) == drawn[2]


def test_scores_are_taken_without_chance(placed: Placed) -> None:
    pixels = pipeline(placed, training=False).batch(range(6), epoch=3).clean.images.pixels
    assert pixels.boxes[:, 0, 0].tolist() == pytest.approx([0.1] * 6)


def test_repeated_augmentation(placed: Placed) -> None:
    """An epoch keeps its length; the copies of an example are drawn apart."""
    data = pipeline(placed, repeats=3)
    batches = list(data.loader(6, shuffle=True, epoch=1))
    keys = [key for batch in batches for key in batch.keys]
    assert len(keys) == 6
    assert keys[:3] == [keys[0]] * 3
    assert len(set(keys)) == 2
    flips = [bool(box[0, 0] > 0.5) for epoch in range(8) for b in data.loader(6, shuffle=True, epoch=epoch)
             for box in b.clean.images.pixels.boxes]  # fmt: skip
    triples = [tuple(flips[i : i + 3]) for i in range(0, len(flips), 3)]
    assert any(len(set(triple)) == 2 for triple in triples)
    ranks = [
        [k for b in pipeline(placed, repeats=3).loader(6, shuffle=True, epoch=1, rank=r, world=3) for k in b.keys]
        for r in range(3)
    ]
    assert ranks[0] == ranks[1] == ranks[2]  # as DeiT's sampler: each process one copy


def test_a_label_map_that_does_not_fit(placed: Placed) -> None:
    Image.new("L", (3, 3)).save(placed.root / "m2.png")
    with pytest.raises(DataError, match="does not fit"):
        pipeline(placed).batch([2])


class Seen(Transform):
    """Notes the threads that change pictures."""

    threads: ClassVar[list[str]] = []

    def train(self, scene: TransformInput, rng: np.random.Generator) -> TransformInput:
        self.threads.append(threading.current_thread().name)
        if self.draws:
            with lent(rng):
                torch.rand(1)
        return scene


@pytest.mark.parametrize(("draws", "says_so"), [(False, False), (True, True), (True, False)])
def test_pictures_that_borrow_generators_are_not_changed_while_the_model_trains(draws, says_so, tmp_path, monkeypatch):
    (tmp_path / "images").mkdir()
    for number in range(8):
        picture(seed=number).save(tmp_path / f"images/{number}.png")
    monkeypatch.setattr(Seen, "draws", draws, raising=False)
    monkeypatch.setattr(Seen, "borrows_generators", says_so)
    monkeypatch.setattr(Seen, "threads", [])
    reader = build_reader({"name": "folder", "images": "images"}, tmp_path)
    loader = Pipeline([reader], needs=NEEDS, transform=Seen(NEEDS), training=True).loader(2)
    if draws and not says_so:
        with pytest.raises(ComponentError, match="borrows the global generators") as caught:
            list(loader)
        assert "borrows_generators = True" in caught.value.expected
    else:
        list(loader)
        assert set(Seen.threads) == ({"MainThread"} if draws else {"MainThread", THREAD})  # the first batch in this one


def test_the_built_in_transforms_say_whether_they_borrow_generators(tmp_path, monkeypatch):
    borrowed = []

    @contextmanager
    def noting(rng):
        borrowed.append(1)
        with lent(rng):
            yield

    for name in registry.names("transforms"):
        kind = registry.of(Transform).load(name)
        monkeypatch.setattr(sys.modules[kind.__module__], "lent", noting, raising=False)
        transform = registry.of(Transform).build(name, NEEDS)
        borrowed.clear()
        for seed in range(12):
            rng = np.random.default_rng(seed)
            transform.finish(to_array(transform.train(TransformInput(picture()), rng).image, None, MEAN, STD), rng)
        assert kind.borrows_generators == bool(borrowed), name
