"""Embeds regions (appearance, box, class) and visual concepts for the single-stream models."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlcli.nn import PUBLISHED_STD, BoxProjection, Concepts, DataSpec, Regions, geometry

_WITH_BACKGROUND = 1601  # class columns of VLP's files: the background and Visual Genome's 1,600 classes
# What the norms of place and class start with in a narrow model: short features are smaller than what a norm gives
PLACE_SCALE = 0.4


class Appearance(nn.Sequential):
    """Region features as tokens: one linear layer, or ``fc7`` (as wide as the feature) and a second one, as VLP's."""

    def __init__(self, features: int, dim: int, kind: Literal["linear", "fc7"], dropout: float) -> None:
        if kind == "linear":
            super().__init__(nn.Linear(features, dim))
        else:
            fc7, inner = nn.Linear(features, features), nn.Linear(features, dim)
            super().__init__(fc7, nn.ReLU(), inner, nn.ReLU(), nn.Dropout(dropout))

    def initialise(self, std: float) -> None:
        """Draws weights that keep a feature's scale: BERT's deviation does at 2,048 numbers, fewer need a larger one.

        Otherwise normalised summands drown a narrow feature, which is learnt late. In a narrow model each ReLU halves
        the variance, which the gain makes up for (He et al. 2015).
        """
        gain = 2**0.5 if std > PUBLISHED_STD and len(self) > 1 else 0.9
        for layer in self:
            if isinstance(layer, nn.Linear) and (wanted := gain * layer.in_features**-0.5) > std:
                nn.init.normal_(layer.weight, std=wanted)


class PaperRegions(nn.Module):
    """DiMBERT's: W r + [LN(W_g g); LN(W_c c)], geometry g of 5 numbers, class probabilities c.

    ``weighted``: the sum's weights are learned (they start at 1).
    """

    def __init__(
        self,
        data_spec: DataSpec,
        dim: int,
        *,
        appearance: Literal["linear", "fc7"] = "fc7",
        weighted: bool = False,
        eps: float = 1e-5,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.appearance = Appearance(data_spec.region_dim, dim, appearance, dropout)
        self.columns = foreground(data_spec)
        half = dim // 2 if self.columns else 0
        self.place, self.place_norm = BoxProjection(5, dim - half), nn.LayerNorm(dim - half, eps=eps)
        self.label = nn.Linear(self.columns, half) if half else None
        self.label_norm = nn.LayerNorm(half, eps=eps) if half else None
        self.weights = nn.Parameter(torch.ones(3)) if weighted else None

    def initialise(self, std: float) -> None:
        """Scales place and class down in a narrow model, whose appearance the ReLUs of ``fc7`` have made small."""
        for norm in filter(None, (self.place_norm, self.label_norm)):
            if std > PUBLISHED_STD and len(self.appearance) > 1:
                nn.init.constant_(norm.weight, PLACE_SCALE)

    def forward(self, regions: Regions, segment: Tensor | None = None) -> Tensor:
        """Returns the sum (M, R, D) of appearance, place with class, and segment (D,)."""
        look = self.appearance(regions.features.to(self.place.weight.dtype))
        parts = [self.place_norm(self.place(geometry(regions.boxes, 5).to(look.dtype)))]
        if self.label is not None and self.label_norm is not None:
            probs = class_probabilities(regions, self.columns).to(look.dtype)
            parts.append(self.label_norm(self.label(probs)))
        terms: list[Tensor] = [look, torch.cat(parts, -1), *([] if segment is None else [segment])]
        if self.weights is None:
            return sum(terms[1:], terms[0])
        return sum((weight * term for weight, term in zip(self.weights, terms, strict=False)), torch.zeros_like(look))


class VLPRegions(nn.Module):
    """VLP's: fc7 anew for the appearance, and one layer over geometry and class probabilities, both normalised.

    Geometry is x1, y1, x2, y2 divided by the farthest corner of the image's boxes (not by the image), area and
    confidence.
    """

    def __init__(
        self, data_spec: DataSpec, dim: int, *, appearance: Literal["linear", "fc7"] = "fc7", dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.appearance = Appearance(data_spec.region_dim, dim, appearance, dropout)
        self.columns = foreground(data_spec)
        self.place = nn.Sequential(nn.Linear(6 + 1 + self.columns, dim), nn.ReLU(), nn.Dropout(dropout))

    def forward(self, regions: Regions, segment: Tensor | None = None) -> Tensor:
        look = self.appearance(regions.features.to(next(self.place.parameters()).dtype))
        probs = regions.class_probs
        if probs is None or probs.shape[-1] == self.columns:  # the remainder is the background's
            probs = class_probabilities(regions, self.columns)
            probs = torch.cat([(1 - probs.sum(-1, keepdim=True)).clamp(min=0), probs], -1)
        # Geometry as the released loader computes it, of boxes in pixels.
        sizes = regions.sizes.flip(-1).repeat(1, 2)[:, None].to(regions.boxes.dtype)  # (M, 1, 4): W H W H
        boxes = regions.boxes * sizes
        real = boxes.masked_fill(~regions.mask[..., None], 0)
        far = real.unflatten(-1, (2, 2)).amax((1, 2)) + 1e-5  # (M, 2)
        shares = boxes / far.repeat(1, 2)[:, None]
        area = (shares[..., 2:] - shares[..., :2]).prod(-1, keepdim=True).clamp(min=0)
        place = torch.cat([shares, area, confidence(regions)[..., None].to(area.dtype)], -1)  # (M, R, 6)
        read = [F.layer_norm(part, part.shape[-1:]) for part in (place, probs)]
        x: Tensor = look + self.place(torch.cat(read, -1).to(look.dtype))  # (M, R, D)
        return x if segment is None else x + segment


def whole_picture(regions: Regions) -> tuple[Tensor, Tensor]:
    """Returns the mean of a picture's features (M, 1, F), and a box as large as the picture (M, 1, 4)."""
    real = regions.mask[..., None].to(regions.features.dtype)
    mean = (regions.features * real).sum(1, keepdim=True) / real.sum(1, keepdim=True).clamp(min=1)
    return mean, regions.boxes.new_tensor([0.0, 0.0, 1.0, 1.0]).expand(mean.shape[0], 1, 4)


def confidence(regions: Regions) -> Tensor:
    """Returns the detector's confidence (M, R); 1 where the store has none."""
    return torch.ones_like(regions.boxes[..., 0]) if regions.class_scores is None else regions.class_scores


def foreground(data_spec: DataSpec) -> int:
    """Returns the number of classes without the background."""
    return data_spec.region_classes - (data_spec.region_classes == _WITH_BACKGROUND)


def class_probabilities(regions: Regions, columns: int) -> Tensor:
    """Returns class probabilities (M, R, columns) without background, else the best class with its confidence."""
    if regions.class_probs is not None:
        return regions.class_probs[..., regions.class_probs.shape[-1] - columns :]
    blank = regions.boxes.new_zeros(*regions.boxes.shape[:2], columns)
    if regions.classes is None:
        return blank
    known = (regions.classes >= 0) & (regions.classes < columns)
    share = confidence(regions).masked_fill(~known, 0)[..., None].to(blank.dtype)
    return blank.scatter(-1, regions.classes.clamp(0, columns - 1)[..., None], share)


class ConceptPieces(nn.Module):
    """The word pieces of an image's concepts, one concept after another, best first."""

    table: Tensor

    def __init__(self, data_spec: DataSpec, most: int) -> None:
        super().__init__()
        self.most, self.mask_id = most, data_spec.mask_id
        known = [torch.tensor(pieces, dtype=torch.long) for pieces in data_spec.concept_pieces or [[data_spec.unk_id]]]
        table = nn.utils.rnn.pad_sequence(known, batch_first=True, padding_value=-1)
        self.register_buffer("table", table, persistent=False)

    def forward(self, concepts: Concepts) -> tuple[Tensor, Tensor, Tensor]:
        """Returns pieces (M, L) with -1 at padding, the concept of each and its index in it (M, L)."""
        concepts = concepts.map(lambda tensor: tensor[:, : self.most])
        pieces = self.table[concepts.ids.clamp(0, len(self.table) - 1)]  # (M, K, P)
        if concepts.hidden is not None:
            pieces = pieces.masked_fill(concepts.hidden[..., None] & (pieces >= 0), self.mask_id)
        pieces = pieces.masked_fill(~concepts.mask[..., None], -1)
        rows, count, longest = pieces.shape
        slot = torch.arange(count, device=pieces.device)[:, None].expand(count, longest).flatten().expand(rows, -1)
        part = torch.arange(longest, device=pieces.device).repeat(count).expand(rows, -1)
        flat = pieces.flatten(1)
        if longest == 1 or flat.is_meta or torch.compiler.is_compiling() or torch.compiler.is_exporting():
            return flat, slot, part
        order = (flat < 0).to(torch.uint8).argsort(dim=1, stable=True)  # real pieces to the front, in their order
        order = order[:, : max(1, int((flat >= 0).sum(1).max()))]
        return flat.gather(1, order), slot.gather(1, order), part.gather(1, order)
