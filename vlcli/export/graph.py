"""A trained model as a plain function of tensors, for formats that hold graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vlcli.errors import ComponentError
from vlcli.export.base import Trained
from vlcli.nn.batch import Batch, Images, Pixels, Regions, Text, View
from vlcli.nn.forward_passes import ForwardPasses
from vlcli.nn.model import DataSpec, InputSpec
from vlcli.objectives.base import Objective

INPUTS = {
    "ids": "(batch, words) int64: vocabulary ids, [CLS] and [SEP] included",
    "text_mask": "(batch, words) bool: True at real pieces",
    "features": "(batch, pictures, regions, width) float32: region features",
    "boxes": "(batch, pictures, regions, 4) float32: x1, y1, x2, y2 divided by width and height",
    "region_mask": "(batch, pictures, regions) bool: True at real regions",
    "pixels": "(batch, pictures, 3, height, width) float32: normalised as the model asks",
}
"""What a graph may take; ``pictures`` is fixed by the task (two for NLVR2, else one)."""


@dataclass(frozen=True)
class Form:
    """The shape of a graph's inputs.

    Attributes:
        needs: what the model reads.
        data_spec: its sizes.
        pictures: pictures an example.
    """

    needs: InputSpec
    data_spec: DataSpec
    pictures: int

    def names(self) -> list[str]:
        """The inputs, in order."""
        text = ["ids", "text_mask"] if self.needs.text else []
        regions = ["features", "boxes", "region_mask"] if self.needs.regions else []
        return text + regions + (["pixels"] if self.needs.pixels else [])

    def axes(self) -> list[dict[int, str]]:
        """The dimensions of each input that may change, by name."""
        text, regions = {0: "batch", 1: "words"}, {0: "batch", 2: "regions"}
        known = {"ids": text, "text_mask": text, "pixels": {0: "batch"}}
        return [known.get(name, regions) for name in self.names()]

    def example(self, batch: int, words: int, regions: int, seed: int = 0) -> tuple[Tensor, ...]:
        """Random inputs of a size, the last half of the examples padded."""
        rng = torch.Generator().manual_seed(seed)
        text_mask, region_mask = _padded(batch, words), _padded(batch, regions)
        width, (height, side) = self.data_spec.region_dim, self.needs.size or (224, 224)
        low = torch.rand(batch, self.pictures, regions, 2, generator=rng) * 0.5
        made = {
            "ids": torch.randint(0, self.data_spec.vocab_size, (batch, words), generator=rng),
            "text_mask": text_mask,
            "features": torch.rand(batch, self.pictures, regions, width, generator=rng),
            "boxes": torch.cat([low, low + 0.4], -1),
            "region_mask": region_mask[:, None].repeat(1, self.pictures, 1),
        }
        made["ids"][:, 0] = self.data_spec.cls_id
        if self.needs.pixels:
            made["pixels"] = torch.randn(batch, self.pictures, 3, height, side, generator=rng)
        return tuple(made[name] for name in self.names())


class Graph(nn.Module):
    """One objective's prediction as a function of tensors.

    Args:
        trained: the model.
        objective: the objective that predicts, by name; None: the only one that can.

    Raises:
        ComponentError: none, or more than one, can, or it predicts no logits of a sentence with pictures.
    """

    def __init__(self, trained: Trained, objective: str | None = None) -> None:
        super().__init__()
        self.model = trained.model
        self.objective = choose_objective(trained, objective)
        self.form = Form(self.model.input_spec(), trained.data_spec, getattr(self.objective, "images", 1))
        if "fuse" not in self.model.capabilities or not self.form.needs.text:
            raise ComponentError(
                "Only models of a sentence and pictures are written as a graph.",
                got=f"a model that can: {', '.join(sorted(self.model.capabilities))}",
                hint="use the format safetensors",
            )

    def forward(self, *inputs: Tensor) -> Tensor:
        """``logits`` of inputs in the order of :meth:`Form.names`."""
        given = dict(zip(self.form.names(), inputs, strict=True))
        batch = self._batch(given)
        return self.objective.predict(ForwardPasses(self.model, batch, training=False))["logits"]

    def _batch(self, given: dict[str, Tensor]) -> Batch:
        ids, data_spec = given["ids"], self.form.data_spec
        special = (ids == data_spec.cls_id) | (ids == data_spec.sep_id)
        text = Text(ids, given["text_mask"], special, torch.full_like(ids, -1))
        images = Images([], _regions(given), _pixels(given))
        rows = torch.arange(ids.shape[0], device=ids.device)
        pictures = self.form.pictures
        places = rows[:, None] * pictures + torch.arange(pictures, device=ids.device)  # (B, K)
        return Batch({"clean": View(text, images, rows, places, aligned=pictures == 1)}, {}, [], rows)


def choose_objective(trained: Trained, name: str | None) -> Objective:
    """The objective whose logits are exported.

    Raises:
        ComponentError: none of that name, or none or several that predict.
    """
    known: dict[str, Any] = dict(trained.module.objectives.items())
    able = [key for key, part in known.items() if type(part).predict is not Objective.predict]
    if name is None and len(able) == 1:
        name = able[0]
    if name not in able:
        raise ComponentError(
            "Which objective's prediction is to be exported?",
            where=str(trained.folder),
            got=repr(name),
            expected=" or ".join(able) or "a model with an objective that predicts",
            hint="format: {name: onnx, objective: NAME}",
        )
    made: Objective = known[name]
    return made


def _padded(batch: int, length: int) -> Tensor:
    """(B, L) bool; the second half of the rows lack their last third."""
    mask = torch.ones(batch, length, dtype=torch.bool)
    mask[batch // 2 + 1 :, max(1, length - length // 3) :] = False
    return mask


def _regions(given: dict[str, Tensor]) -> Regions | None:
    if "features" not in given:
        return None
    features, boxes, mask = (given[name].flatten(0, 1) for name in ("features", "boxes", "region_mask"))
    return Regions(features, boxes, mask, torch.ones_like(boxes[:, 0, :2], dtype=torch.long))


def _pixels(given: dict[str, Tensor]) -> Pixels | None:
    if "pixels" not in given:
        return None
    images = given["pixels"].flatten(0, 1)
    return Pixels(images, torch.ones_like(images[:, 0, 0, :2], dtype=torch.long))
