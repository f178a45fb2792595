"""Pair corpora of the web, lists with folders and tar shards: what cannot be used is left out and counted."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from small_run import context

from vlcli.data.images import load_image
from vlcli.data.pipeline import Pipeline
from vlcli.data.readers.pair_corpora import SBU, ConceptualCaptions
from vlcli.data.readers.tar_shards import APART, NO_CAPTION, NO_PICTURE, WebDataset, braces
from vlcli.errors import DataError
from vlcli.features import FeatureStore
from vlcli.images.files import read_size
from vlcli.images.shards import BadShardError, is_there, members, shard_index
from vlcli.nn.model import InputSpec
from vlcli.stages import extract

COLOURS = {"red": (250, 0, 0), "green": (0, 250, 0), "blue": (0, 0, 250), "grey": (90, 90, 90)}


def picture(colour: str, size: int = 24) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (size, size + 8), COLOURS[colour]).save(buffer, "png")
    return buffer.getvalue()


def shard(path: Path, files: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def pairs(*names: str, start: int = 0) -> dict[str, bytes]:
    made: dict[str, bytes] = {}
    for number, colour in enumerate(names, start):
        made |= {f"{number:06d}.png": picture(colour), f"{number:06d}.txt": f"something {colour}\n".encode()}
    return made


def colour_of(reader: Any, key: str) -> tuple[int, ...]:
    return load_image(reader.locate(key)).getpixel((3, 3))


def test_shards_are_read_where_they_are(tmp_path: Path) -> None:
    shard(tmp_path / "train/00000.tar", pairs("red", "green"))
    shard(tmp_path / "train/00001.tar", pairs("blue", start=2))
    reader = WebDataset(tmp_path, shards="{split}/{00000..00001}.tar")
    examples = reader.examples()
    assert [example.text for example in examples] == ["something red", "something green", "something blue"]
    assert [example.images for example in examples] == [["000000"], ["000001"], ["000002"]]
    for example in examples:
        assert colour_of(reader, example.images[0]) == COLOURS[example.text.split()[-1]]
    path = reader.image_files()["000002"]
    assert path == tmp_path / "train/00001.tar/000002.png"
    assert read_size(path) == (32, 24)
    assert is_there(path)
    assert not is_there(path.with_name("9.png"))
    assert not reader.left_out
    assert WebDataset(tmp_path).examples() == examples
    assert next(e.key for e in WebDataset(tmp_path, unique="shard").examples()) == "train/00000-000000"


def test_places_are_those_that_tarfile_finds(tmp_path: Path) -> None:
    long = "a" * 150 + "/" + "b" * 120 + ".png"  # beyond what a plain header holds
    path = shard(tmp_path / "x.tar", {"é.txt": b"one", long: picture("red"), "0.txt": b""})
    with tarfile.open(path) as archive:
        for info in archive:
            start, size = shard_index(path).find(info.name)
            assert path.read_bytes()[start : start + size] == archive.extractfile(info).read()


def test_failed_downloads_are_counted(tmp_path: Path) -> None:
    meta = json.dumps({"caption": "told in json", "status": "success"}).encode()
    files = {
        "1.json": meta,  # failed: no picture
        "2.png": picture("red"),
        "2.json": meta,
        "3.png": picture("red"),
        "4.png": picture("red"),
        "4.txt": b"  \n",
        "5.png": b"",
        "5.txt": b"an empty picture",
        "6.png": picture("blue"),
        "6.json": b"{broken",
        "7.jpg": picture("green"),
        "7.json": json.dumps({"caption": ["one", "two"]}).encode(),
    }
    reader = WebDataset(tmp_path, shards=str(shard(tmp_path / "a.tar", files)))
    assert [(e.key, e.text) for e in reader.examples()] == [("2", "told in json"), ("7", "one"), ("7#1", "two")]
    assert reader.left_out == {NO_PICTURE: 2, NO_CAPTION: 3}
    assert any("left out 2 without a picture" in line for line in reader.notes())
    folder = tmp_path / "unpacked/00000"
    shutil.unpack_archive(tmp_path / "a.tar", folder)
    unpacked = WebDataset(tmp_path, shards="unpacked/*")
    assert [e.text for e in unpacked.examples()] == [e.text for e in reader.examples()]
    assert colour_of(unpacked, "7") == COLOURS["green"]


def test_a_shard_whose_samples_lie_apart_says_so(tmp_path: Path) -> None:
    whole = pairs("red", "green", "blue")
    apart = dict(sorted(whole.items(), key=lambda item: item[0].rpartition(".")[2]))  # all pictures, then all texts
    reader = WebDataset(tmp_path, shards=str(shard(tmp_path / "a.tar", apart)))
    with pytest.raises(DataError, match="empty") as error:
        reader.examples()
    assert f"left out: 3 without a caption, 3 {APART}" in error.value.got
    assert "split" not in error.value.hint
    some = {**pairs("red"), "000001.png": picture("red"), **pairs("blue", start=2), "000001.txt": b"late"}
    reader = WebDataset(tmp_path, shards=str(shard(tmp_path / "b.tar", some)))
    assert [example.key for example in reader.examples()] == ["000000", "000002"]
    assert reader.left_out == {NO_CAPTION: 1, APART: 1}


@pytest.mark.parametrize("keep", [0.55, 0.9])
def test_a_truncated_shard_gives_what_is_whole(tmp_path: Path, keep: float) -> None:
    path = shard(tmp_path / "a.tar", pairs("red", "green", "blue", "grey"))
    whole = path.read_bytes().rstrip(b"\0")
    path.write_bytes(whole[: int(keep * len(whole))])
    reader = WebDataset(tmp_path, shards="a.tar")
    found = [example.text for example in reader.examples()]
    assert found == ["something red", "something green", "something blue", "something grey"][: len(found)]
    assert 0 < len(found) < 4
    assert [reason for reason in reader.left_out if "a.tar" in reason and "cut off" in reason]
    for example in reader.examples():
        assert colour_of(reader, example.images[0]) == COLOURS[example.text.split()[-1]]


def test_a_shard_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(b"<html>not found</html>" * 100)
    with pytest.raises(DataError, match="shard cannot be read") as error:
        WebDataset(tmp_path, shards="a.tar").examples()
    assert "a.tar" in error.value.where
    import gzip

    inner = shard(tmp_path / "b.tar", pairs("red")).read_bytes()
    (tmp_path / "b.tar").write_bytes(gzip.compress(inner))
    with pytest.raises(BadShardError, match="compressed"):
        list(members(tmp_path / "b.tar"))
    with pytest.raises(DataError, match="missing"):
        WebDataset(tmp_path, shards="{0..3}.tar").examples()
    damaged = bytearray(inner)
    damaged[1024:1536] = b"x" * 512  # the second header
    (tmp_path / "c.tar").write_bytes(bytes(damaged))
    with pytest.raises(BadShardError, match=r"damaged from byte 1024|no tar file"):
        list(members(tmp_path / "c.tar"))


def test_paths_that_leave_are_refused(tmp_path: Path) -> None:
    shard(tmp_path / "in/a.tar", {"../../x.png": picture("red"), "../../x.txt": b"red"})
    with pytest.raises(DataError, match="leaves"):
        WebDataset(tmp_path / "in", shards="a.tar").examples()
    shard(tmp_path / "in/b.tar", {"/etc/x.png": picture("red"), "/etc/x.txt": b"red"})
    with pytest.raises(DataError, match="leaves"):
        WebDataset(tmp_path / "in", shards="b.tar").examples()
    for pattern in ("../out/*.tar", "{a,../b}/x.tar"):
        with pytest.raises(DataError, match="leaves"):
            WebDataset(tmp_path / "in", shards=pattern).examples()
    with tarfile.open(tmp_path / "in/c.tar", "w") as archive:
        link = tarfile.TarInfo("1.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        archive.addfile(link)
        text = tarfile.TarInfo("1.txt")
        text.size = 3
        archive.addfile(text, io.BytesIO(b"abc"))
    reader = WebDataset(tmp_path / "in", shards="c.tar")
    with pytest.raises(DataError, match="empty"):
        reader.examples()
    assert reader.left_out == {NO_PICTURE: 1}  # a link is no picture


def test_two_pictures_of_one_name(tmp_path: Path) -> None:
    for name in ("a", "b"):
        shard(tmp_path / f"{name}.tar", pairs("red"))
    with pytest.raises(DataError, match="id '000000'") as error:
        WebDataset(tmp_path, shards="*.tar").examples()
    assert "unique=shard" in error.value.hint
    assert len(WebDataset(tmp_path, shards="*.tar", unique="shard").examples()) == 2


def test_braces() -> None:
    assert braces("x{08..11}.tar") == [f"x{n:02d}.tar" for n in range(8, 12)]
    assert braces("{9..11}") == ["9", "10", "11"]
    assert braces("{a,b}-{0..1}") == ["a-0", "a-1", "b-0", "b-1"]
    assert braces("plain.tar") == ["plain.tar"]


URLS = [f"https://example.org/pic/{name}.jpg?size=large" for name in ("ant", "bee", "cat", "dog")]
TEXTS = ["an ant", "a bee", "a cat", "a dog"]
NAMINGS = {
    "row": lambda number, url: f"{number:09d}.png",
    "crc32": lambda number, url: str(zlib.crc32(url.encode())),  # no extension, as ViLBERT's script names them
    "url": lambda number, url: url.rpartition("/")[2].split("?")[0],
}


@pytest.mark.parametrize("naming", NAMINGS)
@pytest.mark.parametrize("swapped", [False, True])
def test_conceptual_captions(tmp_path: Path, naming: str, swapped: bool) -> None:
    lines = [f"{url}\t{text}" if swapped else f"{text}\t{url}" for text, url in zip(TEXTS, URLS, strict=True)]
    file = tmp_path / ("cc12m.tsv" if swapped else "Train_GCC-training.tsv")
    file.write_text("\n".join(lines) + "\n")
    folder = tmp_path / "images/00000"
    folder.mkdir(parents=True)
    for number in (0, 2, 3):
        colour = list(COLOURS)[number]
        (folder / NAMINGS[naming](number, URLS[number])).write_bytes(picture(colour))
    reader = ConceptualCaptions(tmp_path, split="12m" if swapped else "train")
    examples = reader.examples()
    assert [example.text for example in examples] == ["an ant", "a cat", "a dog"]
    assert reader.left_out == {"pairs whose picture is not there": 1}
    for number, example in zip((0, 2, 3), examples, strict=True):
        assert colour_of(reader, example.images[0]) == list(COLOURS.values())[number]
    assert ConceptualCaptions(tmp_path, split=reader.split, names=naming).examples() == examples


def test_lists_without_pictures_or_with_odd_lines(tmp_path: Path) -> None:
    file = tmp_path / "Train_GCC-training.tsv"
    file.write_text(f"caption\turl\na\t{URLS[0]}\nno address here\n\t{URLS[1]}\nb\t{URLS[2]}\n")
    reader = ConceptualCaptions(tmp_path)  # no folder of pictures: a store decides
    assert [(e.text, e.images) for e in reader.examples()] == [("a", ["0"]), ("b", ["3"])]
    assert reader.left_out == {"lines that are no pair": 1, "pairs without a caption": 1}
    (tmp_path / "images").mkdir()
    (tmp_path / "images/other.jpg").write_bytes(picture("red"))
    with pytest.raises(DataError, match="None of the pictures"):
        ConceptualCaptions(tmp_path).examples()
    for folder in ("a", "b"):
        (tmp_path / "images" / folder).mkdir()
        (tmp_path / "images" / folder / "0000.png").write_bytes(picture("red"))
    with pytest.raises(DataError, match="Two files"):
        ConceptualCaptions(tmp_path).examples()


def test_sbu_in_both_forms(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images/bee.jpg").write_bytes(picture("red"))
    (tmp_path / "images/dog.jpg").write_bytes(picture("blue"))
    (tmp_path / "SBU_captioned_photo_dataset_urls.txt").write_text("\n".join(URLS) + "\n")
    captions = tmp_path / "SBU_captioned_photo_dataset_captions.txt"
    captions.write_text("\n".join(TEXTS) + "\n")
    reader = SBU(tmp_path)
    assert [(e.text, e.images) for e in reader.examples()] == [("a bee", ["bee"]), ("a dog", ["dog"])]
    assert reader.left_out == {"pairs whose picture is not there": 2}
    assert list(SBU(tmp_path).stream()) == SBU(tmp_path).read()  # the file of captions is no list of its own
    (tmp_path / "sbu.json").write_text(json.dumps({"image_urls": URLS, "captions": TEXTS, "user_ids": [1] * 4}))
    assert [e.text for e in SBU(tmp_path, file="sbu.json").examples()] == ["a bee", "a dog"]
    captions.write_text("\n".join(TEXTS[:3]))
    with pytest.raises(DataError, match="do not go together"):
        SBU(tmp_path).examples()


@pytest.mark.parametrize("workers", [0, 1])
def test_damaged_pictures_are_left_out_of_batches_and_counted(tmp_path: Path, workers: int) -> None:
    files = pairs("red", "green", "blue", "grey")
    files["000001.png"] = files["000001.png"][:60]  # cut off
    files["000003.png"] = b"<html>gone</html>"
    shard(tmp_path / "train/0.tar", files)
    needs = InputSpec(text=False, pixels=True, size=(8, 8))
    data = Pipeline([WebDataset(tmp_path)], needs=needs, missing="drop")
    keys = [key for batch in data.loader(3, workers=workers) for key in batch.keys]
    assert keys == ["000000", "000002"]
    assert len(data.unreadable) == 2
    assert any("left out 2 examples with unreadable pictures" in line for line in data.notes())
    strict = Pipeline([WebDataset(tmp_path)], needs=needs)
    with pytest.raises(DataError, match="cannot be read"):
        list(strict.loader(4))


def test_only_places_are_kept_in_memory(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    files: dict[str, bytes] = {}
    for number in range(300):
        noise = io.BytesIO()
        Image.fromarray(rng.integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(noise, "png")
        files |= {f"{number:05d}.png": noise.getvalue(), f"{number:05d}.txt": b"noise"}
    path = shard(tmp_path / "a.tar", files)
    import tracemalloc

    tracemalloc.start()
    reader = WebDataset(tmp_path, shards="a.tar")
    assert len(reader.examples()) == 300
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < path.stat().st_size / 5  # pictures are not
    found = shard_index(path)
    assert found.names.nbytes + found.starts.nbytes + found.sizes.nbytes < 40 * 600


def test_shards_are_extracted_and_trained_on(tmp_path: Path) -> None:
    """The whole way from a tar file to batches of a model that reads regions, failures counted at each step."""
    files = pairs("red", "green", "blue", "grey")
    files["000001.png"] = files["000001.png"][:60]
    del files["000003.txt"]
    shard(tmp_path / "train/0.tar", files)
    extractor = {"name": "backbone", "arch": "tiny-conv", "boxes": "grid", "grid": [2, 2], "short": 32, "long": 64}
    options = {"kind": "extract", "extractor": extractor, "data": {"name": "webdataset"}}
    result = extract.run(context(tmp_path / "regions", tmp_path, {}, **options))
    assert (result.metrics["images"], result.metrics["errors"]) == (2, 1)
    assert any("left out 1 without a caption" in note for note in result.notes)
    assert "0.tar/000001.png" in (tmp_path / "regions/errors.jsonl").read_text()
    store = FeatureStore(tmp_path / "regions/features.h5")
    needs = InputSpec(text=False, regions=True)
    data = Pipeline([WebDataset(tmp_path)], needs=needs, store=store, missing="drop")
    assert [key for batch in data.loader(2) for key in batch.keys] == ["000000", "000002"]
    assert data.dropped == 1
    assert any("left out 1 examples whose pictures are not there" in note for note in data.notes())
