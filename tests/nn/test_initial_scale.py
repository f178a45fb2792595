"""The initial scale follows from the width: the published one at published widths, more in narrow models."""

import pytest
import torch

from vlcli import registry
from vlcli.nn import Facts, init_scale

FACTS = Facts(vocab_size=40, text_length=8, regions=4, region_dim=12, region_classes=5, region_attributes=4)
DEEP = {"heads": 12, "layers": 1}
PUBLISHED = {
    "lxmert": {"hidden": 768, "heads": 12, "text_layers": 1, "image_layers": 1, "cross_layers": 1},
    "vilbert": {"hidden": 768, "heads": 12, "text_layers": 1, "cross_layers": 1},
    "uniter": {"hidden": 768, **DEEP},
    "vl-bert": {"hidden": 768, **DEEP},
    "dimbert": {"hidden": 768, "concepts": 0, **DEEP},
    "vlmo": {"size": "base_plus", "layers": 1, "fused_layers": 1},
    "albef": {"hidden": 768, "heads": 12, "image_layers": 1, "text_layers": 1, "cross_layers": 1},
    "deit": {"size": "tiny", "layers": 1},
}
NARROW = {"lxmert": "hidden", "vilbert": "hidden", "uniter": "hidden", "vl-bert": "hidden", "dimbert": "hidden"}


def made(name, **options):
    torch.manual_seed(3)
    return registry.build("models", {"name": name, **PUBLISHED[name], **options}, FACTS)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_widths_are_drawn_as_published_to_the_bit(name):
    usual, named = made(name), made(name, init_std=0.02)
    assert usual.init_std == 0.02
    pairs = zip(usual.state_dict().items(), named.state_dict().items(), strict=True)
    assert all(key == other and torch.equal(one, two) for (key, one), (other, two) in pairs)


@pytest.mark.parametrize("name", NARROW)
def test_narrow_models_are_drawn_wider(name):
    model = made(name, hidden=64, heads=4)
    assert model.init_std == pytest.approx(0.02 * 12**0.75)
    weight = next(value for key, value in model.named_parameters() if key.endswith("outer.weight"))
    assert float(weight.detach().std()) == pytest.approx(model.init_std, rel=0.05)
    assert made(name, hidden=64, heads=4, init_std=0.05).init_std == 0.05


def test_the_rule():
    assert init_scale(0.3, 64) == 0.3
    assert init_scale("auto", 1024) == init_scale("auto", 768) == 0.02
    assert init_scale("auto", 64) == pytest.approx(64**-0.5, rel=0.05)
    assert init_scale("auto", 192, published=192) == 0.02 < init_scale("auto", 96, published=192)


def test_no_other_word_is_taken():
    (problem,) = registry.check("models", {"name": "lxmert", "init_std": "wide"})
    assert "init_std" in problem.key
    assert "auto" in str(problem.expected)
