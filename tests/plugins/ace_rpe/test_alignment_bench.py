"""The bench of known alignment: labels lie next to the aligned patches, and no slope prefers a word's own patches."""

import sys
from pathlib import Path

import torch
from torch import Tensor

from vlcli.nn import AttentionShape, Layout

BENCH = Path(__file__).parents[3] / "benchmarks"
sys.path.insert(0, str(BENCH))
import ace_rpe_alignment as bench  # noqa: E402

sys.path.remove(str(BENCH))
CHANNELS = 64


def drawn() -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, Tensor]]:
    torch.manual_seed(3)
    colours = torch.nn.functional.normalize(torch.randn(bench.COLOURS, CHANNELS), dim=-1)
    words, patches, pairs, labels = bench.examples(4, colours, 0.9)
    nearest = (patches / CHANNELS**0.5 @ colours.T).argmax(-1)  # (B, M): the colour that a patch carries, mostly
    return words, patches, pairs, (nearest, labels)


def test_the_label_is_what_the_patches_next_to_the_aligned_one_carry() -> None:
    _, _, pairs, (nearest, labels) = drawn()
    right = 0
    for row, word in [(row, word) for row in range(4) for word in range(bench.WORDS)]:
        y, x = divmod(int(pairs[row, :, word].argmax()), bench.SIDE)
        around = [int(nearest[row, (y + dy) * bench.SIDE + x + dx]) for dy, dx in bench.NEXT.tolist()]
        right += sum(colour == labels[row, word] for colour in around)
    assert right > 0.9 * 4 * bench.WORDS * 4


def lengths(words: int) -> tuple[Tensor, Tensor]:
    """Lengths (B, M, N) of one group with the true anchors, and whether a patch lies in a word's own square."""
    texts, patches, pairs, _ = drawn()
    position = bench.GivenAnchors(AttentionShape(CHANNELS, 8, 1, cross=True), mode="bias", words=words)
    position.pairs = pairs
    seen = torch.ones(texts.shape[:2], dtype=torch.bool)
    state = position.prepare(texts, patches, Layout.for_text(seen, ~seen), Layout.for_grid(bench.SIDE, bench.SIDE))
    square = torch.nn.functional.max_pool2d(pairs.transpose(1, 2).reshape(-1, 1, 9, 9).float(), 3, 1, 1)
    return state.paths[..., 0], square.reshape(4, bench.WORDS, 81) > 0  # (B, N, M)


def test_with_the_papers_window_own_patches_lie_between_those_of_other_words_and_unrelated_ones() -> None:
    measured, own = lengths(5)
    others = (measured > 0) & ~own
    assert others.any()
    assert (measured[own] > 0).all()
    assert measured[others].max() > measured[own].max()  # a positive slope prefers other words' patches
    assert (measured == 0).any()  # a negative slope prefers unrelated patches


def test_with_a_window_of_one_word_a_positive_slope_prefers_the_own_patches() -> None:
    measured, own = lengths(1)
    assert ((measured > 0) == own).all()
