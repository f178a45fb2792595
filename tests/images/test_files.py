from __future__ import annotations

import tarfile
import zlib

import numpy as np
import pytest
from PIL import Image

from vlcli.images.files import BadImageError, check_image, open_image, read_size, to_rgb

RED = np.zeros((20, 30, 3), dtype=np.uint8)
RED[..., 0] = 200


def test_modes_become_rgb(tmp_path):
    red = Image.fromarray(RED)
    for mode, suffix in [("CMYK", "jpg"), ("P", "png"), ("P", "gif"), ("RGBA", "png"), ("LA", "png"), ("1", "png")]:
        path = tmp_path / f"{mode}.{suffix}"
        red.convert(mode).save(path)
        image = open_image(path)
        assert (image.mode, image.size) == ("RGB", (30, 20))
        if mode in ("CMYK", "P", "RGBA"):
            assert np.abs(np.asarray(image).astype(int) - RED).mean() < 6  # palettes are dithered
        assert read_size(path) == (20, 30)


def test_sixteen_bits_are_scaled_not_clipped(tmp_path):
    ramp = np.linspace(0, 65535, 600).astype(np.uint16).reshape(20, 30)
    Image.fromarray(ramp).save(tmp_path / "deep.png")
    values = np.asarray(open_image(tmp_path / "deep.png"))[..., 0]
    assert np.abs(values.astype(int) - ramp / 257).max() <= 1


def test_palette_with_transparency(tmp_path):
    image = Image.fromarray(RED).convert("P")
    image.info["transparency"] = b"\x80" * 256
    assert to_rgb(image).mode == "RGB"


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(tmp_path, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(RED).save(tmp_path / "turned.jpg", exif=exif)
    upright = (30, 20) if orientation >= 5 else (20, 30)
    image = open_image(tmp_path / "turned.jpg")
    assert read_size(tmp_path / "turned.jpg") == upright == (image.height, image.width)
    # Annotations measured in the stored pixels keep the stored pixels.
    kept = open_image(tmp_path / "turned.jpg", raw=(20, 30))
    assert (kept.height, kept.width) == (20, 30) == read_size(tmp_path / "turned.jpg", raw=(20, 30))


def _bomb(path):
    """A PNG whose header promises 60,000 x 60,000 pixels."""
    header = b"IHDR" + (60000).to_bytes(4, "big") * 2 + bytes([8, 0, 0, 0, 0])
    parts = [header, b"IDAT" + zlib.compress(b"\0" * 100)]
    chunks = [(len(c) - 4).to_bytes(4, "big") + c + zlib.crc32(c).to_bytes(4, "big") for c in parts]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))


def test_bad_files_have_reasons(tmp_path):
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(tmp_path / "a.jpg")
    whole = (tmp_path / "a.jpg").read_bytes()
    (tmp_path / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "empty.jpg").write_bytes(b"")
    (tmp_path / "text.jpg").write_text("hello")
    (tmp_path / "folder.jpg").mkdir()
    _bomb(tmp_path / "bomb.png")
    reasons = {
        "cut.jpg": "cannot be decoded",
        "empty.jpg": "the file is empty",
        "text.jpg": "not an image",
        "folder.jpg": "cannot be opened",
        "bomb.png": "too large",
        "none.jpg": "does not exist",
    }
    for name, reason in reasons.items():
        with pytest.raises(BadImageError, match=reason):
            open_image(tmp_path / name)
    with pytest.raises(BadImageError, match="too large: 64 x 64"):
        open_image(tmp_path / "a.jpg", max_pixels=4000)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_damaged_bytes_are_bad_images_not_crashes(tmp_path):
    """Bytes of real files changed at random: every one opens or is refused in a line."""
    rng = np.random.default_rng(0)
    exif = Image.Exif()
    exif[0x0112] = 6
    for suffix, options in (("jpg", {"exif": exif}), ("png", {"exif": exif}), ("webp", {"exif": exif}), ("gif", {})):
        path = tmp_path / f"whole.{suffix}"
        Image.fromarray(RED).save(path, **options)
        whole = np.frombuffer(path.read_bytes(), np.uint8)
        for _ in range(60):
            changed = whole.copy()
            changed[rng.integers(0, len(changed), 3)] = rng.integers(0, 256, 3)
            path.write_bytes(changed.tobytes())
            for read in (open_image, read_size):
                try:
                    found = read(path)
                except BadImageError:
                    continue
                assert min(found.size if isinstance(found, Image.Image) else found) > 0


def test_damaged_orientation_turns_nothing(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(RED).save(tmp_path / "a.webp", exif=exif)
    content = (tmp_path / "a.webp").read_bytes()
    place = content.index(b"MM\x00*")
    (tmp_path / "a.webp").write_bytes(content[: place + 2] + b"\x1a" + content[place + 3 :])
    assert open_image(tmp_path / "a.webp").size == (30, 20)
    assert read_size(tmp_path / "a.webp") == (20, 30)


def test_a_jpeg_of_less_than_eight_pixels_can_be_checked(tmp_path):
    Image.new("RGB", (5, 3)).save(tmp_path / "small.jpg")
    check_image(tmp_path / "small.jpg")


def test_a_shard_with_a_name_that_is_no_utf8_gives_its_other_pictures(tmp_path):
    Image.new("RGB", (9, 7)).save(tmp_path / "a.jpg")
    with tarfile.open(tmp_path / "0.tar", "w", format=tarfile.GNU_FORMAT) as shard:
        for name in ("a.jpg", "\udcfc.jpg"):
            shard.add(tmp_path / "a.jpg", name)
    assert open_image(tmp_path / "0.tar" / "a.jpg").size == (9, 7)
