"""The exporter ``transformers``: a folder that transformers' LXMERT classes load."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from vlcli.errors import ComponentError, DataError
from vlcli.export import Exported, Exporter, Trained
from vlcli.files import new_folder
from vlcli.nn import Batch, BoxPosition, DataSpec, ForwardPasses, LearnedPosition, StandardAttention, fake_batch
from vlcli.progress import Progress
from vlcli_lxmert.model import LXMERT
from vlcli_lxmert.names import to_transformers

FOLDER = "model"
CLOSE = 1e-4
"""Largest difference between the outputs of the two that passes: float32 sums in another order."""
Architecture = Literal["auto", "model", "pretraining", "question-answering"]
CLASSES = {
    "model": "LxmertModel",
    "pretraining": "LxmertForPreTraining",
    "question-answering": "LxmertForQuestionAnswering",
}


class Transformers(Exporter):
    """A folder that ``transformers.LxmertModel.from_pretrained`` loads, compared with the original.

    Heads that transformers has a class for go along; that of NLVR2 has none and is left behind.

    Args:
        architecture: whose weights are written: ``model`` (no heads), ``pretraining``, ``question-answering``; ``auto``
            takes the one that the trained objectives fill.
    """

    paper = "LXMERT in transformers"
    packages: ClassVar[tuple[str, ...]] = ("transformers",)
    install = "pip install 'vlcli[hf]'"
    writes = "transformers"

    def __init__(self, *, architecture: Architecture = "auto") -> None:
        self.architecture = architecture

    def export(self, trained: Trained, folder: Path, progress: Progress) -> Exported:
        """Write ``model/`` whole: beside, then renamed."""
        model = checked(trained.model)
        objectives = dict(trained.module.objectives.items())
        kind = self.architecture if self.architecture != "auto" else _fits(objectives)
        final = folder / FOLDER
        theirs, left = _filled(kind, model, trained.module.state_dict(), objectives)
        with new_folder(final) as beside:
            theirs.save_pretrained(beside)
            if trained.tokenizer is not None:
                trained.tokenizer.save(beside)
            lost = compare(model, beside, trained.data_spec)
        notes = [f"{final}: {type(theirs).__name__}; largest difference of an output {lost:.2g}"]
        notes += [f"left behind: {', '.join(left)}"] if left else []
        return Exported({"model": FOLDER}, notes, {"max_difference": lost})


def checked(model: Any) -> LXMERT:
    """A model that transformers can express.

    Raises:
        ComponentError: what it has that transformers' LXMERT does not.
    """
    if not isinstance(model, LXMERT):
        raise _refused(type(model).__name__, "model: lxmert")
    stacks = (model.language.position, model.objects.position, model.cross.position)
    attentions = [m.attention for m in model.modules() if hasattr(m, "attention")]
    words, places = list(model.text.positions), list(model.image.positions)
    if any(position is not None for position in stacks):
        raise _refused("a pairwise position encoding", "none")
    if not all(type(attention) is StandardAttention for attention in attentions):
        raise _refused("an attention of its own", "attention: standard")
    if len(words) != 1 or not isinstance(words[0], LearnedPosition):
        raise _refused("other positions of words", "text_position: learned")
    if len(places) != 1 or not isinstance(places[0], BoxPosition) or not _as_published(places[0]):
        raise _refused("other positions of objects", "image_position: box")
    return model


def _as_published(position: BoxPosition) -> bool:
    return (position.numbers, position.combine) == (4, "mean") and isinstance(position.norm, nn.LayerNorm)


def _refused(got: str, expected: str) -> ComponentError:
    return ComponentError(
        "transformers' LXMERT cannot express this model.",
        where="exporter transformers",
        got=got,
        expected=expected,
        hint="format: safetensors or onnx",
    )


def _fits(objectives: dict[str, Any]) -> str:
    if {"mlm", "matching"} <= set(objectives):
        return "pretraining"
    return "question-answering" if "answering" in objectives else "model"


def configuration(model: LXMERT, objectives: dict[str, Any]) -> Any:
    """The ``LxmertConfig`` of a model and of the heads that are there."""
    from transformers import LxmertConfig

    layer: Any = model.language.layers[0] if len(model.language.layers) else model.cross.layers[0]
    feed = getattr(layer, "feed_forward", None) or layer.language_feed
    answerer = next((objectives[n] for n in ("answering", "image-qa") if n in objectives), None)
    targets = getattr(objectives.get("masked-object"), "targets", ())
    places: Any = model.text.positions[0]
    attention: Any = next(m.attention for m in model.modules() if hasattr(m, "attention"))
    return LxmertConfig(
        vocab_size=model.text.words.num_embeddings,
        hidden_size=model.dim,
        num_attention_heads=attention.heads,
        intermediate_size=feed.inner.out_features,
        max_position_embeddings=len(places.table.weight),
        l_layers=len(model.language.layers),
        r_layers=len(model.objects.layers),
        x_layers=len(model.cross.layers),
        visual_feat_dim=model.data_spec.region_dim,
        num_object_labels=max(model.data_spec.region_classes, 1),
        num_attr_labels=max(model.data_spec.region_attributes, 1),
        num_qa_labels=1 if answerer is None else answerer.head.outer.out_features,
        task_matched="matching" in objectives,
        task_mask_lm="mlm" in objectives,
        task_obj_predict=bool(targets),
        task_qa=answerer is not None,
        visual_obj_loss="label" in targets,
        visual_attr_loss="attribute" in targets,
        visual_feat_loss="feature" in targets,
        id2label=_labels(model.data_spec) if answerer is not None else None,
    )


def _labels(data_spec: DataSpec) -> dict[int, str]:
    return dict(enumerate(data_spec.answers))


def _filled(kind: str, model: LXMERT, state: dict[str, Tensor], objectives: dict[str, Any]) -> tuple[Any, list[str]]:
    """Transformers' model with our weights, and the names of ours that have no place in it.

    Raises:
        ComponentError: a weight of that class is not among ours.
    """
    import transformers

    theirs = getattr(transformers, CLASSES[kind])(configuration(model, objectives)).eval()
    named = to_transformers({n: v for n, v in state.items() if not n.startswith("teacher.")})
    prefix = "lxmert." if kind == "model" else ""
    named = {name.removeprefix(prefix): value for name, value in named.items()}
    wanted = theirs.state_dict()
    fitting = {n: v for n, v in named.items() if n in wanted and v.shape == wanted[n].shape}
    lacking = [n for n in theirs.load_state_dict(fitting, strict=False).missing_keys if not _shared(n)]
    if lacking:
        expected = "a model pre-trained with mlm and matching" if kind == "pretraining" else "a model trained on a task"
        raise ComponentError(
            f"{type(theirs).__name__} has weights that this model lacks.",
            where="exporter transformers",
            got=", ".join(lacking[:4]),
            expected=expected,
            hint="format: {name: transformers, architecture: model}",
        )
    left = [n for n in named if n not in fitting and "table.utf8" not in n]
    return theirs, left


def _shared(name: str) -> bool:
    """The decoder is the word table."""
    return name.startswith("cls.predictions.decoder")


def compare(model: LXMERT, folder: Path, data_spec: DataSpec) -> float:
    """The largest difference of the three streams between ``model`` and what transformers loads from ``folder``.

    Raises:
        DataError: it is not small.
    """
    from transformers import LxmertModel

    theirs = LxmertModel.from_pretrained(folder).eval()
    batch = _draw(fake_batch(model.input_spec(), data_spec, 2), data_spec)
    view = batch.clean
    assert view.text is not None and view.images is not None and view.images.regions is not None  # noqa: PT018
    regions = view.images.regions
    with torch.no_grad():
        ours = ForwardPasses(model.eval(), batch).fused()
        given = {
            "visual_feats": regions.features,
            "visual_pos": regions.boxes,
            "attention_mask": view.text.mask.float(),
        }
        found = theirs(input_ids=view.text.ids, token_type_ids=torch.zeros_like(view.text.ids), **given)
    pairs = [(ours.text.hidden, found.language_output), (ours.image.hidden, found.vision_output)]
    lost = max((a - b).abs().max().item() for a, b in [*pairs, (ours.pooled, found.pooled_output)])
    if not lost < CLOSE:
        raise DataError(
            "What was written gives other outputs.", where=str(folder), got=f"{lost:.3g}", expected=f"< {CLOSE}"
        )
    made: float = lost
    return made


def _draw(batch: Batch, data_spec: DataSpec) -> Batch:
    """The batch with words, features and boxes drawn, so that a difference shows."""
    draw = torch.Generator().manual_seed(0)
    text, images = batch.clean.text, batch.clean.images
    assert text is not None and images is not None and images.regions is not None  # noqa: PT018
    text.ids = torch.randint(0, data_spec.vocab_size, text.ids.shape, generator=draw)
    images.regions.features = torch.rand(images.regions.features.shape, generator=draw)
    images.regions.boxes = torch.rand(images.regions.boxes.shape, generator=draw)
    return batch
