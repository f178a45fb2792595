"""Folders for transformers' classes compute what our models do, and come back."""

from __future__ import annotations

import json
import sys

import pytest
import tiny_models
import torch
import transformers
from converted import (
    CLOSE,
    DETR,
    PROJECT,
    SWIN,
    images_of,
    loaded,
    pictures,
    sentences,
    written,
)

from vlcli import registry
from vlcli.builders.training import load_sources
from vlcli.engine.training_module import build_training_module
from vlcli.nn import WORDS as WORD_SLOT
from vlcli.nn import (
    AttentionMask,
    AttentionShape,
    Batch,
    EncoderOutput,
    InputSpec,
    Model,
    Stack,
    TextEmbeddings,
    View,
    build_positions,
    fake_batch,
)

pytestmark = pytest.mark.usefixtures("more_families")


@pytest.mark.parametrize(
    ("family", "auto", "kind"),
    [
        ("deit", "AutoModelForImageClassification", "ViTForImageClassification"),
        ("deit-distilled", "AutoModelForImageClassification", "DeiTForImageClassificationWithTeacher"),
        ("swin", "AutoModelForImageClassification", "SwinForImageClassification"),
        ("swin-padded", "AutoModelForImageClassification", "SwinForImageClassification"),
    ],
)
def test_classifiers_score_the_same(tmp_path, family, auto, kind):
    bundle, folder, _ = written(tmp_path, family)
    network, pixels = loaded(auto, folder), pictures(bundle.model.image_size)
    assert type(network).__name__ == kind
    with torch.no_grad():
        torch.testing.assert_close(network(pixel_values=pixels).logits, bundle.model(pixels), **CLOSE)
    assert network.config.id2label == {0: "yes", 1: "no", 2: "red"}


@pytest.mark.parametrize(
    ("family", "place"),
    [
        ("deit-encoder", ""),
        ("swin-encoder", ""),
        ("albef-plain", "image"),
        ("vlmo-plain", "image"),
        ("vlmo-absolute", "image"),
    ],
)
def test_image_encoders_give_the_same_states(tmp_path, family, place):
    bundle, folder, _ = written(tmp_path, family)
    pixels = pictures((32, 32))
    with torch.no_grad():
        ours = bundle.model.encode_image(images_of(pixels))
        theirs = loaded("AutoModel", folder / place)(pixel_values=pixels)
    torch.testing.assert_close(theirs.last_hidden_state, ours.hidden, **CLOSE)
    torch.testing.assert_close(theirs.pooler_output, ours.pooled, **CLOSE)


@pytest.mark.parametrize(
    ("family", "place", "architecture"),
    [("albef-plain", "text", "auto"), ("butd-bert", "text", "auto"), ("lxmert", "", "text")],
)
def test_text_encoders_give_the_same_states_of_the_same_ids(tmp_path, family, place, architecture):
    bundle, folder, _ = written(tmp_path, family, architecture)
    text, given = sentences(folder / place, bundle.tokenizer)
    assert not text.mask.all(), "some words must be padding"
    with torch.no_grad():
        ours, theirs = bundle.model.encode_text(text), loaded("AutoModel", folder / place)(**given)
    torch.testing.assert_close(theirs.last_hidden_state[text.mask], ours.hidden[text.mask], **CLOSE)
    if family == "butd-bert":
        torch.testing.assert_close(theirs.pooler_output, ours.pooled, **CLOSE)


def test_lxmert_answers_the_same_with_padded_words(tmp_path):
    bundle, folder, _ = written(tmp_path, "lxmert")
    text, given = sentences(folder, bundle.tokenizer)
    batch = tiny_models_batch(bundle, text)
    regions = batch.clean.images.regions
    with torch.no_grad():
        step = bundle.module.step(batch)
        wanted = bundle.module.objectives["answering"].predict(step)["logits"]
        network = loaded("AutoModelForQuestionAnswering", folder)
        found = network(visual_feats=regions.features, visual_pos=regions.boxes, **given)
    torch.testing.assert_close(found.question_answering_score, wanted, **CLOSE)
    assert network.config.id2label[2] == "red"


def tiny_models_batch(bundle, text):
    batch = fake_batch(bundle.model.input_spec(), bundle.data_spec, len(text))
    regions = batch.clean.images.regions
    regions.features, regions.boxes = torch.rand(regions.features.shape), torch.rand(regions.boxes.shape)
    rows = torch.arange(len(text))
    view = View(text, batch.clean.images, rows, rows[:, None], aligned=True)
    return Batch({"clean": view}, {}, [str(row) for row in range(len(text))], rows)


@pytest.mark.slow
def test_detr_finds_the_same_in_padded_pictures(tmp_path):
    bundle, folder, _ = written(tmp_path, "detr-resnet")
    pixels, mask = pictures((64, 64)), torch.ones(2, 64, 64, dtype=torch.bool)
    mask[0, 33:], mask[1, :, 40:] = False, False
    network = loaded("AutoModelForObjectDetection", folder)
    with torch.no_grad():
        ours, theirs = bundle.model(pixels, mask), network(pixel_values=pixels, pixel_mask=mask.long())
    torch.testing.assert_close(theirs.logits, ours.logits[-1], **CLOSE)
    torch.testing.assert_close(theirs.pred_boxes, ours.boxes[-1], **CLOSE)
    assert "timm" not in json.dumps(json.loads((folder / "config.json").read_text())["backbone_config"])


@pytest.mark.parametrize("backbone", ["resnet18", "resnet101"])
def test_every_weight_of_detr_has_a_place(backbone):
    from vlcli_detr.exporter import configuration, renamed

    with torch.device("meta"):
        model = build_training_module({**DETR, "backbone": backbone}, [], tiny_models.DataSpec(region_classes=3)).model
        wanted = transformers.DetrForObjectDetection(configuration(model)).state_dict()
    found = renamed(model.state_dict())
    assert {name: value.shape for name, value in found.items()} == {n: v.shape for n, v in wanted.items()}


@pytest.mark.slow
@pytest.mark.parametrize("backbone", ["resnet34", "resnet50", "resnet101"])
def test_detr_on_every_resnet_finds_the_same(tmp_path, monkeypatch, backbone):
    model = {**DETR, "backbone": backbone, "image_size": None, "encoder_layers": 2, "decoder_layers": 2}
    monkeypatch.setitem(tiny_models.FAMILIES, "detr-large", ({**model, "classes": 91, "norm": "batch"}, ["detection"]))
    bundle, folder, _ = written(tmp_path, "detr-large", noise=0.01)
    pixels, mask = pictures((96, 160)), torch.ones(2, 96, 160, dtype=torch.bool)
    mask[1, 64:], mask[1, :, 96:] = False, False
    with torch.no_grad():
        ours = bundle.model(pixels, mask)
        theirs = loaded("AutoModelForObjectDetection", folder)(pixel_values=pixels, pixel_mask=mask.long())
    torch.testing.assert_close(theirs.logits, ours.logits[-1], **CLOSE)
    torch.testing.assert_close(theirs.pred_boxes, ours.boxes[-1], **CLOSE)


@pytest.mark.parametrize(
    ("family", "places"),
    [
        ("deit", [""]),
        ("deit-distilled", [""]),
        ("swin-padded", [""]),
        pytest.param("detr-resnet", [""], marks=pytest.mark.slow),
        ("albef-plain", ["text", "image"]),
    ],
)
def test_what_was_written_comes_back(tmp_path, family, places):
    bundle, folder, _ = written(tmp_path, family)
    model, objectives = tiny_models.FAMILIES[family]
    module = build_training_module(model, objectives, bundle.data_spec, seed=9).eval()
    parts = r"^model\.(cross|joint)" if family == "albef-plain" else None
    load_sources(module, [folder / place for place in places], [parts] if parts else [])
    read = {name: value for name, value in module.model.state_dict().items() if not name.startswith("cross.")}
    for name, value in read.items():
        torch.testing.assert_close(value, bundle.model.state_dict()[name], atol=0, rtol=0, msg=name)


def test_files_of_transformers_4_are_read_too():
    from vlcli.nn import from_vit

    names = ["attention.attention.query.weight", "attention.output.dense.bias", "intermediate.dense.weight"]
    names += ["output.dense.bias", "layernorm_before.weight"]
    state = {f"vit.encoder.layer.3.{name}": torch.zeros(1) for name in names}
    assert sorted(from_vit(state, "stack")) == [
        "stack.layers.3.feed_forward.inner.weight",
        "stack.layers.3.feed_forward.outer.bias",
        "stack.layers.3.self_attention.attention.dense.bias",
        "stack.layers.3.self_attention.attention.query.weight",
        "stack.layers.3.self_attention.norm.weight",
    ]


def test_swin_of_transformers_4_is_read_too():
    from vlcli_swin.model import from_transformers

    model = build_training_module(SWIN, [], tiny_models.DataSpec(), seed=0).model
    stem = "swin.encoder.layers.0.blocks.0."
    state = {
        f"{stem}attention.self.query.weight": torch.ones(8, 8),
        f"{stem}attention.self.relative_position_bias_table": torch.ones(49, 1),
        f"{stem}attention.self.relative_position_index": torch.ones(16, 16),
        f"{stem}output.dense.bias": torch.ones(8),
    }
    made = from_transformers(state, dict(model.named_parameters()))
    own = dict(model.named_parameters())
    assert len(made) == 3
    assert all(own[name].shape == value.shape for name, value in made.items())


def test_the_exporter_of_the_page_gives_a_strangers_model_a_class(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["vlcli.registry.entries"], "_session", {})
    page = (PROJECT / "docs/seams.md").read_text(encoding="utf-8")
    code = next(block for block in page.split("```python\n") if "class TransformersMine" in block).split("```")[0]
    said = {"__name__": "mine"}
    exec(code.replace("from __future__", "#"), said)
    registry.register("models", "mine", Mine)
    registry.register("exporters", "transformers-mine", said["TransformersMine"])
    monkeypatch.setitem(tiny_models.FAMILIES, "mine", ({"name": "mine"}, []))
    bundle, folder, made = written(tmp_path, "mine")
    text, given = sentences(folder / "text", bundle.tokenizer)
    with torch.no_grad():
        theirs = loaded("AutoModel", folder / "text")(**given).last_hidden_state
    torch.testing.assert_close(theirs[text.mask], bundle.model.encode_text(text).hidden[text.mask], **CLOSE)
    assert made.metrics["max_difference"] < 1e-5


class Mine(Model):
    """A stranger's text encoder."""

    capabilities = frozenset({"text"})

    def __init__(self, data_spec):
        super().__init__(data_spec)
        shape = AttentionShape(16, 2)
        self.embed = TextEmbeddings(data_spec, 16, build_positions("learned", shape, WORD_SLOT)[0])
        self.stack = Stack.of(2, shape)

    def input_spec(self):
        return InputSpec(text=True)

    def encode_text(self, text, record=None):
        tokens, layout = self.embed(text)
        return EncoderOutput(self.stack(tokens, layout, AttentionMask(layout.valid))[0], layout)
