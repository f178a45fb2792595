"""Masking by role and by phrase, and captions rewritten for matching: from a recipe's words to what a batch holds."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_batches import SMALL
from vlcli_dimbert.language import CaptionModelling
from vlcli_lxmert import LXMERT

from tests.spawned import as_in_a_worker
from vlcli import registry
from vlcli.data import Example, Reader
from vlcli.data.pipeline import Pipeline
from vlcli.data.sample import ImageSample, Sample, generator
from vlcli.data.vocabulary import Tokenizer
from vlcli.errors import ComponentError
from vlcli.nn import ForwardPasses
from vlcli.nn.model import DataSpec, InputSpec
from vlcli.objectives.matching import CHANGE, SwapSentence
from vlcli.objectives.matching import MARK as MATCHED
from vlcli.objectives.mlm import MARK

torch.set_num_threads(1)
VOCABULARY = "a red blue small circle square is left right of above to the two dogs on table unbelievably"
WORDS = VOCABULARY.split()
TOKENIZER = Tokenizer.train(WORDS[:-1], 70)
DATA_SPEC = DataSpec(text_length=20, **TOKENIZER.data_spec_fields())
SIZES = {"hidden": 16, "heads": 2, "text_layers": 1, "image_layers": 1, "cross_layers": 1}
texts = st.lists(st.sampled_from([*WORDS, "square,"]), min_size=1, max_size=10).map(" ".join)


def model(data_spec=DATA_SPEC):
    torch.manual_seed(0)
    return LXMERT(data_spec, **SIZES)


def masker(**options):
    made = registry.build("objectives", {"name": "mlm", **options}, model(), DATA_SPEC).corruption()
    made.ready(TOKENIZER, 20)
    return made


def sample(text):
    return Sample("k", TOKENIZER.encode(text, length=20), [ImageSample("i", (8, 8))], {})


def hidden(corruption, text, seed=0):
    """The words hidden of a sentence."""
    one = sample(text)
    before = copy.deepcopy(one.text)
    corruption(one, generator(seed, 0, "k", corruption.name), None)
    marks = one.mask_labels.text[MARK]
    assert [new if mark == -1 else mark for new, mark in zip(one.text.ids, marks, strict=True)] == before.ids
    assert all(mark == -1 for mark, special in zip(marks, before.special, strict=True) if special)
    places = [word for word, mark in zip(before.words, marks, strict=True) if mark != -1]
    return [text.split()[word] for word in dict.fromkeys(places)]


RELATION = masker(roles=["place"], probability=0.3)


def test_words_of_a_role_are_hidden_and_others_stay():
    text = "a red circle is to the left of a blue square"
    assert {tuple(hidden(RELATION, text, seed)) for seed in range(20)} == {("left",)}
    phrase = masker(roles=["place"], phrase=True)
    assert hidden(phrase, text) == ["to", "the", "left", "of"]
    colours = masker(roles=["attribute"], probability=0.1)
    found = [hidden(colours, text, seed) for seed in range(60)]
    assert {word for words in found for word in words} == {"red", "blue"}
    assert all(found)
    assert len([words for words in found if len(words) == 2]) < 10
    own = masker(roles=["number", {"name": "words", "words": ["circle"], "patterns": ["s[a-z]+e"]}], probability=1)
    assert hidden(own, text) == ["circle", "square"]


def test_a_sentence_without_such_words_is_masked_as_any():
    seen = {word for seed in range(80) for word in hidden(RELATION, "two dogs on a table", seed)}
    assert seen == {"two", "dogs", "on", "a", "table"}


def test_a_share_of_sentences():
    text = "a red circle is left of a blue square"
    half = masker(roles=["place"], role_share=0.5, probability=0.15)
    alone = sum(hidden(half, text, seed) == ["left"] for seed in range(400)) / 400
    assert 0.45 < alone < 0.65
    never = masker(roles=["place"], role_share=0.0, probability=1)
    assert len(hidden(never, text)) > 4


def test_phrases_without_roles_are_hidden_whole():
    whole = masker(phrase=True, probability=0.4)
    for seed in range(40):
        words = hidden(whole, "a small red circle is to the left of two dogs", seed)
        for phrase in (["a", "small", "red", "circle"], ["to", "the", "left", "of"], ["two", "dogs"]):
            assert len(set(phrase) & set(words)) in (0, len(phrase))


@settings(max_examples=120, deadline=None)
@given(texts, st.integers(0, 999), st.sampled_from([0.15, 1.0]), st.booleans(), st.sampled_from(["bernoulli", "count"]))
def test_by_role_something_is_hidden_and_something_stays(text, seed, probability, phrase, rule):
    corruption = masker(roles=["place", "attribute"], probability=probability, phrase=phrase, rule=rule)
    words = hidden(corruption, text, seed)
    assert words == hidden(as_in_a_worker(corruption), text, seed)
    groups = corruption.picker.groups(sample(text).text)[0]
    pieces = len(sample(text).text.ids) - 2
    if groups and not (len(groups) == 1 and len(groups[0]) == pieces):
        one = sample(text)
        corruption(one, generator(seed, 0, "k", "mlm"), None)
        count = sum(mark != -1 for mark in one.mask_labels.text[MARK])
        assert 0 < count < pieces


def test_other_objectives_mask_by_role_too():
    text = "a red circle is left of a blue square"
    for name, made in (("distilled-mlm", None), ("blm-s2slm", CaptionModelling)):
        options = {"name": name, "roles": ["place"], "probability": 0.15}
        sizes = {"hidden": 24, "heads": 2, "layers": 2, "intermediate": 32}
        kind = {"name": "dimbert", **sizes} if made else {"name": "lxmert", **SIZES}
        data_spec = DataSpec(text_length=20, regions=4, region_dim=6, region_classes=3, **TOKENIZER.data_spec_fields())
        corruption = registry.build(
            "objectives", options, registry.build("models", kind, data_spec), data_spec
        ).corruption()
        corruption.ready(TOKENIZER, 20)
        assert hidden(corruption, text) == ["left"]


def swap(text, seed=0, foils=1.0, rewrites=("turned-relation", "other-attribute"), other="two dogs"):
    options = {"name": "matching", "probability": 1.0, "foils": foils, "rewrites": list(rewrites)}
    objective = registry.build("objectives", options, model(), DATA_SPEC)
    corruption = objective.corruption()
    corruption.ready(TOKENIZER, 20)
    one, donor = sample(text), sample(other)
    donor.images = [ImageSample("j", (8, 8))]
    corruption(one, generator(seed, 0, "k", "matching"), lambda: donor)
    return one


def test_captions_are_rewritten_and_marked_by_what_was_done():
    text = "a red circle is left of a blue square"
    made = [swap(text, seed) for seed in range(60)]
    kinds = {one.mask_labels.example[CHANGE] for one in made}
    assert kinds == {2, 3}
    for one in made:
        assert one.mask_labels.example[MATCHED] == 0
        assert ("right of" in one.text.raw) == (one.mask_labels.example[CHANGE] == 2)
        assert one.text.ids == TOKENIZER.encode(one.text.raw, length=20).ids != TOKENIZER.encode(text, length=20).ids
        assert one.text.key != text


def test_where_nothing_can_be_changed_another_pictures_caption_is_taken():
    one = swap("a table")
    assert (one.text.raw, one.mask_labels.example[CHANGE], one.mask_labels.example[MATCHED]) == ("two dogs", 1, 0)
    assert swap("a circle is above a square", foils=0.0).mask_labels.example[CHANGE] == 1
    alone = swap("a table", other="a table")
    assert (alone.text.raw, alone.mask_labels.example[CHANGE], alone.mask_labels.example[MATCHED]) == ("a table", 0, 1)


def test_a_change_behind_the_longest_length_is_none():
    text = "a a a a a a a a a a a a a a a a a a a a a circle is above a square"
    assert swap(text, rewrites=("turned-relation",)).mask_labels.example[CHANGE] == 1


def test_without_rewrites_nothing_is_marked():
    one = sample("a red circle")
    SwapSentence(0.0, 0.0, "corrupted")(one, generator(0, 0, "k", "matching"), None)
    assert CHANGE not in one.mask_labels.example


def test_what_was_done_is_counted_by_kind():
    from tiny_batches import make_batch

    objective = registry.build(
        "objectives", {"name": "matching", "rewrites": ["other-number", "other-number"]}, model(SMALL), SMALL
    )
    batch = make_batch(rows=4)
    marks = batch.views["corrupted"].mask_labels
    marks[MATCHED], marks[CHANGE] = torch.tensor([1, 0, 0, 0]), torch.tensor([0, 1, 3, 3])
    found = objective(ForwardPasses(objective_model(), batch), {}).metrics
    shares = {name: mean.value().item() for name, mean in found.items() if name.startswith("share/")}
    assert shares == {"share/other-picture": 0.25, "share/other-number-1": 0.0, "share/other-number-2": 0.5}
    assert found["right/other-number-2"].count == 2
    assert found["right/other-number-1"].count == 0


def objective_model():
    return model(SMALL).eval()


@pytest.mark.parametrize(
    "wrong", [{"roles": ["nope"]}, {"roles": [{"name": "words"}]}, {"role_share": 1.5, "roles": ["place"]}]
)
def test_wrong_options_are_refused(wrong):
    with pytest.raises(ComponentError):
        registry.build("objectives", {"name": "mlm", **wrong}, model(), DATA_SPEC)


class Said(Reader):
    """Sentences without pictures."""

    def files(self):
        return []

    def read(self):
        rng = np.random.default_rng(2)
        return [Example(f"e{number}", " ".join(rng.choice(WORDS, 7)), []) for number in range(60)]


def test_what_is_drawn_depends_on_no_worker_and_no_resume(tmp_path):
    words = registry.build("objectives", {"name": "mlm", "roles": ["place"], "phrase": True}, model(), DATA_SPEC)
    rewrites = ["other-attribute", "swapped-names", {"name": "turned-relation", "opposites": [("on", "off")]}]
    match = registry.build("objectives", {"name": "matching", "foils": 0.7, "rewrites": rewrites}, model(), DATA_SPEC)

    data = Pipeline(
        [Said(tmp_path)],
        needs=InputSpec(text=True),
        tokenizer=TOKENIZER,
        data_spec=DATA_SPEC,
        corruptions=[words.corruption(), match.corruption()],
        seed=4,
    )

    def seen(batches):
        views = [batch.views["corrupted"] for batch in batches]
        return [
            (view.text.ids.tolist(), {name: mark.tolist() for name, mark in view.mask_labels.items()}) for view in views
        ]

    alone = seen(data.loader(16, shuffle=True, epoch=1))
    assert seen(data.loader(16, shuffle=True, epoch=1, workers=2)) == alone
    assert seen(data.loader(16, shuffle=True, epoch=1, start_batch=2)) == alone[2:]
    assert seen(as_in_a_worker(data).loader(16, shuffle=True, epoch=1)) == alone
    changes = [change for _, marks in alone for change in marks[CHANGE]]
    assert {0, 2, 4} <= set(changes)
