"""Exports DETR to transformers' ``DetrForObjectDetection`` (``transformers-detr``)."""

from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from vlcli import export
from vlcli_detr.model import DETR
from vlcli_detr.names import transformers_name


class TransformersDETR(export.TransformersExporter):
    """A folder that ``DetrForObjectDetection`` loads, with transformers' own ResNet; compared with the original."""

    paper = "DETR in transformers"
    models: ClassVar[tuple[str, ...]] = ("detr",)
    classes: ClassVar[tuple[str, ...]] = ("DetrForObjectDetection",)

    def convert(self, trained: export.Trained) -> list[export.Converted]:
        from transformers import DetrForObjectDetection

        model = export.of_kind(trained.model, DETR, "DETR")
        network = export.fill(DetrForObjectDetection(configuration(model)), renamed(model.state_dict()), "DETR")
        return [export.Converted(network, partial(difference, model), processor="DetrImageProcessor")]


def configuration(model: DETR) -> Any:
    """Returns the ``DetrConfig``. Raises ComponentError: the backbone is no ResNet, or DETR lacks an encoding."""
    from transformers import DetrConfig, ResNetConfig

    if (names := export.encodings(model.encoder)) != ["DetrSine"]:
        raise export.refused("DETR", f"the position encoding {' and '.join(names) or 'none'}", "position: detr-sine")
    if model.sine is None:
        raise export.refused("DETR", "a decoder without the sine encoding", "decoder_position: sine")
    export.check_plain(model.encoder.layers, "DETR")
    export.check_plain(model.decoder, "DETR")
    body: Any = model.body
    if not hasattr(body, "layer1"):
        raise export.refused("DETR", f"the backbone {type(body).__name__}", "backbone: resnet18, 34, 50 or 101")
    deep = hasattr(body.layer1[0], "conv3")  # bottlenecks
    layer: Any = model.encoder.layers[0] if len(model.encoder.layers) else model.decoder[0]
    heads, inner = layer.self_attention.attention.heads, layer.feed_forward.inner.out_features
    classes = model.data_spec.class_names
    labels = dict.fromkeys(range(model.class_embed.out_features - 1), "N/A")  # rows without a class, as in the release
    labels |= {row: classes[n] if n < len(classes) else str(n) for n, row in enumerate(model.rows)}
    return DetrConfig(
        backbone_config=ResNetConfig(
            layer_type="bottleneck" if deep else "basic",
            hidden_sizes=[(256 if deep else 64) * 2**stage for stage in range(4)],
            depths=[len(body.get_submodule(f"layer{number}")) for number in range(1, 5)],
            out_features=["stage4"],
        ),
        d_model=model.dim,
        num_queries=model.query_embed.num_embeddings,
        encoder_layers=len(model.encoder.layers),
        decoder_layers=len(model.decoder),
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=inner,
        decoder_ffn_dim=inner,
        auxiliary_loss=False,  # with it transformers 5 feeds each layer the normalised output of the one before
        eos_coefficient=model.weights.nothing,
        id2label=labels,
    )


def renamed(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns weights under transformers' names, the backbone's as in its ResNet."""
    return {transformers_name(name): value for name, value in state.items() if not name.endswith("num_batches_tracked")}


def difference(model: DETR, network: Any) -> float:
    """Returns the largest difference of a class score or a box on random pictures, one of them padded."""
    height, width = model.image_size or (96, 128)
    pixels = torch.randn(2, 3, height, width, generator=torch.Generator().manual_seed(0))
    mask = torch.ones(2, height, width, dtype=torch.bool)
    mask[1, height * 3 // 4 :], mask[1, :, width // 2 :] = False, False
    pixels = pixels * mask[:, None]
    with torch.no_grad():
        ours, theirs = model.eval()(pixels, mask), network(pixel_values=pixels, pixel_mask=mask.long())
    return export.largest_difference((ours.logits[-1], theirs.logits), (ours.boxes[-1], theirs.pred_boxes))
