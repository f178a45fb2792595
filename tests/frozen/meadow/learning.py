"""An objective and a pairwise position encoding."""

import torch
from torch import nn

from vlcli.nn import AttentionShape, DataSpec, Layout, Model, PairwisePosition
from vlcli.objectives import Mean, Objective, ObjectiveOutput


class Match(Objective):
    """Classify the fused pair into the labels of the data."""

    requires = frozenset({"fuse"})

    def __init__(self, model: Model, data_spec: DataSpec, *, smoothing: float = 0.0) -> None:
        super().__init__(model, data_spec)
        self.head, self.smoothing = nn.Linear(model.dim, len(data_spec.answers)), smoothing

    @classmethod
    def labels(cls, spec, readers) -> tuple[str, ...]:
        return tuple(readers[0].label_names())

    def forward(self, step, others) -> ObjectiveOutput:
        logits = self.predict(step)["logits"]
        labels = step.batch.targets["label"]  # (B,)
        losses = nn.functional.cross_entropy(logits, labels, reduction="none", label_smoothing=self.smoothing)
        return ObjectiveOutput({"match": Mean.of(losses)})

    def predict(self, step):
        return {"logits": self.head(step.fused().by_example())}  # (B, answers)


class Slope(PairwisePosition):
    """A penalty that grows with the distance of two regions, one slope per layer and head."""

    def __init__(self, shape: AttentionShape, *, slope: float = 1.0) -> None:
        super().__init__(shape)
        self.slope = nn.Parameter(torch.full((shape.layers, shape.heads, 1, 1), slope))

    def prepare(self, x, y, x_layout: Layout, y_layout: Layout):
        offset = x_layout.centre[:, :, None] - y_layout.centre[:, None]  # (B, queries, keys, 2), NaN off the plane
        return offset.norm(dim=-1).nan_to_num()[:, None]  # (B, 1, queries, keys)

    def logits(self, q, k, state, layer: int):
        return -self.slope[layer] * state
