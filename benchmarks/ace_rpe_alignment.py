"""ACE-RPE where the alignment of words and patches is known: do its anchors, its gradient or its lengths fail?

    python benchmarks/ace_rpe_alignment.py --channels 768 --seeds 3

A picture has 9 x 9 patches, a sentence 6 words. Each word is aligned with one patch, whose vector resembles the word's
(cosine ``--alike``). The four patches next to the aligned one carry one of 8 colours, all others random ones, and the
colour is the word's label: a model that attends to what is near the aligned patch answers all. One cross-attention of
words to patches is trained. Rows: no encoding; ACE-RPE with the anchors that it finds, with and without a gradient
through the similarities; with the true anchors; with as many anchors at random patches. Each is tried with the bias of
pairs (Eq. 9) and the paper's window of 5 words, the bias and a window of 1, and contextual vectors (Eq. 10-12). The
encoding's numbers have a learning rate of their own, since a bias has to grow to the size of attention scores. Printed
for each seed: accuracy on 1,024 new pictures, and how many of the true and of all other pairs are anchors.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from vlcli_ace_rpe import ACERPE, distance

from vlcli.nn import AttentionShape, Layout

SIDE, WORDS, COLOURS, HEADS = 9, 6, 8, 8
CENTRES = torch.tensor([(y, x) for y in (1, 4, 7) for x in (1, 4, 7)])
NEXT = torch.tensor([(0, 1), (0, -1), (1, 0), (-1, 0)])
ROWS = [
    ("none", "", 5),
    *(
        (anchors, mode, words)
        for mode, words in (("bias", 5), ("bias", 1), ("contextual", 5))
        for anchors in ("found", "found, no gradient", "true", "random")
    ),
]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--channels", type=int, default=768)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--alike", type=float, default=0.5)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--position-lr", type=float, default=3e-2)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--rows", nargs="*", help="only these, as printed: bias-5-true")
    return parser.parse_args()


class GivenAnchors(ACERPE):
    """ACE-RPE whose anchors are handed in: ``pairs`` (B, patches, words), 1 at an anchor, else 0."""

    pairs: Tensor

    def _measure(self, pictures, texts):
        similar = self.pairs[:, None].expand(-1, self.groups, -1, -1).float()  # (B, G, M, N)
        near = distance(similar, self.threshold, self.sharpness, self.farthest)
        lengths = self._paths(near, pictures)
        return lengths.masked_fill(lengths >= self.farthest, 0), similar > 0


class Reader(nn.Module):
    """One cross-attention of words to patches, and the colour of each word."""

    def __init__(self, channels: int, anchors: str, mode: str, words: int) -> None:
        super().__init__()
        kind = GivenAnchors if anchors in ("true", "random") else ACERPE
        shape = AttentionShape(channels, HEADS, 1, cross=True)
        self.position = None
        if anchors != "none":
            self.position = kind(shape, mode=mode, words=words, gradient=anchors == "found")
        self.project = nn.ModuleDict({name: nn.Linear(channels, channels) for name in ("q", "k", "v", "out")})
        self.enter = nn.ModuleList([nn.Linear(channels, channels) for _ in range(2)])
        for layer in self.enter:
            nn.init.eye_(layer.weight)
        self.colour = nn.Sequential(nn.LayerNorm(channels), nn.Linear(channels, COLOURS))

    def forward(self, words: Tensor, patches: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor | None]:
        words, patches = self.enter[0](words), self.enter[1](patches)  # (B, N, D), (B, M, D)
        queries, keys, state, position = words, patches, None, self.position
        if position is not None:
            seen = torch.ones(words.shape[:2], dtype=torch.bool)
            layouts = Layout.for_text(seen, ~seen), Layout.for_grid(SIDE, SIDE)
            position.pairs = pairs
            state = position.prepare(words, patches, *layouts)
            queries, keys, _ = position.inputs(words, patches, patches, state, 0)
        q, k, v = (
            self.project[name](x).unflatten(-1, (HEADS, -1)).transpose(1, 2)  # (B, H, T, d)
            for name, x in (("q", queries), ("k", keys), ("v", patches))
        )
        scores = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5  # (B, H, N, M)
        more = None if position is None else position.logits(q, k, state, 0)
        weights = (scores if more is None else scores + more).softmax(-1)
        added = None if position is None else position.values(weights, state, 0)
        read = weights @ v if added is None else weights @ v + added
        logits = self.colour(words + self.project["out"](read.transpose(1, 2).flatten(2)))  # (B, N, colours)
        return logits, None if state is None else state.anchors


def examples(batch: int, colours: Tensor, alike: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return words (B, N, D), patches (B, M, D), which patch is aligned with which word (B, M, N) and labels (B, N)."""
    channels, rows = colours.shape[1], torch.arange(batch)[:, None]
    words = F.normalize(torch.randn(batch, WORDS, channels), dim=-1)
    patches = F.normalize(torch.randn(batch, SIDE * SIDE, channels), dim=-1)
    centres = CENTRES[torch.rand(batch, len(CENTRES)).argsort(1)[:, :WORDS]]  # (B, N, 2)
    at = centres[..., 0] * SIDE + centres[..., 1]  # (B, N)
    patches[rows, at] = alike * words + (1 - alike**2) ** 0.5 * patches[rows, at]
    carried, labels = torch.randint(COLOURS, (batch, SIDE * SIDE)), torch.randint(COLOURS, (batch, WORDS))
    for y, x in NEXT.tolist():
        carried[rows, at + y * SIDE + x] = labels
    carried[rows, at] = torch.randint(COLOURS, (batch, WORDS))
    pairs = F.one_hot(at, SIDE * SIDE).transpose(1, 2)
    return words * channels**0.5, (patches + colours[carried]) * channels**0.5, pairs, labels


def shares(anchors: Tensor | None, pairs: Tensor) -> str:
    if anchors is None:
        return ""
    found = anchors.float().mean(-1).transpose(1, 2)  # (B, M, N)
    return f"{found[pairs > 0].mean():.2f} of true, {found[pairs == 0].mean():.2f} of other pairs"


def accuracy(options: argparse.Namespace, row: tuple[str, str, int], seed: int) -> tuple[float, str]:
    """Train a row with a seed; return its accuracy on 1,024 new pictures, and the shares of anchors."""
    torch.manual_seed(seed)
    colours = F.normalize(torch.randn(COLOURS, options.channels), dim=-1)
    reader = Reader(options.channels, *row)
    numbers = [] if reader.position is None else list(reader.position.parameters())
    others = [p for p in reader.parameters() if not any(p is number for number in numbers)]
    groups = [{"params": others, "lr": options.lr}]
    if numbers:
        groups.append({"params": numbers, "lr": options.position_lr, "weight_decay": 0.0})
    optimizer = torch.optim.AdamW(groups)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, [group["lr"] for group in groups], options.steps)
    right = 0
    for step in range(options.steps + 16):
        training = step < options.steps
        words, patches, pairs, labels = examples(options.batch if training else 64, colours, options.alike)
        given = pairs[:, torch.randperm(pairs.shape[1])] if row[0] == "random" else pairs
        with torch.set_grad_enabled(training):
            logits, anchors = reader(words, patches, given)
        if not training:
            right += int((logits.argmax(-1) == labels).sum())
            continue
        optimizer.zero_grad()
        F.cross_entropy(logits.flatten(0, 1), labels.flatten()).backward()
        optimizer.step()
        schedule.step()
    return right / (16 * 64 * WORDS), shares(anchors, pairs)


def main() -> None:
    """Train every row with every seed and print accuracies."""
    options = arguments()
    print(f"{options.channels} channels, {options.channels // HEADS} in a group; chance {1 / COLOURS:.3f}")
    for row in ROWS:
        name = "none" if row[0] == "none" else f"{row[1]}-{row[2]}-{row[0]}"
        if options.rows and name not in options.rows:
            continue
        began, results = time.process_time(), []
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            score, found = accuracy(options, row, seed)
            results.append(score)
        took = (time.process_time() - began) / options.seeds
        scores = " ".join(f"{score:.3f}" for score in results)
        print(f"{name:<32}{scores}  {found:<40}{took:4.0f} s", flush=True)


if __name__ == "__main__":
    main()
