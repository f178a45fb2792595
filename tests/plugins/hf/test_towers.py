"""The extractor ``transformers``: its features are those of the library called by hand."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
import transformers as T
from safetensors.torch import load_file, save_file
from torchvision.ops import roi_align
from vlcli_hf import TransformersExtractor

from tests.plugins.hf.tiny import TOWERS, opened, pictures, save, tower
from vlcli import registry
from vlcli.detection.extraction import extract_images
from vlcli.errors import ComponentError, DataError, UsageError, VlcliError
from vlcli.features import FeatureStore, verify
from vlcli.images.boxes import BoxList

OTHERS = ("siglip", "mae", "dinov2", "dinov3")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("towers")
    return {name: save(root / name, *tower(name)) for name in TOWERS}


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return pictures(tmp_path_factory.mktemp("pictures"))


def extracted(folder, images, out, given=None, **options):
    extractor = TransformersExtractor(weights=str(folder), **options)
    extract_images(images, extractor, out, boxes=given, dtype="float32")
    return FeatureStore(out), extractor


def by_hand(name, folder, image):
    """The features of the patches, as a reader of transformers' documentation gets them."""
    fed = T.AutoImageProcessor.from_pretrained(folder)(images=image, return_tensors="pt")
    pixels = fed["pixel_values"]
    with torch.inference_mode():
        if name == "convnext":
            return T.ConvNextBackbone.from_pretrained(folder).eval()(pixels).feature_maps[-1][0].flatten(1).T
        if name in ("dinov2", "registers", "dinov3"):
            kind = {"dinov2": T.Dinov2Backbone, "registers": T.Dinov2WithRegistersBackbone}.get(
                name, T.DINOv3ViTBackbone
            )
            model = kind.from_pretrained(folder, reshape_hidden_states=True).eval()
            return model(pixels).feature_maps[-1][0].flatten(1).T
        if name == "resnet":
            return T.AutoModel.from_pretrained(folder).eval()(pixels).last_hidden_state[0].flatten(1).T
        if name == "siglip2":
            model = T.Siglip2VisionModel.from_pretrained(folder).eval()
            height, width = fed["spatial_shapes"][0].tolist()
            return model(**fed).last_hidden_state[0][: height * width]
        if name == "mae":
            model = T.ViTMAEModel.from_pretrained(folder, mask_ratio=0.0).eval()
            found = model(pixels, noise=torch.arange(16.0)[None]).last_hidden_state[0]
            return found[1:]
        kind = {"clip": T.CLIPVisionModel, "siglip": T.SiglipVisionModel, "vit": T.ViTModel}[name.split("-")[0]]
        found = kind.from_pretrained(folder).eval()(pixels).last_hidden_state[0]
        return found if name.startswith("siglip") else found[1:]


@pytest.mark.parametrize("name", TOWERS)
def test_cells_are_the_library_called_by_hand(name, folders, images, tmp_path):
    store, extractor = extracted(folders[name], images, tmp_path / "f.h5")
    for (key, _), image in zip(images, opened(images), strict=True):
        record, wanted = store.read(key), by_hand(name, folders[name], image).numpy()
        assert record.features.shape == wanted.shape == (len(record.boxes), extractor.dim)
        np.testing.assert_allclose(record.features, wanted, atol=1e-6, rtol=1e-5)
        areas = (record.boxes[:, 2:] - record.boxes[:, :2]).prod(1)
        assert (areas > 0).all()
        cropped = name in ("dinov2", "registers", "clip", "clip-both", "convnext", "resnet")
        assert (
            areas.sum() < image.width * image.height
            if cropped
            else np.isclose(areas.sum(), image.width * image.height, rtol=1e-5)
        )
    verify(tmp_path / "f.h5")


@pytest.mark.parametrize("name", ["dinov2", "clip", "siglip", "siglip2", "convnext", "resnet"])
def test_a_cell_is_where_the_model_sees_it(name, folders, tmp_path):
    """A picture whose colours say where a pixel lies: the mean input of each patch tells the middle of its box."""
    from PIL import Image

    extractor = TransformersExtractor(weights=str(folders[name]))
    width, height = 200, 120
    ramp = np.zeros((height, width, 3), np.uint8)
    ramp[..., 0], ramp[..., 1] = np.arange(width)[None, :], np.arange(height)[:, None]
    item = extractor.prepare(Image.fromarray(ramp), None)
    with torch.inference_mode():
        (record,) = extractor.extract([item])
    processor = extractor.preparation.processor
    mean, std = (np.array(values)[:, None] for values in (processor.image_mean, processor.image_std))
    side = int(extractor.network.stride[0])
    if any(item.patches):
        shown = item.pixels[: len(record.boxes)].reshape(-1, side * side, 3).mean(1).T.numpy()
    else:
        shown = torch.nn.functional.avg_pool2d(item.pixels[None].double(), side)[0].flatten(1).numpy()
    colours = (shown * std + mean) * 255  # (3, N)
    middle = (record.boxes[:, :2] + record.boxes[:, 2:]) / 2 - 0.5
    inner = (middle > 12).all(1) & (middle < np.array([width, height]) - 12).all(1)
    assert inner.sum() >= 3
    np.testing.assert_allclose(colours[:2].T[inner], middle[inner], atol=1.0)


@pytest.mark.parametrize("name", ["dinov2", "siglip2", "resnet"])
def test_given_boxes_are_pooled_by_roialign_from_the_whole_picture(name, folders, images, tmp_path):
    boxes = {key: BoxList(np.array([[0, 0, 40, 30], [10, 8, 60, 50]], np.float32)) for key, _ in images}
    store, extractor = extracted(folders[name], images, tmp_path / "f.h5", boxes, boxes="given", resolution=3)
    for (key, _), image in zip(images, opened(images), strict=True):
        item = extractor.prepare(image, boxes[key])
        with torch.inference_mode():
            shapes = [item.patches] if any(item.patches) else None
            (rows,) = extractor.network(item.pixels[None], shapes)
        down, across = rows.shape[0] / image.height, rows.shape[1] / image.width
        places = torch.from_numpy(boxes[key].boxes) * torch.tensor([across, down, across, down])
        wanted = roi_align(rows.permute(2, 0, 1)[None], [places], 3, 1.0, 2, True).mean((2, 3))
        np.testing.assert_allclose(store.read(key).features, wanted.numpy(), atol=1e-5)
        np.testing.assert_array_equal(store.read(key).boxes, boxes[key].boxes)


@pytest.mark.parametrize("name", ["clip", *(pytest.param(n, marks=pytest.mark.slow) for n in OTHERS)])
def test_larger_pictures_and_earlier_layers(name, folders, images, tmp_path):
    store, _ = extracted(folders[name], images[:1], tmp_path / "f.h5", image_size=(48, 64), layer=-2)
    record = store.read("p0")
    assert record.features.shape == (48, 16)
    np.testing.assert_allclose(record.boxes[-1, 2:], record.size[::-1])
    again, _ = extracted(folders[name], images[:1], tmp_path / "g.h5", image_size=(48, 64))
    assert not np.allclose(again.read("p0").features, record.features)


def test_batches_resumed_runs_and_moved_folders_change_nothing(folders, images, tmp_path):
    whole, _ = extracted(folders["registers"], images, tmp_path / "a.h5", batch_size=8)
    moved = shutil.copytree(folders["registers"], tmp_path / "moved")
    extractor = TransformersExtractor(weights=str(moved), batch_size=1)
    calls = []

    def dying(batch, extract=extractor.extract):
        calls.append(batch)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return extract(batch)

    extractor.extract = dying
    with pytest.raises(KeyboardInterrupt):
        extract_images(images, extractor, tmp_path / "b.h5", dtype="float32", batch_size=1)
    report = extract_images(images, TransformersExtractor(weights=str(moved)), tmp_path / "b.h5", dtype="float32",
                            batch_size=1)  # fmt: skip
    assert (report.resumed, report.written) == (1, 2)
    again = FeatureStore(tmp_path / "b.h5")
    for key, _ in images:
        np.testing.assert_allclose(again.read(key).features, whole.read(key).features, atol=1e-6)
    assert again.provenance["weights_sha256"] == whole.provenance["weights_sha256"]
    assert again.provenance["extractor"] == "transformers"
    assert again.provenance["model"] == "Dinov2WithRegistersModel"


def refusal(**options) -> VlcliError:
    with pytest.raises(VlcliError) as caught:
        registry.build("extractors", {"name": "transformers", **options})
    assert len(str(caught.value).splitlines()) <= 6
    return caught.value


def test_what_cannot_be_loaded_is_refused_with_what_was_looked_for(folders, tmp_path, monkeypatch):
    assert isinstance(refusal(), UsageError)
    assert isinstance(refusal(weights="a", hub="b"), UsageError)
    gone = refusal(hub="nobody/no-such-model")
    assert isinstance(gone, DataError)
    assert "models--nobody--no-such-model" in gone.expected
    assert "hf download nobody/no-such-model" in gone.hint
    assert "no such folder" in str(refusal(weights=str(tmp_path / "absent")))
    (tmp_path / "empty").mkdir()
    assert "no configuration" in str(refusal(weights=str(tmp_path / "empty")))
    bare = shutil.copytree(folders["dinov2"], tmp_path / "bare")
    (bare / "model.safetensors").unlink()
    assert "model.safetensors" in refusal(weights=str(bare)).expected
    blind = shutil.copytree(folders["dinov2"], tmp_path / "blind")
    (blind / "preprocessor_config.json").unlink()
    assert "preprocessor_config.json" in refusal(weights=str(blind)).expected
    assert "layer" in str(refusal(weights=str(folders["dinov2"]), layer=-9))


def test_a_tower_whose_size_disagrees_with_its_weights(folders, tmp_path):
    other = shutil.copytree(folders["clip"], tmp_path / "other")
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"hidden_size": 24}))
    error = refusal(weights=str(other))
    assert isinstance(error, DataError)
    assert "do not fit" in error.what
    assert "24" in error.got
    few = shutil.copytree(folders["clip"], tmp_path / "few")
    tensors = load_file(few / "model.safetensors")
    save_file(dict(list(tensors.items())[3:]), few / "model.safetensors", {"format": "pt"})
    assert "missing" in refusal(weights=str(few)).got
    (few / "model.safetensors").write_bytes(b"nothing")
    assert "do not fit" in refusal(weights=str(few)).what


def test_a_model_that_is_no_tower(tmp_path):
    model = T.BertModel(T.BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
                                     vocab_size=30))  # fmt: skip
    error = refusal(weights=str(save(tmp_path / "bert", model)))
    assert isinstance(error, ComponentError)
    assert "'bert' is neither" in error.what
    assert "dinov2" in error.expected
    assert "transformers-detector" in error.hint
