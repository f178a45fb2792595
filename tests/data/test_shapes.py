"""The shapes world as a whole: deterministic, whole or absent, and its pictures and COCO files are exact."""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO
from shapes_oracle import NUMBERS, SMALL, matching, read, related, small_world, things

from vlcli.data.shapes import PALETTE, ShapesConfig, config_of, describe, make_shapes
from vlcli.errors import DataError, UsageError
from vlcli.progress import Silent

TINY = ShapesConfig(images=70, nlvr2_train=80, nlvr2_dev=24, nlvr2_test=24, albums=2, imagenet=40, ade20k=8)


def digest(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_bytes_follow_from_the_configuration_alone(tmp_path):
    make_shapes(tmp_path / "one", TINY, Silent())
    make_shapes(tmp_path / "two", TINY, Silent(), workers=2)
    make_shapes(tmp_path / "other", replace(TINY, seed=1), Silent())
    one, other = digest(tmp_path / "one"), digest(tmp_path / "other")
    assert one == digest(tmp_path / "two")
    assert one["coco/annotations/captions_train.json"] != other["coco/annotations/captions_train.json"]
    assert one["images/train/000000000001.png"] != other["images/train/000000000001.png"]


def test_parts_do_not_disturb_one_another(tmp_path):
    make_shapes(tmp_path / "part", replace(TINY, parts=("karpathy", "nlvr2")), Silent())
    make_shapes(tmp_path / "whole", TINY, Silent())
    part, whole = digest(tmp_path / "part"), digest(tmp_path / "whole")
    assert part.keys() < whole.keys()
    assert all(whole[name] == value for name, value in part.items() if name != "shapes.json")


def test_splits_share_no_picture():
    seen = defaultdict(set)
    for name, value in digest(small_world()).items():
        if name.endswith((".png", ".jpg")) and "ade20k/annotations" not in name:
            seen[value].add(name)
    assert all(len(names) == 1 for names in seen.values())


def test_describe_and_config_tell_what_was_made():
    counts = describe(small_world())
    assert counts["pictures"] == SMALL.images
    assert counts["captions"] == SMALL.images * SMALL.captions
    assert counts["nlvr2 statements"] == SMALL.nlvr2_train + SMALL.nlvr2_dev + SMALL.nlvr2_test
    assert config_of(small_world()) == SMALL


def test_a_foreign_folder_is_refused_and_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(DataError, match="not a shapes world"):
        make_shapes(tmp_path, TINY, Silent())
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    with pytest.raises(DataError, match="no finished shapes world"):
        describe(tmp_path)
    (tmp_path / "shapes.json").mkdir()
    (tmp_path / "shapes.json" / "mine.txt").write_text("keep")
    with pytest.raises(DataError, match="not a shapes world"):
        make_shapes(tmp_path, TINY, Silent())
    file = tmp_path / "shapes.json" / "shapes.json"
    file.write_text("[1]")
    with pytest.raises(DataError, match="not a shapes world"):
        make_shapes(file, TINY, Silent())
    with pytest.raises(DataError, match="no finished shapes world"):
        config_of(file.parent)
    file.write_text("{}")
    with pytest.raises(DataError, match="another version"):
        config_of(file.parent)
    assert file.read_text() == "{}"


def test_an_earlier_world_is_replaced(tmp_path):
    only = replace(TINY, parts=("karpathy",), images=20)
    make_shapes(tmp_path / "world", replace(only, images=30), Silent())
    make_shapes(tmp_path / "world", only, Silent())
    assert describe(tmp_path / "world")["pictures"] == 20
    assert [path.name for path in tmp_path.iterdir()] == ["world"]


class Interrupted(Silent):
    """Ctrl-C in the middle of the drawing."""

    @contextlib.contextmanager
    def task(self, label, total, unit="it", done=0):
        if label.startswith("nlvr2"):
            raise KeyboardInterrupt
        yield type("Step", (), {"advance": lambda *_, **__: None})()


def test_an_interrupted_run_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        make_shapes(tmp_path / "world", TINY, Interrupted())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"parts": ("coco", "voc")},
        {"statements": ()},
        {"question_types": ("count", "why")},
        {"objects": (1, 9)},
        {"size": 20},
        {"colours": ("red", "red", "blue")},
        {"more_gaps": (9,)},
        {"images": 3},
    ],
)
def test_what_cannot_be_made_is_refused(fields):
    with pytest.raises(UsageError) as error:
        ShapesConfig(**fields)
    assert next(iter(fields)) in error.value.where
    assert error.value.expected


def test_torch_stays_out():
    code = "import sys, vlcli.data.shapes; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def coco(path):
    with contextlib.redirect_stdout(io.StringIO()):
        return COCO(str(small_world() / path))


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_pycocotools_reads_boxes_and_masks(split):
    api = coco(f"coco/annotations/instances_{split}.json")
    numbers = api.getAnnIds()
    assert len(numbers) >= 2 * len(api.getImgIds())
    for row in api.loadAnns(numbers[:150]):
        mask = api.annToMask(row)
        ys, xs = mask.nonzero()
        assert mask.sum() == row["area"] > 0
        assert [xs.min(), ys.min(), np.ptp(xs) + 1, np.ptp(ys) + 1] == row["bbox"]


def test_masks_lie_on_the_drawn_pixels():
    """Inside a mask the picture has the annotated colour, and masks do not overlap."""
    api = coco("coco/annotations/instances_val.json")
    words = {row["id"]: row["name"] for row in api.dataset["attribute_categories"]}
    for image in api.loadImgs(api.getImgIds()[:20]):
        pixels = np.asarray(Image.open(small_world() / "images" / image["file_name"]))
        rows = api.loadAnns(api.getAnnIds(image["id"]))
        masks = [api.annToMask(row) for row in rows]
        assert pixels.shape == (SMALL.size, SMALL.size, 3)
        assert sum(masks).max() == 1
        for row, mask in zip(rows, masks, strict=True):
            middle = np.median(pixels[mask > 0], axis=0)
            nearest = min(PALETTE, key=lambda name: np.abs(np.asarray(PALETTE[name]) - middle).sum())
            assert nearest == words[row["attributes"][0]]


def test_picture_files_are_the_ones_named():
    listed = {
        row["file_name"]
        for split in ("train", "val", "test")
        for row in read(f"coco/annotations/captions_{split}.json")["images"]
    }
    written = {str(path.relative_to(small_world() / "images")) for path in (small_world() / "images").rglob("*.png")}
    assert listed == written
    assert len(listed) == SMALL.images


LINE = r"(an? [a-z ]+?)"
SAID = rf"(?:there is |){LINE} (?:is )?(left|right|above|below)(?: of)? {LINE}"


def test_captions_are_true():
    """Relations, counts and lists of every caption recomputed from the annotated boxes."""
    checked = Counter()
    for split in ("train", "val", "test"):
        found = things(f"coco/annotations/instances_{split}.json")
        document = read(f"coco/annotations/captions_{split}.json")
        names = {row["id"]: row["file_name"] for row in document["images"]}
        for row in document["annotations"]:
            checked[check_caption(row["caption"][0].lower() + row["caption"][1:-1], found[names[row["image_id"]]])] += 1
    assert all(checked[form] > 20 for form in ("relation", "place", "compare", "list", "absent"))
    assert sum(checked.values()) == SMALL.images * SMALL.captions


def check_caption(text, seen):
    """The form of a caption; asserts that it is true."""
    found = re.fullmatch(SAID, text)
    if found:
        assert related(*found.groups(), seen), text
        return "relation"
    found = re.fullmatch(r"there are (more|fewer) ([a-z]+) than ([a-z]+)", text)
    if found:
        one, two = (len(matching(words, seen)) for words in found.groups()[1:])
        assert (one > two) if found[1] == "more" else (one < two), text
        return "compare"
    found = re.fullmatch(rf"(?:there is |){LINE} (?:is )?(?:in|at|on) the ([a-z ]+)", text)
    if found:
        assert any(in_region(thing, found[2]) for thing in matching(found[1], seen)), text
        return "place"
    found = re.fullmatch(r"a picture without an? ([a-z ]+)", text)
    if found:
        assert not matching(found[1], seen), text
        return "absent"
    text = re.sub(r"^(there (is|are)|the picture (shows|contains)|a picture of) (exactly )?", "", text)
    needed = Counter()
    for words in re.split(", | and ", text):
        number, rest = words.split(" ", 1)
        if number in ("a", "an"):
            needed[rest] += 1
        else:
            assert len(matching(rest, seen)) == NUMBERS[number], text
    assert all(len(matching(words, seen)) >= count for words, count in needed.items()), text
    return "list"


def in_region(thing, region):
    x, y = (value / SMALL.size for value in thing.centre)
    near = {
        "left": x < 0.42,
        "right": x > 0.58,
        "top": y < 0.42,
        "bottom": y > 0.58,
        "middle": max(abs(x - 0.5), abs(y - 0.5)) < 0.16,
    }
    return all(near[word] for word in region.split())


def test_karpathy_sentences_tell_pictures_apart():
    """A held-out sentence is true of one picture of its split: it lists every shape and how many there are."""
    document = read("karpathy/dataset_shapes.json")
    found = {
        name: seen
        for split in ("train", "val", "test")
        for name, seen in things(f"coco/annotations/instances_{split}.json").items()
    }
    sentences = [sentence for image in document["images"] for sentence in image["sentences"]]
    assert [sentence["sentid"] for sentence in sentences] == list(range(5 * SMALL.images))
    for split in ("val", "test"):
        images = [image for image in document["images"] if image["split"] == split]
        held = {image["cocoid"]: found[f"{image['filepath']}/{image['filename']}"] for image in images}
        for image in images:
            for sentence in image["sentences"][:3]:
                assert [key for key, seen in held.items() if describes(sentence["tokens"], seen)] == [image["cocoid"]]


def describes(tokens, seen):
    """Whether a full description fits: the number of shapes, and by colour and kind the same multiset."""
    colours, kinds = set(SMALL.colours), set(SMALL.kinds)
    told = Counter((tokens[i - 1], word) for i, word in enumerate(tokens) if word in kinds and tokens[i - 1] in colours)
    number = next(NUMBERS[word] for word in tokens if word in NUMBERS)
    return number == len(seen) and told == Counter((thing.colour, thing.kind) for thing in seen)


def test_the_smallest_world_is_made(tmp_path):
    """Two held-out pictures cannot hold every contrast: there are fewer texts, not a search without end."""
    names = {"colours": ("red", "blue", "green"), "kinds": ("circle", "square", "star")}
    small = replace(TINY, images=20, size=64, nlvr2_train=1, nlvr2_dev=1, nlvr2_test=1, albums=1, ade20k=1, **names)
    counts = make_shapes(tmp_path / "world", small, Silent())
    assert counts["nlvr2 statements"] == 12
    assert min(counts.values()) > 0
