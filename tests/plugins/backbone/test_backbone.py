from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torchvision.models import resnet18, resnet50
from vlcli_backbone import BackboneExtractor, RegionBackbone

from vlcli import registry
from vlcli.detection.extraction import extract_images
from vlcli.detection.extractor import Extractor
from vlcli.errors import ComponentError, DataError, UsageError
from vlcli.features import FeatureStore, verify
from vlcli.images.boxes import BoxList, boxes_for, image_id, read_boxes
from vlcli.images.files import open_image

SHOWN = {  # ImageNet classes: Indian elephant, pizza, zebra, bullet train, electric locomotive
    "000000000263.jpg": 385,
    "000000047112.jpg": 963,
    "000000104455.jpg": 340,
    "000000113488.jpg": 466,
    "000000211891.jpg": 547,
}
WEIGHTS = "data/weights/resnet50_imagenet_caffe_fp16.safetensors"


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def picture(folder, size=(48, 64), seed=0, name="a"):
    pixels = np.random.default_rng(seed).integers(0, 255, (*size, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(folder / f"{name}.png")
    return name, folder / f"{name}.png"


def test_registered_as_a_strangers_would_be():
    extractor = registry.build("extractors", {"name": "backbone", "arch": "tiny-conv", "short": 64})
    assert isinstance(extractor, Extractor)
    assert (extractor.dim, extractor.trained_on) == (128, "untrained")
    assert "untrained" in extractor.notes()[0]


@torch.no_grad()
def test_resnet_map_is_torchvisions():
    torch.manual_seed(0)
    theirs = resnet18(weights=None).eval()
    ours = RegionBackbone(arch="resnet18").eval()
    ours.body.load_state_dict({k: v for k, v in theirs.state_dict().items() if not k.startswith("fc.")})
    x = torch.rand(2, 3, 64, 96) * 255
    maps = []
    theirs.layer4.register_forward_hook(lambda module, inputs, output: maps.append(output))
    theirs((x - ours.mean) / ours.std)
    assert torch.equal(ours.feature_map(x), maps[0])


def test_caffe_layout_moves_the_stride():
    body = RegionBackbone(layout="caffe").body
    assert [body.layer3[0].conv1.stride, body.layer3[0].conv2.stride] == [(2, 2), (1, 1)]
    assert [body.layer1[0].conv1.stride, body.layer1[0].conv2.stride] == [(1, 1), (1, 1)]
    plain = resnet50(weights=None)
    assert [plain.layer3[0].conv1.stride, plain.layer3[0].conv2.stride] == [(1, 1), (2, 2)]


@torch.no_grad()
@pytest.mark.parametrize(("head", "resolution"), [("c5", 7), ("c4-res5", 14)])
def test_whole_image_region_of_a_constant_map(head, resolution):
    """Of an image of one colour, a region inside the borders equals the map's own value there."""
    torch.manual_seed(0)
    network = RegionBackbone(arch="resnet18", head=head).eval()
    assert network.resolution == resolution
    x = torch.full((1, 3, 512, 512), 90.0)
    inner = torch.tensor([[224.0, 224.0, 288.0, 288.0]])
    if head == "c5":
        centre = network.feature_map(x)[0, :, 8, 8]
        assert torch.allclose(network(x, [inner])[0], centre, atol=1e-3)
    else:
        cells = network.feature_map(x)[:, :, 16:17, 16:17].expand(-1, -1, 14, 14)
        assert torch.allclose(network(x, [inner])[0], network.body.layer4(cells).mean((2, 3))[0], atol=1e-3)


@torch.no_grad()
@pytest.mark.parametrize("arch", ["tiny-conv", "resnet18", "convnext_atto", "vit_tiny_patch16_224"])
def test_batch_equals_one_at_a_time(arch):
    torch.manual_seed(0)
    network = RegionBackbone(arch=arch).eval()
    x = torch.rand(3, 3, 64, 96) * 255
    boxes = [torch.tensor([[0.0, 0, 40, 40], [10, 10, 90, 60]]), torch.zeros(0, 4), torch.tensor([[5.0, 5, 30, 60]])]
    rows = network(x, boxes)
    assert rows.shape == (3, network.dim)
    alone = torch.cat([network(x[i : i + 1], [boxes[i]]) for i in range(3)])
    assert torch.allclose(rows, alone, atol=1e-4)


def test_gradients_reach_every_parameter():
    network = RegionBackbone(arch="tiny-conv")
    network(torch.rand(2, 3, 64, 64) * 255, [torch.tensor([[0.0, 0, 64, 64]])] * 2).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.parameters())


def test_weights_of_a_trained_model_load_back(tmp_path):
    trained = RegionBackbone(arch="tiny-conv")
    held = {f"model.backbone.{k}": v for k, v in trained.state_dict().items()} | {"model.head.weight": torch.ones(3)}
    save_file(held, tmp_path / "m.safetensors")
    extractor = BackboneExtractor(arch="tiny-conv", weights=str(tmp_path / "m.safetensors"), short=64)
    assert extractor.report.left_over == ["model.head.weight"]
    assert extractor.provenance()["weights_sha256"]
    assert all(torch.equal(v, trained.state_dict()[k]) for k, v in extractor.network.state_dict().items())


def test_partial_or_foreign_weights_are_an_error(tmp_path):
    state = RegionBackbone(arch="tiny-conv").body.state_dict()
    first = next(iter(state))
    for change, message in [
        ({k: v for k, v in state.items() if k != first}, "1 missing"),
        (state | {"what.weight": torch.ones(1)}, "1 without a place: what.weight"),
        (state | {first: torch.ones(1)}, "of another shape"),
    ]:
        save_file(change, tmp_path / "w.safetensors")
        with pytest.raises(DataError, match="do not fit") as caught:
            BackboneExtractor(arch="tiny-conv", weights=str(tmp_path / "w.safetensors"))
        assert message in str(caught.value)
    (tmp_path / "w.safetensors").write_bytes(b"no")
    with pytest.raises(DataError, match="cannot be read"):
        BackboneExtractor(arch="tiny-conv", weights=str(tmp_path / "w.safetensors"))
    with pytest.raises(DataError, match="do not exist"):
        BackboneExtractor(arch="tiny-conv", weights=str(tmp_path / "none.pth"))


class Evil:
    def __reduce__(self):
        return (print, ("unpickled",))


def test_nothing_is_unpickled(tmp_path, capsys):
    torch.save({"x": Evil()}, tmp_path / "evil.pth")
    with pytest.raises(DataError, match="cannot be read"):
        BackboneExtractor(arch="tiny-conv", weights=str(tmp_path / "evil.pth"))
    assert "unpickled" not in capsys.readouterr().out


def test_unusable_options():
    with pytest.raises(ComponentError, match="no backbone"):
        RegionBackbone(arch="resnot50")
    with pytest.raises(UsageError):
        RegionBackbone(arch="tiny-conv", head="c4-res5")


def test_seed_decides_random_weights(tmp_path):
    image = picture(tmp_path)
    files = []
    for number, seed in enumerate((1, 1, 2)):
        extractor = BackboneExtractor(arch="tiny-conv", boxes="grid", short=48, seed=seed)
        extract_images([image], extractor, tmp_path / f"{number}.h5")
        files.append(FeatureStore(tmp_path / f"{number}.h5").read("a").features)
    assert np.array_equal(files[0], files[1])
    assert not np.array_equal(files[0], files[2])


def test_given_boxes_bring_their_columns(tmp_path):
    boxes = BoxList(
        np.array([[0, 0, 20, 20], [10, 10, 60, 40]], np.float32),
        scores=np.array([0.3, 0.8]),
        classes=np.array([4, 5]),
        attributes=np.array([1, 2]),
        box_ids=np.array(["p", "q"]),
        size=(48, 64),
    )
    extractor = BackboneExtractor(arch="tiny-conv", short=48, limit=1)
    extract_images([picture(tmp_path)], extractor, tmp_path / "f.h5", boxes={"a": boxes})
    store = FeatureStore(tmp_path / "f.h5")
    record = store.read("a")
    assert (record.classes.tolist(), record.attributes.tolist(), record.box_ids.tolist()) == ([5], [2], ["q"])
    assert store.provenance["extractor"] == "backbone"
    assert store.provenance["trained_on"] == "untrained"


def test_fixed_size_transformer(tmp_path):
    extractor = BackboneExtractor(arch="swin_tiny_patch4_window7_224", boxes="grid", grid=(2, 2))
    report = extract_images([picture(tmp_path)], extractor, tmp_path / "f.h5")
    assert (report.regions, FeatureStore(tmp_path / "f.h5").dim) == (4, 768)


def test_real_weights_see_what_is_there(shared, tmp_path):
    """The real ResNet-50 at given boxes: the features separate COCO categories, and the store is sound."""
    boxes = read_boxes(shared / "data/annotations/coco_subset/instances.json")
    files = {image_id(p): p for p in sorted((shared / "data/images/coco").iterdir())}
    wanted = [(name, files[name]) for name in sorted(boxes)[:3]]
    extractor = BackboneExtractor(weights=str(shared / WEIGHTS), layout="caffe", short=224, long=400)
    assert extractor.report.left_over == ["fc.bias", "fc.weight"]
    report = extract_images(wanted, extractor, tmp_path / "f.h5", boxes=boxes)
    assert report.images == 3
    assert report.regions == sum(min(36, len(boxes_for(boxes, name))) for name, _ in wanted)
    assert verify(tmp_path / "f.h5") == []


@torch.no_grad()
def test_real_weights_classify_photographs(shared):
    """With the file's own classifier the loaded network names what obvious photographs show."""
    tensors = load_file(shared / WEIGHTS)
    network = RegionBackbone(layout="caffe").eval()
    network.load(shared / WEIGHTS)

    def best(name: str) -> int:
        image = open_image(shared / "data/images/coco" / name).resize((224, 224))
        x = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None].float()
        pooled = network.feature_map(x).mean((2, 3))
        return int((pooled @ tensors["fc.weight"].float().T + tensors["fc.bias"].float()).argmax())

    assert {name: best(name) for name in SHOWN} == SHOWN


@pytest.mark.parametrize("arch", ["hiera_tiny_224", "sam2_hiera_tiny"])
def test_a_timm_model_without_what_is_needed_is_refused_in_words(arch):
    with pytest.raises(ComponentError, match=f"the timm model {arch} cannot be used as a backbone") as caught:
        BackboneExtractor(arch=arch)
    assert "normalization" in caught.value.got
    assert "norm=True" in caught.value.expected
    assert caught.value.hint


@torch.no_grad()
def test_the_final_map_is_what_the_classifier_pools():
    usual, final = (RegionBackbone(arch="efficientnet_b0", head=head).eval() for head in ("c5", "final"))
    assert (usual.dim, final.dim, usual.stride, final.stride) == (320, 1280, 32, 32)
    usual.body.load_state_dict(final.body.state_dict())
    x = torch.rand(1, 3, 64, 96) * 255
    theirs = final.body.forward_features((x - final.mean) / final.std)
    assert torch.equal(final.feature_map(x), theirs)
    last = final.body.forward_intermediates((x - usual.mean) / usual.std, indices=1, intermediates_only=True)[-1]
    assert torch.equal(usual.feature_map(x), last)  # as before there was a choice
    swin = RegionBackbone(arch="swin_tiny_patch4_window7_224", head="final")  # gives its channels last
    assert (swin.dim, swin.stride) == (768, 32)
    for arch, message in (("resnet18", "no head final"), ("vit_tiny_patch16_224", "gives no feature map")):
        with pytest.raises((UsageError, ComponentError), match=message):
            RegionBackbone(arch=arch, head="final")


@pytest.mark.parametrize(
    ("options", "short"),
    [
        ({"arch": "tiny-conv"}, 600),
        ({"arch": "resnet18"}, 600),
        ({"arch": "tf_efficientnetv2_b0"}, 192),
        ({"arch": "edgenext_xx_small"}, 256),
        ({"arch": "edgenext_xx_small", "short": 320}, 320),
        ({"arch": "edgenext_xx_small", "short": 0}, 0),
    ],
)
def test_short_is_the_input_size_a_timm_model_was_made_for(options, short):
    made = BackboneExtractor(**options)
    assert made.preparation.short == made.provenance()["parameters"]["short"] == short


def test_short_of_a_model_of_a_fixed_size_is_that():
    made = BackboneExtractor(arch="visformer_tiny")
    assert (made.preparation.short, made.preparation.square) == (224, True)
    assert made.provenance()["parameters"]["short"] == 600  # as in the stores there are; it is not read
