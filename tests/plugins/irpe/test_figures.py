"""iRPE's pictures: the numbers behind each of them, and exported weights under the authors' names."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from vlcli_deit import DeiT
from vlcli_detr import DETR
from vlcli_irpe import equip, figures_cost
from vlcli_irpe.exporter import ReleasedNames
from vlcli_irpe.figures import BucketMaps, IndexFunctions, recorded
from vlcli_irpe.figures_cost import ExtraMacs, Speed

from tests.plugins.irpe.oracle import buckets, index
from vlcli.engine.bundle import save_bundle
from vlcli.engine.training_module import build_training_module
from vlcli.errors import ComponentError, UsageError
from vlcli.nn import DataSpec
from vlcli.progress import Silent

pytest.importorskip("matplotlib")
QKV = ["query", "key", "value"]


def scene(folder) -> SimpleNamespace:
    return SimpleNamespace(folder=folder, device=torch.device("cpu"), progress=Silent())


def draw(drawing, folder) -> tuple[np.ndarray, dict | list]:
    picture, numbers = drawing.draw(scene(folder))
    return np.asarray(Image.open(picture).convert("RGB")), json.loads(numbers.read_text())


def test_index_functions(tmp_path):
    _, found = draw(IndexFunctions(ratio=2.5, reach=30), tmp_path)
    assert found["piecewise g(x)"] == [index(x, 2.5) for x in found["x"]]
    assert found["clip h(x)"] == [max(-5, min(5, x)) for x in found["x"]]


@pytest.mark.parametrize("method", ["euclidean", "quantization", "cross", "product"])
def test_bucket_maps(tmp_path, method):
    picture, found = draw(BucketMaps(method=method, grid=(5, 8), at=[(0, 0), (4, 7)], ratio=2.5), tmp_path)
    short = {"euclidean": "euc", "quantization": "quant", "product": "product"}
    for drawn in found["maps"]:
        row, column = drawn["from"]
        name = f"cross_{drawn['table'][:3].replace('col', 'cols').replace('row', 'rows')}" if method == "cross" else ""
        ids = buckets(name or short[method], 2.5, 5, 8, 0)
        assert np.array_equal(np.array(drawn["ids"]).ravel(), ids[row * 8 + column])
    assert len(found["maps"]) == (4 if method == "cross" else 2)
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 10


def test_the_published_counts_of_used_buckets(tmp_path):
    methods = ("euclidean", "quantization", "cross", "product")
    used = [draw(BucketMaps(method=method, numbers=False), tmp_path)[1]["used"] for method in methods]
    # 20, 51, 56 and 50 count the bucket of the class token too, Cross in each of its two tables.
    assert used == [19, 50, 54, 49]


def test_a_place_off_the_grid_is_refused():
    with pytest.raises(UsageError, match="not on the grid"):
        BucketMaps(grid=(3, 3), at=[(3, 0)])


def test_extra_multiply_accumulates_are_exact(tmp_path):
    _, rows = draw(ExtraMacs(size="small", resolutions=[224], sides=["K", "QKV"]), tmp_path)
    assert rows[0]["none"] == 4_598_882_304
    extra = rows[0]["extra"]
    assert extra["K, per bucket"] == 45_388_800
    assert extra["QKV, per bucket"] == 4_735_048_704 - 4_598_882_304
    assert extra["K, per pair"] == 12 * 197**2 * 384  # what the released value side computes: 178.8 M
    assert extra["QKV, per pair"] == 3 * extra["K, per pair"]


def test_speed_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(figures_cost, "peak", lambda trial, name: 50.0)  # takes a process for each: the slow test
    _check_speed(Speed(size="tiny", resolution=32, batch=1, rounds=2, encodings=["iRPE K"]), tmp_path)
    with pytest.raises(UsageError, match="encoding"):
        Speed(encodings=["ALiBi"])


@pytest.mark.slow
def test_memory_is_measured(tmp_path):
    _check_speed(Speed(size="tiny", resolution=32, batch=1, rounds=2, encodings=["iRPE QKV"], train=True), tmp_path)


def _check_speed(drawing, folder):
    _, found = draw(drawing, folder)
    assert [row["encoding"] for row in found["rows"]] == drawing.names
    assert all(len(row["seconds"]) == 2 and row["peak_mib"] > 10 for row in found["rows"])
    assert found["rows"][0]["time_ratio"] == found["rows"][0]["memory_ratio"] == 1


def deit(**options) -> DeiT:
    torch.manual_seed(0)
    sizes = {"hidden": 24, "heads": 3, "layers": 3, "image_size": (64, 96), "classes": 4}
    model = DeiT(DataSpec(), **sizes, position={"name": "irpe", "sides": QKV, "ratio": 1.5, **options}).eval()
    for name, parameter in model.named_parameters():
        if "lookup_table" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    return model


def test_recorded_terms_are_what_attention_adds():
    model = deit()
    pixels, seen = torch.randn(2, 3, 64, 96), []
    position = model.stack.position
    usual = position.logits
    position.logits = lambda *words: seen.append(usual(*words).clone()) or seen[-1]
    with torch.no_grad():
        model(pixels)
    del position.logits
    with torch.no_grad(), recorded(model) as terms:
        model(pixels)
    assert (terms.grid, terms.front, len(terms.added)) == ((4, 6), 1, 3)
    assert all(torch.allclose(own, other.mean((0, 1))) for own, other in zip(terms.added, seen, strict=True))
    assert "logits" not in vars(position)


def test_terms_of_a_trained_model_are_drawn(tmp_path):
    """Through the stage: a bundle, pictures from a folder."""
    from small_run import context

    from vlcli.stages import draw as stage

    spec = {"name": "deit", "hidden": 24, "heads": 3, "layers": 3, "image_size": [64, 96], "classes": 4}
    spec["position"] = {"name": "irpe", "ratio": 1.5}
    module = build_training_module(spec, [], DataSpec(), seed=0)
    save_bundle(
        tmp_path / "trained/model", module, tokenizer=None, data_spec=DataSpec(), model_spec=spec, objectives_specs=[]
    )
    (tmp_path / "data/images").mkdir(parents=True)
    for number in range(2):
        Image.new("RGB", (96, 64), (90 * number, 20, 200)).save(tmp_path / f"data/images/{number}.png")
    made = {"drawing": {"name": "irpe-terms", "references": 3}, "data": {"name": "folder", "images": "images"}}
    inputs = {"trained": tmp_path / "trained"}
    result = stage.run(
        context(tmp_path / "draw", tmp_path / "data", inputs, kind="draw", **{"from": "trained"}, **made)
    )
    assert list(result.files.values()) == ["block-0.png", "block-1.png"]
    assert all((tmp_path / "draw" / name).is_file() for name in result.files.values())
    made["drawing"]["blocks"] = [7]
    with pytest.raises(UsageError, match="block"):
        stage.run(context(tmp_path / "draw", tmp_path / "data", inputs, kind="draw", **{"from": "trained"}, **made))


@pytest.mark.parametrize("file", ["safetensors", "pth"])
@pytest.mark.parametrize("method", ["product", "cross"])
def test_exported_names_load_into_an_equipped_timm_model(tmp_path, method, file):
    """``equip`` puts tables where the authors have them, so a strict load there shows every name."""
    from vlcli.nn.weights import read_weights

    ours = deit(method=method)
    made = ReleasedNames(file=file).export(SimpleNamespace(model=ours), tmp_path, Silent())
    assert made.metrics["max_weight_change"] == 0
    state = read_weights(tmp_path / made.files["model"])
    end = "rp_rows.lookup_table_weight" if method == "cross" else "lookup_table_weight"
    assert {f"blocks.{n}.attn.rpe_{s}.{end}" for n in range(3) for s in "qkv"} <= set(state)
    size = {"depth": 3, "embed_dim": 24, "num_heads": 3, "img_size": (64, 96), "num_classes": 4}
    theirs = timm.create_model("deit_tiny_patch16_224", **size).eval()
    equip(theirs, method=method, sides=QKV, ratio=1.5)
    theirs.load_state_dict(state)
    pixels = torch.randn(2, 3, 64, 96)
    with torch.no_grad():
        assert torch.allclose(theirs(pixels), ours(pixels), atol=1e-5)


def test_a_detr_is_exported_and_others_are_refused(tmp_path):
    position = ["detr-sine", {"name": "irpe", "ratio": 2.0, "off_plane": "nothing", "init": "xavier"}]
    sizes = {
        "backbone": "resnet18",
        "hidden": 24,
        "heads": 3,
        "intermediate": 32,
        "encoder_layers": 1,
        "decoder_layers": 1,
    }
    model = DETR(DataSpec(), **sizes, queries=3, position=position)
    assert ReleasedNames().export(SimpleNamespace(model=model), tmp_path, Silent()).metrics["max_weight_change"] == 0
    with pytest.raises(ComponentError, match="names"):
        ReleasedNames().export(SimpleNamespace(model=torch.nn.Linear(1, 1)), tmp_path, Silent())
