"""Tokenizers, image processors, refusals and commands of folders for transformers."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import tiny_models
import torch
import transformers
import yaml
from converted import (
    DEIT,
    DETR,
    PROJECT,
    WORDS,
    loaded,
    photograph,
    written,
)

from vlcli import registry
from vlcli.data.images import to_array
from vlcli.data.preparation import PREPARATIONS
from vlcli.data.transforms.base import TransformInput
from vlcli.data.vocabulary import Tokenizer
from vlcli.errors import ComponentError, DataError
from vlcli.export import largest_difference
from vlcli.export.conversion import CLOSE
from vlcli.progress import Silent

pytestmark = pytest.mark.usefixtures("more_families")


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
        scene = registry.build("transforms", transform, needs).evaluate(scene)
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
    transform, needs = registry.build("transforms", shown, bundle.model.input_spec()), bundle.model.input_spec()
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


def test_a_state_without_a_number_is_a_difference():
    plain, broken = torch.zeros(2), torch.tensor([0.0, torch.nan])
    assert not largest_difference((plain, plain), (plain, broken)) < CLOSE


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
        registry.build("transforms", {"name": "imagenet"}, bundle.model.input_spec()),
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
def test_a_run_is_exported_by_the_verb(tmp_path):
    stages = {
        "world": {"world": {"images": 80}},
        "pairs": {"epochs": 1, "batch_size": 16},
        "retrieval": None,
        "out": {"kind": "export", "from": "pairs", "format": "transformers"},
        "share": {"kind": "export", "from": "pairs", "format": {"name": "hub", "license": "mit"}},
    }
    recipe = {"extends": "tiny/two-tower", "stages": stages, "table": None}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False))
    words = [sys.executable, "-m", "vlcli", "export", "--recipe", "mine.yaml"]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    for folder in (tmp_path / "runs/mine/out/model", tmp_path / "runs/mine/share/hub"):
        assert type(loaded("AutoModel", folder / "text")).__name__ == "BertModel"
        assert type(loaded("AutoModel", folder / "image")).__name__ == "TimmWrapperModel"
    assert 'subfolder="text"' in (tmp_path / "runs/mine/share/hub/README.md").read_text()
