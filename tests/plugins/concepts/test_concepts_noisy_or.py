"""Noisy-OR against exact arithmetic, and the networks it reads from against torchvision's."""

from __future__ import annotations

import mpmath
import pytest
import torch
import torchvision
from torch.nn import functional
from vlcli_concepts import ConceptClassification, NoisyOr, log_noisy_or
from vlcli_concepts.model import Vgg16Cells
from vlcli_concepts.objective import noisy_or_loss

from vlcli.nn import Batch, DataSpec, View
from vlcli.nn.batch import Images, Pixels, Regions
from vlcli.nn.forward_passes import ForwardPasses

CASES = [
    [-50.0] * 4,
    [-200.0, -150.0, -120.0],
    [-6.58] * 144,
    [30.0, -5.0, 2.0],
    [100.0, 1000.0],
    [-0.3, 0.1, -2.0],
    [-16.01, -15.99, -20.0],
    [-0.433, -30.0],
]


def exact(values):
    """log p, log (1 - p) and the gradient of log p, to 50 digits."""
    mpmath.mp.dps = 50
    numbers = [mpmath.mpf(value) for value in values]
    total = sum(mpmath.log1p(mpmath.exp(z)) for z in numbers)
    slopes = [float(1 / (1 + mpmath.exp(-z)) / mpmath.expm1(total)) for z in numbers]
    return float(mpmath.log(-mpmath.expm1(-total))), float(-total), slopes


@pytest.mark.parametrize("values", CASES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_noisy_or_equals_exact_arithmetic(values, dtype):
    scores = torch.tensor(values, dtype=dtype)[:, None].requires_grad_()
    present, absent = log_noisy_or(scores)
    (slope,) = torch.autograd.grad(present.sum(), scores)
    log_p, log_q, slopes = exact(scores.detach().flatten().tolist())
    assert float(present.detach()) == pytest.approx(log_p, rel=1e-6, abs=1e-7)
    assert float(absent.detach()) == pytest.approx(log_q, rel=1e-6)
    tolerance = 4e-3 if dtype == torch.bfloat16 else 1e-6
    assert slope.flatten().tolist() == pytest.approx(slopes, rel=tolerance, abs=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("value", [-60000.0, -300.0, -20.0, 0.0, 20.0, 300.0, 60000.0])
@pytest.mark.parametrize("label", [0.0, 1.0])
def test_loss_and_gradient_stay_finite(dtype, value, label):
    scores = torch.full((2, 5, 3), value, dtype=dtype, requires_grad=True)
    loss = noisy_or_loss(scores, torch.full((2, 3), label))
    loss.sum().backward()
    assert torch.isfinite(loss).all()
    assert torch.isfinite(scores.grad).all()
    right = (value > 0) == bool(label)
    assert value == 0 or (loss.max() < 1e-4 if right and abs(value) > 15 else True)


def test_one_instance_is_a_plain_cross_entropy_and_masked_ones_count_for_nothing():
    scores, labels = torch.randn(4, 1, 6), torch.randint(0, 2, (4, 6)).float()
    plain = functional.binary_cross_entropy_with_logits(scores[:, 0], labels, reduction="none")
    assert torch.allclose(noisy_or_loss(scores, labels), plain, atol=1e-6)
    more = torch.cat([scores, torch.full((4, 3, 6), 5.0)], 1)
    mask = torch.tensor([True, False, False, False]).expand(4, 4)
    assert torch.allclose(noisy_or_loss(more, labels, mask), plain, atol=1e-6)


@pytest.mark.slow
def test_convolutional_vgg_is_the_classifier_on_one_window():
    published = torchvision.models.vgg16(weights=None).eval()
    model = NoisyOr(
        DataSpec(answers=("a",)), instances="pixels", image_size=224, fit="stretch", layout="torchvision"
    ).eval()
    report: list[str] = []
    state = model.adapt(published.state_dict(), report)
    assert report == ["2 linear layers of VGG-16 as convolutions"]
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not missing
    assert not unexpected
    pixels = torch.rand(1, 3, 224, 224)
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    with torch.no_grad():
        features = published.avgpool(published.features((pixels - mean) / std)).flatten(1)
        theirs = published.classifier[:6](features)
        ours = model.encode_image(Images(["x"], pixels=Pixels(pixels * 255, torch.tensor([[224, 224]])))).hidden
    assert ours.shape == (1, 1, 4096)
    assert torch.allclose(ours[0], theirs, atol=1e-3 * float(theirs.abs().max()))


def test_a_square_of_565_pixels_is_the_published_grid():
    with torch.device("meta"):
        cells = Vgg16Cells().feature_map(torch.empty(1, 3, 565, 565))
    assert cells.shape == (1, 4096, 12, 12)


@pytest.mark.parametrize(("fit", "real"), [("inside", 4 * 8), ("published", 8 * 8)])
def test_filling_does_not_count_unless_as_published(fit, real):
    model = NoisyOr(DataSpec(), instances="pixels", arch="tiny-conv", image_size=64, fit=fit).eval()
    images = torch.rand(2, 3, 40, 64) * 255
    mask = torch.ones(2, 40, 64, dtype=torch.bool)
    mask[0, 32:] = False  # twice as wide as high; the other picture is padded less
    states = model.encode_image(Images(["a", "b"], pixels=Pixels(images, torch.tensor([[32, 64], [40, 64]]), mask)))
    assert states.hidden.shape[1] == 64
    assert int(states.layout.valid[0].sum()) == real
    boxes = states.layout.boxes[0][states.layout.valid[0]][: 4 * 8]
    assert boxes[0].tolist() == [0, 0, 0.125, 0.25]
    assert boxes[-1].tolist() == [0.875, 0.75, 1, 1]


def test_padding_of_a_batch_changes_no_picture():
    model = NoisyOr(DataSpec(), instances="pixels", arch="tiny-conv", image_size=64, fit="inside").eval()
    image = torch.rand(1, 3, 32, 64) * 255
    alone = model.encode_image(Images(["a"], pixels=Pixels(image, torch.tensor([[32, 64]]))))
    padded = torch.cat([image, torch.zeros(1, 3, 32, 64)], 2)
    mask = torch.ones(1, 64, 64, dtype=torch.bool)
    mask[:, 32:] = False
    beside = model.encode_image(Images(["a"], pixels=Pixels(padded, torch.tensor([[32, 64]]), mask)))
    assert torch.equal(alone.hidden, beside.hidden)
    assert torch.equal(alone.layout.valid, beside.layout.valid)


def batch_of(features, mask, words):
    boxes = torch.tensor([0.0, 0.0, 1.0, 1.0]).expand(*mask.shape, 4)
    regions = Regions(features, boxes, mask, torch.full((len(mask), 2), 32))
    rows = torch.arange(len(mask))
    view = View(None, Images([str(i) for i in rows.tolist()], regions), torch.full_like(rows, -1), rows[:, None])
    return Batch({"clean": view}, {"words": words}, [str(i) for i in rows.tolist()], rows)


def test_objective_counts_words_of_the_vocabulary_and_pictures_with_instances():
    data_spec = DataSpec(region_dim=8, answers=("red", "dog"))
    model = NoisyOr(data_spec, dropout=0.0)
    objective = ConceptClassification(model, data_spec)
    mask = torch.tensor([[True, True, False], [False, False, False]])
    batch = batch_of(torch.randn(2, 3, 8), mask, [["red", "unheard"], ["dog"]])
    outcome = objective(ForwardPasses(model, batch), {})
    mean = outcome.losses["concepts"]
    assert float(mean.count) == 2
    odds = objective.predict(ForwardPasses(model, batch))["logits"][0]
    expected = functional.binary_cross_entropy_with_logits(odds, torch.tensor([1.0, 0.0]))
    assert float(mean.value().detach()) == pytest.approx(float(expected.detach()), rel=1e-5)


def test_batch_normalisation_keeps_its_statistics():
    model = NoisyOr(
        DataSpec(), instances="pixels", arch="resnet18", image_size=64, fit="stretch", layout="torchvision"
    ).train()
    norm = model.trunk.body.bn1
    before = norm.running_mean.clone()
    model.encode_image(Images(["a"], pixels=Pixels(torch.rand(2, 3, 64, 64) * 255, torch.full((2, 2), 64))))
    assert model.training
    assert torch.equal(norm.running_mean, before)


def test_published_resnet_files_fit_the_trunk():
    model = NoisyOr(DataSpec(), instances="pixels", arch="resnet18", image_size=64, layout="torchvision")
    state = model.adapt(torchvision.models.resnet18(weights=None).state_dict(), [])
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not missing
    assert not unexpected
