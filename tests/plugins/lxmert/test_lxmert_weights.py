"""Public layouts of weights: written here with random numbers, read as a stage reads them, and exported again."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
import transformers
from safetensors.torch import save_file
from tiny_batches import SMALL, make_batch
from vlcli_lxmert import to_airsplay

from vlcli import registry
from vlcli.builders.training import load_sources
from vlcli.data.vocabulary import Tokenizer
from vlcli.engine.bundle import load_bundle, save_bundle
from vlcli.engine.training_module import build_training_module
from vlcli.errors import ComponentError, DataError
from vlcli.nn import ForwardPasses
from vlcli.progress import Silent
from vlcli.recipe.wiring import find_place

SIZES = {"hidden": 24, "heads": 4, "intermediate": 40, "text_layers": 3, "image_layers": 2, "cross_layers": 2}
MODEL = {"name": "lxmert", **SIZES}
ANSWERS = ("yes", "no", "2", "red", "blue")
DATA_SPEC = replace(SMALL, answers=ANSWERS)
PRETRAINING = ["mlm", "matching", "masked-object"]
PAIR = {"name": "classification", "classes": 2, "images": 2}


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)
    torch.manual_seed(0)


def module_of(objectives, model=MODEL, data_spec=DATA_SPEC, seed=0):
    return build_training_module(model, objectives, data_spec, seed=seed).eval()


def randomised(objectives, seed=5, model=MODEL):
    """A training module whose every parameter is random, norms and biases too."""
    module = module_of(objectives, model)
    torch.manual_seed(seed)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return module


def released(module):
    """Its weights as the authors' training leaves them: their names, without what is ours alone."""
    state = to_airsplay(module.state_dict())
    return {name: value for name, value in state.items() if not name.startswith(("model.", "objectives."))}


def old_norms(state):
    """The names that norms had in the first BERT ports."""
    return {
        k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): v
        for k, v in state.items()
    }


def as_finetuned(state, wrapper="lxrt_encoder.model."):
    made = {name.replace("answer_head.logit_fc", "logit_fc"): value for name, value in state.items()}
    return {name if name.startswith("logit_fc") else wrapper + name: value for name, value in made.items()}


def same(module, other, names=None):
    own, theirs = module.state_dict(), other.state_dict()
    chosen = [n for n in own if "table.utf8" not in n] if names is None else names
    assert chosen
    for name in chosen:
        assert torch.equal(own[name], theirs[name]), name


@pytest.mark.parametrize("legacy", [True, False])
@pytest.mark.parametrize("prefix", ["", "module."])
def test_pretraining_checkpoint_of_the_release(tmp_path, prefix, legacy):
    origin = randomised(PRETRAINING)
    state = {prefix + name: value for name, value in old_norms(released(origin)).items()}
    file = tmp_path / "model_LXRT.pth"
    torch.save(state, file, _use_new_zipfile_serialization=not legacy)
    module = module_of(PRETRAINING, seed=1)
    report = load_sources(module, [file], [])
    same(module, origin)
    assert (report.new, report.left_over, report.mismatched) == ([], [], [])
    assert "public LXMERT" in report.reshaped[0]
    assert f"{len(report.matched)} tensors matched" in report.lines()[0]


@pytest.mark.parametrize("wrapper", ["lxrt_encoder.model.", "lxrt_encoder.model.module."])
@pytest.mark.parametrize("objectives", [["answering"], [PAIR]], ids=["vqa", "nlvr2"])
def test_fine_tuned_checkpoints_of_the_release(tmp_path, objectives, wrapper):
    origin = randomised(objectives)
    state = as_finetuned(released(origin), wrapper)
    assert state["logit_fc.0.weight"].shape == (48, 24 if "answering" in objectives else 48)
    torch.save(state, tmp_path / "BEST.pth")
    module = module_of(objectives, seed=1)
    report = load_sources(module, [tmp_path / "BEST.pth"], [])
    same(module, origin)
    assert not report.left_over


def port(objectives=PRETRAINING, **more):
    flags = {"task_qa": False, **more}
    return transformers.LxmertConfig(
        vocab_size=DATA_SPEC.vocab_size,
        hidden_size=24,
        num_attention_heads=4,
        intermediate_size=40,
        l_layers=3,
        r_layers=2,
        x_layers=2,
        visual_feat_dim=DATA_SPEC.region_dim,
        num_object_labels=DATA_SPEC.region_classes,
        num_attr_labels=DATA_SPEC.region_attributes,
        num_qa_labels=len(ANSWERS),
        **flags,
    )


def drawn(theirs):
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return theirs.eval()


def streams(theirs, batch):
    regions, text = batch.clean.images.regions, batch.clean.text
    with torch.no_grad():
        return theirs(
            input_ids=text.ids,
            attention_mask=text.mask.float(),
            token_type_ids=torch.zeros_like(text.ids),
            visual_feats=regions.features,
            visual_pos=regions.boxes,
            visual_attention_mask=regions.mask.float(),
        )


@pytest.mark.parametrize("name", ["LxmertModel", "LxmertForPreTraining", "LxmertForQuestionAnswering"])
@pytest.mark.parametrize("safe", [True, False])
def test_folders_of_transformers(tmp_path, name, safe):
    theirs = drawn(getattr(transformers, name)(port(task_qa=name == "LxmertForPreTraining")))
    if safe:
        theirs.save_pretrained(tmp_path)
    else:
        torch.save(theirs.state_dict(), tmp_path / "pytorch_model.bin")
    objectives = {"LxmertModel": ["matching"], "LxmertForPreTraining": [*PRETRAINING, "answering"]}
    module = module_of(objectives.get(name, ["answering"]), seed=1)
    report = load_sources(module, [tmp_path], [])
    batch = make_batch(DATA_SPEC, rows=3)
    with torch.no_grad():
        fused = ForwardPasses(module.model, batch).fused()
    backbone = theirs if name == "LxmertModel" else theirs.lxmert
    torch.testing.assert_close(fused.pooled, streams(backbone, batch).pooled_output, atol=1e-5, rtol=1e-5)
    fresh = {"LxmertModel": {"objectives.matching.head.weight", "objectives.matching.head.bias"}}
    assert {n for n in report.new if "table" not in n} == fresh.get(name, set())
    if name == "LxmertForQuestionAnswering":
        with torch.no_grad():
            ours = module.predict(module.step(batch))["answering"]["logits"]
        torch.testing.assert_close(ours, streams(theirs, batch).question_answering_score, atol=1e-5, rtol=1e-5)


def test_a_hub_name_leads_to_the_local_cache_alone(tmp_path, monkeypatch):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    repository = tmp_path / "hub" / "models--unc-nlp--lxmert-base-uncased"
    revision = "0" * 40
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(revision)
    theirs = drawn(transformers.LxmertModel(port()))
    theirs.save_pretrained(repository / "snapshots" / revision)
    assert find_place("unc-nlp/lxmert-vqa-uncased", tmp_path) is None
    place = find_place("unc-nlp/lxmert-base-uncased", tmp_path)
    module = module_of(["matching"], seed=1)
    load_sources(module, [place], [])
    assert torch.equal(module.model.text.words.weight, theirs.embeddings.word_embeddings.weight)


def test_safetensors_of_our_own_names(tmp_path):
    origin = randomised(PRETRAINING)
    save_file({n: v.contiguous() for n, v in origin.model.state_dict().items()}, tmp_path / "own.safetensors")
    module = module_of(PRETRAINING, seed=1)
    load_sources(module, [tmp_path / "own.safetensors"], [])
    same(module, origin, [n for n in module.state_dict() if n.startswith("model.")])


def test_an_unmatched_backbone_weight_is_an_error_unless_allowed(tmp_path):
    state = released(randomised(["matching"]))
    del state["bert.encoder.x_layers.1.visual_attention.att.key.weight"]
    torch.save(state, tmp_path / "cut.pth")
    with pytest.raises(DataError, match="1 weights of the model are not in") as caught:
        load_sources(module_of(["matching"]), [tmp_path / "cut.pth"], [])
    assert "allow_unmatched" in caught.value.hint
    report = load_sources(module_of(["matching"]), [tmp_path / "cut.pth"], [r"cross\.layers\.1\.cross\."])
    assert report.allowed == ["model.cross.layers.1.cross.attention.key.weight"]


ALL_BUT_LANGUAGE = r"^model\.(?!text\.|language\.)"


@pytest.mark.parametrize("name", ["BertModel", "BertForPreTraining"])
def test_bert_fills_the_language_encoder_by_name(tmp_path, name):
    config = transformers.BertConfig(
        vocab_size=DATA_SPEC.vocab_size,
        hidden_size=24,
        num_attention_heads=4,
        intermediate_size=40,
        num_hidden_layers=4,
    )
    bert = drawn(getattr(transformers, name)(config))
    bert.save_pretrained(tmp_path)
    module = module_of(["mlm", "matching"], seed=1)
    with pytest.raises(DataError, match="not in what it starts from"):
        load_sources(module_of(["mlm"]), [tmp_path], [])
    report = load_sources(module, [tmp_path], [ALL_BUT_LANGUAGE])
    backbone = bert if name == "BertModel" else bert.bert
    batch = make_batch(DATA_SPEC, rows=3)
    text = batch.clean.text
    kept = backbone(text.ids, text.mask.float(), output_hidden_states=True).hidden_states[3]
    real = text.mask
    torch.testing.assert_close(ForwardPasses(module.model, batch).text().hidden[real], kept[real], atol=1e-5, rtol=1e-5)
    assert any("layer.3." in left for left in report.left_over)  # the layer that has no place
    assert not any(n.startswith(("model.text", "model.language")) for n in report.new)
    if name == "BertForPreTraining":
        assert torch.equal(
            module.objectives["mlm"].head.transform.dense.weight, bert.cls.predictions.transform.dense.weight
        )


def test_the_language_encoder_may_start_from_the_last_layers_of_bert(tmp_path):
    sizes = {"hidden_size": 24, "num_attention_heads": 4, "intermediate_size": 40, "num_hidden_layers": 5}
    bert = drawn(transformers.BertModel(transformers.BertConfig(vocab_size=DATA_SPEC.vocab_size, **sizes)))
    bert.save_pretrained(tmp_path)
    module = module_of(["mlm"], {**MODEL, "bert_layers": "last"})
    report = load_sources(module, [tmp_path], [ALL_BUT_LANGUAGE])
    mine = module.model.language.layers
    for number, layer in enumerate(mine):
        theirs = bert.encoder.layer[number + 5 - len(mine)].attention.self.query.weight
        assert torch.equal(layer.self_attention.attention.query.weight, theirs)
    assert any("the last 3 of 5 layers are taken" in line for line in report.reshaped)
    assert len(mine) == 3


def test_two_cross_attentions_start_from_the_one_of_a_release_and_are_not_exported(tmp_path):
    one = randomised(["matching"])
    save_file(released(one), tmp_path / "one.safetensors")
    two = module_of(["matching"], {**MODEL, "shared_crossing": False}, seed=1)
    load_sources(two, [tmp_path / "one.safetensors"], [])
    batch = make_batch(DATA_SPEC, rows=3)
    ours, theirs = (ForwardPasses(part.model.eval(), batch).fused().pooled for part in (two, one))
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-6)
    with torch.no_grad():
        for layer in two.model.cross.layers:
            layer.back.attention.value.weight.mul_(2)
    changed = ForwardPasses(two.model, batch).fused()
    assert not torch.allclose(changed.pooled, theirs, atol=1e-3)
    trained = bundle(tmp_path / "two", ["matching"], {**MODEL, "shared_crossing": False})
    with pytest.raises(ComponentError, match="cannot express this model") as caught:
        registry.build("exporters", "transformers").export(trained, tmp_path, Silent())
    assert caught.value.expected == "shared_crossing: true"


def test_bert_fills_butd_by_name(tmp_path):
    config = transformers.BertConfig(
        vocab_size=DATA_SPEC.vocab_size,
        hidden_size=24,
        num_attention_heads=4,
        intermediate_size=96,
        num_hidden_layers=2,
    )
    bert = drawn(transformers.BertModel(config))
    bert.save_pretrained(tmp_path)
    sizes = {"hidden": 10, "text_hidden": 24, "text_heads": 4, "text_layers": 2}
    module = module_of(["answering"], {"name": "butd", "encoder": "bert", **sizes})
    load_sources(module, [tmp_path], [ALL_BUT_LANGUAGE])
    text = make_batch(DATA_SPEC, rows=3).clean.text
    wanted = bert(text.ids, text.mask.float()).pooler_output
    torch.testing.assert_close(module.model.encode_text(text).pooled, wanted, atol=1e-5, rtol=1e-5)


def bundle(tmp_path, objectives, model=MODEL):
    """A trained-looking bundle with a tokenizer of its own."""
    tokenizer = Tokenizer.train(["a red circle is here", "two blue squares", "there is no star"], 80)
    data_spec = replace(DATA_SPEC, **tokenizer.data_spec_fields())
    module = build_training_module(model, objectives, data_spec)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    parts = {"tokenizer": tokenizer, "data_spec": data_spec, "model_spec": model, "objectives_specs": objectives}
    save_bundle(tmp_path / "model", module, **parts)
    return load_bundle(tmp_path / "model")


@pytest.mark.parametrize(
    ("objectives", "name"),
    [
        ([*PRETRAINING], "LxmertForPreTraining"),
        (["mlm", "matching", {"name": "masked-object", "targets": ["label"]}], "LxmertForPreTraining"),
        (["answering"], "LxmertForQuestionAnswering"),
        ([PAIR], "LxmertModel"),
    ],
)
def test_exported_folders_load_in_transformers(tmp_path, objectives, name):
    trained = bundle(tmp_path, objectives)
    made = registry.build("exporters", "transformers").export(trained, tmp_path, Silent())
    folder = tmp_path / made.files["model"]
    assert made.metrics["max_difference"] < 1e-5
    assert json.loads((folder / "config.json").read_text())["architectures"] == [name]
    assert transformers.AutoTokenizer.from_pretrained(folder)("a red circle").input_ids[0] == trained.data_spec.cls_id
    theirs, loading = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    batch = make_batch(trained.data_spec, rows=3)
    batch.clean.text.ids.clamp_(max=trained.data_spec.vocab_size - 1)
    with torch.no_grad():
        fused, found = ForwardPasses(trained.model, batch).fused(), streams(theirs.eval(), batch)
    if name == "LxmertModel":
        torch.testing.assert_close(fused.pooled, found.pooled_output, atol=1e-5, rtol=1e-5)
        assert "left behind" in made.notes[1]
        return
    if name == "LxmertForQuestionAnswering":
        ours = trained.module.objectives["answering"].head(fused.pooled)
        torch.testing.assert_close(ours, found.question_answering_score, atol=1e-5, rtol=1e-5)
        assert theirs.config.id2label[3] == "red"
        return
    ours = trained.module.objectives["matching"].logits(fused)
    torch.testing.assert_close(ours, found.cross_relationship_score, atol=1e-5, rtol=1e-5)


def test_an_exported_folder_comes_back(tmp_path):
    trained = bundle(tmp_path, PRETRAINING)
    registry.build("exporters", "transformers").export(trained, tmp_path / "out", Silent())
    module = build_training_module(MODEL, PRETRAINING, trained.data_spec, seed=7).eval()
    report = load_sources(module, [tmp_path / "out" / "model"], [])
    same(module, trained.module)
    assert not report.new


def test_what_transformers_cannot_express_is_refused(tmp_path):
    for number, change in enumerate([{"image_position": {"name": "box", "numbers": 7}}, {"text_position": "sinusoid"}]):
        trained = bundle(tmp_path / str(number), ["matching"], {**MODEL, **change})
        with pytest.raises(ComponentError, match="cannot express"):
            registry.build("exporters", "transformers").export(trained, tmp_path, Silent())
    trained = bundle(tmp_path / "heads", ["matching"])
    exporter = registry.build("exporters", {"name": "transformers", "architecture": "pretraining"})
    with pytest.raises(ComponentError, match="LxmertForPreTraining has weights that this model lacks") as caught:
        exporter.export(trained, tmp_path, Silent())
    assert "architecture: model" in caught.value.hint
