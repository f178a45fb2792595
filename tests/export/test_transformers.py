"""Folders for transformers' classes: the same outputs, ids and pixels as ours, read by transformers alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny_models
import torch
from PIL import Image

from vlcli import registry
from vlcli.builders.training import load_sources
from vlcli.data.images import to_array
from vlcli.data.preparation import PREPARATIONS
from vlcli.data.transforms.scene import TransformInput
from vlcli.data.vocabulary import Tokenizer
from vlcli.engine.training_module import build_training_module
from vlcli.errors import ComponentError, DataError
from vlcli.export.conversion import Transformers
from vlcli.nn import WORDS as WORD_SLOT
from vlcli.nn import (
    AttentionMask,
    AttentionShape,
    Batch,
    EncoderOutput,
    Images,
    InputSpec,
    Model,
    Pixels,
    Stack,
    Text,
    TextEmbeddings,
    View,
    build_positions,
    fake_batch,
)
from vlcli.progress import Silent

transformers = pytest.importorskip("transformers")
PROJECT = Path(__file__).parents[2]
CLOSE = {"atol": 1e-5, "rtol": 1e-5}
DEIT, SWIN = (tiny_models.FAMILIES[name][0] for name in ("deit", "swin"))
DETR = {**tiny_models.FAMILIES["detr"][0], "backbone": "resnet18"}
VLMO = tiny_models.FAMILIES["vlmo"][0]
CASES = {
    "deit-distilled": ({**DEIT, "distilled": True}, ["image-classification"]),
    "deit-encoder": ({**DEIT, "classes": 0, "layers": 2}, []),
    "swin-padded": ({**SWIN, "image_size": 40, "layers": [2, 2]}, ["image-classification"]),
    "swin-encoder": ({**SWIN, "classes": 0, "position": None}, []),
    "detr-resnet": (DETR, ["detection"]),
    "albef-plain": (tiny_models.FAMILIES["albef"][0], []),
    "vlmo-plain": (VLMO, []),
    "butd-bert": (
        {"name": "butd", "encoder": "bert", "text_hidden": 16, "text_heads": 2, "text_layers": 2, "hidden": 8},
        ["answering"],
    ),
    "vlmo-absolute": ({**VLMO, "position_type": "absolute", "layer_scale": None, "shared_norm": True}, []),
}
WORDS = [
    "Is THERE a  caf\u00e9, or a red-circle?",
    "a circle",
    "yes",
    "two blue squares are here and <person> isn't " * 9,
]


@pytest.fixture(autouse=True)
def _more_families(monkeypatch):
    for name, case in CASES.items():
        monkeypatch.setitem(tiny_models.FAMILIES, name, case)


def written(folder, family, architecture="auto", **more):
    """A trained model, and the folder that transformers is to load."""
    bundle = tiny_models.make(folder, family, **more)
    (folder / "out").mkdir()
    made = Transformers(architecture=architecture).export(bundle, folder / "out", Silent())
    return bundle, folder / "out" / made.files["model"], made


def loaded(auto, folder):
    """By ``from_pretrained``, which must find every weight (a pooler excepted) and nothing else."""
    network, report = getattr(transformers, auto).from_pretrained(folder, output_loading_info=True)
    assert [name for name in report["missing_keys"] if not name.startswith("pooler.")] == []
    assert list(report["unexpected_keys"]) == []
    assert list(Path(folder).glob("*.bin")) == []
    return network.eval()


def pictures(size, rows=2):
    return torch.rand(rows, 3, *size, generator=torch.Generator().manual_seed(7)) * 4 - 2


def images_of(pixels, mask=None):
    return Images(list("abc"[: len(pixels)]), None, Pixels(pixels, torch.ones(len(pixels), 2), mask))


def sentences(folder, tokenizer):
    """Words through both tokenizers: ours as a batch, theirs as what a network is given."""
    given = transformers.AutoTokenizer.from_pretrained(folder)(
        WORDS, padding=True, truncation=True, return_tensors="pt"
    )
    rows = [tokenizer.encode(words, length=12).ids for words in WORDS]
    for row, theirs, mask in zip(rows, given["input_ids"].tolist(), given["attention_mask"].tolist(), strict=True):
        assert theirs[: sum(mask)] == row
    real = given["attention_mask"].bool()
    return Text(given["input_ids"], real, torch.zeros_like(real), torch.zeros_like(given["input_ids"])), dict(given)


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
    bundle, folder, _ = written(tmp_path, "detr-large")
    pixels, mask = pictures((96, 160)), torch.ones(2, 96, 160, dtype=torch.bool)
    mask[1, 64:], mask[1, :, 96:] = False, False
    with torch.no_grad():
        ours = bundle.model(pixels, mask)
        theirs = loaded("AutoModelForObjectDetection", folder)(pixel_values=pixels, pixel_mask=mask.long())
    torch.testing.assert_close(theirs.logits, ours.logits[-1], **CLOSE)
    torch.testing.assert_close(theirs.pred_boxes, ours.boxes[-1], **CLOSE)


def photograph(size):
    """Noise at two scales: edges, and slopes that a wrong interpolation changes."""
    rng = np.random.default_rng(5)
    small = Image.fromarray(rng.integers(0, 255, (9, 12, 3), dtype=np.uint8)).resize(
        size[::-1], Image.Resampling.BICUBIC
    )
    noise = rng.integers(-20, 20, (*size, 3))
    return Image.fromarray((np.asarray(small).astype(int) + noise).clip(0, 255).astype(np.uint8))


@pytest.mark.parametrize(
    ("family", "place", "transform", "size"),
    [
        ("deit", "", None, (61, 83)),
        ("deit", "", {"name": "imagenet"}, (60, 82)),
        ("swin", "", {"name": "imagenet", "interpolation": "bilinear", "crop": 0.85}, (90, 61)),
        ("albef-plain", "image", {"name": "vl-augment"}, (40, 90)),
        ("vlmo-plain", "image", None, (20, 30)),
    ],
)
def test_the_image_processor_gives_the_pixels_of_the_data(tmp_path, family, place, transform, size):
    bundle, folder, _ = written(tmp_path, family, transform_spec=transform)
    picture, needs = photograph(size), bundle.model.input_spec()
    scene = TransformInput(picture)
    if transform is not None:
        scene = registry.transforms.build(transform, needs).evaluate(scene)
    wanted = torch.from_numpy(to_array(scene.image, needs.size, needs.mean, needs.std))
    one_level = 1.01 / 255 / min(needs.std)
    for backend, off in (("pil", 1e-5), (None, one_level)):
        processor = transformers.AutoImageProcessor.from_pretrained(folder / place, backend=backend)
        found = processor(picture, return_tensors="pt")["pixel_values"][0]
        torch.testing.assert_close(found, wanted, atol=off, rtol=0)


@pytest.mark.slow
def test_detr_s_processor_keeps_shapes_and_pads(tmp_path, monkeypatch):
    model = {**DETR, "image_size": None}
    monkeypatch.setitem(tiny_models.FAMILIES, "detr-any", (model, ["detection"]))
    shown = {"name": "detection", "shorts": [48, 64], "longest": 96}
    bundle, folder, _ = written(tmp_path, "detr-any", transform_spec=shown)
    transform, needs = registry.transforms.build(shown, bundle.model.input_spec()), bundle.model.input_spec()
    both = [photograph((50, 70)), photograph((90, 60))]
    found = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")(both, return_tensors="pt")
    for place, picture in enumerate(both):
        ours = to_array(transform.evaluate(TransformInput(picture)).image, None, needs.mean, needs.std)
        real = found["pixel_values"][place][:, found["pixel_mask"][place].any(1)][
            ..., found["pixel_mask"][place].any(0)
        ]
        torch.testing.assert_close(real, torch.from_numpy(ours), atol=1e-5, rtol=0)


@pytest.mark.slow
def test_a_picture_s_own_size_has_no_processor_and_the_note_says_so(tmp_path, monkeypatch):
    monkeypatch.setitem(tiny_models.FAMILIES, "detr-any", ({**DETR, "image_size": None}, ["detection"]))
    _, folder, made = written(tmp_path, "detr-any")
    assert not (folder / "preprocessor_config.json").exists()
    assert any(note.startswith("no image processor is written") for note in made.notes)


@pytest.mark.parametrize("prepare", PREPARATIONS)
@pytest.mark.parametrize("end", ["sep", "none"])
def test_prepared_sentences_have_the_ids_of_the_data(tmp_path, prepare, end):
    from vlcli.export.processors import write_tokenizer

    tokenizer = Tokenizer.train([*tiny_models.SENTENCES, "two things, person's - isn't"], 90)
    options = {"prepare": prepare, "words": 5, "end": end}
    trained = type("Trained", (), {})()
    trained.tokenizer, trained.text_options = tokenizer, options
    trained.data_spec = type("Sizes", (), {"text_length": 12})()
    write_tokenizer(trained, tmp_path)
    theirs, ours = transformers.AutoTokenizer.from_pretrained(tmp_path), tokenizer.reading(options)
    for words in [*WORDS, "a/b  c - d:e", "  two  things,\n", "one two three four five six"]:
        assert theirs(words, truncation=True)["input_ids"] == ours.encode(words, length=12).ids, words


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"position": "irpe"}, "transformers' ViT cannot express this model.*the position encoding IRPE"),
        ({"position": ["irpe", "rope-2d"]}, "the position encoding IRPE and RoPE2D"),
        ({"attention": "disentangled"}, "the attention DisentangledAttention"),
        ({"absolute": "sinusoid"}, r"other positions of cells \(SinusoidPosition\)"),
    ],
)
def test_what_vit_lacks_is_refused_with_its_name(tmp_path, monkeypatch, change, said):
    monkeypatch.setitem(tiny_models.FAMILIES, "deit-other", ({**DEIT, **change}, ["image-classification"]))
    with pytest.raises(ComponentError, match=f"(?s){said}"):
        written(tmp_path, "deit-other")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("family", "change", "said"),
    [
        ("swin", {"window": 7}, "a last map of 4 x 4 cells, smaller than its windows"),
        ("swin", {"position": "irpe"}, "the position encoding IRPE"),
        ("swin", {"position": ["swin-bias", "irpe"]}, "the position encoding SwinBias and IRPE"),
        ("detr", {}, "the backbone"),
        pytest.param(
            *("detr-resnet", {"position": ["detr-sine", "irpe"]}, "the position encoding DetrSine and IRPE"),
            marks=pytest.mark.slow,
        ),
        ("vlmo-plain", {"position": "irpe"}, "the position encoding IRPE"),
        ("vlmo-plain", {"image": "features", "grid": [2, 2]}, "a grid of stored features"),
        ("albef-plain", {"image_position": ["learned", "irpe"]}, "the position encoding IRPE"),
        ("butd", {}, r"a recurrent encoder \(GRU\)"),
    ],
)
def test_every_family_names_what_its_class_lacks(tmp_path, monkeypatch, family, change, said):
    model, objectives = tiny_models.FAMILIES[family]
    monkeypatch.setitem(tiny_models.FAMILIES, "other", ({**model, **change}, objectives))
    with pytest.raises(ComponentError, match=f"(?s)cannot express this model.*{said}"):
        written(tmp_path, "other")


def test_a_crop_that_transformers_cuts_elsewhere_has_no_processor(tmp_path):
    _, folder, made = written(tmp_path, "deit", transform_spec={"name": "imagenet", "crop": 0.9})
    assert not (folder / "preprocessor_config.json").exists()
    assert any("a centre crop that leaves 3 pixels" in note for note in made.notes)


def test_a_model_without_a_class_is_told_which_have_one(tmp_path):
    with pytest.raises(ComponentError, match="knows no class of transformers that equals UNITER") as caught:
        written(tmp_path, "uniter")
    said = str(caught.value)
    for family in ("lxmert (LxmertModel", "deit (ViTForImageClassification", "swin (", "detr (", "albef (", "vlmo ("):
        assert family in said


@pytest.mark.parametrize("name", ["vit", "swin", "detr", "albef", "vlmo", "two-tower", "butd", "lxmert"])
def test_an_exporter_refuses_the_model_of_another_family(tmp_path, name):
    bundle = tiny_models.make(tmp_path, "uniter")
    with pytest.raises(ComponentError, match=r"(?s)cannot express this model.*UNITER"):
        registry.build("exporters", f"transformers-{name}").export(bundle, tmp_path, Silent())


def test_what_transformers_computes_otherwise_is_not_written(tmp_path, monkeypatch):
    from vlcli_deit.exporter import TransformersViT

    plain = TransformersViT.convert

    def spoilt(self, trained):
        parts = plain(self, trained)
        parts[0].network.vit.layers[0].mlp.fc1.weight.data[0, 0] += 0.01
        return parts

    monkeypatch.setattr(TransformersViT, "convert", spoilt)
    with pytest.raises(DataError, match="What was written gives other outputs"):
        written(tmp_path, "deit")
    assert list((tmp_path / "out").iterdir()) == []


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
    from vlcli_swin.names import from_transformers

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


@pytest.mark.slow
def test_the_program_of_the_page_needs_transformers_alone(tmp_path):
    bundle, folder, _ = written(tmp_path, "swin", transform_spec={"name": "imagenet"})
    page = (PROJECT / "docs/hub.md").read_text(encoding="utf-8")
    (tmp_path / "classify.py").write_text(page.split("<!-- file: classify.py -->\n```python\n")[1].split("```")[0])
    photograph((60, 82)).save(tmp_path / "photograph.png")
    blocked = "import sys\nsys.modules['vlcli'] = sys.modules['timm'] = None\n"
    (tmp_path / "sitecustomize.py").write_text(blocked)
    words = [sys.executable, "classify.py", str(folder), "photograph.png"]
    ended = subprocess.run(
        words,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    transform, needs = (
        registry.transforms.build({"name": "imagenet"}, bundle.model.input_spec()),
        bundle.model.input_spec(),
    )
    scene = transform.evaluate(TransformInput(photograph((60, 82))))
    pixels = torch.from_numpy(to_array(scene.image, needs.size, needs.mean, needs.std))[None]
    with torch.no_grad():
        chances = bundle.model(pixels).softmax(-1)[0]
    answer, chance = ended.stdout.split()
    assert answer == bundle.data_spec.answers[int(chances.argmax())]
    assert float(chance) == pytest.approx(float(chances.max()), abs=1e-3)


@pytest.mark.slow
def test_a_finished_run_is_exported_by_the_verb(tmp_path):
    recipe = tmp_path / "mine.yaml"
    stages = {
        "vqa": {"steps": 2, "validation": None},
        "out": {"kind": "export", "from": "vqa", "format": "transformers"},
        "share": {"kind": "export", "from": "vqa", "format": "hub"},
    }
    recipe.write_text(json.dumps({"extends": "tiny/lxmert", "stages": stages}))
    for words in (["run", str(recipe), "--only", "vqa"], ["export", "--recipe", str(recipe)]):
        ended = subprocess.run(
            [sys.executable, "-m", "vlcli", *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stderr
    folders = [tmp_path / "runs/mine/out/model", tmp_path / "runs/mine/share/hub"]
    for folder in folders:
        assert type(loaded("AutoModelForQuestionAnswering", folder)).__name__ == "LxmertForQuestionAnswering"
    assert "LxmertForQuestionAnswering" in (folders[1] / "README.md").read_text()
