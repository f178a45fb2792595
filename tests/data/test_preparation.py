"""Sentences prepared as published models prepare them: strings and ids of sentences written for this test.

The wanted strings are what the released code of ALBEF and LAVIS gives for them.
"""

from __future__ import annotations

import json
from pathlib import Path

import packaged
import pytest
from small_run import LXMERT, NLVR2_OBJECTIVES, context, make_bundle

from vlcli.builders.training import choose
from vlcli.data.preparation import PREPARATIONS, preparation
from vlcli.data.vocabulary import Tokenizer
from vlcli.engine.bundle import load_bundle, read_bundle
from vlcli.errors import RecipeError
from vlcli.recipe.load import load

LONG = " ".join(f"w{n}" for n in range(40))


@pytest.mark.parametrize(("name", "sentence", "wanted"), [
    ("albef-caption", "A red-hot dog, isn't it?  (Yes!)\n", "a red hot dog isnt it yes"),
    ("albef-caption", "<PERSON> and <person>/cat - x ", "person and person cat x"),
    ("albef-caption", "say \"this\" & that; ~5:30 #1 * end.", "say this & that 530 1 end"),
    ("albef-caption", "...", ""), ("albef-caption", LONG, " ".join(LONG.split()[:30])),
    ("albef-question", "What's  the man's left-hand thing?", "whats  the mans left hand thing"),
    ("albef-question", " Is it <person>? ", " is it <person>"), ("albef-question", "a - b", "a   b"),
    ("albef-question", "a  " * 20, ("a  " * 15)[:-1]), ("albef-question", "what?\n", "what\n"),
    ("blip-caption", "A red-hot dog, isn't it?  (Yes!)\n", "a red-hot dog, isn't it? yes"),
    ("blip-question", "What's 5:30 (left-hand)? ", "what's 530 left-hand?"),
    ("blip-question", LONG + " " + LONG, " ".join((LONG + " " + LONG).split()[:50])),
    ("as-written", "  As it IS - written!\n", "  As it IS - written!\n"),
])  # fmt: skip
def test_sentences_come_out_as_the_released_code_leaves_them(name: str, sentence: str, wanted: str) -> None:
    assert PREPARATIONS[name](sentence) == wanted


def test_another_number_of_words() -> None:
    assert preparation("as-written", 3)("One two  three") == "One two "
    assert preparation("albef-caption", 2)("One, two, three") == "one two"


def tokenizer() -> Tokenizer:
    return Tokenizer.train(["a red hot dog isnt it , - . ' ? !"], 60)


def test_ids_with_and_without_an_end() -> None:
    plain = tokenizer()
    ids = {word: plain.id(word) for word in ("a", "red", "hot", "dog", "[CLS]", "[SEP]", "-", ".")}
    albef = plain.reading({"prepare": "albef-caption", "end": "none"})
    found = albef.encode("A red-hot dog.", "key")
    assert found.ids == [ids[word] for word in ("[CLS]", "a", "red", "hot", "dog")]
    assert (found.special, found.words) == ([True, *[False] * 4], [-1, 0, 1, 2, 3])
    assert (found.key, found.raw) == ("key", "a red hot dog")
    assert albef.encode("A red-hot dog.", length=3).ids == found.ids[:3]
    assert albef.encode("A red-hot dog.").key == "A red-hot dog."
    assert albef.encode("...").ids == [ids["[CLS]"]]
    whole = plain.encode("A red-hot dog.")
    assert whole.ids == [ids[word] for word in ("[CLS]", "a", "red", "-", "hot", "dog", ".", "[SEP]")]
    assert plain.reading({"length": 20, "lowercase": True}).encode("A red-hot dog.").ids == whole.ids
    assert albef.encode_answer("A red-hot dog.").ids == whole.ids, "what a decoder says always ends"


def test_bundles_keep_how_sentences_are_read_and_old_ones_read_as_before(tmp_path: Path) -> None:
    folder = make_bundle(tmp_path / "old", {"name": "nlvr2"}, NLVR2_OBJECTIVES)
    assert read_bundle(folder).tokenizer.encode("A circle.").ids[-1] == read_bundle(folder).tokenizer.ids["sep"]
    file = folder / "model" / "config.json"
    config = json.loads(file.read_text())
    config["text"] |= {"prepare": "albef-caption", "words": None, "end": "none"}
    file.write_text(json.dumps(config))
    assert load_bundle(folder).tokenizer.encode("A circle.").raw == "a circle"
    stage = context(tmp_path / "next", tmp_path, {"old": folder}, kind="finetune", task="nlvr2", **{"from": "old"})
    text = choose(stage).resolved.text
    assert (text.prepare, text.end, text.length) == ("albef-caption", "none", 10)


def test_captions_without_an_end_are_refused(tmp_path: Path) -> None:
    given = {
        "kind": "finetune",
        "task": "captioning",
        "model": LXMERT,
        "text": {"end": "none"},
        "data": ["coco-captions"],
    }
    with pytest.raises(RecipeError, match="never end"):
        choose(context(tmp_path / "said", tmp_path, {}, **given))


@pytest.mark.parametrize("name", [n for n in packaged.recipes("ace-rpe") if "photos" not in n])
def test_every_recipe_of_albef_reads_as_albef(name: str) -> None:
    recipe = load(name).recipe
    for stage, config in recipe.stages.items():
        if config.kind in ("pretrain", "finetune"):
            text = config.text or recipe.text
            assert (text.prepare, text.end) == ("albef-question" if stage == "vqa" else "albef-caption", "none"), stage
            assert config.precision == "float32"
