"""DETR's training: its set loss against transformers' and by brute force, its classes, weights of all three origins."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from torchvision.ops import box_iou
from vlcli_detr import DETR
from vlcli_detr.model import COCO_ROWS
from vlcli_detr.names import from_transformers, to_released
from vlcli_detr.set_loss import Objects, SetWeights, corners, match, set_loss

from vlcli.errors import ComponentError, DataError
from vlcli.nn import DataSpec
from vlcli.nn.batch import Images, Pixels

SMALL = {"backbone": "resnet18", "hidden": 24, "heads": 3, "intermediate": 32, "encoder_layers": 2, "decoder_layers": 3}
COCO_IDS = tuple(i for i in range(1, 91) if i not in (12, 26, 29, 30, 45, 66, 68, 69, 71, 83))


def predictions(layers: int = 3, pictures: int = 4, queries: int = 7, classes: int = 5, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(layers, pictures, queries, classes + 1, generator=generator, dtype=torch.float64)
    boxes = torch.rand(layers, pictures, queries, 4, generator=generator, dtype=torch.float64)
    objects = [
        Objects(
            torch.randint(classes, (count,), generator=generator),
            torch.rand(count, 4, generator=generator, dtype=torch.float64) * 0.5 + 0.05,
        )
        for count in (3, 0, 7, 1)
    ]
    return logits.requires_grad_(), boxes.requires_grad_(), objects


def theirs(logits, boxes, objects):
    """The loss that transformers makes of the same predictions."""
    from transformers.loss.loss_for_object_detection import ForObjectDetectionLoss

    weights = SetWeights()
    config = SimpleNamespace(
        auxiliary_loss=True,
        class_cost=weights.label,
        bbox_cost=weights.box,
        giou_cost=weights.overlap,
        bbox_loss_coefficient=weights.box,
        giou_loss_coefficient=weights.overlap,
        eos_coefficient=weights.nothing,
        num_labels=logits.shape[-1] - 1,
        decoder_layers=len(logits),
    )
    labels = [{"class_labels": own.labels, "boxes": own.boxes} for own in objects]
    shared = {"outputs_class": logits, "outputs_coord": boxes}
    torch.set_default_dtype(torch.float64)  # its class weights are made in the default type
    try:
        loss, parts, _ = ForObjectDetectionLoss(logits[-1], labels, "cpu", boxes[-1], config, **shared)
    finally:
        torch.set_default_dtype(torch.float32)
    return loss, parts


def total(sums) -> torch.Tensor:
    return sum(value / count.clamp(min=1) for value, count in sums.values())


@pytest.mark.parametrize("seed", range(4))
def test_loss_and_gradients_are_those_of_transformers(seed):
    logits, boxes, objects = predictions(seed=seed)
    wanted, parts = theirs(logits, boxes, objects)
    wanted_gradients = torch.autograd.grad(wanted, [logits, boxes], retain_graph=True)
    sums = set_loss(logits, boxes, objects)
    gradients = torch.autograd.grad(total(sums), [logits, boxes])
    assert total(sums).item() == pytest.approx(wanted.item(), abs=1e-10)
    for name, theirs_name, weight in (("class", "loss_ce", 1), ("box", "loss_bbox", 5), ("overlap", "loss_giou", 2)):
        value = sum(part.item() for key, part in parts.items() if key.startswith(theirs_name)) * weight
        assert (sums[name][0] / sums[name][1]).item() == pytest.approx(value, abs=1e-10)
    for own, other in zip(gradients, wanted_gradients, strict=True):
        assert (own - other).abs().max() < 1e-10


def test_matching_is_the_cheapest():
    logits, boxes, objects = predictions(layers=1, queries=5)
    weights = SetWeights(2.0, 3.0, 0.5)
    own = Objects(objects[0].labels, objects[0].boxes)
    (rows, columns), *_ = match(logits[0, :1], boxes[0, :1], [own], weights)
    chances = logits[0, 0].softmax(-1)

    def price(pairs) -> float:
        cost = 0.0
        for row, column in pairs:
            place, true = boxes[0, 0, row], own.boxes[column]
            cost += 3.0 * (place - true).abs().sum().item() - 2.0 * chances[row, own.labels[column]].item()
            cost -= 0.5 * overlap(corners(place).tolist(), corners(true).tolist())
        return cost

    every = [list(zip(order, range(3), strict=True)) for order in itertools.permutations(range(5), 3)]
    assert price(zip(rows.tolist(), columns.tolist(), strict=True)) == pytest.approx(min(map(price, every)))


def overlap(a: list[float], b: list[float]) -> float:
    """Generalised IoU by definition."""

    def area(box: list[float]) -> float:
        return max(box[2] - box[0], 0.0) * max(box[3] - box[1], 0.0)

    shared = area([max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3])])
    hull = area([min(a[0], b[0]), min(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3])])
    union = area(a) + area(b) - shared
    return shared / union - (hull - union) / hull


def test_pictures_without_objects_and_with_too_many():
    logits, boxes, objects = predictions(queries=5)
    assert all(torch.isfinite(value) for value, _ in set_loss(logits, boxes, objects).values())  # 7 objects, 5 queries
    empty = [Objects(objects[1].labels, objects[1].boxes)] * 4
    sums = set_loss(logits, boxes, empty)
    assert sums["box"][0] == 0
    assert sums["box"][1] == 0
    nothing = -logits.log_softmax(-1)[..., -1]
    assert (sums["class"][0] / sums["class"][1]).item() == pytest.approx(nothing.mean((1, 2)).sum().item())


def pictures(classes: list[list[int]], size: int = 64) -> Images:
    count = max(map(len, classes))
    torch.manual_seed(1)
    low = torch.rand(len(classes), count, 2) * 0.5
    boxes = torch.cat([low, low + 0.3], -1)
    labels = torch.tensor([row + [-1] * (count - len(row)) for row in classes])
    real = torch.tensor([[True] * len(row) + [False] * (count - len(row)) for row in classes])
    mask = torch.ones(len(classes), size, size, dtype=torch.bool)
    mask[-1, :, size // 2 :] = False
    sizes = torch.tensor([[size, size]] * len(classes))
    pixels = Pixels(torch.randn(len(classes), 3, size, size), sizes, mask, boxes, real, labels)
    return Images([str(i) for i in range(len(classes))], pixels=pixels)


def test_the_model_is_held_to_its_pictures():
    torch.manual_seed(0)
    model = DETR(DataSpec(region_classes=4), **SMALL, queries=5, classes=None, dropout=0.0).train()
    images = pictures([[0, 3], [2, -1]])  # the second picture has a box of no known class
    sums = model.detection_losses(images)
    assert sums["box"][1] == 3
    found = model(images.pixels.images, images.pixels.mask)
    boxes = images.pixels.boxes
    middle = torch.cat([(boxes[..., :2] + boxes[..., 2:]) / 2, boxes[..., 2:] - boxes[..., :2]], -1)
    objects = [Objects(torch.tensor([0, 3]), middle[0]), Objects(torch.tensor([2]), middle[1, :1])]
    wanted = set_loss(found.logits, found.boxes, objects)
    for name, (value, count) in sums.items():
        assert (value / count).item() == pytest.approx((wanted[name][0] / wanted[name][1]).item(), rel=1e-5)
    total(sums).backward()
    last = DETR(DataSpec(region_classes=4), **SMALL, queries=5, classes=None, auxiliary=False)
    last.load_state_dict(model.state_dict())
    assert total(last.detection_losses(images)) < total(sums)
    with pytest.raises(DataError):
        model.detection_losses(Images(["a"], pixels=Pixels(torch.zeros(1, 3, 64, 64), torch.tensor([[64, 64]]))))


def test_classes_have_the_rows_of_cocos_ids():
    data_spec = DataSpec(region_classes=80, class_ids=COCO_IDS)
    torch.manual_seed(0)
    model = DETR(data_spec, **SMALL, queries=3).eval()
    assert model.class_embed.out_features == COCO_ROWS + 1
    with torch.no_grad():
        model.class_embed.bias.zero_()
        model.class_embed.weight.zero_()
        model.class_embed.bias[[88, 12]] = torch.tensor([9.0, 30.0])  # a teddy bear; an id that means nothing
    found = model.detect(pictures([[0], [1]]))
    assert (found.labels == COCO_IDS.index(88)).all()
    narrow = DETR(data_spec, **SMALL, queries=3, classes=None).eval()
    report: list[str] = []
    state = narrow.adapt(model.state_dict(), report)
    assert state["class_embed.bias"].shape == (81,)
    assert state["class_embed.bias"][COCO_IDS.index(88)] == 9.0
    assert "80 categories" in report[0]
    other = DETR(DataSpec(region_classes=4), **SMALL, queries=3, classes=None)
    assert other.adapt(model.state_dict(), report)["class_embed.weight"].shape == (5, 24)
    assert "new" in report[-1]
    with pytest.raises(ComponentError):
        DETR(DataSpec(region_classes=8, class_names=tuple("abcdefgh")), **SMALL, classes=4)


def test_detections_are_shares_of_the_picture():
    model = DETR(DataSpec(region_classes=4), **SMALL, queries=6, classes=None).eval()
    images = pictures([[0, 1], [2]])
    with torch.no_grad():
        found, said = model.detect(images), model(images.pixels.images, images.pixels.mask)
    assert found.boxes.shape == (2, 6, 4)
    chances = said.logits[-1].softmax(-1)[..., :-1]
    assert torch.allclose(found.scores, chances.max(-1).values)
    assert torch.equal(found.labels, chances.argmax(-1))
    middle = (found.boxes[..., :2] + found.boxes[..., 2:]) / 2
    inside = ((found.boxes > 0) & (found.boxes < 1)).all(-1)
    assert torch.allclose(middle[inside], said.boxes[-1][inside][:, :2], atol=1e-6)


TABLES = {"name": "irpe", "ratio": 2.0, "off_plane": "nothing", "init": "xavier", "sides": ["key", "value"]}


def test_released_names_go_and_come_back():
    model = DETR(DataSpec(), **SMALL, queries=3, position=["detr-sine", TABLES])
    public = to_released(model.state_dict())
    assert "transformer.encoder.layers.1.self_attn.rpe_v.lookup_table_weight" in public
    assert "transformer.decoder.layers.2.multihead_attn.in_proj_weight" in public
    again = model.adapt(public, [])
    assert again.keys() == model.state_dict().keys()
    assert all(torch.equal(again[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize("equipped", [False, True])
def test_weights_of_transformers_load(equipped, tmp_path):
    import transformers
    from vlcli_irpe import equip

    backbone = transformers.TimmBackboneConfig(backbone="resnet18", use_pretrained_backbone=False, out_indices=[4])
    config = transformers.DetrConfig(
        backbone_config=backbone, use_timm_backbone=False, d_model=24, encoder_layers=2, decoder_layers=3,
        encoder_attention_heads=3, decoder_attention_heads=3, encoder_ffn_dim=32, decoder_ffn_dim=32, num_queries=5,
        num_labels=4,
    )  # fmt: skip
    torch.manual_seed(0)
    other = transformers.DetrForObjectDetection(config).eval()
    other.save_pretrained(tmp_path)  # under the names of published files
    position = ["detr-sine", TABLES] if equipped else "detr-sine"
    ours = DETR(DataSpec(region_classes=4), **SMALL, queries=5, classes=None, position=position).eval()
    if equipped:
        equip(other, **{key: value for key, value in TABLES.items() if key != "name"})
        state = other.state_dict()
    else:
        from safetensors.torch import load_file

        state = load_file(tmp_path / "model.safetensors")
    made = ours.adapt({name: value for name, value in state.items() if "num_batches_tracked" not in name}, [])
    ours.load_state_dict(made)
    pixels, mask = torch.randn(2, 3, 96, 128), torch.ones(2, 96, 128, dtype=torch.bool)
    mask[1, 64:], mask[1, :, 96:] = False, False
    with torch.no_grad():
        found, wanted = ours(pixels, mask), other(pixel_values=pixels, pixel_mask=mask.long())
    assert torch.allclose(found.logits[-1], wanted.logits, atol=1e-4)
    assert torch.allclose(found.boxes[-1], wanted.pred_boxes, atol=1e-4)
    assert not from_transformers({"class_labels_classifier.bias": mask}, ["class_embed.bias"]).keys() - {
        "class_embed.bias"
    }


@pytest.mark.slow
def test_it_learns_pictures_by_heart():
    """Two pictures with two boxes each: found after some steps with the right classes, and not before."""
    torch.manual_seed(0)
    irpe = {"name": "irpe", "ratio": 2.0, "off_plane": "nothing"}
    sizes = {"hidden": 32, "heads": 2, "intermediate": 64, "encoder_layers": 1, "decoder_layers": 2, "queries": 4}
    model = DETR(
        DataSpec(region_classes=4),
        backbone="tiny-conv",
        **sizes,
        classes=None,
        dropout=0.0,
        position=["detr-sine", irpe],
    )
    images = pictures([[0, 3], [2, 1]])
    images.pixels.mask[:] = True
    before, first = hits(model, images), total(model.detection_losses(images)).item()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(160):
        optimizer.zero_grad()
        loss = total(model.detection_losses(images))
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.2 * first
    assert (before, hits(model, images)) == (0, 4)


def hits(model: DETR, images: Images) -> int:
    """Given boxes that a confident detection of their class covers by half or more."""
    with torch.no_grad():
        found = model.eval().detect(images)
    model.train()
    count = 0
    for row, (boxes, labels) in enumerate(zip(images.pixels.boxes, images.pixels.classes, strict=True)):
        sure = found.scores[row] > 0.5
        apart = box_iou(boxes, found.boxes[row][sure])
        right = labels[:, None] == found.labels[row][sure]
        count += int(((apart > 0.5) & right).any(1).sum())
    return count


def coco_2017(root: Path) -> None:
    """Six pictures of two sizes in COCO's layout, 80 categories by their ids, and a ResNet by torchvision's names."""
    rng = np.random.default_rng(0)
    categories = [{"id": number, "name": f"thing {number}"} for number in COCO_IDS]
    (root / "annotations").mkdir(parents=True)
    for part, first in (("train", 0), ("val", 4)):
        images, notes = [], []
        (root / f"{part}2017").mkdir()
        for number in range(first, first + (4 if part == "train" else 2)):
            width, height = ((96, 64), (64, 80))[number % 2]
            name = f"{number:012}.jpg"
            Image.fromarray(rng.integers(0, 255, (height, width, 3), np.uint8)).save(root / f"{part}2017" / name)
            images.append({"id": number, "file_name": name, "width": width, "height": height})
            box = [10.0, 12.0, 30.0, 40.0]
            notes.append({"id": number, "image_id": number, "category_id": 90 - number, "bbox": box, "area": 1200.0})
        document = {
            "images": images,
            "annotations": [{**note, "iscrowd": 0} for note in notes],
            "categories": categories,
        }
        (root / f"annotations/instances_{part}2017.json").write_text(json.dumps(document))
    torch.save(torchvision.models.resnet18().state_dict(), root / "resnet50.pth")


@pytest.mark.slow
def test_the_recipe_of_table_6_runs_on_cocos_layout(tmp_path, cli):
    coco_2017(tmp_path / "coco-data")
    small = [
        "model.backbone=resnet18",
        "model.hidden=24",
        "model.heads=3",
        "model.intermediate=32",
        "model.encoder_layers=1",
    ]
    small += ["model.decoder_layers=2", "model.queries=6", "stages.train.epochs=2", "stages.train.batch_size=4"]
    small += ["stages.train.workers=0", "stages.test.workers=0", "stages.train.transform.shorts=[48, 64]"]
    small += [
        "stages.train.transform.crop_sides=[40, 60]",
        "stages.train.transform.before_crop=[50]",
        "stages.train.log_every=1",
    ]
    ended = cli("run", "irpe/detr", *small, "--json")
    assert ended.code == 0, ended.err
    metrics = json.loads(ended.out)["table"]["rows"][0]["metrics"]
    assert {"AP", "AP50", "AP75", "APm"} == set(metrics)  # there are no small objects and no large ones
    folder = next((tmp_path / "runs").glob("irpe-detr-*"))
    report = json.loads((folder / "train/model/load_report.json").read_text())
    assert all(name.startswith("model.body.") for name in report["matched"])
    assert not any(name.startswith("model.body.") for name in report["new"])
    log = [json.loads(line) for line in (folder / "train/log.jsonl").read_text().splitlines()]
    assert {f"loss/detection/{part}" for part in ("class", "box", "overlap")} <= {key for line in log for key in line}
    found = json.loads((folder / "test/detections.json").read_text())
    assert {row["category_id"] for row in found} <= set(COCO_IDS)
    assert {row["image_id"] for row in found} <= {4, 5}
