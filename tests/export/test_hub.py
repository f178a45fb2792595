"""A folder for a hub: loaded by vlcli and by transformers, with a card made of records; and its upload."""

from __future__ import annotations

import json

import pytest
import tiny_models
import torch
import yaml
from safetensors.torch import load_file
from typer.testing import CliRunner

import vlcli
from vlcli.cli import app
from vlcli.engine.bundle import find_bundle
from vlcli.export.hub import Hub
from vlcli.nn import fake_batch
from vlcli.progress import Silent

RECORD = {"status": "done", "key": "k", "schema_version": 2}


@pytest.fixture(scope="module")
def shared_folder(tmp_path_factory):
    """A fine-tuned model with its evaluation in a run folder, exported."""
    run = tmp_path_factory.mktemp("run")
    bundle = tiny_models.make(run / "tune", "deit")
    config = {"kind": "finetune", "from": [], "data": [{"name": "imagenet-folder"}], "epochs": 2}
    write(run / "tune", {"stage": "tune", "kind": "finetune", "config": config, "seed": 3, "versions": {"vlcli": "0"}})
    found = {
        "stage": "test",
        "kind": "evaluate",
        "config": {"from": ["tune"], "split": "val"},
        "metrics": {"accuracy": 0.75},
    }
    write(run / "test", found)
    rows = [{"key": str(n), "correct": float(n % 4 > 0)} for n in range(40)]
    (run / "test" / "predictions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (run / "recipe.yaml").write_text("about: small\n")
    out = run / "hub-stage"
    out.mkdir()
    made = Hub(license="apache-2.0").export(bundle, out, Silent())
    assert made.files == {"hub": "hub"}
    return bundle, out / "hub"


def write(folder, values):
    folder.mkdir(exist_ok=True)
    (folder / "stage.json").write_text(json.dumps(RECORD | values))


def test_vlcli_loads_it_as_it_was(shared_folder):
    bundle, hub = shared_folder
    assert find_bundle(hub) == hub / "model"
    ours = vlcli.load(hub).module.state_dict()
    for name, value in bundle.module.state_dict().items():
        torch.testing.assert_close(ours[name], value, atol=0, rtol=0)
    assert (hub / "recipe.yaml").read_text() == "about: small\n"


def test_auto_model_loads_the_same_weights(shared_folder):
    from transformers import AutoModel, AutoModelForImageClassification

    bundle, hub = shared_folder
    pixels = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        wanted = bundle.model(pixels)
        found = AutoModelForImageClassification.from_pretrained(hub).eval()(pixel_values=pixels).logits
        hidden = AutoModel.from_pretrained(hub).eval()(pixel_values=pixels).last_hidden_state
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    assert hidden.shape == (2, 5, 16)
    assert load_file(hub / "model.safetensors")


def exported(folder, family):
    bundle = tiny_models.make(folder / "tune", family)
    write(folder / "tune", {"stage": "tune", "kind": "finetune", "config": {}, "versions": {}})
    (folder / "out").mkdir()
    return bundle, folder / "out/hub", Hub(license="mit").export(bundle, folder / "out", Silent())


def test_auto_model_loads_lxmert_with_the_same_states_and_answers(tmp_path):
    import transformers

    bundle, hub, made = exported(tmp_path, "lxmert")
    assert any("transformers loads it as LxmertForQuestionAnswering" in note for note in made.notes)
    batch = fake_batch(bundle.model.input_spec(), bundle.data_spec, 3)
    text, regions = batch.clean.text, batch.clean.images.regions
    text.ids = torch.randint(0, bundle.data_spec.vocab_size, text.ids.shape)
    regions.features, regions.boxes = torch.rand(regions.features.shape), torch.rand(regions.boxes.shape)
    step = bundle.module.step(batch)
    given = {"input_ids": text.ids, "attention_mask": text.mask.float()}
    given |= {"visual_feats": regions.features, "visual_pos": regions.boxes}
    with torch.no_grad():
        ours = step.fused()
        theirs = transformers.AutoModel.from_pretrained(hub).eval()(**given)
        answers = transformers.AutoModelForQuestionAnswering.from_pretrained(hub).eval()(**given)
        wanted = bundle.module.objectives["answering"].predict(step)["logits"]
    for found, same in (
        (theirs.pooled_output, ours.pooled),
        (theirs.language_output, ours.text.hidden),
        (theirs.vision_output, ours.image.hidden),
        (answers.question_answering_score, wanted),
    ):
        torch.testing.assert_close(found, same, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("family", "said"),
    [
        ("vilbert", "vlcli knows no class of transformers that equals ViLBERT"),
        ("uniter", "vlcli knows no class of transformers that equals UNITER"),
        ("lxmert-boxes", "transformers' LXMERT cannot express this model (other positions of objects)"),
    ],
)
def test_what_auto_model_cannot_load_says_why(tmp_path, monkeypatch, family, said):
    model, objectives = tiny_models.FAMILIES["lxmert"]
    boxes = {**model, "image_position": {"name": "box", "numbers": 7}}
    monkeypatch.setitem(tiny_models.FAMILIES, "lxmert-boxes", (boxes, objectives))
    _, hub, made = exported(tmp_path, family)
    assert any(note.startswith("AutoModel does not load it: ") and said in note for note in made.notes), made.notes
    assert find_bundle(hub) == hub / "model"
    assert "AutoModel" not in (hub / "README.md").read_text()


def test_parts_of_a_model_lie_in_folders_that_the_card_names(tmp_path, monkeypatch):
    import transformers

    monkeypatch.setitem(tiny_models.FAMILIES, "albef-plain", (tiny_models.FAMILIES["albef"][0], []))
    bundle, hub, made = exported(tmp_path, "albef-plain")
    for place, kind in (("text", "BertModel"), ("image", "ViTModel")):
        assert f"transformers loads {place} as {kind}" in made.notes
        assert type(transformers.AutoModel.from_pretrained(hub, subfolder=place)).__name__ == kind
    page = (hub / "README.md").read_text()
    code = page.split("```python\n")[1].split("```")[0].replace('"FOLDER"', repr(str(hub)))
    said: dict = {}
    exec(code, said)  # what the card shows works as it stands
    assert said["tokenizer"]("a red circle")["input_ids"] == bundle.tokenizer.encode("a red circle").ids
    assert said["processor"].size.height == 32
    assert vlcli.load(hub).model.dim == 16


def test_the_card_tells_data_scores_and_intervals(shared_folder):
    page = (shared_folder[1] / "README.md").read_text()
    front = yaml.safe_load(page.split("---\n")[1])
    assert front["license"] == "apache-2.0"
    assert front["library_name"] == "vlcli"
    assert front["datasets"] == ["imagenet-folder"]
    assert front["model-index"][0]["results"][0]["metrics"] == [{"type": "accuracy", "value": 0.75}]
    (row,) = [line for line in page.splitlines() if line.startswith("| test |")]
    assert "| val | accuracy | 0.75 | 0.5981 to 0.8581 |" in row, "Wilson's interval of 30 of 40"
    assert "seed 3" in page
    assert 'same = AutoModelForImageClassification.from_pretrained("FOLDER")' in page


def test_push_uploads_the_folder_by_the_hub_library(shared_folder, monkeypatch):
    import huggingface_hub

    seen = {}

    class Url(str):
        repo_id = "me/small"

    class Api:
        def create_repo(self, name, *, private, exist_ok):
            seen.update(name=name, private=private)
            return Url("https://hub.test/me/small")

        def upload_folder(self, *, repo_id, folder_path, commit_message):
            seen.update(repo=repo_id, folder=folder_path)

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    ended = CliRunner().invoke(app, ["push", str(shared_folder[1].parent), "small"])
    assert ended.exit_code == 0, ended.stderr
    assert ended.stdout.strip() == "https://hub.test/me/small"
    assert seen == {"name": "small", "private": True, "repo": "me/small", "folder": str(shared_folder[1])}


def test_what_cannot_be_pushed_ends_in_one_message(shared_folder, tmp_path, monkeypatch):
    import huggingface_hub

    class Api:
        def create_repo(self, *args, **options):
            raise ConnectionError("no route to host")

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    cases = [(shared_folder[1], "me/small", 1, "no route to host"), (tmp_path, "me/small", 5, "nothing to upload")]
    for folder, name, code, said in [*cases, (shared_folder[1], "a/b/c", 2, "no name of a repository")]:
        ended = CliRunner().invoke(app, ["push", str(folder), name])
        assert (ended.exit_code, said in ended.stderr) == (code, True), ended.stderr
        assert "Traceback" not in ended.stderr
