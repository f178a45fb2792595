"""The initial scale follows from the width: the published one at published widths, more in narrow models."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vlcli import registry
from vlcli.nn import DataSpec, init_scale

DATA_SPEC = DataSpec(vocab_size=40, text_length=8, regions=4, region_dim=12, region_classes=5, region_attributes=4)
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
    return registry.build("models", {"name": name, **PUBLISHED[name], **options}, DATA_SPEC)


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


BOXES = {
    "lxmert": "image.positions.0.project",
    "uniter": "regions.place",
    "dimbert": "regions.place",
    "vilbert": "place",
}


@pytest.mark.parametrize(("name", "path"), BOXES.items())
def test_lengths_of_boxes_survive_the_norm_of_narrow_models(name: str, path: str) -> None:
    """Two boxes on the diagonal have one direction: only a bias tells them apart behind a norm."""
    near, far = torch.full((1, 7), 0.1), torch.full((1, 7), 0.7)

    def likeness(**sizes: int) -> float:
        project = made(name, **sizes).get_submodule(path)
        assert isinstance(project, nn.Linear)
        rows = [project(box[:, : project.in_features]) for box in (near, far)]
        return float(F.cosine_similarity(*(row.detach() - row.detach().mean() for row in rows)))

    assert likeness() == pytest.approx(1.0, abs=1e-6)  # as published: no bias
    assert likeness(hidden=64, heads=4) < 0.5


def test_words_are_not_drowned_by_the_whole_picture() -> None:
    assert not made("vl-bert", hidden=64, heads=4).get_parameter("text_look.weight").any()
    assert (made("vl-bert").get_parameter("text_look.weight") == 1).all()


def test_appearances_keep_the_scale_of_features() -> None:
    features = torch.randn(500, 12).abs()
    with torch.no_grad():
        seen = made("dimbert", hidden=64, heads=4).get_submodule("regions.appearance").eval()(features)
    assert float(seen.square().mean()) == pytest.approx(float(features.square().mean()), rel=0.7)


def test_place_and_class_do_not_drown_appearances() -> None:
    def scales(**options: object) -> set[float]:
        regions = made("dimbert", **options).get_submodule("regions")
        weights = (regions.get_parameter(f"{part}_norm.weight").detach() for part in ("place", "label"))
        return {round(float(weight.mean()), 6) for weight in weights}

    assert scales() == {1.0}
    assert scales(hidden=64, heads=4) == {0.4}
    assert scales(hidden=64, heads=4, appearance="linear") == {1.0}


@pytest.mark.parametrize("name", ["vlmo", "albef"])
def test_a_grid_of_one_cell_starts_without_positions(name: str) -> None:
    grid = {"image": "features", "grid": (1, 1)} | ({"position_type": "absolute"} if name == "vlmo" else {})
    table = made(name, hidden=64, heads=4, **grid).get_parameter("positions.0.table.weight").detach()
    assert table.isfinite().all()
    assert not table[1:].any()


@pytest.mark.parametrize("name", ["vlmo", "albef"])
def test_grid_positions_are_as_large_as_normalised_features(name: str) -> None:
    grid = {"image": "features", "grid": (4, 4)} | ({"position_type": "absolute"} if name == "vlmo" else {})
    table = made(name, hidden=64, heads=4, **grid).get_parameter("positions.0.table.weight").detach()[1:].view(4, 4, 64)
    assert float(table.square().mean()) == pytest.approx(1.0, rel=0.05)
    assert float(table.mean((0, 1)).abs().max()) < 1e-5  # what is alike in all cells says nothing
    near, far = (F.cosine_similarity(table[0, 0], table[row, 0], dim=0) for row in (1, 3))
    assert near > far
    pixels = made(
        name, hidden=64, heads=4, image_size=32, patch=8, **({} if name == "albef" else {"position_type": "absolute"})
    )
    assert float(pixels.get_parameter("positions.0.table.weight").detach().std()) == pytest.approx(
        pixels.init_std, rel=0.2
    )


def test_layer_scales_start_at_one_in_narrow_models() -> None:
    def scales(**options: object) -> set[float]:
        found = made("vlmo", size="base", layers=3, fused_layers=1, **options).named_parameters()
        return {round(float(value.detach().mean()), 6) for key, value in found if key.endswith(".scale")}

    assert scales() == {0.1}  # twelve layers were published; fewer of the published width stay as they are
    assert scales(hidden=64, heads=4) == {1.0}
    assert scales(hidden=64, heads=4, layer_scale=0.3) == {0.3}
