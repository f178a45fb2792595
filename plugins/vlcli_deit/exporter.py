"""The exporter ``transformers-vit``: a folder that transformers' ViT and DeiT classes load."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import torch

from vlcli.export import (
    Converted,
    Trained,
    TransformersExporter,
    class_labels,
    fill,
    image_difference,
    largest_difference,
    of_kind,
    refused,
    vit,
    vit_facts,
    vit_state,
)
from vlcli_deit.model import DeiT


class TransformersViT(TransformersExporter):
    """A folder that ``ViTForImageClassification.from_pretrained`` loads, compared with the original.

    With a distillation token it is ``DeiTForImageClassificationWithTeacher``; without a classifier, ``ViTModel``.
    """

    paper = "DeiT in transformers"
    models: ClassVar[tuple[str, ...]] = ("deit",)
    classes: ClassVar[tuple[str, ...]] = (
        "ViTForImageClassification",
        "DeiTForImageClassificationWithTeacher",
        "ViTModel",
    )

    def convert(self, trained: Trained) -> list[Converted]:
        model = of_kind(trained.model, DeiT, "ViT")
        if not model.own_classes:
            network, compare = encoder(model), partial(image_difference, model, size=model.image_size)
        else:
            network, compare = classifier(model), partial(difference, model)
        return [Converted(network, compare, processor="ViTImageProcessor")]


def encoder(model: DeiT) -> Any:
    """``ViTModel`` with the weights of a model without a classifier.

    Raises:
        ComponentError: it has a distillation token, or is no ViT.
    """
    if model.dist_token is not None:
        raise refused("ViT", "a distillation token without a classifier", "distilled: false, or classes")
    return vit(model.patch, model.cls_token, model.positions, model.stack, model.image_size)


def classifier(model: DeiT) -> Any:
    """Transformers' classifier with the weights of ours.

    Raises:
        ComponentError: the model is no ViT.
    """
    from transformers import DeiTConfig, DeiTForImageClassificationWithTeacher, ViTConfig, ViTForImageClassification

    prefix, family, tokens = "vit", "ViT", {"cls_token": model.cls_token}
    heads = {"classifier": model.head}
    if model.dist_token is not None and model.head_dist is not None:
        prefix, family = "deit", "DeiT"
        tokens["distillation_token"] = model.dist_token
        heads = {"cls_classifier": model.head, "distillation_classifier": model.head_dist}
    state = vit_state(model.patch, tokens, model.positions, model.stack, family)
    made = {f"{prefix}.{name}": value for name, value in state.items()}
    made |= {f"{name}.{part}": value for name, head in heads.items() for part, value in head.state_dict().items()}
    facts = vit_facts(model.patch, model.stack, model.image_size) | {"id2label": class_labels(model)}
    if family == "DeiT":
        return fill(DeiTForImageClassificationWithTeacher(DeiTConfig(**facts)), made, family)
    return fill(ViTForImageClassification(ViTConfig(**facts)), made, family)


def difference(model: DeiT, network: Any) -> float:
    """The largest difference of a class score over random pictures."""
    pixels = torch.randn(2, 3, *model.image_size, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return largest_difference((model.eval()(pixels), network(pixel_values=pixels).logits))
