"""Pictures at remote addresses: extracted as those of a folder are."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from PIL import Image

from tests.features._world import MeanColour, make_images
from vlcli.detection.extraction import extract_images
from vlcli.errors import DataError
from vlcli.images import remote
from vlcli.images.files import BadImageError, open_image, read_size


class Counting(MemoryFileSystem):
    """Counts bytes, and fails so many times."""

    protocol = "counting"
    store = {}  # noqa: RUF012
    sent = failures = 0

    def cat_file(self, path, start=None, end=None, **options):
        if type(self).failures:
            type(self).failures -= 1
            raise ConnectionResetError("the peer went away")
        found = super().cat_file(path, start, end, **options)
        type(self).sent += len(found)
        return found


@pytest.fixture(autouse=True)
def counting(monkeypatch) -> Iterator[type[Counting]]:
    fsspec.register_implementation("counting", Counting, clobber=True)
    monkeypatch.setattr(remote, "WAIT", 0)
    Counting.sent = Counting.failures = 0
    yield Counting
    Counting.store.clear()


def put(name: str, content: bytes) -> str:
    with fsspec.open(f"counting://b/{name}", "wb") as file:
        file.write(content)
    return f"counting://b/{name}"


def encoded(size, format="JPEG", **options) -> bytes:
    file = io.BytesIO()
    Image.effect_noise(size, 60).convert("RGB").save(file, format, **options)
    return file.getvalue()


def test_the_store_is_that_of_the_folder(tmp_path):
    images = make_images(tmp_path / "images", 30)
    images[7][1].write_bytes(b"")
    images[9][1].write_bytes(b"no picture")
    far = [(name, put(f"sub/{path.name}", path.read_bytes())) for name, path in images]
    for number, source in enumerate((images, far)):
        extract_images(source, MeanColour(), tmp_path / str(number) / "f.h5", batch_size=4, workers=2 * number)
    assert (tmp_path / "0" / "f.h5").read_bytes() == (tmp_path / "1" / "f.h5").read_bytes()
    rows = [json.loads(line) for line in (tmp_path / "1" / "errors.jsonl").read_text().splitlines()]
    reasons = [(row["path"], row["reason"]) for row in rows]
    assert reasons == [
        ("counting://b/sub/im007.png", "the file is empty"),
        ("counting://b/sub/im009.png", "not an image in a known format"),
    ]


def test_a_stage_reads_a_remote_folder_or_list(tmp_path):
    from vlcli.features import FeatureStore
    from vlcli.recipe.load import load
    from vlcli.recipe.plan import RunOptions
    from vlcli.runner.run import run_recipe

    for _, path in make_images(tmp_path / "images", 4):
        put(f"in/deep/{path.name}", path.read_bytes())
    put("in/notes.txt", b"no picture")
    put("list.txt", b"counting://b/in/deep/im003.png\nimages/im001.png\n")
    (tmp_path / "r.yaml").write_text(
        f"root: {tmp_path}\nstages:\n  regions:\n    kind: extract\n    images: counting://b/in\n"
        "    extractor: {name: backbone, arch: tiny-conv, short: 32, boxes: grid, grid: [2, 2]}\n"
    )
    found = []
    for words in ([], ["stages.regions.images=counting://b/list.txt"]):
        (outcome,) = run_recipe(load(str(tmp_path / "r.yaml"), words), RunOptions(output=tmp_path / "runs"))
        assert not outcome.error
        found.append(FeatureStore(outcome.folder / "features.h5").ids)
    assert found == [["im000", "im001", "im002", "im003"], ["im003", "im001"]]


def test_of_a_large_jpeg_only_the_head_is_read_for_its_size(counting):
    content = encoded((900, 700), quality=95)
    address = put("large.jpg", content)
    assert len(content) > 2 * remote.HEAD
    assert read_size(address) == (700, 900)
    assert counting.sent == remote.HEAD


def test_the_size_is_that_of_the_upright_picture():
    turned = Image.Exif()
    turned[0x0112] = 6
    for format in ("JPEG", "PNG"):
        content = encoded((400, 300), format, exif=turned)
        address = put(f"turned.{format}", content)
        assert read_size(address) == (400, 300)
        assert open_image(address).size == (300, 400)


def test_a_header_longer_than_the_head_is_read_whole():
    content = encoded((40, 30), icc_profile=bytes(300_000))
    assert read_size(put("profile.jpg", content)) == (30, 40)


def test_a_lost_connection_ends_the_extraction_and_a_bad_moment_does_not(tmp_path, counting):
    images = [(name, put(path.name, path.read_bytes())) for name, path in make_images(tmp_path / "images", 3)]
    counting.failures = 5
    assert extract_images(images, MeanColour(), tmp_path / "f.h5").images == 3
    counting.failures = 1000
    with pytest.raises(DataError, match="cannot be fetched"):
        extract_images(images, MeanColour(), tmp_path / "g.h5")
    counting.failures = 0
    with pytest.raises(BadImageError, match="does not exist"):
        open_image("counting://b/none.png")
