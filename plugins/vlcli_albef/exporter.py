"""Exports the two towers of ALBEF as transformers' BERT and ViT (``transformers-albef``)."""

from dataclasses import replace
from functools import partial
from typing import ClassVar

from torch import nn

from vlcli import export
from vlcli_albef.model import ALBEF

LEFT = "transformers has no class for ALBEF's cross encoder: only what comes before it is written, without heads"


class TransformersALBEF(export.TransformersExporter):
    """Folders ``text`` and ``image`` that ``BertModel`` and ``ViTModel`` load, compared with the original."""

    paper = "BERT and ViT in transformers"
    models: ClassVar[tuple[str, ...]] = ("albef",)
    classes: ClassVar[tuple[str, ...]] = ("BertModel", "ViTModel")

    def convert(self, trained: export.Trained) -> list[export.Converted]:
        model = export.of_kind(trained.model, ALBEF, "BERT")
        words = export.bert(model.embed, model.text, None)
        text = export.Converted(words, partial(export.text_difference, model), "text", text=True, notes=[LEFT])
        if not isinstance(model.patch, nn.Conv2d):  # a grid of stored features
            return [replace(text, notes=[*text.notes, "transformers has no class for an image encoder over features"])]
        size = (model.image_size, model.image_size)
        patches = export.vit(model.patch, model.cls_token, model.positions, model.image, size)
        compare = partial(export.image_difference, model, size=size)
        return [text, export.Converted(patches, compare, "image", processor="ViTImageProcessor")]
