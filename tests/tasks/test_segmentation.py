"""Segmentation: the reader, the crops, UPerNet by transformers' weights, windows, and a small model by heart."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from vlcli_backbone import RegionClassifier
from vlcli_deit import DeiT
from vlcli_swin import Swin
from vlcli_vlmo import VLMo

from vlcli import registry
from vlcli.cli import app
from vlcli.data.readers.ade20k import ADE20K
from vlcli.data.transforms import TransformInput
from vlcli.data.transforms.detection import Segmentation as Crops
from vlcli.errors import ComponentError, DataError
from vlcli.nn import DataSpec, Images, InputSpec, Pixels
from vlcli.nn.segmentation import Maps, PlainHead, UPerHead
from vlcli.objectives.segmentation import Segmentation, classes_of
from vlcli.tasks.segmentation import Segmentation as Task
from vlcli.tasks.segmentation import windows

torch.set_num_threads(1)
DATA_SPEC = DataSpec(answers=("wall", "building", "sky", "floor"), text_length=8, vocab_size=30)


def world(root: Path, sizes=((40, 52), (52, 40), (48, 48))) -> Path:
    rng = np.random.default_rng(0)
    for split, short in (("training", "train"), ("validation", "val")):
        for number, size in enumerate(sizes, 1):
            for kind, array in (
                ("images", rng.integers(0, 256, (*size, 3))),
                ("annotations", rng.integers(0, 5, size)),
            ):
                folder = root / "ADEChallengeData2016" / kind / split
                folder.mkdir(parents=True, exist_ok=True)
                suffix = "jpg" if kind == "images" else "png"
                Image.fromarray(array.astype(np.uint8)).save(folder / f"ADE_{short}_{number:08d}.{suffix}")
    rows = ["wall", "building;edifice", "sky", "wall, other"]
    lines = [f"{i}\t0.1\t1\t1\t1\t{name}" for i, name in enumerate(rows, 1)]
    (root / "ADEChallengeData2016/objectInfo150.txt").write_text(
        "\n".join(["Idx\tRatio\tTrain\tVal\tStuff\tName", *lines])
    )
    (root / "ADEChallengeData2016/sceneCategories.txt").write_text("ADE_train_00000001 airport_terminal\n")
    return root


def test_the_official_layout(tmp_path):
    reader = ADE20K(world(tmp_path), split="train")
    assert [e.key for e in reader.examples()] == [f"ADE_train_{i:08d}" for i in (1, 2, 3)]
    assert reader.examples()[0].targets == {"scene": "airport_terminal"}
    assert reader.label_names() == ["wall", "building", "sky", "wall, other"]
    assert reader.label_maps()["ADE_train_00000002"].is_file()
    with pytest.raises(DataError, match="folder of pictures"):
        ADE20K(tmp_path / "elsewhere").examples()


def test_labels_of_a_file():
    given = torch.tensor([[-1, 0, 1, 4, 255]])
    assert classes_of(given, 4, True).tolist() == [[-1, -1, 0, 3, -1]]
    assert classes_of(given[:, :3], 4, False).tolist() == [[-1, 0, 1]]
    with pytest.raises(DataError, match="A class number of a label map") as caught:
        classes_of(given, 3, True)
    assert caught.value.got == "label 4"


def test_crops_move_picture_and_labels_together():
    needs = InputSpec(pixels=True, size=(32, 48))
    labels = np.zeros((30, 40), np.uint8)
    labels[:, 20:] = 2
    image = np.repeat(labels[:, :, None] * 100, 3, 2).astype(np.uint8)
    transform = Crops(needs, colours=0.0, most=1.0)
    for seed in range(8):
        scene = transform.train(
            TransformInput(Image.fromarray(image), labels=Image.fromarray(labels)), np.random.default_rng(seed)
        )
        found, colours = np.asarray(scene.labels), np.asarray(scene.image)[..., 0].astype(int)
        assert found.shape == (32, 48)
        inner = (found == 2) & (colours > 150) | (found == 0) & (colours < 50)
        assert inner[found != 255].mean() > 0.9
        assert (abs(colours[found == 255] - 128) <= 1).all()


def test_a_crop_that_one_class_fills_is_drawn_again():
    labels = np.ones((64, 64), np.uint8)
    labels[:8] = 2
    scene = TransformInput(Image.new("RGB", (64, 64)), labels=Image.fromarray(labels))
    options = {"scale": (1.0, 1.0), "short": 64, "colours": 0.0}
    needs = InputSpec(pixels=True, size=(16, 16))

    def shares(most):
        transform = Crops(needs, most=most, **options)
        crops = [np.asarray(transform.train(scene, np.random.default_rng(s)).labels) for s in range(40)]
        return np.mean([len(np.unique(c)) > 1 for c in crops])

    assert shares(0.75) > shares(1.0) + 0.2


def test_upernet_is_transformers_with_its_weights():
    import transformers

    config = transformers.BeitConfig(
        image_size=64, patch_size=16, hidden_size=16, num_hidden_layers=5, num_attention_heads=2, intermediate_size=32,
        out_indices=[2, 3, 4, 5], num_labels=4, auxiliary_channels=8, layer_norm_eps=1e-6,
        use_relative_position_bias=True, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    theirs = transformers.BeitForSemanticSegmentation(config).eval()
    for value in theirs.state_dict().values():
        if value.is_floating_point():
            torch.nn.init.uniform_(value, 0.2, 0.6) if value.dim() == 1 else torch.nn.init.normal_(value, std=0.2)
    model = VLMo(
        DATA_SPEC, hidden=16, layers=5, heads=2, intermediate=32, fused_layers=0, image_size=64, drop_path=0.0
    ).eval()
    with torch.no_grad():
        model.types.weight.zero_()
    model.load_state_dict(model.adapt(dict(theirs.beit.state_dict()), []), strict=False)
    ours = Segmentation(model, DATA_SPEC, head="upernet", layers=[1, 2, 3, 4], auxiliary_width=8).eval()
    _copy(ours, theirs)
    pixels = torch.rand(2, 3, 64, 64)
    images = Images(["a", "b"], pixels=Pixels(pixels, torch.full((2, 2), 64)))
    with torch.no_grad():
        wanted = theirs(pixels).logits
        maps = ours.maps(model, images)
        torch.testing.assert_close(ours.head(maps), wanted, rtol=1e-4, atol=1e-5)
        fpn = theirs.fpn(tuple(s[:, 1:].transpose(1, 2).reshape(2, -1, 4, 4) for s in theirs.beit(
            pixels, output_hidden_states=True).hidden_states[1:5]))  # fmt: skip
        torch.testing.assert_close(ours.auxiliary(maps[2]), theirs.auxiliary_head(fpn), rtol=1e-4, atol=1e-5)


def _copy(ours, theirs):
    """Their neck and heads into ours, module by module."""
    neck, head, uper = ours.maps.neck.parts, ours.head, theirs.decode_head
    fpn = theirs.fpn
    pairs = [(neck[0][0], fpn.fpn1.conv_transpose1), (neck[0][1], fpn.fpn1.normalization)]
    pairs += [(neck[0][3], fpn.fpn1.conv_transpose2), (neck[1][0], fpn.fpn2)]
    convs = [(head.context, uper.psp_bottleneck), (head.joint, uper.fpn_bottleneck)]
    convs += [(own, block.conv) for own, block in zip(head.pooled, uper.psp_modules.blocks, strict=True)]
    convs += list(zip(head.lateral, uper.lateral_convs, strict=True)) + list(
        zip(head.smooth, uper.fpn_convs, strict=True)
    )
    convs += [(ours.auxiliary.conv, theirs.auxiliary_head.convs[0])]
    for own, other in convs:
        pairs += [(own[0], other.convolution), (own[1], other.normalization)]
    pairs += [(head.classifier, uper.classifier), (ours.auxiliary.classifier, theirs.auxiliary_head.classifier)]
    for own, other in pairs:
        own.load_state_dict(other.state_dict())


def images(side=32, count=2):
    pixels = torch.rand(count, 3, side, side)
    return Images([str(i) for i in range(count)], pixels=Pixels(pixels, torch.full((count, 2), side)))


@pytest.mark.parametrize(
    ("model", "strides"),
    [
        (lambda: DeiT(DATA_SPEC, hidden=16, layers=4, heads=2, image_size=32, patch=8, classes=0), (4, 8, 16, 32)),
        (
            lambda: Swin(DATA_SPEC, hidden=8, layers=[1, 1, 1], heads=[1, 1, 2], image_size=32, window=4, classes=0),
            (4, 8, 16),
        ),
        (lambda: RegionClassifier(DATA_SPEC, arch="tiny-conv", image_size=(32, 32)), (2, 4, 8)),
        (lambda: RegionClassifier(DATA_SPEC, arch="resnet18", image_size=(64, 64)), (4, 8, 16, 32)),
    ],
)
def test_maps_of_any_model(model, strides):
    made = model().eval()
    side = made.input_spec().size[0]
    maps = Maps(made, None, levels=True)
    found = maps(made, images(side))
    assert [one.shape[-1] for one in found] == [side // stride for stride in strides]
    assert tuple(one.shape[1] for one in found) == maps.channels
    assert UPerHead(maps.channels, 8, 4).eval()(found).shape == (2, 4, side // strides[0], side // strides[0])
    assert made.output_hidden_states == ()


def test_a_swin_classifies_as_before():
    made = Swin(DATA_SPEC, hidden=8, layers=[1, 1], heads=[1, 2], image_size=32, window=4, classes=3).eval()
    found = images()
    torch.testing.assert_close(made(found.pixels.images), made.encode_image(found).extra["logits"])


def test_a_model_without_a_grid_is_refused():
    with pytest.raises(ComponentError, match="neither a pyramid"):
        Maps(VLMo(DATA_SPEC, image="features", hidden=16, layers=1, heads=2, fused_layers=0), None, levels=False)
    with pytest.raises(ComponentError, match="cannot be read"):
        Maps(DeiT(DATA_SPEC, hidden=16, layers=2, heads=2, image_size=32, classes=0), [1, 3], levels=False)


class Painter:
    """A model of one window size that says its input's own channel sums, and nothing of places."""

    def __init__(self, side):
        self.side = side

    def input_spec(self):
        return InputSpec(pixels=True, size=(self.side, self.side))


class Run:
    def __init__(self, side):
        self.model, self.asked = Painter(side), []

    def step(self, batch):
        return batch

    def predict(self, batch):
        pixels = batch.clean.images.pixels.images
        self.asked.append(len(pixels))
        return {"segmentation": {"logits": pixels}}


@pytest.mark.parametrize("size", [(16, 16), (16, 37), (40, 23), (9, 30)])
def test_windows_see_every_pixel_and_agree(size):
    task, runner = Task(window_batch=3), Run(16)
    task.names = ["a", "b", "c"]
    pixels = torch.rand(3, *size)
    torch.testing.assert_close(task.scores(runner, pixels), pixels)
    assert max(runner.asked) <= 3


def test_windows_are_mmsegmentation_s():
    assert windows((512, 683), (512, 512), 341) == [(0, 0), (0, 171)]
    assert windows((512, 1300), (512, 512), 341) == [(0, 0), (0, 341), (0, 682), (0, 788)]
    assert windows((20, 20), (16, 16)) == [(0, 0), (0, 4), (4, 0), (4, 4)]


def test_the_loss_leaves_out_what_has_no_class():
    model = DeiT(DATA_SPEC, hidden=16, layers=4, heads=2, image_size=32, patch=8, classes=0).eval()
    objective = Segmentation(model, DATA_SPEC, head="light", dropout=0.0).eval()
    found = images()
    found.pixels.label_map = torch.randint(0, 5, (2, 32, 32))
    from vlcli.nn import Batch, ForwardPasses, View

    rows = torch.arange(2)
    step = ForwardPasses(model, Batch({"clean": View(None, found, rows - 5, rows[:, None])}, {}, ["0", "1"], rows))
    outcome = objective(step, {})
    logits = F.interpolate(objective.scores(model, found), (32, 32), mode="bilinear")
    wanted = F.cross_entropy(logits, found.pixels.label_map - 1, ignore_index=-1)
    torch.testing.assert_close(outcome.losses["segmentation"].value(), wanted)
    assert objective.predict(step)["logits"].shape == (2, 4, 4, 4)
    assert PlainHead(16, 8, 4).conv[0].weight.shape == (8, 16, 3, 3)


@pytest.mark.slow
def test_shapes_by_heart(tmp_path, capsys):
    """The recipe in small: a few pictures are learned so well that their own masks come back, through windows."""
    words = ["world.ade20k=15", "light.steps=80", "light.batch_size=4", "light.model.image_size=112"]
    words = [w.replace("world.", "stages.world.world.") if w.startswith("world") else f"stages.{w}" for w in words]
    words += ["~stages.upernet", "~stages.upernet-test", "table=null", "stages.light.model.layers=2", "jobs=1"]
    words += [
        "stages.light-test.data={name: ade20k, split: training}",
        "stages.light-test.task={name: segmentation, short: 112}",
    ]
    words += ["stages.light.transform.scale=[1.0, 1.0]", "stages.light.transform.flip=0", "stages.light.data.limit=4"]
    words += ["stages.light-test.data.limit=4"]
    with pytest.raises(SystemExit) as left:
        app(["run", "tiny/segmentation", *words, "--output", str(tmp_path / "runs"), "--json"])
    assert left.value.code in (0, None)
    stages = {row["stage"]: row for row in json.loads(capsys.readouterr().out)["stages"]}
    metrics = stages["light-test"]["metrics"]
    assert metrics["miou"] > 0.5
    assert set(metrics) >= {"miou", "macc", "aacc", "iou/ground", "iou/circle"}
    assert registry.load("tasks", "segmentation") is Task
