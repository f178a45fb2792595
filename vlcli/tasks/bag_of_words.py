"""Trains small networks on bags of words and pooled features.

Words and picture are added or multiplied in one hidden layer (Zhou et al. 2015; Ren et al. 2015). A tenth of the
pictures is held out: the epoch with the best accuracy there is kept, and training ends where it no longer improves.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlcli.data.sample import Example

How = Literal["words", "words+image", "words*image", "probe"]
HIDDEN, WORDS, LONGEST = 512, 4000, 40  # width of the hidden layer; most known words; most words of a sentence
# Most rounds (an epoch, or several of few examples); least steps of a round; most steps of all; rounds without a better
# accuracy before the end; share of pictures held out
ROUNDS, LEAST_STEPS, STEPS, PATIENCE, HELD = 40, 50, 4000, 8, 0.1
RATE, DECAY, SMOOTHING = 1e-3, 0.3, 0.1


@dataclass(frozen=True)
class Inputs:
    """Word numbers (N, L) from 1 on, 0 at the end of a sentence; pooled features (N, D), (N, 0) without pictures."""

    words: Tensor
    image: Tensor

    def at(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Select some of the examples."""
        return self.words[rows], self.image[rows]


class Network(nn.Module):
    """Logits of answers from words, pooled features or both."""

    def __init__(self, how: How, words: int, image: int, answers: int) -> None:
        super().__init__()
        self.how = how
        if how == "probe":
            self.out: nn.Module = nn.Linear(image, answers)
            return
        self.words = nn.EmbeddingBag(words + 1, HIDDEN, mode="sum", padding_idx=0)
        bound = (words + 1) ** -0.5
        nn.init.uniform_(self.words.weight, -bound, bound)
        self.bias, self.strength = nn.Parameter(torch.zeros(HIDDEN)), nn.Parameter(torch.tensor(0.1))
        self.image = nn.Sequential(nn.Dropout(0.5), nn.Linear(max(image, 1), HIDDEN))
        self.out = nn.Sequential(nn.ReLU(), nn.Dropout(0.5), nn.Linear(HIDDEN, answers))

    def forward(self, words: Tensor, image: Tensor) -> Tensor:
        hidden = image  # (B, D)
        if self.how != "probe":
            weights = F.dropout((words > 0).float(), 0.2, self.training)  # (B, L)
            hidden = self.words(words, per_sample_weights=weights) + self.bias  # (B, H)
        if self.how in ("words+image", "words*image"):
            seen = self.strength * self.image(image)  # (B, H)
            hidden = hidden + seen if self.how == "words+image" else hidden * (1 + seen)
        logits: Tensor = self.out(hidden)  # (B, A)
        return logits


def words_of(text: str | None) -> list[str]:
    """Return the words of a sentence in lower case, without punctuation."""
    return re.findall(r"\w+", (text or "").casefold())


def numbers(examples: Sequence[Example], vocabulary: dict[str, int]) -> Tensor:
    """Return (N, L) numbers of the words of each sentence, each word once; 0 where a sentence has ended."""
    rows = [[vocabulary[w] for w in dict.fromkeys(words_of(e.text)) if w in vocabulary][:LONGEST] for e in examples]
    padded = torch.zeros(len(rows), max([1, *map(len, rows)]), dtype=torch.long)
    for line, row in zip(padded, rows, strict=True):
        line[: len(row)] = torch.tensor(row, dtype=torch.long)
    return padded


def vocabulary_of(examples: Sequence[Example]) -> dict[str, int]:
    """Number the words of two sentences or more, the most frequent first, from 1 on."""
    counts = Counter(word for example in examples for word in dict.fromkeys(words_of(example.text)))
    words = sorted((word for word, count in counts.items() if count > 1), key=lambda word: (-counts[word], word))
    return {word: number for number, word in enumerate(words[:WORDS], 1)}


def held_out(examples: Sequence[Example], seed: int) -> Tensor:
    """Return (N,) bool: the examples about a tenth of the pictures, at least one and never all."""
    pictures = [example.images[0] if example.images else example.key for example in examples]
    each = sorted(set(pictures))
    count = min(max(1, round(HELD * len(each))), len(each) - 1)
    drawn = {each[row] for row in np.random.default_rng(seed).permutation(len(each))[:count]}
    return torch.tensor([name in drawn for name in pictures])


def train(network: Network, inputs: Inputs, answers: Tensor, held: Tensor, seed: int) -> float:
    """Train in place until the accuracy on the held-out examples no longer improves; keep the best weights.

    Args:
        network: to train.
        inputs: N examples.
        answers: (N,) their classes, or (N, A) 1 for each label that an example has.
        held: (N,) bool, those that are held out.
        seed: of the order and of dropout.

    Returns:
        The best accuracy on the held-out examples; with several labels, their mean log likelihood.
    """
    several = answers.ndim == 2
    rows, judged = (~held).nonzero()[:, 0], held.nonzero()[:, 0]
    judged = judged if len(judged) else rows
    size = 64 if len(rows) < 20_000 else 256
    epoch = -(-len(rows) // size)  # steps
    passes = -(-LEAST_STEPS // epoch)
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=DECAY)
    best, state, waited = -1e9, network.state_dict(), 0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for _ in range(max(3, min(ROUNDS, STEPS // epoch))):
            network.train()
            for some in (some for _ in range(passes) for some in rows[torch.randperm(len(rows))].split(size)):
                logits, truth = network(*inputs.at(some)), answers[some]
                if several:
                    loss = F.binary_cross_entropy_with_logits(logits, truth)
                else:
                    loss = F.cross_entropy(logits, truth, label_smoothing=SMOOTHING)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            scores, truth = probabilities(network, inputs, judged, several=several), answers[judged]
            right = (scores * truth + (1 - scores) * (1 - truth)).log() if several else scores.argmax(1) == truth
            score = float(right.float().clamp(min=-100).mean())
            waited = 0 if score > best else waited + 1
            if not waited:
                best, state = score, copy.deepcopy(network.state_dict())
            if waited == PATIENCE or best == 1:
                break
    network.load_state_dict(state)
    return best


@torch.no_grad()
def probabilities(network: Network, inputs: Inputs, rows: Tensor | None = None, *, several: bool = False) -> Tensor:
    """Return (N, A) probabilities of the answers of all examples or some; each by itself where there may be several."""
    network.eval()
    rows = torch.arange(len(inputs.words)) if rows is None else rows
    logits = torch.cat([network(*inputs.at(some)) for some in rows.split(1024)])
    return logits.sigmoid() if several else logits.softmax(-1)
