"""ACE-RPE's anchor loss: hinges against the hardest negatives, and a soft maximum over patches and words."""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vlcli.nn import DataSpec, EncoderOutput, ForwardPasses, Model
from vlcli.objectives import Known, Mean, MomentumContrast, ObjectiveOutput
from vlcli_ace_rpe.encoding import working


def soft_maximum(values: Tensor, scale: float, mask: Tensor, normalised: bool) -> Tensor:
    """Returns (1 / scale) log of the sum of exp(scale * value) over the last dimension; ``normalised``: of the mean.

    Values (..., N) count where ``mask`` is True; where none does, the result is minus infinity.
    """
    maximum = (scale * values).masked_fill(~mask, -torch.inf).logsumexp(-1) / scale
    return maximum - mask.sum(-1).clamp(min=1).log() / scale if normalised else maximum


def hinge(positive: Tensor, others: Tensor, mask: Tensor, scale: float, margin: float, normalised: bool) -> Tensor:
    """Eq. 2: relu(margin + soft maximum of the negatives - the positive), (B,) of (B,) and (B, N)."""
    return (margin + soft_maximum(others, scale, mask, normalised) - positive).clamp(min=0)


class AnchorAlignment(MomentumContrast):
    """The anchor loss (Eq. 1-2): two hinges against momentum negatives, minus the soft maximum over patches and words.

    As printed the hinge hardly ever rests (the soft maximum of 65,535 negatives is above 4.5 at lambda 2) and the pair
    term has a constant that depends on the number of tokens. Class tokens and padding do not count as patches or words.
    Hard negatives are drawn by its scores instead of the contrast's.

    Args:
        scale: lambda.
        margin: delta.
        normalised: means instead of sums, which changes the hinge's meaning but no gradient of the pair term.
        width: of the shared space of the hinges.
        queue: K, how many vectors of each modality are kept.
        momentum: what the momentum copy keeps of itself a step.
        temperature: of the scores that hard negatives are drawn by; the loss has none.
        view: the view it reads.
    """

    paper = "ACE-RPE, Eq. 1 and 2"
    init_from = ("momentum-contrast",)

    def __init__(
        self,
        model: Model,
        data_spec: DataSpec,
        *,
        scale: float = 2.0,
        margin: float = 0.05,
        normalised: bool = False,
        width: int = 256,
        queue: int = 65536,
        momentum: float = 0.995,
        temperature: float = 0.07,
        view: str = "clean",
    ) -> None:
        options: dict[str, Any] = {"width": width, "queue": queue, "momentum": momentum, "view": view}
        super().__init__(model, data_spec, temperature=temperature, clamp=False, distill=0.0, **options)
        self.temperature.requires_grad_(False)
        self.scale, self.margin, self.normalised = scale, margin, normalised

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        known = Known.of(step, self.view)
        texts, images = self.paired(step)
        with torch.no_grad():
            far_texts, far_images = self.paired(step.teacher, "{}_copy")
            all_texts, all_images = step.gather(far_texts), step.gather(far_images)
        forth = images @ torch.cat([all_texts.T, self.text_queue.to(texts.dtype)], 1)  # (B, N + K)
        back = texts @ torch.cat([all_images.T, self.image_queue.to(texts.dtype)], 1)
        apart = F.pad(~known.together, (0, self.text_queue.shape[1]), value=True)
        options = (self.scale, self.margin, self.normalised)
        rows, count = torch.arange(len(texts), device=texts.device), len(known.texts)
        forth_hinge, back_hinge = (hinge(of[rows, known.own], of, apart, *options) for of in (forth, back))
        hinges, pairs = forth_hinge + back_hinge, self._pairs(step)
        scores = known.outputs(forth[:, :count] / self.temperature, back[:, :count] / self.temperature)
        outputs = {**scores, "new_texts": far_texts, "new_images": far_images}
        metrics = {"hinge": Mean.of(hinges.detach() / 2), "pair": Mean.of(pairs.detach())}
        return ObjectiveOutput({"anchor-alignment": Mean.of((hinges - pairs) / 2)}, outputs, metrics)

    def _pairs(self, step: ForwardPasses) -> Tensor:
        # (B,) soft maximum over each example's own patches and words
        text_rows, image_rows = step.pairs(self.view)
        words, of_words = _tokens(step.text(self.view).select(text_rows))
        patches, of_patches = _tokens(step.image(self.view).select(image_rows))
        alike = (patches @ words.transpose(1, 2)).flatten(1)  # (B, M N)
        mask = (of_patches[:, :, None] & of_words[:, None]).flatten(1)
        return soft_maximum(alike, self.scale, mask, self.normalised).masked_fill(~mask.any(1), 0)  # no word: no pairs


def _tokens(states: EncoderOutput) -> tuple[Tensor, Tensor]:
    # Normalised hidden states (B, T, D), and which of them have a place (B, T)
    layout = states.layout.expand(len(states.hidden))
    return F.normalize(working(states.hidden), dim=-1, eps=1e-6), layout.valid & ~layout.special
