"""Exports DeiT to transformers' ViT and DeiT classes (``transformers-vit``)."""

from functools import partial
from typing import Any, ClassVar

from vlcli import export
from vlcli_deit.model import DeiT


class TransformersViT(export.TransformersExporter):
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

    def convert(self, trained: export.Trained) -> list[export.Converted]:
        model = export.of_kind(trained.model, DeiT, "ViT")
        if model.own_classes:
            network, compare = classifier(model), partial(export.class_difference, model)
        elif model.dist_token is not None:
            raise export.refused("ViT", "a distillation token without a classifier", "distilled: false, or classes")
        else:
            network = export.vit(model.patch, model.cls_token, model.positions, model.stack, model.image_size)
            compare = partial(export.image_difference, model, size=model.image_size)
        return [export.Converted(network, compare, processor="ViTImageProcessor")]


def classifier(model: DeiT) -> Any:
    """Return transformers' classifier with the weights of a DeiT; raise ComponentError if the model is no ViT."""
    import transformers

    family, kind = "ViT", "ViTForImageClassification"
    tokens, heads = {"cls_token": model.cls_token}, {"classifier": model.head}
    if model.dist_token is not None and model.head_dist is not None:
        family, kind = "DeiT", "DeiTForImageClassificationWithTeacher"
        tokens["distillation_token"] = model.dist_token
        heads = {"cls_classifier": model.head, "distillation_classifier": model.head_dist}
    state = export.vit_state(model.patch, tokens, model.positions, model.stack, family)
    state = {f"{family.lower()}.{name}": value for name, value in state.items()}
    state |= {f"{name}.{part}": value for name, head in heads.items() for part, value in head.state_dict().items()}
    facts = export.vit_facts(model.patch, model.stack, model.image_size) | {"id2label": export.class_labels(model)}
    config = getattr(transformers, f"{family}Config")(**facts)
    return export.fill(getattr(transformers, kind)(config), state, family)
