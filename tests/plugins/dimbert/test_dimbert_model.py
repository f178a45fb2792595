"""DiMBERT's sequence: against transformers' BERT, who sees whom, several pictures, decoding word by word."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_concepts import WORDY, causal_text, double, make_scene
from torch import nn
from vlcli_dimbert import UNITER, DiMBERT, to_vlp

from vlcli.errors import DataError
from vlcli.nn import Batch, ForwardPasses, Recorder, Text, View
from vlcli.nn.count import count_model
from vlcli.nn.mask import AttentionMask

torch.set_num_threads(1)
SIZES = {"hidden": 16, "heads": 2, "layers": 2, "dropout": 0.0}


def make(**options) -> DiMBERT:
    torch.manual_seed(0)
    return DiMBERT(WORDY, **{**SIZES, "init_std": 0.3, **options}).double().eval()


def fused(model, text, images, record=None):
    return model.fuse(model.embed_text(text), model.embed_image(images), record)


@pytest.mark.parametrize("causal", [False, True])
def test_without_dim_it_is_bert_with_a_mask_of_its_own(causal):
    """transformers' BERT, given the same vectors, places and a mask (B, T, T), is the oracle."""
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=97, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=40, type_vocab_size=2, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, layer_norm_eps=1e-5, attn_implementation="eager",
    )  # fmt: skip
    torch.manual_seed(1)
    bert = BertModel(config).double().eval()
    for parameter in bert.parameters():
        parameter.data.add_(0.2 * torch.randn_like(parameter))
    model = make(attention="standard", length=40)
    report: list[str] = []
    state = model.adapt(bert.state_dict(), report)
    missing = model.load_state_dict(state, strict=False)
    assert not missing.unexpected_keys
    assert {name.split(".")[0] for name in missing.missing_keys} == {"regions", "word_head"}
    assert report == ["segments.weight: 3 rows from rows [0, 0, 1] of 2"]
    text, images = causal_text(causal=causal), double(make_scene(rows=3))
    ours = fused(model, text, images)
    left, right = model.embed_text(text), model.embed_image(images)
    prefix = 1 + right.hidden.shape[1]
    layout = left.layout.cut(0, 1) + right.layout + left.layout.cut(1, 9)
    x = torch.cat([left.hidden[:, :1], right.hidden, left.hidden[:, 1:]], 1) - bert.embeddings.token_type_embeddings(
        torch.zeros_like(layout.index)  # ours hold their segment already; BERT adds row 0 to all
    )
    place = layout.index.clamp(min=0)
    x = x - bert.embeddings.position_embeddings(place) * (layout.index < 0)[..., None]  # regions have no place
    seen = layout.valid[:, None, :].expand(-1, len(layout), -1).clone()
    if causal:
        order = torch.arange(len(layout))
        allowed = (order[None] < prefix) | ((order[None] <= order[:, None]) & (order[:, None] >= prefix))
        seen &= allowed
    bias = torch.zeros(seen.shape, dtype=x.dtype).masked_fill(~seen, -1e9)[:, None]
    theirs = bert(inputs_embeds=x, attention_mask=bias, position_ids=place)
    hidden = theirs.last_hidden_state
    wanted = torch.cat([hidden[:, :1], hidden[:, prefix:]], 1)
    torch.testing.assert_close(ours.text.hidden[text.mask], wanted[text.mask], rtol=0, atol=1e-10)
    regions = images.regions.mask
    torch.testing.assert_close(ours.image.hidden[regions], hidden[:, 1:7][regions], rtol=0, atol=1e-10)
    torch.testing.assert_close(ours.pooled, theirs.pooler_output, rtol=0, atol=1e-10)


@settings(max_examples=25, deadline=None)
@given(prefix=st.integers(1, 7), words=st.integers(1, 7), modes=st.lists(st.booleans(), min_size=1, max_size=4))
def test_property_of_the_mask(prefix, words, modes):
    """No word sees a later one, the prefix sees no word, all see the prefix; a bidirectional row sees all."""
    total, flags = prefix + words, torch.tensor(modes)
    valid = torch.ones(len(modes), total, dtype=torch.bool)
    mask = AttentionMask(valid, causal=True, prefix=torch.where(flags, prefix, total))
    allowed = mask.allowed(total, total, torch.device("cpu"))
    assert allowed.shape == (len(modes), 1, total, total)  # one for all heads
    assert mask.allowed(total, total, torch.device("cpu")) is allowed  # built once
    for row, causal in zip(allowed[:, 0], modes, strict=True):
        assert row[:, :prefix].all()
        if not causal:
            assert row.all()
            continue
        assert not row[:prefix, prefix:].any()
        assert torch.equal(row[prefix:, prefix:], torch.ones(words, words).tril().bool())


@settings(max_examples=6, deadline=None)
@given(place=st.integers(1, 7), seed=st.integers(0, 50))
def test_what_comes_later_changes_nothing_before(place, seed):
    model = make()
    text, images = causal_text(length=9, seed=seed, causal=[True, True, False]), double(make_scene(seed=seed))
    ids = text.ids.clone()
    ids[:, place] = (ids[:, place] + 1 - 5) % 92 + 5
    one, two = fused(model, text, images), fused(model, replace(text, ids=ids), images)
    change = (one.text.hidden - two.text.hidden).abs().amax(-1)
    assert change[:2, :place].max() == 0
    assert (one.image.hidden - two.image.hidden)[:2].abs().max() == 0
    assert (one.image.extra["concepts"] - two.image.extra["concepts"])[:2].abs().max() == 0
    if text.mask[2, place]:
        assert change[2, 0] > 0  # [CLS] of a bidirectional row sees every word
    assert change[0, place] > 0


def test_attention_is_recorded_over_the_whole_sequence():
    record = Recorder()
    fused(make(), causal_text(), double(make_scene()), record)
    weights = record.attention["fuse.1"]
    model = make()
    model.output_hidden_states = (0, 2)
    states = fused(model, causal_text(), double(make_scene())).text
    assert torch.equal(states.layers[2], states.hidden)
    assert states.layers[0].shape == states.hidden.shape
    assert set(record.attention) == {"fuse.0", "fuse.1"}
    assert weights.shape == (3, 2, 9 + 6 + 1 + 6 + 1, 23)
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)))


def test_concepts_stand_by_rank_and_pictures_begin_anew():
    model = make()
    scene = double(make_scene())
    layout = model.embed_image(scene).layout
    lengths = [len(WORDY.concept_pieces[number]) for number in scene.concepts.ids[0].tolist()]
    ranks = [rank for rank, count in enumerate(lengths) for _ in range(count)]
    assert layout.index[0, 7:13].tolist() == ranks
    assert layout.index[0, 13] == 3  # the separator after three concepts
    assert layout.index[0, :6].tolist() == [-1] * 6  # regions have no place
    by_piece = make(rank="piece").embed_image(scene).layout
    assert by_piece.index[0, 7:14].tolist() == list(range(7))
    rows = torch.tensor([[0, 1], [1, 2], [2, 0]])
    view = View(causal_text(), scene, torch.arange(3), rows)
    step = ForwardPasses(model, Batch({"clean": view}, {}, ["a", "b", "c"], torch.zeros(3, dtype=torch.long)))
    story = step.fused("clean")
    assert story.image.hidden.shape == (3, 12, 16)
    assert story.image.layout.source[0].tolist() == [1] * 6 + [2] * 6
    assert story.pooled.shape == (3, 16)


def test_padding_changes_nothing():
    model, text, images = make(), causal_text(causal=[True, False, True]), double(make_scene())
    whole = fused(model, text, images)
    for row in range(3):
        one = torch.tensor([row])
        kept = text.select(one)
        size = int(text.mask[row].sum())
        short = kept.map(lambda t, n=size: t[:, :n] if t.dim() == 2 else t)
        picture = images.select(one)
        count = int(picture.regions.mask.sum())
        picture.regions = picture.regions.map(lambda t, n=count: t[:, :n] if t.shape[1] == 6 else t)
        alone = fused(model, short, picture)
        torch.testing.assert_close(whole.text.hidden[row, :size], alone.text.hidden[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"attention": "standard", "regions": "vlp", "segments": "modes", "position_ids": "running"},
        {"specials": "own", "rank": "piece", "weighted": True, "appearance": "linear"},
        {"concepts": 0, "attention": {"name": "disentangled", "sets": [0, 1]}},
    ],
    ids=["paper", "vlp", "others", "without concepts"],
)
def test_decoding_word_by_word_is_the_whole_sequence(options):
    model = make(**options)
    image = model.embed_image(double(make_scene()))
    cache, ids = model.start(image), torch.full((3,), WORDY.cls_id)
    words = torch.full((3, 1), WORDY.cls_id)
    for turn in range(5):
        before = cache
        scores, cache = model.step(ids, cache)
        torch.testing.assert_close(model.step(ids, before)[0], scores)  # what was handed in stays
        torch.testing.assert_close(scores, afresh(model, image, words), rtol=0, atol=1e-10)
        ids = scores.argsort(-1)[:, -1 - turn % 2]
        words = torch.cat([words, ids[:, None]], 1)
        if turn == 2:
            rows = torch.tensor([2, 0, 0, 1])
            cache, ids, words, image = cache.select(rows), ids[rows], words[rows], image.select(rows)
    assert len(cache) == 4


def afresh(model: DiMBERT, image, words: torch.Tensor) -> torch.Tensor:
    """Scores of the word after ``words``, by one pass over the whole sequence with a mask at its end."""
    ids = torch.cat([words, torch.full_like(words[:, :1], WORDY.mask_id)], 1)
    real = torch.ones_like(ids, dtype=torch.bool)
    text = Text(ids, real, ids == WORDY.cls_id, torch.zeros_like(ids), causal=real[:, 0])
    return model.word_scores(model.fuse(model.embed_text(text), image).text.hidden[:, -1])


def test_decoding_goes_on_from_a_text():
    model = make()
    image = model.embed_image(double(make_scene()))
    text = causal_text()
    scores, _ = model.step(torch.full((3,), WORDY.cls_id), model.start(image, text))
    for row in range(3):
        words = text.ids[row][text.mask[row] & ~text.special[row]]
        known = torch.cat([torch.tensor([WORDY.cls_id]), words])[None]
        wanted = afresh(model, image.select(torch.tensor([row])), known)
        torch.testing.assert_close(scores[row], wanted[0], rtol=0, atol=1e-10)


def test_weights_travel_by_vlps_names():
    model = make(attention="standard", regions="vlp", segments="modes")
    state = {name: value.clone() for name, value in model.state_dict().items()}
    public = to_vlp(state)
    assert "bert.encoder.layer.1.attention.self.query.weight" in public
    assert {"vis_embed.0.weight", "vis_embed.2.bias", "vis_pe_embed.0.weight", "cls.predictions.bias"} <= set(public)
    fresh = make(attention="standard", regions="vlp", segments="modes", init_std=0.1)
    back = fresh.adapt({f"module.{name}": value for name, value in public.items()}, [])
    assert set(back) == set(state)
    assert all(torch.equal(back[name], value) for name, value in state.items())


def test_unilm_files_fit():
    model = make(segments="modes", attention={"name": "disentangled", "sets": [0, 1, 2]})
    plain = to_vlp(make(attention="standard", segments="modes").state_dict())
    name = "bert.encoder.layer.0.attention.self.query.weight"
    plain[name] = torch.cat([plain[name], plain[name] + 1, plain[name] + 2])
    head = "cls.predictions.transform.dense.weight"
    plain[head] = torch.cat([plain[head] + number for number in range(4)])
    plain["bert.embeddings.position_embeddings.weight"] = torch.randn(600, 16)
    plain["crit_mask_lm_smoothed.one_hot"] = torch.zeros(3)
    report: list[str] = []
    made = model.adapt(plain, report)
    first = made["stack.layers.0.self_attention.attention.query.weight"]
    torch.testing.assert_close(made["stack.layers.0.self_attention.attention.others.1.query.weight"], first + 2)
    torch.testing.assert_close(made["word_head.transform.dense.weight"], plain[head][-16:])
    assert made["places.weight"].shape == (512, 16)
    assert len(report) == 3
    assert not any("crit" in name for name in made)


def test_fc7_of_a_detector_starts_the_appearance():
    model = make()
    weight = torch.randn(16, 16)
    for name in ("fc7_w", "roi_heads.box_head.fc7.weight", "fc7.weight"):
        assert torch.equal(model.adapt({name: weight}, [])["regions.appearance.0.weight"], weight)
    assert "regions.appearance.0.bias" in model.adapt({"fc7_b": weight[0]}, [])


def test_bert_rows_become_six_segments():
    model, table = make(segments="modes"), torch.randn(2, 16)
    made = model.adapt({"bert.embeddings.token_type_embeddings.weight": table}, [])["segments.weight"]
    assert torch.equal(made, table[[0, 1, 0, 0, 0, 1]])
    assert torch.equal(UNITER(WORDY, **SIZES).adapt({"uniter.embeddings.token_type_embeddings.weight": table}, [])[
        "segments.weight"
    ], table[[1, 1, 0]])  # fmt: skip


def test_what_is_lacking_is_said():
    model, images = make(), double(make_scene())
    images.concepts = None
    with pytest.raises(DataError, match="visual concepts"):
        model.embed_image(images)
    images.regions = None
    with pytest.raises(DataError, match="region features"):
        model.embed_image(images)
    with pytest.raises(DataError, match="longer than the position table"):
        fused(make(length=5), causal_text(), double(make_scene()))


def test_class_columns_with_and_without_background():
    torch.manual_seed(0)
    for regions in ("paper", "vlp"):
        fewer = DiMBERT(replace(WORDY, region_classes=1600), **SIZES, regions=regions, init_std=0.02)
        more = DiMBERT(replace(WORDY, region_classes=1601), **SIZES, regions=regions, init_std=0.02)
        more.load_state_dict(fewer.state_dict())
        images = make_scene()
        probs = torch.rand(3, 6, 1601).softmax(-1)
        images.regions.class_probs = probs
        wanted = more.embed_image(images).hidden
        images.regions.class_probs = probs[..., 1:]
        torch.testing.assert_close(fewer.embed_image(images).hidden, wanted, rtol=1e-4, atol=1e-5)


def test_counting_and_depths():
    model = DiMBERT(WORDY, **SIZES)
    counted = count_model(model, data_spec=WORDY)
    assert counted["macs"]["fuse"] > 0
    assert counted["macs"]["word"] == 16 * 16 + 16 * 97
    depth = {name: model.layer_of(name) for name, _ in model.named_parameters()}
    assert depth["words.weight"] == depth["regions.place.weight"] == 0
    assert depth["stack.layers.1.feed_forward.inner.weight"] == 2
    assert depth["word_head.bias"] == 3
    assert isinstance(model.word_table(), nn.Embedding)
