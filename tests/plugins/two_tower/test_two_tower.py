"""The dual encoder against transformers and timm themselves, its adapters, and its bundles."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner
from vlcli_two_tower.towers import TowerModel

from tests.plugins.two_tower import tiny
from vlcli.cli import app
from vlcli.data.images import to_array
from vlcli.data.vocabulary import Tokenizer
from vlcli.engine.bundle import load_bundle, save_bundle
from vlcli.engine.training_module import build_training_module
from vlcli.engine.weights import WeightLoader
from vlcli.errors import ComponentError, DataError
from vlcli.nn import DataSpec, Layout
from vlcli.nn.slots import build_model


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Folders of random weights, each written once."""
    root = tmp_path_factory.mktemp("towers")
    makers = {n: getattr(tiny, n) for n in ("clip", "siglip", "bert", "roberta", "vit", "of_timm")}
    return {name: (root / name, make(root / name)) for name, make in makers.items()}


def model_of(places, spec=tiny.SPEC, **options):
    named = {
        key: str(places[value][0]) if isinstance(value, str) and value in places else value
        for key, value in options.items()
    }
    return build_model({"name": "two-tower", **named}, spec).eval()


def padded(text, pad, length):
    ids = text.ids.masked_fill(~text.mask, pad)
    return torch.nn.functional.pad(ids, (0, length - ids.shape[1]), value=pad)


@pytest.mark.parametrize("name", ["clip", "siglip"])
def test_a_public_folder_gives_its_own_logits(places, name):
    theirs, text, images = places[name][1], tiny.texts(3), tiny.pictures()
    model = model_of(places, both=name)
    given = (
        {"input_ids": padded(text, 1, 16)}
        if name == "siglip"
        else {"input_ids": padded(text, 3, 7), "attention_mask": text.mask.long()}
    )
    with torch.no_grad():
        wanted = theirs(pixel_values=images.pixels.images, **given).logits_per_image
        found = model.logits_per_image(model.encode_text(text), model.encode_image(images))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
    needs = model.input_spec()
    assert (needs.size, needs.mean[0]) == ((32, 32), 0.5 if name == "siglip" else 0.48)


@pytest.mark.parametrize(("objective", "name"), [("contrast", "clip"), ("sigmoid-contrast", "siglip")])
def test_the_objectives_give_the_published_losses(places, objective, name):
    module = build_training_module({"name": "two-tower", "both": str(places[name][0])}, [objective], tiny.SPEC)
    batch = tiny.batch()
    text, pixels = batch.clean.text, batch.clean.images.pixels.images
    given = (
        {"input_ids": padded(text, 1, 16)}
        if name == "siglip"
        else {"input_ids": padded(text, 3, 7), "attention_mask": text.mask.long()}
    )
    with torch.no_grad():
        wanted = places[name][1](pixel_values=pixels, **given, return_loss=True).loss
        found = module.eval()(batch).losses[objective].value()
    assert float(found) == pytest.approx(float(wanted), abs=1e-6)
    assert sum("logit_scale" in n or n.endswith("scale") for n, _ in module.named_parameters()) == 1
    assert not any(
        n.startswith("objectives.") for n, _ in module.named_parameters() if "scale" not in n and "offset" not in n
    )


@pytest.mark.parametrize("name", ["clip", "siglip"])
def test_a_file_s_weights_fill_a_drawn_model_and_come_out_again(places, name):
    folder, theirs = places[name]
    config = json.loads((folder / "config.json").read_text())
    module = build_training_module({"name": "two-tower", "both": config}, [], tiny.SPEC, seed=5)
    loader = WeightLoader(module)
    state = theirs.state_dict()
    loader.add(state, "file", ours=False)
    report = loader.finish()
    assert (report.new, report.left_over, report.mismatched) == ([], [], [])
    back = module.model.released_state(module.model.state_dict())
    assert {n: v.numpy().tobytes() for n, v in back.items()} == {
        n: v.numpy().tobytes() for n, v in state.items() if "position_ids" not in n
    }


@pytest.mark.parametrize(("image", "text"), [("vit", "bert"), ("of_timm", "roberta"), ("clip", "siglip")])
def test_towers_of_two_folders_give_their_own_states(places, image, text):
    model, sentences, images = model_of(places, image=image, text=text, width=10), tiny.texts(3), tiny.pictures()
    pixels = images.pixels.images
    network = places[image][1]
    network = getattr(network, "vision_model", network)
    with torch.no_grad():
        wanted = (
            network.forward_features(pixels) if image == "of_timm" else network(pixel_values=pixels).last_hidden_state
        )
        found = model.encode_image(images)
        words = model.encode_text(sentences)
        if text != "siglip":
            pad = places[text][1].config.pad_token_id
            given = {"input_ids": padded(sentences, pad, 7), "attention_mask": sentences.mask.long()}
            theirs = places[text][1](**given).last_hidden_state
            torch.testing.assert_close(words.hidden[sentences.mask], theirs[sentences.mask], rtol=0, atol=1e-6)
    torch.testing.assert_close(found.hidden, wanted, rtol=0, atol=1e-6)
    assert isinstance(found.layout, Layout)
    assert (model.grid, len(found.layout)) == ((4, 4), 17)
    assert found.pooled.shape == (4, 10)
    assert words.pooled.shape == (3, 10)


def test_a_bundle_needs_no_other_folder(places, tmp_path):
    spec = {"name": "two-tower", "image": str(places["of_timm"][0]), "text": str(places["bert"][0]), "width": 8}
    module = build_training_module(spec, ["contrast"], tiny.SPEC).eval()
    save_bundle(
        tmp_path / "model",
        module,
        tokenizer=None,
        data_spec=tiny.SPEC,
        model_spec=spec,
        objectives_specs=[{"name": "contrast"}],
    )
    words = (tmp_path / "model" / "config.json").read_text()
    assert str(places["bert"][0]) not in words
    again = load_bundle(tmp_path / "model").module
    batch = tiny.batch()
    with torch.no_grad():
        left, right = (one.objectives["contrast"].predict(one.step(batch)) for one in (module, again))
    assert all(torch.equal(left[key], right[key]) for key in left)
    assert again.model.input_spec() == module.model.input_spec()


def test_lora_begins_as_the_tower_and_trains_the_adapters_alone(places):
    pytest.importorskip("peft")
    options = {
        "both": "clip",
        "text_tuning": "lora",
        "image_tuning": "frozen",
        "lora_rank": 2,
        "lora_targets": ["q_proj", "v_proj"],
    }
    model, plain = model_of(places, **options), model_of(places, both="clip")
    with torch.no_grad():
        assert torch.equal(model.encode_text(tiny.texts(3)).pooled, plain.encode_text(tiny.texts(3)).pooled)
    trained = {n for n, p in model.named_parameters() if p.requires_grad}
    adapters = {n for n in trained if n.startswith("text.")}
    assert adapters == {
        f"text.network.encoder.layers.{n}.self_attn.{p}_proj.lora_{s}.default.weight"
        for n in (0, 1)
        for p in "qv"
        for s in "AB"
    }
    assert not any(n.startswith("image.") for n in trained)
    for name, parameter in model.named_parameters():
        if ".lora_" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    merged = model.released_state(model.state_dict())
    again = build_training_module({"name": "two-tower", "both": str(places["clip"][0])}, [], tiny.SPEC)
    loader = WeightLoader(again)
    loader.add(merged, "merged", ours=False)
    assert loader.finish().new == []
    with torch.no_grad():
        found = again.model.eval().encode_text(tiny.texts(3)).pooled
        torch.testing.assert_close(found, model.encode_text(tiny.texts(3)).pooled, rtol=0, atol=1e-5)
        assert not torch.allclose(found, plain.encode_text(tiny.texts(3)).pooled, atol=1e-3)


def test_lora_takes_a_trained_model_s_weights_under_peft_s_names(places):
    pytest.importorskip("peft")
    spec = {"name": "two-tower", "both": json.loads((places["clip"][0] / "config.json").read_text())}
    module = build_training_module({**spec, "image_tuning": "lora", "text_tuning": "lora"}, [], tiny.SPEC, seed=2)
    loader = WeightLoader(module)
    loader.add({f"model.{n}": v for n, v in model_of(places, both="clip").state_dict().items()}, "bundle", ours=True)
    assert loader.finish().new == []


@pytest.mark.parametrize(
    ("specials", "name"),
    [(["!", "?", "<|startoftext|>", "<|endoftext|>"], "clip"), (["<pad>", "</s>", "<unk>"], "siglip")],
)
def test_sentences_are_cut_as_the_tower_s_own_tokenizer_cuts_them(places, specials, name):
    made = Tokenizer.load(places[name][0])
    words = [len(specials) + tiny.WORDS.index(word) for word in ("red", "circle")]
    sample = made.encode("red circle", length=4)
    assert sample.ids == ([2, *words, 3] if name == "clip" else [*words, 1])
    assert sample.special == ([True, False, False, True] if name == "clip" else [False, False, True])
    assert made.maskable is False
    assert made.encode("red circle red circle", length=3).ids[-1] == made.ids["sep"]


def copied(folder: Path, target: Path, without: str) -> str:
    target.mkdir()
    for file in folder.iterdir():
        if file.name != without:
            (target / file.name).write_bytes(file.read_bytes())
    return str(target)


def test_bad_input_ends_in_one_message(places, tmp_path):
    def said(**options):
        with pytest.raises((ComponentError, DataError)) as caught:
            model_of(places, **options)
        return str(caught.value)

    absent = said(both="nobody/absent")
    assert "neither a folder here nor in the local cache" in absent
    assert "hf download nobody/absent" in absent
    assert "hf download timm/" in said(image="vit_tiny_patch16_224.augreg_in21k", text="bert")
    bare = copied(places["bert"][0], tmp_path / "bare", "model.safetensors")
    assert "holds no weights" in said(text=bare, image="vit")
    wide = Path(copied(places["vit"][0], tmp_path / "wide", ""))
    config = json.loads((wide / "config.json").read_text())
    (wide / "config.json").write_text(json.dumps(config | {"hidden_size": 32}))
    assert "do not fit its configuration" in said(image=str(wide), text="bert")
    assert "of another shape" in said(image=str(wide), text="bert")
    deep = Path(copied(places["bert"][0], tmp_path / "deep", ""))
    config = json.loads((deep / "config.json").read_text())
    (deep / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    assert "missing: " in said(image="vit", text=str(deep))
    timm_folder = Path(copied(places["of_timm"][0], tmp_path / "timm", ""))
    config = json.loads((timm_folder / "config.json").read_text())
    config["model_args"]["depth"] = 3
    (timm_folder / "config.json").write_text(json.dumps(config))
    assert "do not fit its configuration" in said(image=str(timm_folder), text="bert")
    (wide / "model.safetensors").write_bytes(b"rubbish")
    assert "cannot be read" in said(image=str(wide), text="bert")
    (wide / "config.json").write_text("[]")
    assert "no JSON object" in said(image=str(wide), text="bert")
    assert "does not say of which kind" in said(image={"hidden_size": 3}, text="bert")
    assert "cannot make this configuration" in said(image={"model_type": "absent"}, text="bert")
    assert "timm has no such model" in said(image={"architecture": "absent"}, text="bert")
    assert "no model of two towers" in said(both="bert")
    more = "more pieces than the text tower"
    assert more in said(both="clip", spec=DataSpec(vocab_size=50, text_length=12))
    assert "position table" in said(both="clip", spec=DataSpec(vocab_size=30, text_length=30))


def test_lora_targets_that_match_nothing_are_told_with_those_there_are(places):
    pytest.importorskip("peft")
    with pytest.raises(ComponentError) as caught:
        model_of(places, both="clip", text_tuning="lora", lora_targets=["q_proj", "qkv"])
    assert "looked for 'qkv'" in str(caught.value)
    assert "q_proj (2)" in str(caught.value)


def test_a_text_tower_without_a_tokenizer_is_told(places, tmp_path):
    from vlcli_two_tower import TwoTower

    folder = copied(places["clip"][0], tmp_path / "mute", "tokenizer.json")
    with pytest.raises(DataError, match="has no tokenizer"):
        TwoTower.vocabulary_folder({"both": folder})
    assert TwoTower.vocabulary_folder({"both": str(places["clip"][0])}) == str(places["clip"][0])


@pytest.mark.parametrize("name", ["clip", "siglip"])
def test_what_was_not_trained_comes_out_byte_for_byte(places, name, tmp_path):
    from transformers import AutoConfig, AutoModel

    from vlcli.engine.bundle import Bundle
    from vlcli.progress import Silent
    from vlcli.registry import build

    folder, theirs = places[name]
    spec = {"name": "two-tower", "both": str(folder)}
    module = build_training_module(spec, [], tiny.SPEC).eval()
    bundle = Bundle(module, Tokenizer.load(folder), tiny.SPEC, None, spec, [], {}, tmp_path)
    made = build("exporters", "transformers-two-tower").export(bundle, tmp_path, Silent())
    out = tmp_path / made.files["model"]
    assert (out / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()
    again = AutoModel.from_pretrained(out)
    assert type(again) is type(theirs)
    left, right = (AutoConfig.from_pretrained(place).text_config.to_dict() for place in (out, folder))
    assert left | {"dtype": None, "architectures": None} == right | {"dtype": None, "architectures": None}
    assert Tokenizer.load(out).encode("red circle").ids == Tokenizer.load(folder).encode("red circle").ids
    assert json.loads((out / "preprocessor_config.json").read_text())["size"] == {"height": 32, "width": 32}


ROBERTA = ("ViT", "Roberta")


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        (
            {"name": "two-tower", "text": "roberta", "text_tuning": "lora", "lora_targets": ["query"]},
            ("ViT", "Roberta"),
        ),
        ({"name": "two-tower", "text": "bert", "image_size": 48, "text_pool": "mean"}, ("ViT", "Bert")),
        ({"name": "two-tower-fused", "text": "bert", "cross_layers": 1, "heads": 2}, ("ViT", "Bert")),
        ({"name": "two-tower", "text": "bert", "image": "of_timm"}, ("TimmWrapper", "Bert")),
        ({"name": "two-tower-fused", "both": "clip", "cross_layers": 1, "heads": 2}, ("CLIPVision", "CLIPText")),
    ],
)
def test_towers_of_two_sources_are_written_each_for_itself(places, tmp_path, spec, names):
    from transformers import AutoImageProcessor, AutoModel, AutoTokenizer

    from vlcli.engine.bundle import Bundle
    from vlcli.export.conversion import Transformers
    from vlcli.progress import Silent

    if "lora_targets" in spec:
        pytest.importorskip("peft")
    spec = {"image": "vit", **spec} if "both" not in spec else spec
    named = {key: places[value][0] for key, value in spec.items() if isinstance(value, str) and value in places}
    spec |= {key: str(folder) for key, folder in named.items()}
    module = build_training_module(spec, [], tiny.SPEC, seed=1).eval()
    model = module.model
    for name, value in model.named_parameters():  # adapters begin where they change nothing
        value.data.add_(torch.randn_like(value) * 0.3 if ".lora_" in name else 0)
    words = Path(spec.get("both") or spec["text"])
    bundle = Bundle(module, Tokenizer.load(words), tiny.SPEC, None, spec, [], {}, tmp_path)
    made = Transformers().export(bundle, tmp_path, Silent())
    out = tmp_path / made.files["model"]
    networks = [AutoModel.from_pretrained(out / side).eval() for side in ("image", "text")]
    assert [type(network).__name__ for network in networks] == [f"{name}Model" for name in names]
    text, images = tiny.texts(3), tiny.pictures(size=spec.get("image_size", 32))
    ids = text.ids.masked_fill(~text.mask, model.pad_id)
    with torch.no_grad():
        given = {"interpolate_pos_encoding": True} if "image_size" in spec else {}
        seen = networks[0](pixel_values=images.pixels.images, **given).last_hidden_state
        read = networks[1](input_ids=ids, attention_mask=text.mask.long()).last_hidden_state
        ours = model.image(images.pixels.images)[0], model.text(text, model.pad_id)[0]
    torch.testing.assert_close(seen, ours[0], rtol=0, atol=1e-5)
    torch.testing.assert_close(read[text.mask], ours[1][text.mask], rtol=0, atol=1e-5)
    assert (
        AutoTokenizer.from_pretrained(out / "text")("red circle")["input_ids"]
        == bundle.tokenizer.encode("red circle").ids
    )
    side = spec.get("image_size", 32)
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 255, (50, 71, 3), dtype=np.uint8))
    needs = model.input_spec()
    fed = AutoImageProcessor.from_pretrained(out / "image", backend="pil")(picture, return_tensors="pt")["pixel_values"]
    wanted = to_array(picture, (side, side), needs.mean, needs.std)
    torch.testing.assert_close(fed[0], torch.from_numpy(wanted), rtol=0, atol=1e-5)


def test_trained_dual_models_keep_their_logits_with_padding(places, tmp_path):
    from transformers import AutoModel, AutoProcessor

    from vlcli.engine.bundle import Bundle
    from vlcli.export.conversion import Transformers
    from vlcli.progress import Silent

    folder, _ = places["clip"]
    spec = {"name": "two-tower", "both": str(folder)}
    module = build_training_module(spec, [], tiny.SPEC).eval()
    for value in module.parameters():
        value.data.add_(torch.randn_like(value) * 0.05)
    bundle = Bundle(module, Tokenizer.load(folder), tiny.SPEC, None, spec, [], {}, tmp_path)
    out = tmp_path / Transformers().export(bundle, tmp_path, Silent()).files["model"]
    text, images = tiny.texts(3), tiny.pictures()
    ids = text.ids.masked_fill(~text.mask, 3)
    with torch.no_grad():
        ours = module.model.logits_per_image(module.model.encode_text(text), module.model.encode_image(images))
        network = AutoModel.from_pretrained(out).eval()
        given = {"input_ids": ids, "attention_mask": text.mask.long()}
        theirs = network(pixel_values=images.pixels.images, **given).logits_per_image
    torch.testing.assert_close(theirs, ours, rtol=1e-5, atol=1e-5)
    both = AutoProcessor.from_pretrained(out)(text=["red circle", "a"], padding=True, return_tensors="pt")
    assert both["input_ids"][0].tolist() == bundle.tokenizer.encode("red circle").ids


@pytest.mark.parametrize("recipe", ["tiny/two-tower", "tiny/two-tower-fused", "two-tower/photos"])
def test_packaged_recipes_are_counted(recipe):
    ended = CliRunner().invoke(app, ["count", recipe])
    assert ended.exit_code == 0, ended.stderr
    assert "parameters" in ended.stdout


def test_hooks_of_a_tower_are_called(places):
    model, called = model_of(places, both="clip"), []
    model.image.register_forward_hook(lambda *_: called.append("image"))
    model.encode_image(tiny.pictures())
    assert called == ["image"]


def test_mean_and_deviation_have_three_numbers(places):
    with pytest.raises(ComponentError, match=r"got: \[0.5, 0.5\]"):
        model_of(places, both="clip", mean=[0.5, 0.5])
    spec = model_of(places, both="clip", mean=[0.5, 0.4, 0.3]).input_spec()
    assert spec.mean == (0.5, 0.4, 0.3)


def test_a_name_of_timm_for_texts_has_no_vocabulary(monkeypatch):
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: __file__)  # of any file
    assert TowerModel.vocabulary_folder({"text": "vit_tiny_patch16_224"}) is None
