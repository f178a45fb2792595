"""VIST in its official layouts and AREL's: five pictures a story, incomplete ones left out and counted."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from vlcli.data.readers.vist import ABSENT, SHORT, VIST
from vlcli.data.shapes import ShapesConfig, make_shapes
from vlcli.errors import DataError
from vlcli.nn import Concepts, DataSpec, ForwardPasses, Images, Regions, Text, View
from vlcli.nn.batch import Batch
from vlcli.progress import Silent

WORDS = ("we went out", "there was [male]", "he ran", "it rained", "we slept")


def row(story: int, order: int, photo: str, text: str = "", album: str = "9") -> dict[str, Any]:
    return {
        "original_text": f"{WORDS[order].capitalize()} (Bob {story}).",
        "text": text or f"{WORDS[order]} {story} .",
        "album_id": album,
        "photo_flickr_id": photo,
        "story_id": str(story),
        "worker_arranged_photo_order": order,
        "storylet_id": str(5 * story + order),
    }


def official(root: Path, rows: list[dict[str, Any]], split: str = "test", folder: str = "sis") -> Path:
    (root / folder).mkdir(parents=True, exist_ok=True)
    file = root / folder / f"{split}.story-in-sequence.json"
    photos = sorted({one["photo_flickr_id"] for one in rows})
    images = [{"id": photo, "album_id": "9"} for photo in photos]
    file.write_text(json.dumps({"images": images, "albums": [{"id": "9"}], "annotations": [[one] for one in rows]}))
    return file


def photographs(root: Path, names: list[str]) -> None:
    folder = root / "images/test"
    folder.mkdir(parents=True)
    for name in names:
        (folder / f"{name}.jpg").write_bytes(b"x")


def test_stories_stand_in_the_order_of_their_pictures(tmp_path: Path) -> None:
    rows = [row(story, order, f"p{story}{order}") for story in (1, 2) for order in range(5)]
    Random(0).shuffle(rows)
    official(tmp_path, rows)
    reader = VIST(tmp_path, split="test")
    stories = {example.key: example for example in reader.examples()}
    assert stories["2"].images == [f"p2{order}" for order in range(5)] == stories["2"].targets["photos"]
    assert stories["2"].text == " ".join(f"{words} 2 ." for words in WORDS)
    assert stories["2"].targets["sentences"][1] == "there was [male] 2 ."
    assert stories["2"].targets["album"] == "9"
    original = {example.key: example for example in VIST(tmp_path, split="test", text="original").examples()}
    assert original["1"].text.startswith("We went out (Bob 1). There was")


def test_incomplete_stories_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [row(story, order, f"p{order}") for story in (1, 2, 3) for order in range(5)]
    rows += [row(4, order, f"p{order}") for order in range(4)]  # four sentences
    rows += [row(5, order, f"p{order}", text=" " if order == 2 else "") for order in range(5)]  # an empty one
    rows[7]["photo_flickr_id"] = "gone"
    official(tmp_path, rows)
    unseen = VIST(tmp_path, split="test")  # no folder of pictures: nothing is known to be absent
    assert [example.key for example in unseen.examples()] == ["1", "2", "3"]
    assert unseen.left_out == {SHORT: 2}
    photographs(tmp_path, [f"p{order}" for order in range(5)])
    reader = VIST(tmp_path, split="test")
    assert [example.key for example in reader.examples()] == ["1", "3"]
    assert reader.left_out == {SHORT: 2, ABSENT: 1}
    assert reader.locate("p3") == tmp_path / "images/test/p3.jpg"
    assert "left out 1 stories whose photographs are not all there" in " ".join(reader.notes())
    photographs_of = VIST(tmp_path, split="test", take="first:1")
    with pytest.raises(DataError, match="empty"):
        VIST(tmp_path, split="test", limit=0).examples()
    assert len(photographs_of.examples()) == 2  # both stories are of the same photographs: never torn apart


def test_descriptions_in_isolation(tmp_path: Path) -> None:
    (tmp_path / "dii").mkdir()
    rows = [
        {"photo_flickr_id": name, "text": f"a {name} .", "original_text": f"A {name}.", "album_id": "1"}
        for name in "aab"
    ]
    (tmp_path / "dii/val.description-in-isolation.json").write_text(
        json.dumps({"annotations": [[one] for one in rows]})
    )
    examples = VIST(tmp_path, split="val", tier="descriptions").examples()
    assert [(e.key, e.images, e.text) for e in examples] == [
        ("a#0", ["a"], "a a ."),
        ("a#1", ["a"], "a a ."),
        ("b#0", ["b"], "a b ."),
    ]


def test_arel_s_list(tmp_path: Path) -> None:
    story = {
        "flickr_id": list("abcde"),
        "length": 5,
        "album_id": "3",
        "origin_text": "one . two . three . four . five .",
    }
    torn = {**story, "flickr_id": list("abcd"), "length": 4}
    content = {"train": {"7": story}, "val": {"8": story}, "test": {"9": story, "10": torn}, "words2id": {}}
    (tmp_path / "story_line.json").write_text(json.dumps(content))
    reader = VIST(tmp_path, split=["val", "test"])
    assert [(e.key, e.images, e.text) for e in reader.examples()] == [
        ("8", list("abcde"), story["origin_text"]),
        ("9", list("abcde"), story["origin_text"]),
    ]
    assert reader.left_out == {SHORT: 1}
    with pytest.raises(DataError, match="normalised"):
        VIST(tmp_path, split="test", text="original").examples()


def test_faults_name_their_place(tmp_path: Path) -> None:
    file = official(tmp_path, [row(1, order, f"p{order}") for order in range(5)])
    content = json.loads(file.read_text())
    del content["annotations"][3][0]["photo_flickr_id"]
    file.write_text(json.dumps(content))
    with pytest.raises(DataError, match="photo_flickr_id") as error:
        VIST(tmp_path, split="test").examples()
    assert "annotations[3]" in error.value.where
    for wrong in ("x", None):
        file.write_text(json.dumps({"annotations": [wrong]}))
        with pytest.raises(DataError, match="not a JSON object"):
            VIST(tmp_path, split="test").examples()
    with pytest.raises(DataError, match="missing"):
        VIST(tmp_path, split="train").examples()


def test_stories_of_shapes_have_boxes_and_say_what_they_name(tmp_path: Path) -> None:
    make_shapes(tmp_path, ShapesConfig(parts=("vist",), albums=3), Silent())
    reader = VIST(tmp_path)
    boxes = reader.boxes()
    for example in reader.examples():
        assert all(reader.locate(name).is_file() for name in example.images)
        assert {*example.images} <= set(boxes)
        pairs = zip(example.targets["named"], example.targets["sentences"], strict=True)
        assert all(any(f" {name} " in text for name in names) for names, text in pairs)
        hero = set.intersection(*(looks(reader, boxes[image]) for image in example.images))
        for names, image in zip(example.targets["named"], example.images, strict=True):
            assert set(names) == looks(reader, boxes[image]) - hero
    described = VIST(tmp_path, tier="descriptions")
    seen = described.boxes()
    for example in described.examples():
        colour, kind = example.text.split(" a ")[-1].split()[:2]
        assert f"{colour} {kind}" in looks(described, seen[example.images[0]])


def looks(reader: VIST, boxes: Any) -> set[str]:
    """Colour and kind of every shape."""
    colours = [reader.attribute_names()[place].split()[0] for place in boxes.attributes]
    return {f"{colour} {reader.class_names()[place]}" for colour, place in zip(colours, boxes.classes, strict=True)}


DATA_SPEC = DataSpec(
    vocab_size=30,
    unk_id=1,
    cls_id=2,
    sep_id=3,
    mask_id=4,
    text_length=8,
    regions=3,
    region_dim=6,
    concepts=("a", "b", "c", "d"),
    concept_pieces=((10,), (11,), (12,), (13,)),
)


def five(order: list[int]) -> Batch:
    """One story whose five pictures stand in the given order."""
    generator = torch.Generator().manual_seed(1)
    counts = torch.tensor([3, 1, 2, 3, 2])
    mask = torch.arange(3) < counts[:, None]
    boxes = torch.rand(5, 3, 2, generator=generator).sort(-1).values
    regions = Regions(
        torch.randn(5, 3, 6, generator=generator),
        boxes.repeat_interleave(2, -1)[..., [0, 2, 1, 3]],
        mask,
        torch.full((5, 2), 50),
    )
    ids = torch.tensor([[0, 1], [2, 3], [1, 2], [3, 0], [0, 2]])
    concepts = Concepts(ids, torch.ones(5, 2), torch.arange(2).expand(5, 2).clone(), torch.ones(5, 2, dtype=torch.bool))
    text = Text(
        torch.tensor([[2, 5, 6, 7, 3]]),
        torch.ones(1, 5, dtype=torch.bool),
        torch.tensor([[1, 0, 0, 0, 1]]).bool(),
        torch.zeros(1, 5).long(),
        keys=["s"],
        raw=["s"],
    )
    view = View(
        text, Images(list("abcde"), regions=regions, concepts=concepts), torch.tensor([0]), torch.tensor([order])
    )
    return Batch({"clean": view}, {}, ["s"], torch.tensor([0]))


def test_ranks_begin_anew_and_pictures_are_told_apart() -> None:
    plugin = pytest.importorskip("vlcli_dimbert")
    sizes = {"hidden": 16, "heads": 2, "layers": 2, "dropout": 0.0, "length": 16, "init_std": 0.2}
    torch.manual_seed(0)
    plain = plugin.DiMBERT(DATA_SPEC, **sizes).eval()
    told = plugin.DiMBERT(DATA_SPEC, **sizes, images=5).eval()
    told.load_state_dict(plain.state_dict(), strict=False)
    ahead, back = five([0, 1, 2, 3, 4]), five([4, 3, 2, 1, 0])
    pictures = ForwardPasses(plain, ahead).pictures()
    concepts = pictures.layout.index[pictures.layout.route == 2].reshape(5, 2)
    assert concepts.tolist() == [[0, 1]] * 5
    assert pictures.layout.source.unique().tolist() == [1, 2, 3, 4, 5]
    with torch.no_grad():
        words = [ForwardPasses(plain, batch).fused().text.hidden for batch in (ahead, back)]
        torch.testing.assert_close(words[0], words[1])  # as published: regions have no place, ranks begin anew
        words = [ForwardPasses(told, batch).fused().text.hidden for batch in (ahead, back)]
        assert (words[0] - words[1]).abs().max() > 1e-2
        single = [ForwardPasses(model, five([2])).fused().text.hidden for model in (plain, told)]
        torch.testing.assert_close(
            *single
        )  # the first row begins at zero: a model of single pictures goes on as it was
    few = plugin.DiMBERT(DATA_SPEC, **sizes, images=3).eval()
    with pytest.raises(DataError, match="more pictures"):
        ForwardPasses(few, ahead).fused()
