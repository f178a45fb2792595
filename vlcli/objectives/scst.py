"""Self-critical sequence training: rewards drawn captions by their CIDEr-D above a baseline."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from vlcli.data.concepts import REFERENCES
from vlcli.errors import ComponentError, DataError
from vlcli.metrics.captions.cider import CiderReward, DocumentFrequency
from vlcli.nn import DataSpec, ForwardPasses, Model
from vlcli.nn.generation import Generated, Generation, generate
from vlcli.objectives.base import Mean, Objective, ObjectiveOutput

FILE = "document_frequency.json"
HINT = "train it by `task: captioning`, on data with captions"


class SelfCritical(Objective):
    """Self-critical sequence training: sampled captions with a higher CIDEr-D than the baseline become likelier (SCST).

    CIDEr-D is against all captions of the picture, with the training data's document frequency, counted once and kept
    beside the checkpoints. Rewards are computed in a thread while the baseline's captions are made.

    Args:
        baseline: the reward of the greedy caption, made without dropout (``greedy``), or the mean reward of the
            picture's other samples (``samples``).
        samples: captions drawn of each picture; ``samples`` as baseline needs two or more.
        max_length: most word pieces, the end counted.
        temperature: of the draws.
        end: the end counts as a word of captions and references, so that captions are finished.
    """

    paper = "Rennie et al. 2017, Self-critical Sequence Training; Luo 2020 for the mean-of-samples baseline"
    requires = frozenset({"generate"})

    def __init__(
        self,
        model: Model,
        data_spec: DataSpec,
        *,
        baseline: Literal["greedy", "samples"] = "greedy",
        samples: int = 1,
        max_length: int = 20,
        temperature: float = 1.0,
        end: bool = True,
    ) -> None:
        super().__init__(model, data_spec)
        if baseline == "samples" and samples < 2:
            what = "A mean of other samples needs some."
            raise ComponentError(what, where="scst", got=str(samples), expected="samples: 2 or more")
        self.baseline, self.end, self.sep_id = baseline, end, data_spec.sep_id
        self.choosing = Generation("greedy", max_length=max_length, bad_words=(data_spec.unk_id,))
        self.drawing = replace(self.choosing, decoding="sample", samples=samples, temperature=temperature)
        self.reward: CiderReward | None = None
        self.tokenizer: Any = None

    def setup(self, readers: Sequence[Any], tokenizer: Any, folder: Path | None) -> None:
        # counts in how many pictures' captions each run of words occurs, or reads an earlier count
        self.tokenizer = tokenizer
        kept = None if folder is None else folder / FILE
        if kept is not None and kept.is_file():
            frequency = DocumentFrequency.load(kept)
        else:
            groups = {tuple(e.images): e.targets.get(REFERENCES) for reader in readers for e in reader.examples()}
            known = filter(None, groups.values())
            frequency = DocumentFrequency.of([CiderReward.words(text, ended=self.end) for text in one] for one in known)
            if not frequency.images:
                raise DataError("No example has the captions of its picture.", where="objective scst", hint=HINT)
            if kept is not None:
                kept.parent.mkdir(parents=True, exist_ok=True)
                frequency.save(kept)
        self.reward = CiderReward(frequency, end=self.end)

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        # minus the log probability of each drawn word times its caption's advantage, a mean over words
        references = step.batch.targets.get(REFERENCES)
        if self.reward is None or references is None or not all(references):
            raise DataError("The captions of the pictures are not known.", where="objective scst", hint=HINT)
        # Samples first: half-precision copies of weights made without gradient would be used again with it.
        drawn = generate(step.model, step.pictures(), self.drawing)
        rewards = self._submit(drawn, references)
        if self.baseline == "greedy":
            with torch.no_grad(), _evaluating(step.model):
                greedy = ForwardPasses(step.model, step.batch, training=False).generate(self.choosing)
            theirs = self._submit(greedy, references)
        reward = drawn.scores.new_tensor(rewards.result()).view_as(drawn.scores)  # (B, K)
        if self.baseline == "greedy":
            base = reward.new_tensor(theirs.result())[:, None]
        else:  # the mean reward of the picture's other samples
            base = (reward.sum(-1, keepdim=True) - reward) / (reward.shape[1] - 1)
        assert drawn.word_scores is not None
        losses = -drawn.word_scores * (reward - base)[..., None]
        lengths = drawn.mask.sum(-1).float()
        metrics = {"reward": Mean.of(reward), "baseline": Mean.of(base), "length": Mean.of(lengths)}
        return ObjectiveOutput({"scst": Mean.of(losses, drawn.mask)}, metrics=metrics)

    def _submit(self, captions: Generated, references: Sequence[Sequence[str]]) -> Future[list[float]]:
        assert self.reward is not None
        words = captions.words(self.sep_id)
        ended = ((captions.ids == self.sep_id) & captions.mask).any(-1).flatten().tolist()
        texts = [self.tokenizer.decode(ids) for group in words for ids in group]
        known = [group for group in references for _ in words[0]]
        return self.reward.thread.submit(self.reward.score, texts, ended, known)


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True
