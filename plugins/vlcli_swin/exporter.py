"""Exports Swin to transformers (``transformers-swin``)."""

from functools import partial
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from vlcli import export
from vlcli_swin.model import TABLE, Swin, SwinStage, to_transformers


class TransformersSwin(export.TransformersExporter):
    """A folder that ``SwinForImageClassification.from_pretrained`` loads, compared with the original.

    Without a classifier it is ``SwinModel``.
    """

    paper = "Swin Transformer in transformers"
    models: ClassVar[tuple[str, ...]] = ("swin",)
    classes: ClassVar[tuple[str, ...]] = ("SwinForImageClassification", "SwinModel")

    def convert(self, trained: export.Trained) -> list[export.Converted]:
        from transformers import SwinForImageClassification, SwinModel

        model = export.of_kind(trained.model, Swin, "Swin")
        settings = configuration(model)
        state = renamed(model, settings.window_size)
        kind: Any = SwinModel
        compare = partial(export.image_difference, model, size=model.image_size)
        if model.own_classes:
            state = {f"swin.{name}": value for name, value in state.items()}
            state |= {f"classifier.{name}": value for name, value in model.head.state_dict().items()}
            kind, compare = SwinForImageClassification, partial(export.class_difference, model)
        network = export.fill(kind(settings), state, "Swin")
        return [export.Converted(network, compare, processor="ViTImageProcessor")]


def configuration(model: Swin) -> Any:
    """Return the ``SwinConfig`` of a model.

    Raises ComponentError if it has encodings or an attention that Swin has not, or maps that are no squares.
    """
    from transformers import SwinConfig

    stages = [cast("SwinStage", stage) for stage in model.stages]
    for stage in stages:
        export.check_plain(stage.blocks, "Swin")
        if (names := export.encodings(stage)) not in ([], ["SwinBias"]):
            raise export.refused("Swin", f"the position encoding {' and '.join(names)}", "position: swin-bias")
    (height, width), patch = model.image_size, model.patch.kernel_size[0]
    if height != width or height % patch:
        raise export.refused("Swin", f"pictures of {height} x {width}", f"squares of a multiple of {patch}")
    least = -(-height // (patch * 2 ** (len(stages) - 1)))
    if least < stages[0].side:
        got = f"a last map of {least} x {least} cells, smaller than its windows"
        raise export.refused("Swin", got, f"window: {least}, or larger pictures")
    blocks = [cast("Any", stage.blocks) for stage in stages]
    return SwinConfig(
        image_size=height,
        patch_size=patch,
        embed_dim=model.patch.out_channels,
        depths=[len(one) for one in blocks],
        num_heads=[one[0].window.attention.heads for one in blocks],
        window_size=stages[0].side,
        mlp_ratio=blocks[0][0].feed_forward.inner.out_features / model.patch.out_channels,
        layer_norm_eps=model.norm.eps,
        id2label=export.class_labels(model) or None,
    )


def renamed(model: Swin, window: int) -> dict[str, Tensor]:
    """Returns weights under the names of transformers' ``SwinModel``; a stage without a bias gets zeros."""
    stages: Any = model.stages
    blank = {
        TABLE.format(number, layer): torch.zeros((2 * window - 1) ** 2, block.window.attention.heads)
        for number, stage in enumerate(stages)
        for layer, block in enumerate(stage.blocks)
    }
    weights = {name: value for name, value in model.state_dict().items() if not name.startswith("head.")}
    return blank | to_transformers(weights)
