"""Classification, answering, hard matching, blanks and answer rows, on a small LXMERT."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tiny_batches import SMALL, make_batch

from vlcli import registry
from vlcli.errors import ComponentError, DataError
from vlcli.nn.batch import Batch, View
from vlcli.nn.forward_passes import ForwardPasses
from vlcli.objectives.answers import AnswerTable, decode, encode
from vlcli.objectives.blanking import blank, seen

DATA_SPEC = replace(SMALL, answers=("cat", "dog", "no", "yes"))
LXMERT = {"name": "lxmert", "hidden": 16, "heads": 2, "text_layers": 1, "image_layers": 1, "cross_layers": 1}


@pytest.fixture
def model():
    torch.manual_seed(0)
    return registry.build("models", LXMERT, DATA_SPEC).eval()


def make(model, name: str, **options):
    torch.manual_seed(1)
    return registry.build("objectives", {"name": name, **options}, model, DATA_SPEC).eval()


def with_targets(batch: Batch, **targets) -> Batch:
    return replace(batch, targets=targets)


def two_pictures() -> Batch:
    batch = make_batch(rows=4)
    view = batch.clean
    rows = torch.tensor([[0, 1], [1, 2], [2, 3], [3, 0]])
    clean = View(view.text, view.images, view.text_rows, rows)
    return replace(batch, views={"clean": clean}, targets={"label": torch.tensor([1, 0, 1, 1])})


def test_two_pictures_are_read_in_their_order(model):
    objective, batch = make(model, "classification", classes=2, images=2), two_pictures()
    logits = objective.predict(ForwardPasses(model, batch))["logits"]
    assert logits.shape == (4, 2)
    swapped = replace(batch.clean, image_rows=batch.clean.image_rows.flip(1))
    other = objective.predict(ForwardPasses(model, replace(batch, views={"clean": swapped})))["logits"]
    assert not torch.allclose(logits, other, atol=1e-6)


def test_one_sigmoid_is_the_binary_cross_entropy_of_its_score(model):
    objective, batch = make(model, "classification", classes=2, images=2, sigmoid=True), two_pictures()
    step = ForwardPasses(model, batch)
    score = objective.head(step.fused("clean").by_example())
    assert score.shape == (4, 1)
    wanted = torch.nn.functional.binary_cross_entropy_with_logits(score[:, 0], batch.targets["label"].float())
    torch.testing.assert_close(objective(step, {}).losses["classification"].value(), wanted)
    logits = objective.predict(step)["logits"]
    torch.testing.assert_close(logits.softmax(-1)[:, 1], score.sigmoid()[:, 0])
    with pytest.raises(ComponentError, match="tells two labels apart"):
        make(model, "classification", classes=3, sigmoid=True)


def test_unlabelled_examples_count_for_nothing(model):
    objective = make(model, "classification")
    batch = with_targets(make_batch(), label=["dog", None, "yes"])
    loss = objective(ForwardPasses(model, batch), {}).losses["classification"]
    assert loss.count == 2
    logits = objective.predict(ForwardPasses(model, batch))["logits"]
    wanted = torch.nn.functional.cross_entropy(logits[[0, 2]], torch.tensor([1, 3]))
    torch.testing.assert_close(loss.value(), wanted)


def test_labels_by_number_and_by_word_are_the_same(model):
    objective = make(model, "classification")
    words = objective.table.ids(["cat", "yes", None], 3)
    numbers = objective.table.ids([0, 3, None], 3)
    assert words.tolist() == numbers.tolist() == [0, 3, -1]


def test_a_label_outside_the_classes_is_named(model):
    with pytest.raises(DataError, match="none of the classes") as met:
        make(model, "classification").table.ids(["horse"], 1)
    assert "horse" in str(met.value)
    with pytest.raises(DataError, match="none of the classes"):
        make(model, "classification", classes=2).table.ids(torch.tensor([5]), 1)


def test_a_head_needs_classes(model):
    with pytest.raises(ComponentError, match="number of labels"):
        registry.build("objectives", "classification", model, SMALL)
    with pytest.raises(ComponentError, match="no answer"):
        registry.build("objectives", "answering", model, SMALL)


def test_language_only_sees_no_picture_and_images_only_no_text(model):
    batch = two_pictures()
    other = make_batch(rows=4, seed=7)
    for only, changed in (("text", {"images": other.clean.images}), ("images", {"text": other.clean.text})):
        objective = make(model, "classification", classes=2, images=2, only=only)
        replaced = replace(batch, views={"clean": replace(batch.clean, **changed)})
        ours = objective.predict(ForwardPasses(model, batch))["logits"]
        assert torch.equal(ours, objective.predict(ForwardPasses(model, replaced))["logits"])
        free = make(model, "classification", classes=2, images=2)
        assert not torch.equal(
            free.predict(ForwardPasses(model, batch))["logits"], free.predict(ForwardPasses(model, replaced))["logits"]
        )


def test_a_blank_is_one_row_and_made_once():
    batch = two_pictures()
    step = ForwardPasses(None, batch)
    name = seen(step, "clean", "text")
    assert seen(step, "clean", "text") == name
    assert len(batch.views[name].images) == 1
    assert batch.views[name].images.regions.features.abs().sum() == 0
    assert seen(step, "clean", "both") == "clean"
    texts = blank(batch.clean, "images").text
    assert texts.ids.tolist() == [[SMALL.cls_id, SMALL.sep_id]]


def test_answering_is_the_published_loss_over_questions_only(model):
    objective = make(model, "answering")
    answers = [{"yes": 1.0, "maybe": 0.3}, None, {"dog": 0.6, "cat": 0.9}]
    batch = with_targets(make_batch(), answers=answers)
    outcome = objective(ForwardPasses(model, batch), {})
    logits = objective.predict(ForwardPasses(model, batch))["logits"][[0, 2]]
    target = torch.tensor([[0, 0, 0, 1.0], [0.9, 0.6, 0, 0]])
    wanted = torch.nn.functional.binary_cross_entropy_with_logits(logits, target) * 4
    torch.testing.assert_close(outcome.losses["answering"].value(), wanted)


def test_answers_of_replaced_sentences_are_left_out(model):
    batch = with_targets(make_batch(), answers=[{"yes": 1.0}, {"no": 1.0}, {"cat": 1.0}])
    outcome = make(model, "answering", view="corrupted", loss="ce")(ForwardPasses(model, batch), {})
    assert outcome.losses["answering"].count == 2  # rows 0 and 2 keep their own sentence


def test_no_question_in_a_batch_is_a_loss_of_zero_with_gradient(model):
    outcome = make(model, "answering")(ForwardPasses(model, with_targets(make_batch())), {})
    loss = outcome.losses["answering"]
    assert loss.count == 0
    loss.value().backward()
    assert loss.value().item() == 0


def test_sampled_answers_follow_the_scores_and_the_seed(model):
    objective = make(model, "answering", loss="ce", sample=True)
    target, seeds = torch.tensor([[0.0, 0.9, 0.0, 0.3]]).repeat(400, 1), torch.arange(400)
    drawn = objective._draw(target, seeds)
    assert torch.equal(drawn, objective._draw(target, seeds))
    share = (drawn == 1).float().mean()
    assert set(drawn.tolist()) == {1, 3}
    assert 0.68 < share < 0.82


def test_answer_rows_move_by_string(model):
    old = make(model, "answering").state_dict()
    data_spec = replace(DATA_SPEC, answers=("yes", "zebra", "cat"))
    new = registry.build("objectives", "answering", model, data_spec)
    report: list[str] = []
    moved = new.adapt(dict(old), report)
    name = next(n for n in moved if n.endswith("weight") and moved[n].shape[0] == 3)
    assert torch.equal(moved[name][0], old[name][3])
    assert torch.equal(moved[name][2], old[name][0])
    assert not moved[name][1].any()
    new.load_state_dict(moved)
    assert report == ["answer rows moved by string: 2 of 3 known (of 4), 1 set to zero"]


@pytest.mark.parametrize("answers", [(), ("",), ("yes", "", "ja\u0308", "\u4e2d")])
def test_answer_tables_survive_a_checkpoint(answers):
    assert decode(encode(answers)) == answers
    assert AnswerTable(answers).state_dict()["utf8"].dtype == torch.uint8


def test_hard_negatives_never_belong_together(model):
    batch = make_batch(rows=6)
    view = replace(
        batch.clean, text_rows=torch.tensor([0, 1, 2, 3, 4, 5]), image_rows=torch.tensor([[0], [0], [1], [1], [2], [2]])
    )
    batch = replace(batch, views={"clean": replace(view, aligned=False)})
    objective = make(model, "hard-matching", negatives=2, candidates=3)
    own = set(zip(view.text_rows.tolist(), view.image_rows[:, 0].tolist(), strict=True))
    step = ForwardPasses(model, batch)
    for texts, images in objective.wrong_pairs(step, view.text_rows, view.image_rows[:, 0]):
        assert len(texts) == 12
        assert own.isdisjoint(zip(texts.tolist(), images.tolist(), strict=True))
    outcome = objective(step, {})
    assert outcome.losses["matching"].count == 6 + 24
    outcome.losses["matching"].value().backward()
    assert model.pooler.dense.weight.grad is not None


def test_hard_negatives_need_two_pictures(model):
    batch = make_batch(rows=2)
    view = replace(batch.clean, image_rows=torch.zeros(2, 1, dtype=torch.long), aligned=False)
    with pytest.raises(DataError, match="one picture only"):
        make(model, "hard-matching")(ForwardPasses(model, replace(batch, views={"clean": view})), {})
