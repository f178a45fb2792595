"""Exports VLMo: a file that the released code loads (``vlmo``), and its image tower as BEiT (``transformers-vlmo``)."""

from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from vlcli import export
from vlcli.errors import ComponentError
from vlcli.files import written
from vlcli.nn import PROJECTIONS
from vlcli.progress import Progress
from vlcli_vlmo.bias import VLMoBias
from vlcli_vlmo.blocks import IMAGE_EXPERT
from vlcli_vlmo.model import VLMo
from vlcli_vlmo.weights import to_released

LEFT = "transformers has no class for text and pairs in VLMo: only its image tower is written"
_EXPERT = f"feed.experts.{IMAGE_EXPERT}."
_LAYER = {
    **{f"attention.attention.{part}.": f"attention.{part[0]}_proj." for part in PROJECTIONS},
    "attention.attention.dense.": "attention.o_proj.",
    "attention.norm.": "layernorm_before.",
    "attention.scale": "lambda_1",
    "feed.scale": "lambda_2",
    f"{_EXPERT}norm.": "layernorm_after.",
    "feed.norm.": "layernorm_after.",
    f"{_EXPERT}inner.": "mlp.fc1.",
    f"{_EXPERT}outer.": "mlp.fc2.",
}


class TransformersVLMo(export.TransformersExporter):
    """A folder ``image`` that ``BeitModel`` loads: images through their experts; compared with the original.

    The image's type is added to the class token and to the bias of the patches.
    """

    paper = "BEiT in transformers"
    models: ClassVar[tuple[str, ...]] = ("vlmo",)
    classes: ClassVar[tuple[str, ...]] = ("BeitModel",)

    def convert(self, trained: export.Trained) -> list[export.Converted]:
        from transformers import BeitModel

        model = export.of_kind(trained.model, VLMo, "BEiT")
        if not isinstance(model.patch, nn.Conv2d):
            raise export.refused("BEiT", "a grid of stored features", "image: pixels")
        network = export.fill(BeitModel(configuration(model)), renamed(model), "BEiT")
        compare = partial(export.image_difference, model, size=(model.image_size, model.image_size))
        return [export.Converted(network, compare, "image", processor="BeitImageProcessor", notes=[LEFT])]


def configuration(model: VLMo) -> Any:
    """Returns the ``BeitConfig`` of the image tower. Raises ComponentError: BEiT lacks its encoding or attention."""
    from transformers import BeitConfig

    export.check_plain(model.stack.layers, "BEiT")
    position = model.stack.position
    if position is not None and type(position) is not VLMoBias:
        raise export.refused("BEiT", f"the position encoding {type(position).__name__}", "position: vlmo-bias")
    layer: Any = model.stack.layers[0]
    attention: Any = layer.attention.attention
    if attention.key.bias is not None or attention.query.bias is None:
        raise export.refused("BEiT", "other biases of the attention", "attention: {name: standard, bias: query_value}")
    return BeitConfig(
        hidden_size=model.dim,
        num_hidden_layers=model.depth,
        num_attention_heads=attention.heads,
        intermediate_size=layer.feed.experts[IMAGE_EXPERT].inner.out_features,
        image_size=model.image_size,
        patch_size=model.patch_size,
        layer_norm_eps=model.stack.norm.eps,
        layer_scale_init_value=0.0 if layer.attention.scale is None else 0.1,
        use_relative_position_bias=position is not None,
        use_absolute_position_embeddings=len(model.positions) > 0,
        use_mean_pooling=False,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )


def renamed(model: VLMo) -> dict[str, Tensor]:
    """Returns the image tower's weights by the names of ``BeitModel``."""
    state = model.stack.layers.state_dict()
    kept = {name: state[name] for name in state if ".experts." not in name or f".{_EXPERT}" in name}
    kind, patch = model.types.weight[1], model.patch.state_dict()
    position = model.stack.position
    table = export.learned(model.positions, "BEiT", "patches") if len(model.positions) else None
    biases: tuple[Tensor, ...] = ()
    if isinstance(position, VLMoBias):
        biases = position.table[: position.image_rows].split(position.shape.heads, 1)  # layer by layer
    of_layer = "layers.{}.relative_position_bias.relative_position_bias_table"
    return {
        "embeddings.cls_token": model.cls_token + kind,
        "embeddings.patch_embeddings.projection.weight": patch["weight"],
        "embeddings.patch_embeddings.projection.bias": patch["bias"] + kind,
        **({} if table is None else {"embeddings.position_embeddings": table[None]}),
        **export.layer_names(kept, _LAYER, "layers."),
        **{of_layer.format(number): bias.contiguous() for number, bias in enumerate(biases)},
        **{f"layernorm.{name}": value for name, value in model.stack.norm.state_dict().items()},
    }


class Released(export.Exporter):
    """Weights by the names of the released VLMo code, heads included.

    Args:
        format: ``ckpt``: the container that code reads (tensors under ``state_dict``); ``safetensors``: bare.
    """

    paper = "VLMo, Bao et al., NeurIPS 2022, released code"

    def __init__(self, *, format: Literal["ckpt", "safetensors"] = "ckpt") -> None:
        self.format = format

    def export(self, trained: export.Trained, folder: Path, progress: Progress) -> export.Exported:
        if not isinstance(trained.model, VLMo):
            kind = type(trained.model).__name__
            raise ComponentError("This exporter writes VLMo.", where="exporter vlmo", got=kind, expected="model: vlmo")
        state = {n: v for n, v in trained.module.state_dict().items() if not n.startswith("teacher.")}
        named = {name: value.detach().cpu().contiguous().clone() for name, value in to_released(state).items()}
        final = folder / f"vlmo.{self.format}"
        with written(final) as beside:
            if self.format == "ckpt":
                torch.save({"state_dict": named}, beside)
            else:
                save_file(named, beside)
        return export.Exported({"weights": final.name}, [f"{final}: {len(named)} tensors by the released names"], {})
