"""Baselines that train in seconds and are scored as trained models are.

Words and picture are added or multiplied in one hidden layer (Zhou et al. 2015; Ren et al. 2015). A tenth of the
pictures is held out to choose the epoch.
"""

from __future__ import annotations

import copy
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import TensorDataset

from vlcli import registry
from vlcli.data.collate import CLEAN, Item, collate
from vlcli.data.sample import Example, Sample
from vlcli.errors import ComponentError, DataError
from vlcli.metrics.baseline import most_common, true_answer
from vlcli.nn import Batch, InputSpec
from vlcli.progress import Progress
from vlcli.registry import Spec, TaskSpec
from vlcli.tasks.base import Given, Result, Task
from vlcli.tasks.correlation import unit
from vlcli.tasks.outputs import likeliest
from vlcli.tasks.pooled import Pooled, trains_no_model

How = Literal["words", "words+image", "words*image", "probe"]
HIDDEN, WORDS, LONGEST = 512, 4000, 40  # width of the hidden layer; most known words; most words of a sentence
# Most rounds (an epoch, or several of few examples); least steps of a round; most steps of all; rounds without a better
# accuracy before the end; share of pictures held out
ROUNDS, LEAST_STEPS, STEPS, PATIENCE, HELD = 40, 50, 4000, 8, 0.1
RATE, DECAY, SMOOTHING = 1e-3, 0.3, 0.1


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
        return torch.as_tensor(self.out(hidden))  # (B, A)


def words_of(text: str | None) -> list[str]:
    """Return the words of a sentence in lower case, without punctuation."""
    return re.findall(r"\w+", (text or "").casefold())


def numbers(examples: Sequence[Example], vocabulary: dict[str, int]) -> Tensor:
    """Return the numbers (N, L) of the words of each sentence, each once; 0 where a sentence has ended."""
    rows = [[vocabulary[w] for w in dict.fromkeys(words_of(e.text)) if w in vocabulary][:LONGEST] for e in examples]
    rows.append([0])  # a column at least, also without words or examples
    return pad_sequence([torch.tensor(row, dtype=torch.long) for row in rows], batch_first=True)[:-1]


def vocabulary_of(examples: Sequence[Example]) -> dict[str, int]:
    """Number the words of two sentences or more, the most frequent first, from 1 on."""
    counts = Counter(word for example in examples for word in dict.fromkeys(words_of(example.text)))
    words = sorted((word for word, count in counts.items() if count > 1), key=lambda word: (-counts[word], word))
    return {word: number for number, word in enumerate(words[:WORDS], 1)}


def held_out(examples: Sequence[Example], seed: int) -> Tensor:
    """Return the examples (N,) about a tenth of the pictures, at least one and never all."""
    pictures = [example.images[0] if example.images else example.key for example in examples]
    each = sorted(set(pictures))
    count = min(max(1, round(HELD * len(each))), len(each) - 1)
    drawn = {each[row] for row in np.random.default_rng(seed).permutation(len(each))[:count]}
    return torch.tensor([name in drawn for name in pictures])


def train(network: Network, inputs: TensorDataset, answers: Tensor, held: Tensor, seed: int) -> float:
    """Train in place until the accuracy on the ``held`` examples (N,) no longer improves; keep the best weights.

    Answers are classes (N,), or (N, A) 1 for each label that an example has. Returns the best accuracy on the held-out
    examples; with several labels, their mean log likelihood.
    """
    several = answers.ndim == 2
    rows, judged = (~held).nonzero()[:, 0], held.nonzero()[:, 0]
    judged = judged if len(judged) else rows
    size = 64 if len(rows) < 20_000 else 256
    epoch = -(-len(rows) // size)  # steps
    passes = -(-LEAST_STEPS // epoch)
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=DECAY)
    criterion = nn.BCEWithLogitsLoss() if several else nn.CrossEntropyLoss(label_smoothing=SMOOTHING)
    best, state, waited = -1e9, network.state_dict(), 0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for _ in range(max(3, min(ROUNDS, STEPS // epoch))):
            network.train()
            for some in (some for _ in range(passes) for some in rows[torch.randperm(len(rows))].split(size)):
                loss = criterion(network(*inputs[some]), answers[some])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            scores, truth = probabilities(network, inputs, judged, several=several), answers[judged]
            right = (scores * truth + (1 - scores) * (1 - truth)).log() if several else scores.argmax(1) == truth
            score = float(right.float().clamp(min=-100).mean())
            waited += 1
            if score > best:
                best, state, waited = score, copy.deepcopy(network.state_dict()), 0
            if waited == PATIENCE or best == 1:
                break
    network.load_state_dict(state)
    return best


@torch.no_grad()
def probabilities(network: Network, inputs: TensorDataset, rows: Tensor, *, several: bool) -> Tensor:
    """Return the probabilities (N, A) of answers of N examples; each by itself where there may be several."""
    network.eval()
    logits = torch.cat([network(*inputs[some]) for some in rows.split(1024)])
    return logits.sigmoid() if several else logits.softmax(-1)


By = Literal["frequent", "question", "nearest", "words", "words+image", "words*image", "probe"]
TOP, BATCH = 5, 256  # Answers of an example that are written; examples that are scored at a time
Row = dict[str, Any]


class Baseline(Task):
    """Answer without a trained model, scored as the task of the models scores them.

    An evaluate stage names in ``fit`` the data that the baseline learns from. Pictures are the mean of their region
    features, or thumbnails of 8 x 8 pixels without a store, on at most 256 principal axes of the pictures in ``fit``.

    Args:
        by: ``frequent``: the most frequent answer; ``question``: the most frequent answer to the same question (or
            sentence), else of all; ``nearest``: the answer about the most alike picture (cosine), of those with the
            same question where there are any; ``words``: a bag of words with one hidden layer; ``words+image``,
            ``words*image``: with the picture added to that layer, or multiplied; ``probe``: a linear classifier of the
            picture.
        task: whose data are answered and which scores answers: a task that gives one answer an example.
    """

    paper = "Ren et al. 2015, Exploring Models and Data for Image Question Answering; Zhou et al. 2015 (bag of words)"
    requires = frozenset()
    fitted = reads_pixels = True

    def __init__(self, *, by: By = "frequent", task: TaskSpec = "vqa") -> None:
        self.by, self.task = by, registry.of(Task).build(task)
        if type(self.task).judge is Task.judge:
            what, expected = "There is no baseline of this task.", "a task that gives one answer an example"
            raise ComponentError(what, where="task baseline", got=str(task), expected=expected)
        self.images = self.task.images

    def objectives(self) -> list[Spec]:
        raise trains_no_model("baseline", "vqa or classification")

    def dataset(self) -> Spec:
        return self.task.dataset()

    def arrange(self, readers: list[Any]) -> list[Any]:
        return self.task.arrange(readers)

    def input_spec(self, spec: InputSpec, training: bool) -> InputSpec:
        return replace(spec, regions=self.by not in ("frequent", "question", "words"))

    def solve(self, inputs: Given) -> Result:
        examples = list(inputs.fit.examples)
        labels = _Truths(inputs.fit, inputs.progress)
        rows = self.task.rescore(lambda batch: [{"prediction": "true"} for _ in batch.keys], labels).predictions
        several = any(isinstance(row.get("labels"), list) for row in rows)
        answers = [tuple(row["labels"]) if "labels" in row else true_answer(row) for row in rows]
        known = _Known(several=several)
        for example, answer in zip(examples, answers, strict=True):
            if answer is not None:
                known.examples.append(example)
                known.answers.append((answer,) if isinstance(answer, str) else answer)
        if not known.examples:
            raise DataError("No example has an answer to learn from.", where="fit", got=f"{len(examples)} examples")
        predictions, truths = iter(self._answered(known, inputs)), _Truths(inputs.data, inputs.progress)
        return self.task.rescore(lambda batch: [next(predictions) for _ in batch.keys], truths)

    def _answered(self, known: _Known, inputs: Given) -> list[Row]:
        asked = list(inputs.data.examples)
        if self.by in ("frequent", "question"):
            if known.several:  # the same for all: how often each label occurs
                counts = Counter(name for names in known.answers for name in names)
                shares = {name: counts[name] / len(known.answers) for name in sorted(counts)}
                return [_labelled(shares) for _ in asked]
            frequent = most_common(known.answers)[0]
            groups: dict[str, list[tuple[str, ...]]] = defaultdict(list)
            for example, answer in zip(known.examples, known.answers, strict=True):
                groups[question(example)].append(answer)
            best = {text: most_common(answers)[0] for text, answers in groups.items() if self.by == "question"}
            return [{"prediction": best.get(question(example), frequent)} for example in asked]
        pooled = None
        if inputs.fit.needs.regions or inputs.fit.needs.pixels:
            files = {**inputs.fit.pictures.files, **inputs.data.pictures.files} if inputs.store is None else None
            pooled = Pooled(known.examples, asked, inputs.store, files)
        if self.by == "nearest":
            assert pooled is not None
            return nearest(known, asked, pooled)
        return learned(cast("How", self.by), known, asked, pooled, inputs)

    def submission(self, predictions: list[Row], folder: Path) -> list[Path]:
        return []  # nobody sends a baseline to a server


@dataclass(frozen=True)
class _Known:
    # Examples with their answers: one each, or the labels of each picture where there may be ``several``
    several: bool
    examples: list[Example] = field(default_factory=list)
    answers: list[tuple[str, ...]] = field(default_factory=list)


@dataclass
class _Truths:
    # Batches of keys and targets (vlcli.tasks.base.Examples): no picture is loaded to score an answer
    data: Any
    progress: Progress

    def batches(self, data: Any = None) -> Iterator[Batch]:
        examples = self.data.examples
        for start in range(0, len(examples), BATCH):
            some = examples[start : start + BATCH]
            yield collate([Item({CLEAN: Sample(one.key, None, [], one.targets)}, 0) for one in some])


def question(example: Example) -> str:
    """Return the words of a question, by which questions are compared."""
    return " ".join(words_of(example.text))


def _labelled(scores: dict[str, float]) -> Row:
    return {"prediction": [name for name, score in scores.items() if score >= 0.5], "scores": scores}


def nearest(known: _Known, asked: Sequence[Example], pooled: Pooled) -> list[Row]:
    """Return the answer about the most alike picture, of those with the same question where there are any.

    Of equally near pictures the first is taken; of several answers about it, the most frequent.
    """
    rows = unit(pooled.rows(known.examples).astype(np.float64))
    questions: dict[str, list[int]] = defaultdict(list)
    pictures: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for row, example in enumerate(known.examples):
        questions[question(example)].append(row)
        pictures[tuple(example.images)].append(row)
    firsts = np.array([group[0] for group in pictures.values()])
    predictions: list[Row] = []
    for example, vector in zip(asked, unit(pooled.rows(asked).astype(np.float64)), strict=True):
        candidates = np.array(questions.get(question(example), firsts) if question(example) else firsts)
        cosines = rows[candidates] @ vector
        near = tuple(known.examples[int(candidates[cosines.argmax()])].images)
        alike = set(pictures[near]) & set(questions.get(question(example), pictures[near]))
        answer = most_common([known.answers[row] for row in alike])
        predictions.append({"prediction": list(answer) if known.several else answer[0]})
    return predictions


def learned(how: How, known: _Known, asked: list[Example], pooled: Pooled | None, task: Given) -> list[Row]:
    """Train a small network on the known examples, and return its answers to others."""
    names = sorted({name for answers in known.answers for name in answers})
    vocabulary = vocabulary_of(known.examples)

    def inputs(examples: Sequence[Example]) -> TensorDataset:
        # word numbers (N, L) from 1 on, 0 at the end of a sentence; pooled features (N, D), (N, 0) without pictures
        image = torch.zeros(len(examples), 0) if pooled is None else torch.from_numpy(pooled.rows(examples))
        return TensorDataset(numbers(examples, vocabulary), image)

    seen = inputs(known.examples)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(task.data.seed)
        network = Network(how, len(vocabulary), seen.tensors[1].shape[1], len(names))
    if known.several:
        truths = torch.tensor([[float(name in answers) for name in names] for answers in known.answers])  # (N, A)
    else:
        index = {name: row for row, name in enumerate(names)}
        truths = torch.tensor([index[answers[0]] for answers in known.answers])  # (N,)
    best = train(network, seen, truths, held_out(known.examples, task.data.seed), task.data.seed)
    task.progress.info(f"baseline {how}: {best:.3f} on the held-out examples, {len(names)} answers")
    scores = probabilities(network, inputs(asked), torch.arange(len(asked)), several=known.several)
    if known.several:
        return [_labelled(dict(zip(names, row, strict=True))) for row in scores.tolist()]
    ranked = likeliest(names, scores, TOP)
    return [{"prediction": row[0][0], "score": row[0][1], "top": [name for name, _ in row]} for row in ranked]
