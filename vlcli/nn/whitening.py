"""Whitens features."""

import torch
from torch import Tensor, nn


class Whitening(nn.Module):
    """Projects features to at most F first principal components K, and divides each by its standard deviation.

    Before :meth:`fit` it keeps the first ``components`` features as they are.
    """

    mean: Tensor
    matrix: Tensor

    def __init__(self, features: int, components: int) -> None:
        super().__init__()
        self.components = min(features, components)
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("matrix", torch.eye(self.components, features))  # (K, F)

    @torch.no_grad()
    def fit(self, rows: Tensor) -> None:
        """Set mean and components from features (N, F); directions without variance become zero."""
        rows = rows.to(torch.float64)
        mean = rows.mean(0)
        values, vectors = torch.linalg.eigh((rows - mean).T @ (rows - mean) / max(1, len(rows) - 1))
        values, vectors = values.flip(0)[: self.components], vectors.flip(1)[:, : self.components]
        vectors = vectors * vectors.gather(0, vectors.abs().argmax(0, keepdim=True)).sign()  # eigh leaves signs open
        scale = torch.where(values > 1e-6 * values[0], values.clamp(min=1e-30).rsqrt(), 0.0)
        self.mean.copy_(mean)
        self.matrix.copy_((vectors * scale).T)

    def forward(self, x: Tensor) -> Tensor:
        # (..., F) -> (..., K)
        return (x - self.mean) @ self.matrix.T
