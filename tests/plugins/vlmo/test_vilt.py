"""ViLT: transformers' numbers with its weights, its weights back, heads, two pictures, encodings."""

from __future__ import annotations

import pytest
import tiny_models
import torch
import transformers
from vlcli_vlmo.vilt import ViLT, from_transformers, to_transformers
from vlcli_vlmo.vilt_exporter import TransformersViLT, difference

from vlcli import registry
from vlcli.builders.training import load_sources
from vlcli.engine.training_module import build_training_module
from vlcli.errors import ComponentError
from vlcli.nn import DataSpec
from vlcli.nn.count import count_model
from vlcli.progress import Silent

SIZES = {"hidden": 16, "heads": 2, "layers": 2, "image_size": 64, "patch": 16}
MODEL = {"name": "vilt", **SIZES}
WORDS = DataSpec(vocab_size=60, text_length=12, answers=("yes", "no", "red"))
CLASSES = {
    "ViltModel": ([], 1),
    "ViltForMaskedLM": (["mlm"], 1),
    "ViltForQuestionAnswering": (["answering"], 1),
    "ViltForImagesAndTextClassification": ([{"name": "classification", "classes": 2, "images": 2}], 2),
}


def theirs(kind, images=1, **more):
    """One of transformers' classes with weights that matter."""
    torch.manual_seed(3)
    config = transformers.ViltConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=64, patch_size=16,
        vocab_size=60, modality_type_vocab_size=1 + images, num_images=images,
        num_labels=3 if "Question" in kind else 2, **more,
    )  # fmt: skip
    network = getattr(transformers, kind)(config).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(std=0.3) if parameter.dim() > 1 else parameter.add_(torch.randn_like(parameter) * 0.1)
    return network


@pytest.mark.parametrize("kind", list(CLASSES))
def test_transformers_weights_give_transformers_numbers(kind, tmp_path):
    """States of words with padding, of patches, the pooled vector, and the scores of the head."""
    objectives, images = CLASSES[kind]
    network = theirs(kind, images)
    network.save_pretrained(tmp_path)
    module = build_training_module({**MODEL, "images": images}, objectives, WORDS)
    load_sources(module, [tmp_path / "model.safetensors"], [])
    task = next(iter(dict(module.objectives.items())), "")
    assert difference(module.model, task, dict(module.objectives.items()).get(task), network) < 1e-5


@pytest.mark.parametrize("kind", list(CLASSES))
def test_weights_come_back_and_go_out_again(kind):
    network = theirs(kind, CLASSES[kind][1])
    module = build_training_module({**MODEL, "images": CLASSES[kind][1]}, CLASSES[kind][0], WORDS)
    state = {name: value for name, value in network.state_dict().items() if "mlm_score.decoder.weight" not in name}
    ours = from_transformers(module.model, state, [])
    back = to_transformers({name if "objectives." in name else f"model.{name}": value for name, value in ours.items()})
    assert back.keys() == {name.removeprefix("vilt.") for name in state}
    assert all(torch.equal(value, back[name.removeprefix("vilt.")]) for name, value in state.items())


@pytest.mark.parametrize("objectives", [["mlm", "matching"], ["answering"], []])
def test_an_exported_folder_computes_the_same(objectives, tmp_path, monkeypatch):
    monkeypatch.setitem(tiny_models.FAMILIES, "vilt", (MODEL, objectives))
    bundle = tiny_models.make(tmp_path / "trained", "vilt")
    exported = TransformersViLT().export(bundle, tmp_path / "out", Silent())
    assert exported.metrics["max_difference"] < 1e-5
    kind = {"mlm": "ViltForMaskedLM", "answering": "ViltForQuestionAnswering"}.get("".join(objectives[:1]), "ViltModel")
    assert transformers.AutoConfig.from_pretrained(tmp_path / "out" / "model").architectures == [kind]
    again = build_training_module(MODEL, objectives[:1], bundle.data_spec)
    load_sources(again, [tmp_path / "out" / "model" / "model.safetensors"], [])
    wanted = bundle.module.state_dict()
    assert all(torch.equal(value, wanted[name]) for name, value in again.model.state_dict(prefix="model.").items())


def test_a_second_picture_begins_as_the_first():
    module = build_training_module({**MODEL, "images": 2}, [], WORDS)
    network = theirs("ViltModel")
    state = module.model.adapt(network.state_dict(), [])
    types = network.state_dict()["embeddings.token_type_embeddings.weight"]
    assert torch.equal(state["types.weight"], types[[0, 1, 1]])


def test_positions_of_another_size_and_length_are_fitted():
    module = build_training_module({**MODEL, "image_size": 32, "length": 20}, [], WORDS)
    state = module.model.adapt(theirs("ViltModel").state_dict(), report := [])
    assert state["positions.0.table.weight"].shape == (5, 16)
    assert state["text.positions.0.table.weight"].shape == (20, 16)
    assert len(report) == 3


@pytest.mark.parametrize("encoding", ["irpe", "shaw", "ace-rpe", "rope-2d", "swin-bias"])
def test_it_takes_pairwise_encodings_and_transformers_is_refused(encoding, tmp_path, monkeypatch):
    model = {**MODEL, "hidden": 32, "position": encoding}
    monkeypatch.setitem(tiny_models.FAMILIES, "vilt", (model, ["answering"]))
    bundle = tiny_models.make(tmp_path, "vilt")
    with pytest.raises(ComponentError, match="ViLT cannot express"):
        TransformersViLT().convert(bundle)


def test_parameters_are_those_of_the_published_file():
    """dandelin/vilt-b32-mlm without its head: 111,594,240 numbers with transformers' pooler and positions."""
    with torch.device("meta"):
        model = registry.build("models", "vilt", DataSpec(vocab_size=30_522))
        network = transformers.ViltModel(transformers.ViltConfig())
    assert isinstance(model, ViLT)
    assert count_model(model)["backbone"] == sum(one.numel() for one in network.parameters())
