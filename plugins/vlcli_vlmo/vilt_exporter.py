"""Exports ViLT to transformers (``transformers-vilt``)."""

from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import nn

from vlcli import export
from vlcli_vlmo.vilt import DECODER, ViLT, to_transformers

# Transformers' class with the head of an objective; ``ViltModel`` for any other
CLASSES = {
    "answering": "ViltForQuestionAnswering",
    "classification": "ViltForImagesAndTextClassification",
    "mlm": "ViltForMaskedLM",
}


class TransformersViLT(export.TransformersExporter):
    """A folder that transformers' ViLT classes load, compared with the original.

    One head goes along: of answers, two pictures or masked words, the first of them that the model has.
    """

    paper = "ViLT in transformers"
    models: ClassVar[tuple[str, ...]] = ("vilt",)
    classes: ClassVar[tuple[str, ...]] = ("ViltModel", *CLASSES.values())

    def convert(self, trained: export.Trained) -> list[export.Converted]:
        import transformers

        model = export.of_kind(trained.model, ViLT, "ViLT")
        export.check_plain(model.stack, "ViLT")
        if not isinstance(model.patch, nn.Conv2d):
            raise export.refused("ViLT", "a grid of stored features", "image: pixels")
        words = export.learned(model.text.positions, "ViLT", "words")
        export.learned(model.positions, "ViLT", "patches")
        heads = dict(trained.module.objectives.items())
        task = next((one for one in CLASSES if one in heads), "")
        outer = getattr(getattr(heads.get(task), "head", None), "outer", None)
        config = transformers.ViltConfig(
            vocab_size=model.text.words.num_embeddings,
            max_position_embeddings=len(words),
            modality_type_vocab_size=len(model.types.weight),
            num_images=len(model.types.weight) - 1,
            num_labels=outer.out_features if isinstance(outer, nn.Linear) else 2,
            **export.vit_facts(model.patch, model.stack, (model.image_size, model.image_size)),
        )
        network = getattr(transformers, CLASSES.get(task, "ViltModel"))(config)
        named = {**to_transformers(trained.module.state_dict()), DECODER: model.text.words.weight}
        named |= {f"vilt.{name}": value for name, value in named.items()}
        network = export.fill(network, {name: named[name] for name in network.state_dict() if name in named}, "ViLT")
        left = sorted(heads.keys() - {task})
        notes = [f"left behind: the heads of {', '.join(left)}"] if left else []
        compare = partial(difference, model, task, heads.get(task))
        return [export.Converted(network, compare, text=True, processor="ViltImageProcessor", notes=notes)]


@torch.no_grad()
def difference(model: ViLT, task: str, objective: Any, network: Any) -> float:
    """Returns the largest difference of a state, or of a score of the head of ``task`` (empty: none).

    Patches are compared sorted: transformers draws their order.
    """
    text = export.random_text(model.data_spec, 2)
    pictures = export.random_images((model.image_size, model.image_size))
    pixels, words = pictures.pixels_for("transformers"), text.ids.shape[1]
    read = {"input_ids": text.ids, "attention_mask": text.mask.long()}
    seen = {"pixel_values": pixels, "pixel_mask": torch.ones_like(pixels[:, 0], dtype=torch.long)}
    embedded, image = model.eval().embed_text(text), model.embed_image(pictures)
    ours = model.fuse(embedded, image)
    theirs = getattr(network, "vilt", network)(**read, **seen)
    assert ours.pooled is not None
    pairs = [
        (ours.text.hidden[text.mask], theirs.last_hidden_state[:, :words][text.mask]),
        (ours.pooled, theirs.pooler_output),
        (ours.image.hidden.sort(1).values, theirs.last_hidden_state[:, words:].sort(1).values),
    ]
    if task == "mlm":
        scores = objective.head(ours.text.hidden, model.word_table().weight)
        pairs.append((scores[text.mask], network(**read, **seen).logits[:, :words][text.mask]))
    elif task:
        count = network.config.num_images if task == "classification" else 1
        of_picture = (replace(image, number=torch.full((len(image.hidden),), number)) for number in range(count))
        pooled: Any = [model.fuse(embedded, one).pooled for one in of_picture]
        if task == "classification":
            seen = {name: torch.stack([value] * count, 1) for name, value in seen.items()}  # (P, count, ...)
        pairs.append((objective.head(torch.cat(pooled, 1)), network(**read, **seen).logits))
    return export.largest_difference(*pairs)
