"""The exporter ``transformers-vit``: a folder that transformers' ViT classes load."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from vlcli.errors import ComponentError, DataError
from vlcli.export import Exported, Exporter, Trained
from vlcli.files import new_folder
from vlcli.nn import StandardAttention
from vlcli.progress import Progress
from vlcli_deit.model import DeiT

FOLDER, CLOSE = "model", 1e-4
_NAMES = (
    (r"^cls_token$", "vit.embeddings.cls_token"),
    (r"^positions\.0\.table\.weight$", "vit.embeddings.position_embeddings"),
    (r"^patch\.", "vit.embeddings.patch_embeddings.projection."),
    (r"^stack\.norm\.", "vit.layernorm."),
    (r"^stack\.layers\.", "vit.layers."),
    (r"\.self_attention\.norm\.", ".layernorm_before."),
    (r"\.self_attention\.attention\.query\.", ".attention.q_proj."),
    (r"\.self_attention\.attention\.key\.", ".attention.k_proj."),
    (r"\.self_attention\.attention\.value\.", ".attention.v_proj."),
    (r"\.self_attention\.attention\.dense\.", ".attention.o_proj."),
    (r"\.feed_forward\.norm\.", ".layernorm_after."),
    (r"\.feed_forward\.inner\.", ".mlp.fc1."),
    (r"\.feed_forward\.outer\.", ".mlp.fc2."),
    (r"^head\.", "classifier."),
)


class TransformersViT(Exporter):
    """A folder that ``transformers.ViTForImageClassification.from_pretrained`` loads, compared with the original."""

    paper = "DeiT in transformers"
    packages: ClassVar[tuple[str, ...]] = ("transformers",)
    install = "pip install 'vlcli[hf]'"
    writes = "transformers"

    def export(self, trained: Trained, folder: Path, progress: Progress) -> Exported:
        """Write ``model/`` whole: beside, then renamed.

        Raises:
            ComponentError: transformers' ViT cannot express the model.
            DataError: it gives other outputs.
        """
        model = checked(trained.model)
        theirs = filled(model, trained.data_spec.answers)
        lost = difference(model, theirs)
        if not lost < CLOSE:
            raise DataError("transformers' ViT gives other outputs.", got=f"{lost:.3g}", expected=f"< {CLOSE}")
        final = folder / FOLDER
        with new_folder(final) as beside:
            theirs.save_pretrained(beside)
        notes = [f"{final}: {type(theirs).__name__}; largest difference of an output {lost:.2g}"]
        return Exported({"model": FOLDER}, notes, {"max_difference": lost})


def checked(model: Any) -> DeiT:
    """A model that transformers' ViT can express.

    Raises:
        ComponentError: what it has that ViT does not.
    """
    if not isinstance(model, DeiT):
        raise _refused(type(model).__name__, "model: deit")
    if model.dist_token is not None:
        raise _refused("a distillation token", "distilled: false")
    if model.stack.position is not None or len(model.positions) != 1:
        raise _refused("further position encodings", "absolute: learned, and no other encoding")
    if not all(type(part.attention) is StandardAttention for part in model.modules() if hasattr(part, "attention")):
        raise _refused("another attention", "attention: standard")
    return model


def _refused(got: str, expected: str) -> ComponentError:
    what = "transformers' ViT cannot express this model."
    return ComponentError(what, where="exporter transformers-vit", got=got, expected=expected, hint="format: onnx")


def filled(model: DeiT, answers: tuple[str, ...]) -> Any:
    """Transformers' model with the weights of ours.

    Raises:
        ComponentError: their names or shapes are not those of this version of transformers.
    """
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=model.dim,
        num_hidden_layers=model.depth,
        num_attention_heads=_heads(model),
        intermediate_size=_intermediate(model),
        image_size=model.image_size[0],
        patch_size=model.patch_size,
        layer_norm_eps=_eps(model),
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        id2label=dict(enumerate(answers)) or {number: str(number) for number in range(model.own_classes)},
    )
    theirs = ViTForImageClassification(config).eval()
    missing, unknown = theirs.load_state_dict(renamed(model.state_dict()), strict=False)
    if missing or unknown:
        raise _refused(f"weights without a place: {', '.join([*missing, *unknown][:4])}", "transformers 5")
    return theirs


def renamed(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights under the names of transformers' ViT."""
    made = {}
    for name, value in state.items():
        theirs = name
        for pattern, other in _NAMES:
            theirs = re.sub(pattern, other, theirs)
        made[theirs] = value[None] if name == "positions.0.table.weight" else value
    return made


def _heads(model: DeiT) -> int:
    return next(int(part.heads) for part in model.modules() if isinstance(part, StandardAttention))


def _intermediate(model: DeiT) -> int:
    return next(v.shape[0] for name, v in model.named_parameters() if name.endswith("feed_forward.inner.weight"))


def _eps(model: DeiT) -> float:
    return next(part.eps for part in model.modules() if isinstance(part, nn.LayerNorm))


def difference(model: DeiT, theirs: Any) -> float:
    """The largest difference of a class score over random pictures."""
    pixels = torch.randn(2, 3, *model.image_size, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        found = theirs(pixel_values=pixels).logits if model.own_classes else None
        return 0.0 if found is None else float((model.eval()(pixels) - found).abs().max())
