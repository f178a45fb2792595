"""LXMERT's answer table and image question answering on the aggregated data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_batches import SMALL, make_batch
from torch.nn import functional

from tests.plugins.lxmert.official import LXMERT, read, write
from vlcli.engine.training_module import build_training_module
from vlcli.engine.weights import WeightLoader
from vlcli.errors import DataError
from vlcli.nn.forward_passes import ForwardPasses
from vlcli.objectives.answering import ImageQA

DATA_SPEC = replace(SMALL, answers=("cat", "dog", "no", "2"))


def image_qa(**options: Any) -> tuple[Any, ImageQA]:
    module = build_training_module(LXMERT, ["mlm", "matching", {"name": "image-qa", **options}], DATA_SPEC)
    return module.eval(), module.objectives["image-qa"]


def test_image_qa_is_cross_entropy_over_matched_questions_of_the_table() -> None:
    module, objective = image_qa()
    batch = make_batch(rows=5)  # rows 1 and 3 have another sentence
    answers = [{"two": 0.9}, {"cat": 1.0}, {"horse": 1.0}, {"dog": 1.0}, {"horse": 1.0, "The dog.": 0.3}]
    step = ForwardPasses(module.model, replace(batch, targets={"answers": answers}))
    outcome = objective(step, {})
    logits = objective.head(step.fused("corrupted").pooled)
    wanted = functional.cross_entropy(logits[[0, 4]], torch.tensor([3, 1]))
    torch.testing.assert_close(outcome.losses["image-qa"].value(), wanted)
    assert outcome.losses["image-qa"].count == 2


def test_one_pass_serves_every_objective(monkeypatch: pytest.MonkeyPatch) -> None:
    module, _ = image_qa()
    passes = []
    fuse = module.model.fuse
    monkeypatch.setattr(module.model, "fuse", lambda *given, **more: passes.append(1) or fuse(*given, **more))
    result = module(replace(make_batch(), targets={"answers": [{"cat": 1.0}] * 3}))
    assert set(result.losses) == {"mlm", "matching", "image-qa"}
    assert len(passes) == 1


def test_a_batch_without_questions_costs_nothing_and_has_a_gradient() -> None:
    module, objective = image_qa()
    for answers in ([None] * 3, [{"horse": 1.0}] * 3):
        loss = objective(ForwardPasses(module.model, replace(make_batch(), targets={"answers": answers})), {}).losses[
            "image-qa"
        ]
        assert loss.count == 0
        loss.value().backward()
        assert loss.value().item() == 0
    assert objective(ForwardPasses(module.model, make_batch()), {}).losses["image-qa"].count == 0


def test_an_answer_is_drawn_in_proportion_to_its_score() -> None:
    _, objective = image_qa()
    known = objective.known({"dog": 0.9, "horse": 1.0, "two": 0.3, "2": 0.1})
    assert known == {1: 0.9, 3: 0.3}
    drawn = objective.drawn([known] * 2000, torch.arange(2000))
    assert drawn == objective.drawn([known] * 2000, torch.arange(2000))
    assert sum(place == 1 for place in drawn) / 2000 == pytest.approx(0.75, abs=0.03)


def test_the_table_comes_from_a_file_or_from_the_questions(official: Path) -> None:
    readers = [read("lxmert-sources", official)]
    assert ImageQA.labels({}, readers) == ("in the park", "net", "pipe", "yes")
    write(official / "lxmert/all_ans.json", [{"ans": "net", "dsets": ["vqa"]}, {"ans": "pipe", "dsets": ["gqa"]}])
    assert ImageQA.labels({}, readers) == ("net", "pipe")
    assert ImageQA.labels({"answer_sets": ["gqa"]}, readers) == ("pipe",)
    write(official / "own.json", ["web"])
    assert ImageQA.labels({"answers": "own.json"}, readers) == ("web",)


def authors_transfer(weight: torch.Tensor, bias: torch.Tensor, table: list[str], wanted: list[str]) -> tuple[Any, Any]:
    """The released rule once more: the row of the normalised answer, else zeros."""
    convert = {"two": "2", "grey": "gray"}
    rows = [[None, None] for _ in wanted]
    for row, answer in enumerate(wanted):
        plain = answer.lower().removesuffix(".").strip()
        for article in ("a ", "an ", "the "):
            plain = plain.removeprefix(article).strip()
        place = table.index(convert.get(plain, plain)) if convert.get(plain, plain) in table else None
        rows[row] = [torch.zeros_like(weight[0]), torch.zeros(())] if place is None else [weight[place], bias[place]]
    return torch.stack([row[0] for row in rows]), torch.stack([row[1] for row in rows])


WANTED = ("Grey", "a cat", "horse", "two", "dog.")


@pytest.mark.parametrize("foreign", [False, True])
def test_the_answer_head_is_taken_over_by_string(tmp_path: Path, foreign: bool) -> None:
    table = ["2", "cat", "dog", "gray", "zebra", "net"]
    source = build_training_module(LXMERT, [{"name": "image-qa"}], replace(SMALL, answers=tuple(table)), seed=1)
    state = {name: value.clone() for name, value in source.state_dict().items()}
    options = {}
    if foreign:  # as an LXMERT release holds it: no strings
        state = {name.removeprefix("model."): value for name, value in state.items() if "utf8" not in name}
        state = {name.replace("objectives.image-qa.", "objectives.answering."): value for name, value in state.items()}
        write(tmp_path / "all_ans.json", [{"ans": answer, "dsets": []} for answer in table])
        options = {"source_answers": str(tmp_path / "all_ans.json")}
    target = build_training_module(LXMERT, [{"name": "answering", **options}], replace(SMALL, answers=WANTED), seed=2)
    loader = WeightLoader(target)
    loader.add(state, "weights", ours=not foreign)
    report = loader.finish()
    head, old = target.objectives["answering"].head, source.objectives["image-qa"].head
    weight, bias = authors_transfer(old.outer.weight, old.outer.bias, table, list(WANTED))
    torch.testing.assert_close(head.outer.weight, weight)
    torch.testing.assert_close(head.outer.bias, bias)
    torch.testing.assert_close(head.inner.weight, old.inner.weight)
    torch.testing.assert_close(head.norm.bias, old.norm.bias)
    assert "answer rows moved by string: 4 of 5 known (of 6), 1 set to zero" in report.reshaped
    assert not report.new
    assert not report.mismatched


def test_a_table_as_long_as_the_head_is_wide_leaves_inner_layers_alone() -> None:
    words = tuple(f"w{number}" for number in range(32))  # 32 = twice the model's width
    source = build_training_module(LXMERT, ["image-qa"], replace(SMALL, answers=words), seed=1)
    target = build_training_module(LXMERT, ["answering"], replace(SMALL, answers=words[::-1]), seed=2)
    loader = WeightLoader(target)
    loader.add(dict(source.state_dict()), "weights", ours=True)
    head, old = target.objectives["answering"].head, source.objectives["image-qa"].head
    assert torch.equal(head.inner.weight, old.inner.weight)
    assert torch.equal(head.norm.weight, old.norm.weight)
    assert torch.equal(head.outer.weight, old.outer.weight.flip(0))


def test_a_table_of_other_weights_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "table.json", ["a", "b", "c"])
    options = {"source_answers": str(tmp_path / "table.json")}
    module = build_training_module(LXMERT, [{"name": "answering", **options}], DATA_SPEC)
    state = {name: value for name, value in module.state_dict().items() if "utf8" not in name}
    with pytest.raises(DataError, match="not those of this answer table"):
        WeightLoader(module).add(state, "weights", ours=True)
