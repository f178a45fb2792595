"""Predicts the words of a picture from its instances by noisy-OR."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from vlcli.errors import ComponentError, DataError
from vlcli.nn import DataSpec, ForwardPasses, Model
from vlcli.objectives import AnswerTable, Mean, Objective, ObjectiveOutput

TINY = -16.0
"""Below it, softplus(z) is exp(z) to float32's last digit."""
# Score of an instance that does not count: its probability is 0 in every float type.
ABSENT = -1e4


def log_noisy_or(scores: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Returns ``log p`` and ``log (1 - p)`` of ``p = 1 - prod_j (1 - sigmoid(z_j))``, in float32 at least.

    With ``s = sum_j softplus(z_j)`` the second is ``-s``, the first ``log(1 - exp(-s))``; where s is small, it is
    computed from ``log s``, a log-sum-exp that does not underflow.

    Args:
        scores: z, one per instance and word (..., J, W).
        mask: True at real instances (..., J).
    """
    z = scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
    if mask is not None:
        z = z.masked_fill(~mask[..., None], ABSENT)
    total = functional.softplus(z).sum(-2)  # (..., W)
    large, low = total > 0.5, z < TINY
    of_large = torch.log1p(-torch.exp(-torch.where(large, total, 1.0)))
    log_softplus = torch.where(low, z, functional.softplus(torch.where(low, 0.0, z)).log())
    of_small = torch.logsumexp(log_softplus, -2) + _log_share(torch.where(large, 0.0, total))
    return torch.where(large, of_large, of_small), -total


def _log_share(s: Tensor) -> Tensor:
    """Return ``log((1 - exp(-s)) / s)`` for s in [0, 0.5] by its series (error below 2e-9)."""
    square = s * s
    return s * (-1 / 2 + s * (1 / 24 + square * (-1 / 2880 + square / 181440)))


def noisy_or_loss(scores: Tensor, labels: Tensor, mask: Tensor | None = None) -> Tensor:
    """Returns the cross-entropy (M, W) of log_noisy_or of scores (M, J, W) with labels (M, W), 1 at true words."""
    present, absent = log_noisy_or(scores, mask)
    return -(labels * present + (1 - labels) * absent)


class ConceptClassification(Objective):
    """Words of a picture's captions: p_w = 1 - prod_j (1 - p_wj) over its instances j.

    Instances are a model's image tokens: grid cells, regions, patches. The target is ``words``, of the task
    ``concepts``.

    Args:
        model: a model that encodes pictures.
        data_spec: ``answers`` are the vocabulary.
        bias: initial bias of each word's score; the publication's -6.58 means absent, most likely.
        std: of the words' initial weights.
        view: the view whose pictures are read.
    """

    paper = "Fang et al. 2015, From Captions to Visual Concepts and Back, equation 1"
    requires = frozenset({"image"})

    def __init__(
        self, model: Model, data_spec: DataSpec, *, bias: float = -6.58, std: float = 0.001, view: str = "clean"
    ) -> None:
        super().__init__(model, data_spec)
        if not data_spec.answers:
            expected = "the task `concepts`, which finds them"
            raise ComponentError("The words are not known.", where="objective concepts", expected=expected)
        self.view, self.words = view, data_spec.answers
        self.number = {word: number for number, word in enumerate(data_spec.answers)}
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
        """Returns scores of each example's instances (B, J, W), and a mask of the real ones (B, J)."""
        states, rows = step.image(self.view), step.view(self.view).image_rows[:, 0]
        if (width := states.hidden.shape[-1]) != self.dim:
            what = "The instances of the model are not as wide as what its heads read."
            got, expected = f"{width} numbers an instance", f"{self.dim} (the model's dim)"
            raise ComponentError(what, where="objective concepts", got=got, expected=expected)
        valid = states.layout.valid & ~states.layout.special
        return self.head(states.hidden)[rows], valid.expand(states.hidden.shape[0], -1)[rows]

    def truth(self, step: ForwardPasses, scores: Tensor) -> Tensor:
        """Returns labels (B, W), 1 at an example's words. Raises DataError: the examples have none."""
        targets = step.batch.targets.get("words")
        if targets is None or any(words is None for words in targets):
            what, expected = "The examples have no words.", "captions, read by task: concepts"
            raise DataError(what, where="objective concepts", expected=expected)
        labels = torch.zeros(len(targets), len(self.words))
        for row, words in enumerate(targets):
            labels[row, [self.number[word] for word in words if word in self.number]] = 1
        return labels.to(scores.device)

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        return self.table.adapt(state, self.state_dict(), report)
