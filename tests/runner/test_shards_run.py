"""Every check asks the function that opens a picture: shards pass, and give the bytes of their unpacked folder."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from vlcli import registry
from vlcli.cli import app
from vlcli.demo.samples import _examples
from vlcli.prediction.pictures import is_file, open_picture

RECIPE = """
root: .
stages:
  regions:
    kind: extract
    extractor: {{name: backbone, arch: tiny-conv, boxes: grid, grid: [2, 2], short: 32, long: 64}}
    data: {{name: webdataset, shards: "{shards}"}}
"""


def picture(seed: int) -> bytes:
    content = io.BytesIO()
    values = np.random.default_rng(seed).integers(0, 255, (24 + seed, 40, 3), np.uint8)
    Image.fromarray(values).save(content, "PNG")
    return content.getvalue()


def webdataset() -> dict[str, bytes]:
    """Samples without a picture, without a text, of three parts, in folders; a class beside."""
    files = {}
    for number in range(4):
        files |= {f"v/{number:04d}.png": picture(number), f"v/{number:04d}.txt": b"a wall", f"v/{number:04d}.cls": b"1"}
    del files["v/0001.png"], files["v/0002.txt"]
    return files | {"w/0009.seg.png": picture(8), "w/0009.png": picture(9), "w/0009.txt": b"a door"}


def img2dataset() -> dict[str, bytes]:
    """A picture, a text and facts each; of a failed download the facts alone."""
    files = {}
    for number in range(3):
        name, facts = f"{number:09d}", {"caption": f"no. {number}", "status": "success", "width": 40}
        files |= {f"{name}.jpg": picture(number), f"{name}.txt": f"no. {number}".encode()}
        files[f"{name}.json"] = json.dumps(facts).encode()
    del files["000000001.jpg"], files["000000001.txt"]
    files["000000001.json"] = b'{"caption": "gone", "status": "failed_to_download"}'
    return files


def lay(root: Path, files: dict[str, bytes]) -> None:
    (root / "s").mkdir()
    with tarfile.open(root / "s/00000.tar", "w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
            (root / "u/00000" / name).parent.mkdir(parents=True, exist_ok=True)
            (root / "u/00000" / name).write_bytes(data)
    (root / "s/00000_stats.json").write_text("{}")
    (root / "linked").symlink_to("s")


@pytest.mark.parametrize("files", [webdataset, img2dataset])
def test_extraction_from_shards_equals_that_from_their_folder(files, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    lay(tmp_path, files())
    stores = []
    for name, shards in (("tar", "s/{00000..00000}.tar"), ("folder", "u/00000"), ("link", "linked/*.tar")):
        Path(f"{name}.yaml").write_text(RECIPE.format(shards=shards))
        for words in (
            ["validate", f"{name}.yaml", "--deep"],
            ["data", "stats", f"{name}.yaml"],
            ["run", f"{name}.yaml"],
        ):
            ended = CliRunner().invoke(app, words)
            assert ended.exit_code == 0, ended.output
        assert "left out" in ended.output
        stores.append(Path(f"runs/{name}/regions/features.h5").read_bytes())
    assert stores[0] == stores[1] == stores[2]


def test_pictures_of_shards_are_found_wherever_one_is_asked_for(tmp_path: Path) -> None:
    lay(tmp_path, img2dataset())
    reader = registry.build("datasets", {"name": "webdataset", "shards": "s/*.tar"}, tmp_path)
    inner = reader.locate("000000002")
    assert is_file(inner)
    assert not is_file(inner.with_name("000000001.jpg"))
    assert open_picture(inner).size == (40, 26)
    assert [len(sample.pictures) for sample in _examples(reader, False, 2)] == [1, 1]
