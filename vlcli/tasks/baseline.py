"""Baselines beside trained models: what is reached in seconds, scored by the task's own scorer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np
import torch

from vlcli import registry
from vlcli.data.collate import CLEAN, Item, collate
from vlcli.data.sample import Example, Sample
from vlcli.errors import ComponentError, DataError
from vlcli.metrics.baseline import true_answer
from vlcli.nn import Batch, InputSpec
from vlcli.progress import Progress
from vlcli.registry import Spec, TaskSpec
from vlcli.tasks.bag_of_words import (
    How,
    Inputs,
    Network,
    chances,
    held_out,
    numbers,
    train,
    vocabulary_of,
    words_of,
)
from vlcli.tasks.base import Given, Result, Task
from vlcli.tasks.correlation import unit
from vlcli.tasks.outputs import likeliest
from vlcli.tasks.pairs import trains_no_model
from vlcli.tasks.pooled import Pooled

By = Literal["frequent", "question", "nearest", "words", "words+image", "words*image", "probe"]
TOP, BATCH = 5, 256  # Answers of an example that are written; examples that are scored at a time
Row = dict[str, Any]


class Baseline(Task):
    """Answer without a trained model, as a row beside models: scored as the task of the models scores them.

    An evaluate stage names in ``fit`` the data that the baseline learns from. Pictures are the mean of their region
    features; where there is no store of features, thumbnails of 8 x 8 pixels. Both are brought to at most 256 principal
    axes of the pictures in ``fit``.

    Args:
        by: what answers. ``frequent``: always the most frequent answer. ``question``: the most frequent answer to the
            same question (or sentence), else the most frequent of all. ``nearest``: the answer about the picture that
            is most alike (cosine), of those with the same question where there are any. ``words``: a bag of words with
            one hidden layer. ``words+image``, ``words*image``: the same with the picture added to the hidden
            layer, or multiplied. ``probe``: a linear classifier of the picture.
        task: how answers are scored, and which data they come from: a task that gives one answer an example.
    """

    paper = "Ren et al. 2015, Exploring Models and Data for Image Question Answering; Zhou et al. 2015 (bag of words)"
    requires = frozenset()
    fitted = reads_pixels = True

    def __init__(self, *, by: By = "frequent", task: TaskSpec = "vqa") -> None:
        self.by, self.task = by, registry.tasks.build(task)
        if type(self.task).judge is Task.judge or by not in get_args(By):
            what = "There is no such baseline." if by not in get_args(By) else "There is no baseline of this task."
            expected = ", ".join(get_args(By)) + "; a task that gives one answer an example"
            raise ComponentError(what, where="task baseline", got=f"{by} of {task}", expected=expected)
        self.images = self.task.images

    def objectives(self) -> list[Spec]:
        raise trains_no_model("baseline", "vqa or classification")

    def dataset(self) -> Spec:
        return self.task.dataset()

    def arrange(self, readers: list[Any]) -> list[Any]:
        return self.task.arrange(readers)

    def input_spec(self, spec: InputSpec, training: bool) -> InputSpec:
        return replace(spec, regions=self.by not in ("frequent", "question", "words"))

    def solve(self, given: Given) -> Result:
        # Learn from ``fit``, answer, and score by the task
        examples, asked = list(given.fit.examples), list(given.data.examples)
        labels = _Truths(given.fit, given.progress)
        rows = self.task.rescore(lambda batch: [{"prediction": "true"} for _ in batch.keys], labels).predictions
        several = any(isinstance(row.get("labels"), list) for row in rows)
        truths = [tuple(row["labels"]) if "labels" in row else _one(row) for row in rows]
        pairs = [(e, truth) for e, truth in zip(examples, truths, strict=True) if truth is not None]
        if not pairs:
            raise DataError("No example has an answer to learn from.", where="fit", got=f"{len(examples)} examples")
        known = _Known([example for example, _ in pairs], [truth for _, truth in pairs], several)
        answers = iter(self._answered(known, asked, given))
        return self.task.rescore(lambda batch: [next(answers) for _ in batch.keys], _Truths(given.data, given.progress))

    def _answered(self, known: _Known, asked: list[Example], given: Given) -> list[Row]:
        if known.several and self.by in ("frequent", "question"):
            return [dict(known.shares) for _ in asked]
        if self.by in ("frequent", "question"):
            found = by_question(known) if self.by == "question" else {}
            return [{"prediction": found.get(question(example), known.frequent)} for example in asked]
        pooled = None
        if given.fit.needs.regions or given.fit.needs.pixels:
            files = None if given.store is not None else {**given.fit.pictures.files, **given.data.pictures.files}
            pooled = Pooled.of(known.examples, asked, given.store, files)
        if self.by == "nearest":
            assert pooled is not None
            return nearest(known, asked, pooled)
        return learned(cast("How", self.by), known, asked, pooled, given.data.seed, given.progress)

    def submission(self, predictions: list[Row], folder: Path) -> list[Path]:
        return []


@dataclass(frozen=True)
class _Known:
    examples: list[Example]
    answers: list[tuple[str, ...]]
    several: bool = False

    @property
    def frequent(self) -> str:
        """The most frequent answer; of equally frequent ones, the first by the alphabet."""
        return most_common(self.answers)[0]

    @property
    def shares(self) -> Row:
        """The answer to everything where there may be several: how often each label occurs."""
        counts = Counter(name for names in self.answers for name in names)
        return _labelled({name: counts[name] / len(self.answers) for name in sorted(counts)})


@dataclass
class _Truths:
    data: Any
    progress: Progress

    def batches(self, data: Any = None) -> Iterator[Batch]:
        examples = (self.data if data is None else data).examples
        for start in range(0, len(examples), BATCH):
            some = examples[start : start + BATCH]
            yield collate([Item({CLEAN: Sample(one.key, None, [], one.targets)}, 0) for one in some])


def question(example: Example) -> str:
    """What makes two questions the same: their words."""
    return " ".join(words_of(example.text))


def _one(row: Row) -> tuple[str, ...] | None:
    answer = true_answer(row)
    return None if answer is None else (answer,)


def _labelled(scores: dict[str, float]) -> Row:
    return {"prediction": [name for name, score in scores.items() if score >= 0.5], "scores": scores}


def most_common(answers: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The most frequent of some answers; of equally frequent ones, the first by the alphabet."""
    counts = Counter(answers)
    return min(counts, key=lambda answer: (-counts[answer], answer))


def by_question(known: _Known) -> dict[str, str]:
    """The most frequent answer to each question."""
    found: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for example, answer in zip(known.examples, known.answers, strict=True):
        found[question(example)].append(answer)
    return {asked: most_common(answers)[0] for asked, answers in found.items()}


def nearest(known: _Known, asked: Sequence[Example], pooled: Pooled) -> list[Row]:
    """The answer about the most alike picture, of those with the same question where there are any.

    Of equally near pictures the first in the data's order; of several answers about the nearest, the most frequent.
    """
    rows = unit(pooled.rows(known.examples).astype(np.float64))
    questions: dict[str, list[int]] = defaultdict(list)
    pictures: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for place, example in enumerate(known.examples):
        questions[question(example)].append(place)
        pictures[tuple(example.images)].append(place)
    firsts = np.array([places[0] for places in pictures.values()])
    found = []
    for example, vector in zip(asked, unit(pooled.rows(asked).astype(np.float64)), strict=True):
        places = np.array(questions.get(question(example), firsts) if question(example) else firsts)
        cosines = rows[places] @ vector
        near = tuple(known.examples[int(places[cosines.argmax()])].images)
        alike = set(pictures[near]) & set(questions.get(question(example), pictures[near]))
        said = most_common([known.answers[place] for place in alike])
        found.append(
            {"prediction": list(said)} if known.several else {"prediction": said[0], "score": float(cosines.max())}
        )
    return found


def learned(
    how: How, known: _Known, asked: Sequence[Example], pooled: Pooled | None, seed: int, progress: Progress
) -> list[Row]:
    """The answers of a small network that was trained on the known examples."""
    names = sorted({name for answers in known.answers for name in answers})
    places = {name: place for place, name in enumerate(names)}
    vocabulary = vocabulary_of(known.examples)

    def inputs(examples: Sequence[Example]) -> Inputs:
        image = torch.zeros(len(examples), 0)
        if pooled is not None:
            image = torch.from_numpy(pooled.rows(examples))
        return Inputs(numbers(examples, vocabulary), image)

    seen = inputs(known.examples)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = Network(how, len(vocabulary), seen.image.shape[1], len(names))
    if known.several:
        rows = [[float(name in answers) for name in names] for answers in known.answers]
        truths = torch.tensor(rows)  # (N, A)
    else:
        truths = torch.tensor([places[answers[0]] for answers in known.answers])  # (N,)
    best = train(network, seen, truths, held_out(known.examples, seed), seed)
    progress.info(f"baseline {how}: {best:.3f} on the held-out examples, {len(names)} answers")
    if known.several:
        each = chances(network, inputs(asked), several=True).tolist()
        return [_labelled(dict(zip(names, row, strict=True))) for row in each]
    ranked = likeliest(names, chances(network, inputs(asked)), TOP)
    return [{"prediction": row[0][0], "score": row[0][1], "top": [name for name, _ in row]} for row in ranked]
