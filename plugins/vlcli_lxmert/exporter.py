"""The exporters ``transformers-lxmert`` and ``transformers-butd``: folders that transformers' LXMERT and BERT load."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from vlcli.errors import ComponentError
from vlcli.export import (
    Converted,
    Trained,
    TransformersExporter,
    bert,
    check_plain,
    largest_difference,
    of_kind,
    random_text,
    refused,
    text_difference,
)
from vlcli.nn import Batch, BoxPosition, DataSpec, ForwardPasses, LearnedPosition, fake_batch
from vlcli_lxmert.butd import BUTD
from vlcli_lxmert.model import LXMERT
from vlcli_lxmert.names import to_transformers

Architecture = Literal["auto", "model", "pretraining", "question-answering", "text"]
CLASSES = {
    "model": "LxmertModel",
    "pretraining": "LxmertForPreTraining",
    "question-answering": "LxmertForQuestionAnswering",
}


class TransformersLXMERT(TransformersExporter):
    """A folder that ``transformers.LxmertModel.from_pretrained`` loads, compared with the original.

    Heads that transformers has a class for go along; that of NLVR2 has none and is left behind.

    Args:
        architecture: whose weights are written: ``model`` (no heads), ``pretraining``, ``question-answering``; ``auto``
            takes the one that the trained objectives fill; ``text``: the language encoder alone, as ``BertModel``.
    """

    paper = "LXMERT in transformers"
    models: ClassVar[tuple[str, ...]] = ("lxmert",)
    classes: ClassVar[tuple[str, ...]] = (*CLASSES.values(), "BertModel")

    def __init__(self, *, architecture: Architecture = "auto") -> None:
        self.architecture = architecture

    def convert(self, trained: Trained) -> list[Converted]:
        if self.architecture == "text":
            return [text_encoder(trained.model)]
        model = checked(trained.model)
        objectives = dict(trained.module.objectives.items())
        kind = self.architecture if self.architecture != "auto" else _fits(objectives)
        network, left = _filled(kind, model, trained.module.state_dict(), objectives)
        notes = [f"left behind: {', '.join(left)}"] if left else []
        return [Converted(network, partial(difference, model, objectives), text=True, notes=notes)]


class TransformersBUTD(TransformersExporter):
    """A folder ``text`` that ``BertModel`` loads: what reads the question of a BUTD with ``encoder: bert``."""

    paper = "BERT in transformers"
    models: ClassVar[tuple[str, ...]] = ("butd",)
    classes: ClassVar[tuple[str, ...]] = ("BertModel",)

    def convert(self, trained: Trained) -> list[Converted]:
        model = of_kind(trained.model, BUTD, "BERT")
        if model.recurrent is not None:
            raise refused("BERT", f"a recurrent encoder ({type(model.recurrent.cell).__name__})", "encoder: bert")
        network = bert(model.text, model.language, model.pooler)
        note = "transformers has no class for BUTD: only the encoder of the question is written"
        return [Converted(network, partial(text_difference, model), "text", text=True, notes=[note])]


def text_encoder(trained: Any) -> Converted:
    """LXMERT's language encoder as BERT without a pooler."""
    model = of_kind(trained, LXMERT, "BERT")
    network = bert(model.text, model.language, None)
    note = "left behind: objects and everything after them"
    return Converted(network, partial(text_difference, model), text=True, notes=[note])


def checked(trained: Any) -> LXMERT:
    """A model that transformers can express.

    Raises:
        ComponentError: what it has that transformers' LXMERT does not.
    """
    model = of_kind(trained, LXMERT, "LXMERT")
    for option, part in (("text", model.language), ("image", model.objects), ("cross", model.cross)):
        check_plain(part, "LXMERT", f"{option}_position")
    words, places = list(model.text.positions), list(model.image.positions)
    if len(words) != 1 or not isinstance(words[0], LearnedPosition):
        raise refused("LXMERT", "other positions of words", "text_position: learned")
    if len(places) != 1 or not isinstance(places[0], BoxPosition) or not _as_published(places[0]):
        raise refused("LXMERT", "other positions of objects", "image_position: box")
    return model


def _as_published(position: BoxPosition) -> bool:
    return (position.numbers, position.combine) == (4, "mean") and isinstance(position.norm, nn.LayerNorm)


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
    return name.startswith("cls.predictions.decoder")


def difference(model: LXMERT, objectives: dict[str, Any], network: Any) -> float:
    """The largest difference of the three streams, and of the heads that transformers has, words padded."""
    batch = _draw(fake_batch(model.input_spec(), model.data_spec, 3), model.data_spec)
    text, images = batch.clean.text, batch.clean.images
    assert text is not None and images is not None and images.regions is not None  # noqa: PT018
    regions = images.regions
    given = {"visual_feats": regions.features, "visual_pos": regions.boxes, "attention_mask": text.mask.float()}
    with torch.no_grad():
        ours = ForwardPasses(model.eval(), batch).fused()
        theirs = network(input_ids=text.ids, **given)
        found = getattr(network, "lxmert", network)(input_ids=text.ids, **given)
        heads = [(objectives[name].head(ours.pooled), theirs[score]) for name, score in _scores(objectives, theirs)]
        if "mlm" in objectives and theirs.get("prediction_logits") is not None:
            words = objectives["mlm"].head(ours.text.hidden[text.mask], model.word_table().weight)
            heads.append((words, theirs.prediction_logits[text.mask]))
    assert ours.pooled is not None
    states = [(ours.text.hidden[text.mask], found.language_output[text.mask]), (ours.pooled, found.pooled_output)]
    return largest_difference(*states, (ours.image.hidden, found.vision_output), *heads)


def _scores(objectives: dict[str, Any], found: Any) -> list[tuple[str, str]]:
    known = [("answering", "question_answering_score"), ("image-qa", "question_answering_score")]
    known += [("matching", "cross_relationship_score")]
    return [(name, score) for name, score in known if name in objectives and found.get(score) is not None]


def _draw(batch: Batch, data_spec: DataSpec) -> Batch:
    draw, images = torch.Generator().manual_seed(0), batch.clean.images
    assert images is not None and images.regions is not None  # noqa: PT018
    batch.clean.text = random_text(data_spec, 3)
    images.regions.features = torch.rand(images.regions.features.shape, generator=draw)
    images.regions.boxes = torch.rand(images.regions.boxes.shape, generator=draw)
    return batch
