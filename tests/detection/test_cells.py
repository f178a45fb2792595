"""``boxes: cells``: each cell of a map is a region, exactly, and lies where the network sees it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from vlcli_backbone import BackboneExtractor
from vlcli_bottom_up import BottomUpExtractor

from vlcli.detection import MapGeometry, cell_boxes
from vlcli.detection.extraction import extract_images
from vlcli.features import FeatureStore, verify


@given(st.integers(1, 300), st.integers(1, 300), st.sampled_from([8, 14, 32]), st.floats(0.2, 4))
@settings(max_examples=30, deadline=None)
def test_cells_tile_the_picture(height, width, stride, factor):
    shown = (height * factor, width * factor)
    cells = tuple(int(-(-side // stride)) + 1 for side in shown)  # one row and column of padding
    boxes, seen = cell_boxes((height, width), cells, MapGeometry((stride, stride), (factor, factor)))
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    np.testing.assert_allclose(areas[seen].sum(), height * width, rtol=1e-4)
    assert (areas[seen] > 0).all()
    assert seen.reshape(cells)[-1].sum() == seen.reshape(cells)[:, -1].sum() == 0


@pytest.fixture
def images(tmp_path):
    rng = np.random.default_rng(0)
    found = []
    for name, size in (("a", (90, 66)), ("b", (70, 120))):
        Image.fromarray(rng.integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)).save(tmp_path / f"{name}.png")
        found.append((name, tmp_path / f"{name}.png"))
    return found


def _store(images, extractor, out):
    extract_images(images, extractor, out, dtype="float32")
    verify(out)
    return FeatureStore(out)


def _pixels(extractor, path):
    return extractor.prepare(Image.open(path).convert("RGB"), None)


@pytest.mark.parametrize(
    ("arch", "head", "stride"),
    [("tiny-conv", "c5", 8), ("resnet18", "c5", 32), ("resnet18", "c4-res5", 32), ("resnet10t", "c5", 32),
     ("vit_tiny_patch16_224", "c5", 16)],
)  # fmt: skip
def test_a_backbones_cells_are_its_map(arch, head, stride, images, tmp_path):
    extractor = BackboneExtractor(arch=arch, head=head, boxes="cells", short=64, long=0)
    store = _store(images, extractor, tmp_path / "f.h5")
    assert store.provenance["boxes"] == "cells"
    for name, path in images:
        record, item = store.read(name), _pixels(extractor, path)
        with torch.inference_mode():
            body = extractor.network
            maps = body.feature_map(item.pixels[None].float())
            wanted = body.body.layer4(maps) if head == "c4-res5" else maps
        np.testing.assert_allclose(record.features, wanted[0].flatten(1).T.numpy(), atol=1e-6)
        rows, columns = wanted.shape[2:]
        height, width = item.pixels.shape[1:]
        assert (rows, columns) == (-(-height // stride), -(-width // stride))
        np.testing.assert_allclose(record.boxes[-1, 2:], record.size[::-1], atol=1e-3)
        np.testing.assert_allclose(record.boxes[0], [0, 0, *(stride / np.array(item.scale))], rtol=1e-5)


def test_other_boxes_are_what_they_were(images, tmp_path):
    whole = BackboneExtractor(arch="tiny-conv", boxes="grid", grid=(1, 1), short=64)
    cells = BackboneExtractor(arch="tiny-conv", boxes="cells", short=64)
    one = _store(images, whole, tmp_path / "a.h5")
    other = _store(images, cells, tmp_path / "b.h5")
    for name, _ in images:
        assert len(one.read(name)) == 1 < len(other.read(name))


@pytest.mark.parametrize(
    ("family", "more", "stride", "width"),
    [pytest.param("caffe", {"depth": 50}, 16, 2048, marks=pytest.mark.slow),
     pytest.param("detectron2", {"depth": 50}, 32, 2048, marks=pytest.mark.slow),
     ("vlp", {"depth": 50, "cardinality": 4, "width": 4, "pyramid": 16}, 32, 16)],
)  # fmt: skip
def test_a_detectors_cells_are_the_last_stage_of_the_whole_picture(family, more, stride, width, images, tmp_path):
    extractor = BottomUpExtractor(family=family, boxes="cells", short=96, long=200, **more)
    assert extractor.dim == width
    store = _store(images, extractor, tmp_path / "f.h5")
    assert (store.provenance["boxes"], store.provenance["rule"]) == ("cells", "cells")
    for name, path in images:
        record, item = store.read(name), _pixels(extractor, path)
        detector = extractor.detector
        with torch.inference_mode():
            if family == "vlp":
                height, wide = item.pixels.shape[1:]
                padded = torch.nn.functional.pad(item.pixels, (0, -wide % 32, 0, -height % 32))
                wanted = detector.backbone(padded[None])[3]
            else:
                wanted = detector.roi_heads.res5(detector.backbone(item.pixels[None])[-1])
        rows, columns = (-(-side // stride) for side in item.pixels.shape[1:])
        wanted = wanted[0, :, :rows, :columns].flatten(1).T.numpy()  # cells of padding alone are left out
        np.testing.assert_allclose(record.features, wanted, atol=1e-5, rtol=1e-5)
        assert len(record.boxes) == rows * columns
