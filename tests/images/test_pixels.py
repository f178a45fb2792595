"""Pictures of other modes than 8-bit RGB: one rule, one line, one option, and a warning for black and white."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from vlcli.cli import app
from vlcli.features import FeatureStore
from vlcli.images.files import conversion_notes, deep_range, open_image, pixel_range

RAMP = np.linspace(0, 1, 600).reshape(20, 30)
DEEP = [
    ("png", (RAMP * 4095).astype(np.uint16), (0, 4095)),
    ("png", (RAMP * 65535).astype(np.uint16), (0, 65535)),
    ("png", (RAMP * 200).astype(np.uint16), (0, 255)),
    ("tif", (RAMP * 4000).astype(np.uint16), (0, 4095)),
    ("tif", RAMP.astype(np.float32), (0, 1)),
    ("tif", (RAMP * 255).astype(np.float32), (0, 255)),
    ("tif", (RAMP * 3000.5).astype(np.float32), (0, 4095)),
    ("tif", (RAMP * 2 - 1).astype(np.float32), (-1, 1)),
    ("tif", (RAMP * 100_000).astype(np.int32), (0, 100_000)),
    ("tif", (RAMP * 5000 - 1000).astype(np.int32), (-4095, 4095)),
]


@pytest.mark.parametrize("number", range(len(DEEP)))
def test_more_than_eight_bits_are_scaled_by_the_rule(number: int, tmp_path: Path) -> None:
    suffix, values, (low, high) = DEEP[number]
    path = tmp_path / f"a.{suffix}"
    Image.fromarray(values).save(path)
    assert deep_range(values) == (low, high)
    found = np.asarray(open_image(path))[..., 0].astype(float)
    assert np.abs(found - (values.astype(float) - low) * 255 / (high - low)).max() <= 1
    (line,) = conversion_notes([path])
    assert f"{low:g} to {high:g} becomes 0 to 255" in line


def test_values_that_are_none_are_black(tmp_path: Path) -> None:
    values = RAMP.astype(np.float32)
    values[:, 0], values[:, 1] = np.nan, np.inf
    Image.fromarray(values).save(tmp_path / "a.tif")
    found = np.asarray(open_image(tmp_path / "a.tif"))[..., 0]
    assert (found[:, 0].max(), found[:, 1].min(), found[-1, -1]) == (0, 255, 255)
    Image.fromarray(np.full((4, 4), np.nan, np.float32)).save(tmp_path / "b.tif")
    assert np.asarray(open_image(tmp_path / "b.tif")).max() == 0


def test_a_range_replaces_the_rule_and_ends_with_its_run(tmp_path: Path) -> None:
    Image.fromarray((RAMP * 1000).astype(np.uint16)).save(tmp_path / "a.png")
    with pixel_range((500, 1000)):
        inner = np.asarray(open_image(tmp_path / "a.png"))
    assert (inner.min(), inner.max(), np.asarray(open_image(tmp_path / "a.png")).max()) == (0, 255, 62)
    assert (inner[:9] == 0).all()


@pytest.mark.parametrize(
    ("mode", "suffix", "words"),
    [("CMYK", "jpg", "CMYK"), ("RGBA", "png", "transparency"), ("LA", "png", "transparency"), ("P", "png", "palette")],
)
def test_what_is_converted_is_said_once(mode: str, suffix: str, words: str, tmp_path: Path) -> None:
    for name in "abc":
        Image.fromarray((RAMP * 255).astype(np.uint8)).convert("RGB").convert(mode).save(tmp_path / f"{name}.{suffix}")
    found = conversion_notes(sorted(tmp_path.iterdir()))
    assert len(found) == 1
    assert words in found[0]


def test_black_and_white_pictures_are_counted(tmp_path: Path) -> None:
    for name, value in (("a", 0), ("b", 2), ("c", 255), ("d", 90)):
        Image.new("RGB", (30, 20), (value,) * 3).save(tmp_path / f"{name}.png")
    (tmp_path / "e.png").write_bytes(b"none")
    found = conversion_notes(sorted(tmp_path.iterdir()))
    assert [line.split(":")[0] for line in found] == [
        "2 of 5 pictures looked at are (nearly) black",
        "1 of 5 pictures looked at are (nearly) white",
    ]


RECIPE = """
root: .
{range}
stages:
  regions:
    extractor: {{name: backbone, arch: tiny-conv, boxes: grid, grid: [2, 2], short: 32, long: 64}}
    kind: extract
    data: {{name: csv}}
"""


def test_a_run_says_the_rule_and_a_recipe_sets_the_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("images").mkdir()
    Path("train.csv").write_text("image\n0.png\n1.png\n2.png\n")
    for number in range(3):
        Image.fromarray((RAMP * 4095).astype(np.uint16) >> number).save(f"images/{number}.png")
    features = []
    for name, text in (("a", ""), ("b", "images: {range: [0, 4095]}"), ("c", "images: {range: [0, 65535]}")):
        Path(f"{name}.yaml").write_text(RECIPE.format(range=text))
        told = CliRunner().invoke(app, ["validate", f"{name}.yaml", "--deep"]).output
        ended = CliRunner().invoke(app, ["run", f"{name}.yaml"])
        assert ended.exit_code == 0, ended.output
        for output in (told, ended.output):
            assert output.count("more than 8 bits") == 1
            assert ("(nearly) black" in output) == (name == "c")
        features.append(FeatureStore(Path(f"runs/{name}/regions/features.h5")).read("0").features.copy())
    assert np.array_equal(features[0], features[1])
    assert not np.allclose(features[0], features[2])
    Path("d.yaml").write_text(RECIPE.format(range="images: {range: [9, 9]}"))
    ended = CliRunner().invoke(app, ["validate", "d.yaml"])
    assert ended.exit_code
    assert "below the second" in ended.output
