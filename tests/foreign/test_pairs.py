"""Scores of pairs and likelihoods of sentences are those of transformers itself, on random weights."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pair_folders
import pytest
import torch
from PIL import Image

from vlcli.errors import ComponentError, DataError
from vlcli.foreign.pairs import PairScorer, log_likelihoods

TEXTS = ["a red circle", "the blue square is left of a green triangle", "a red circle", "circle"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("folders")
    return {kind: (root / kind, pair_folders.folder(kind, root / kind)) for kind in (*pair_folders.KINDS, "gpt2")}


def opened(place: Path) -> dict[str, Image.Image]:
    return {file.stem: Image.open(file).convert("RGB") for file in pair_folders.pictures(place, 3)}


def of_transformers(kind: str, model: Any, parts: Any, text: str, picture: Image.Image) -> float:
    # one pair at a time, as the documentation of transformers calls each model
    pixels = parts["images"](images=picture, return_tensors="pt")["pixel_values"]
    padding = {"padding": "max_length", "max_length": 12} if kind == "siglip" else {}
    words = parts["words"]([text], return_tensors="pt", **padding)
    fed = {name: words[name] for name in parts["words"].model_input_names}
    with torch.no_grad():
        if kind == "blip":
            none, match = model(pixel_values=pixels, **fed).itm_score[0].tolist()
            return match - none
        return float(model(pixel_values=pixels, **fed).logits_per_image)


@pytest.mark.parametrize("kind", pair_folders.KINDS)
def test_scores_are_those_of_transformers(folders, tmp_path, kind):
    place, (model, parts) = folders[kind]
    pictures = opened(tmp_path)
    names = ["0", "1", "2", "0"]
    wanted = [of_transformers(kind, model, parts, t, pictures[n]) for t, n in zip(TEXTS, names, strict=True)]
    assert len({round(value, 5) for value in wanted}) == 4
    assert PairScorer(place)(TEXTS, names, pictures) == pytest.approx(wanted, abs=1e-4)


def test_likelihoods_are_those_of_transformers(folders):
    place, (model, tokenizer) = folders["gpt2"]
    wanted = []
    for text in TEXTS:
        ids = torch.tensor([tokenizer(text)["input_ids"]])
        with torch.no_grad():
            wanted.append(-float(model(ids, labels=ids).loss) * (ids.shape[1] - 1))  # the loss is a mean
    assert log_likelihoods(place, TEXTS) == pytest.approx(wanted, abs=1e-4)
    assert all(math.isfinite(value) and value < 0 for value in wanted)


def test_a_model_that_scores_no_pairs_is_refused(folders):
    with pytest.raises(ComponentError, match="scores no pairs") as refused:
        PairScorer(folders["gpt2"][0])
    assert refused.value.got == "model_type gpt2"


@pytest.mark.parametrize("kind", pair_folders.KINDS)
@pytest.mark.parametrize("lost", ["model.safetensors", "tokenizer.json", "preprocessor_config.json", "config.json"])
def test_a_folder_that_lacks_a_file_is_told(tmp_path, kind, lost):
    pair_folders.folder(kind, tmp_path / kind)
    for file in (tmp_path / kind).glob(f"{lost.partition('.')[0]}*"):
        file.unlink()
    with pytest.raises(DataError) as refused:
        PairScorer(tmp_path / kind)
    assert str(tmp_path / kind) in refused.value.where


def test_weights_that_lack_the_matching_head_are_told(tmp_path):
    import transformers

    model, _ = pair_folders.folder("blip", tmp_path / "blip")
    transformers.BlipModel(model.config).save_pretrained(tmp_path / "blip")
    with pytest.raises(DataError, match="do not fit its configuration") as refused:
        PairScorer(tmp_path / "blip")
    assert "missing" in refused.value.got


def test_a_language_model_that_looks_ahead_is_refused(tmp_path):
    import transformers

    _, tokenizer = pair_folders.folder("gpt2", tmp_path / "bert")
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    torch.manual_seed(0)
    model = transformers.BertLMHeadModel(transformers.BertConfig(vocab_size=20, **small))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    model.save_pretrained(tmp_path / "bert")
    tokenizer.save_pretrained(tmp_path / "bert")
    assert json.loads((tmp_path / "bert" / "config.json").read_text())["model_type"] == "bert"
    with pytest.raises(ComponentError, match="sees the words"):
        log_likelihoods(tmp_path / "bert", ["a circle"])


def test_a_folder_that_does_not_exist_is_told(tmp_path):
    with pytest.raises(DataError, match="has no weights") as refused:
        log_likelihoods(tmp_path / "none", ["a circle"])
    assert refused.value.got == "no such folder"
