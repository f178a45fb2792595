"""Exports LXMERT and BUTD to transformers (``transformers-lxmert``, ``transformers-butd``)."""

from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from vlcli import export
from vlcli.errors import ComponentError
from vlcli.nn import BoxPosition, ForwardPasses, fake_batch
from vlcli_lxmert.butd import BUTD
from vlcli_lxmert.model import LXMERT
from vlcli_lxmert.names import to_transformers

Architecture = Literal["auto", "model", "pretraining", "question-answering", "text"]
CLASSES = {
    "model": "LxmertModel",
    "pretraining": "LxmertForPreTraining",
    "question-answering": "LxmertForQuestionAnswering",
}

# Objectives whose head transformers has, and its names of their scores
SCORES = {
    "answering": "question_answering_score",
    "image-qa": "question_answering_score",
    "matching": "cross_relationship_score",
}


class TransformersLXMERT(export.TransformersExporter):
    """A folder that ``transformers.LxmertModel.from_pretrained`` loads, compared with the original.

    Heads go along where transformers has a class for them; NLVR2's has none.

    Args:
        architecture: ``model`` (no heads), ``pretraining``, ``question-answering``, ``auto``: the one that the trained
            objectives fill, or ``text``: the language encoder alone, as ``BertModel``.
    """

    paper = "LXMERT in transformers"
    models: ClassVar[tuple[str, ...]] = ("lxmert",)
    classes: ClassVar[tuple[str, ...]] = (*CLASSES.values(), "BertModel")

    def __init__(self, *, architecture: Architecture = "auto") -> None:
        self.architecture = architecture

    def convert(self, trained: export.Trained) -> list[export.Converted]:
        if self.architecture == "text":
            encoder = export.of_kind(trained.model, LXMERT, "BERT")
            network = export.bert(encoder.text, encoder.language, None)
            note = "left behind: objects and everything after them"
            return [export.Converted(network, partial(export.text_difference, encoder), text=True, notes=[note])]
        model, objectives = checked(trained.model), dict(trained.module.objectives.items())
        kind: str = self.architecture
        if kind == "auto":
            kind = "question-answering" if "answering" in objectives else "model"
            kind = "pretraining" if {"mlm", "matching"} <= set(objectives) else kind
        network, left = _filled(kind, model, trained.module.state_dict(), objectives)
        notes = [f"left behind: {', '.join(left)}"] if left else []
        return [export.Converted(network, partial(difference, model, objectives), text=True, notes=notes)]


class TransformersBUTD(export.TransformersExporter):
    """A folder ``text`` that ``BertModel`` loads: the question encoder of a BUTD with ``encoder: bert``."""

    paper = "BERT in transformers"
    models: ClassVar[tuple[str, ...]] = ("butd",)
    classes: ClassVar[tuple[str, ...]] = ("BertModel",)

    def convert(self, trained: export.Trained) -> list[export.Converted]:
        model = export.of_kind(trained.model, BUTD, "BERT")
        if model.recurrent is not None:
            got = f"a recurrent encoder ({type(model.recurrent.cell).__name__})"
            raise export.refused("BERT", got, "encoder: bert")
        network = export.bert(model.text, model.language, model.pooler)
        note = "transformers has no class for BUTD: only the encoder of the question is written"
        return [export.Converted(network, partial(export.text_difference, model), "text", text=True, notes=[note])]


def checked(trained: Any) -> LXMERT:
    """Returns the model. Raises ComponentError: transformers' LXMERT cannot express it."""
    model = export.of_kind(trained, LXMERT, "LXMERT")
    for option, part in (("text", model.language), ("image", model.objects), ("cross", model.cross)):
        export.check_plain(part, "LXMERT", f"{option}_position")
    if any(layer.back is not None for layer in model.cross.layers):
        raise export.refused("LXMERT", "a cross-attention for each direction", "shared_crossing: true")
    export.learned(model.text.positions, "LXMERT", "words")
    boxes = list(model.image.positions)
    box: Any = boxes[0] if len(boxes) == 1 and isinstance(boxes[0], BoxPosition) else None
    if box is None or (box.numbers, box.combine) != (4, "mean") or not isinstance(box.norm, nn.LayerNorm):
        raise export.refused("LXMERT", "other positions of objects", "image_position: box")
    return model


def configuration(model: LXMERT, objectives: dict[str, Any]) -> Any:
    """Returns the ``LxmertConfig`` of a model and its heads."""
    from transformers import LxmertConfig

    facts = export.layer_facts(model)
    answerer = next((objectives[n] for n in ("answering", "image-qa") if n in objectives), None)
    targets = getattr(objectives.get("masked-object"), "targets", ())
    return LxmertConfig(
        vocab_size=model.text.words.num_embeddings,
        hidden_size=model.dim,
        num_attention_heads=facts["num_attention_heads"],
        intermediate_size=facts["intermediate_size"],
        max_position_embeddings=len(export.learned(model.text.positions, "LXMERT", "words")),
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
        id2label=None if answerer is None else dict(enumerate(model.data_spec.answers)),
    )


def _filled(kind: str, model: LXMERT, state: dict[str, Tensor], objectives: dict[str, Any]) -> tuple[Any, list[str]]:
    # Transformers' model with our weights, and the names of ours that have no counterpart in it.
    import transformers

    network = getattr(transformers, CLASSES[kind])(configuration(model, objectives)).eval()
    named = to_transformers({name: value for name, value in state.items() if not name.startswith("teacher.")})
    named = {name.removeprefix("lxmert." if kind == "model" else ""): value for name, value in named.items()}
    shapes = {name: value.shape for name, value in network.state_dict().items()}
    fitting = {name: value for name, value in named.items() if value.shape == shapes.get(name)}
    absent = network.load_state_dict(fitting, strict=False).missing_keys
    if missing := [name for name in absent if not name.startswith("cls.predictions.decoder")]:  # that is the word table
        expected = "a model pre-trained with mlm and matching" if kind == "pretraining" else "a model trained on a task"
        what, where = f"{type(network).__name__} has weights that this model lacks.", "exporter transformers"
        got, hint = ", ".join(missing[:4]), "format: {name: transformers, architecture: model}"
        raise ComponentError(what, where=where, got=got, expected=expected, hint=hint)
    return network, [name for name in named if name not in fitting and "table.utf8" not in name]


def difference(model: LXMERT, objectives: dict[str, Any], network: Any) -> float:
    """Returns the largest difference of the three streams and the shared heads, on padded sentences."""
    batch, draw = fake_batch(model.input_spec(), model.data_spec, 3), torch.Generator().manual_seed(0)
    text, images = export.random_text(model.data_spec, 3), batch.clean.images
    assert images is not None and images.regions is not None  # noqa: PT018
    batch.clean.text, regions = text, images.regions
    regions.features = torch.rand(regions.features.shape, generator=draw)
    regions.boxes = torch.rand(regions.boxes.shape, generator=draw)
    inputs = {"visual_feats": regions.features, "visual_pos": regions.boxes, "attention_mask": text.mask.float()}
    with torch.no_grad():
        ours = ForwardPasses(model.eval(), batch).fused()
        theirs = network(input_ids=text.ids, **inputs)
        states = getattr(network, "lxmert", network)(input_ids=text.ids, **inputs)
        assert ours.pooled is not None
        pairs = [(ours.text.hidden[text.mask], states.language_output[text.mask])]
        pairs += [(ours.pooled, states.pooled_output), (ours.image.hidden, states.vision_output)]
        for name, score in SCORES.items():
            if name in objectives and theirs.get(score) is not None:
                pairs.append((objectives[name].head(ours.pooled), theirs[score]))
        if "mlm" in objectives and theirs.get("prediction_logits") is not None:
            words = objectives["mlm"].head(ours.text.hidden[text.mask], model.word_table().weight)
            pairs.append((words, theirs.prediction_logits[text.mask]))
    return export.largest_difference(*pairs)
