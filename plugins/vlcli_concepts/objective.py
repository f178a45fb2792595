"""The objective ``concepts``: the words of a picture, from its instances by noisy-OR."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from vlcli.errors import ComponentError, DataError
from vlcli.nn import DataSpec, ForwardPasses, Model
from vlcli.objectives import AnswerTable, Mean, Objective, ObjectiveOutput
from vlcli_concepts.noisy_or import log_noisy_or, noisy_or_loss


class ConceptClassification(Objective):
    """Which words a picture's captions use: p_w = 1 - prod_j (1 - p_wj) over its instances j.

    Works on the image tokens of any model: grid cells, regions, patches. The target is ``words``, the words of a
    picture's captions, as the task ``concepts`` arranges captions.

    Args:
        model: a model that encodes pictures.
        data_spec: ``answers`` are the vocabulary.
        bias: of each word's score at the start: the publication's -6.58 says "absent, most likely".
        std: of the words' weights at the start.
        view: the view whose pictures are read.
    """

    paper = "Fang et al. 2015, From Captions to Visual Concepts and Back, equation 1"
    requires = frozenset({"image"})

    def __init__(
        self, model: Model, data_spec: DataSpec, *, bias: float = -6.58, std: float = 0.001, view: str = "clean"
    ) -> None:
        super().__init__(model, data_spec)
        if not data_spec.answers:
            raise ComponentError(
                "The words are not known.", where="objective concepts", expected="the task `concepts`, which finds them"
            )
        self.view, self.words = view, data_spec.answers
        self.number = {word: place for place, word in enumerate(data_spec.answers)}
        self.head = nn.Linear(self.dim, len(data_spec.answers))
        nn.init.normal_(self.head.weight, std=std)
        nn.init.constant_(self.head.bias, bias)
        self.table = AnswerTable(data_spec.answers)

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        scores, mask = self.scores(step)
        labels = self.truth(step, scores)
        loss = noisy_or_loss(scores, labels, mask)  # (B, W)
        # Of a picture without any instance nothing can be learnt.
        return ObjectiveOutput({"concepts": Mean.of(loss, mask.any(1, keepdim=True).expand_as(loss))})

    def predict(self, step: ForwardPasses) -> dict[str, Tensor]:
        scores, mask = self.scores(step)
        present, absent = log_noisy_or(scores, mask)
        best = scores.float().masked_fill(~mask[..., None], -torch.inf).argmax(1)  # (B, W)
        return {"logits": present - absent, "instance": best}

    def scores(self, step: ForwardPasses) -> tuple[Tensor, Tensor]:
        """Scores of each example's instances (B, J, W), and which of them are real (B, J)."""
        states, rows = step.image(self.view), step.view(self.view).image_rows[:, 0]
        valid = states.layout.valid & ~states.layout.special
        return self.head(states.hidden)[rows], valid.expand(states.hidden.shape[0], -1)[rows]

    def truth(self, step: ForwardPasses, scores: Tensor) -> Tensor:
        """(B, W), 1 where a word is among the example's.

        Raises:
            DataError: the data give no words.
        """
        given = step.batch.targets.get("words")
        if given is None or any(words is None for words in given):
            raise DataError(
                "The examples have no words.", where="objective concepts", expected="captions, read by task: concepts"
            )
        found = torch.zeros(len(given), len(self.words))
        for row, words in enumerate(given):
            found[row, [self.number[word] for word in words if word in self.number]] = 1
        return found.to(scores.device)

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        return self.table.adapt(state, self.state_dict(), report)
