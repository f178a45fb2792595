"""Negatives: alike on any process, never another caption of the picture, never a failure."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vlcli.nn.layout import Layout
from vlcli.nn.model import EncoderOutput
from vlcli.objectives.negatives import draw, gumbel, ids_of, stack_states

SEEDS = st.integers(-(2**62), 2**62)


@given(st.lists(SEEDS, min_size=1, max_size=5), st.lists(SEEDS, min_size=1, max_size=5))
def test_noise_of_a_pair_depends_on_the_pair_alone(own: list[int], other: list[int]) -> None:
    whole = gumbel(torch.tensor(own), torch.tensor(other))
    assert whole.isfinite().all()
    for i, left in enumerate(own):
        for j, right in enumerate(other):
            assert gumbel(torch.tensor([left]), torch.tensor([right]))[0, 0] == whole[i, j]


def test_draws_follow_the_softmax_of_the_scores() -> None:
    scores = torch.tensor([[2.0, 0.0, 1.0, -1.0]]).expand(40_000, 4)
    _, chosen = draw(scores, torch.ones(40_000, 4, dtype=torch.bool), gumbel(torch.arange(40_000), torch.arange(4) + 9))
    shares = torch.bincount(chosen, minlength=4) / 40_000
    torch.testing.assert_close(shares, scores[0].softmax(0), rtol=0, atol=0.012)


@settings(max_examples=40)
@given(st.integers(1, 6), st.floats(-1e4, 1e4), st.booleans())
def test_any_scores_give_an_allowed_candidate_or_none(count: int, size: float, noisy: bool) -> None:
    scores = torch.full((count, count), size, dtype=torch.float16 if abs(size) > 6e4 else torch.float32)
    allowed = ~torch.eye(count, dtype=torch.bool)
    noise = gumbel(torch.arange(count), torch.arange(count)) if noisy else None
    rows, chosen = draw(scores, allowed, noise)
    assert rows.tolist() == ([] if count == 1 else list(range(count)))
    assert allowed[rows, chosen].all()


def test_ids_are_those_of_the_keys() -> None:
    first = ids_of(["a", "b"], torch.tensor([1, 0, 1]))
    assert first.tolist() == [first[0].item(), ids_of(["a"], torch.tensor([0])).item(), first[0].item()]
    assert len(set(first.tolist())) == 2


@pytest.mark.parametrize("short", [2, 3])
def test_stacked_states_keep_their_places(short: int) -> None:
    long_mask, short_mask = torch.ones(1, 3, dtype=torch.bool), torch.ones(1, short, dtype=torch.bool)
    parts = [EncoderOutput(torch.rand(1, len(m[0]), 4), Layout.for_text(m)) for m in (long_mask, short_mask)]
    made = stack_states(parts)
    assert made.hidden.shape == (2, 3, 4)
    assert made.layout.valid.tolist() == [[True] * 3, [True] * short + [False] * (3 - short)]
    assert made.layout.index[1, :short].tolist() == list(range(short))
