"""Question answering by generation: trains a decoder on the answers that people gave."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vlcli.data.collate import collate_texts
from vlcli.data.sample import TextSample
from vlcli.nn import DataSpec, ForwardPasses, Model, Text
from vlcli.objectives.base import Mean, ObjectiveOutput, full_precision
from vlcli.objectives.momentum import MomentumHeads, softened
from vlcli.registry.bounds import Positive


class AnswerGeneration(MomentumHeads):
    """Say the answers to a question about a picture, word by word (ALBEF's VQA).

    The loss of a question sums over its different answers and their words, each weighted by the share of people who
    gave it (``raw_answers``), or by its score times ``alone`` where the data have scores (``answers``: Visual Genome).

    Args:
        alone: weight of an answer that one person gave.
        view: the view that is answered.
    """

    paper = "ALBEF, Li et al. 2021, section 5 (VQA) and appendix A"
    requires = frozenset({"fuse", "decode"})

    def __init__(
        self, model: Model, data_spec: DataSpec, *, alone: Positive = 0.5, view: str = "clean", **options: Any
    ) -> None:
        super().__init__(model, data_spec, **options)
        if not self.distill:
            self.teacher_momentum = None
        self.alone, self.view, self.data_spec = alone, view, data_spec
        self.tokenizer: Any = None

    def setup(self, readers: Sequence[Any], tokenizer: Any, folder: Path | None) -> None:
        self.tokenizer = tokenizer

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        # cross-entropy of every word of every answer, the end included
        fused = step.fused(self.view).text
        text, question, weights = self.wanted(step)
        count = torch.tensor(float(len(question.unique())), device=fused.hidden.device)
        if not len(question):
            return ObjectiveOutput({"answer-generation": Mean(fused.hidden.sum() * 0, count)})
        truth, real = text.ids[:, 1:], text.mask[:, 1:]
        scores = self._scores(step, text, question, real)  # (K, V)
        terms = F.cross_entropy(scores, truth[real], reduction="none")
        if (share := self.share(step)) > 0:
            with torch.no_grad():
                guess = self._scores(step.teacher, text, question, real).softmax(1)
            terms = softened(terms, scores, guess, share)
        weight = weights.to(terms.dtype)[:, None].expand_as(truth)[real]
        right = (scores.argmax(1) == truth[real]).float()
        loss = Mean((weight * terms).sum(), count)
        return ObjectiveOutput({"answer-generation": loss}, metrics={"word_accuracy": Mean.of(right)})

    def wanted(self, step: ForwardPasses) -> tuple[Text, Tensor, Tensor]:
        """Return the answers of a batch (A texts), the example of each (A,), and its weight (A,)."""
        targets = step.batch.targets
        blank = [None] * len(step.batch)
        answers, question, weights = [], [], []
        for row in range(len(step.batch)):
            people, scores = ((targets.get(name) or blank)[row] for name in ("raw_answers", "answers"))
            shares = {answer: count / len(people or ()) for answer, count in Counter(people or ()).items()}
            alone = {answer: score * self.alone for answer, score in (scores or {}).items() if score > 0}
            for answer, weight in (shares or alone).items():
                answers.append(self._encoded(answer))
                question.append(row)
                weights.append(weight)
        texts = collate_texts(answers or [self._encoded("")], self.data_spec.pad_id)
        device = step.view(self.view).text_rows.device
        rows = torch.tensor(question, dtype=torch.long, device=device)
        return texts.to(device), rows, torch.tensor(weights, dtype=torch.float64).to(device)

    def _encoded(self, answer: str) -> TextSample:
        # without data (a rehearsal) every answer is empty
        empty = TextSample(answer, answer, [self.data_spec.cls_id, self.data_spec.sep_id], [True, True], [-1, -1])
        return empty if self.tokenizer is None else self.tokenizer.encode_answer(answer)

    def _scores(self, step: ForwardPasses, text: Text, question: Tensor, real: Tensor) -> Tensor:
        hidden = step.model.decode(text, step.fused(self.view).text.select(question))  # (A, T, D)
        return full_precision(step.model.next_words(hidden[:, :-1][real]))
