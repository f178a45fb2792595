"""Exporters: a trained model in another format. An exporter subclasses :class:`vlcli.export.Exporter`.

One that writes folders for transformers' ``from_pretrained`` subclasses :class:`vlcli.export.TransformersExporter`.
"""

from typing import TYPE_CHECKING

from vlcli.lazy import lazily

if TYPE_CHECKING:
    from vlcli.export.base import Exported, Exporter, Trained
    from vlcli.export.conversion import (
        Converted,
        TransformersExporter,
        check_plain,
        encodings,
        fill,
        largest_difference,
        of_kind,
        refused,
    )
    from vlcli.export.towers import (
        bert,
        class_difference,
        class_labels,
        image_difference,
        layer_facts,
        layer_names,
        learned,
        random_images,
        random_text,
        text_difference,
        vit,
        vit_facts,
        vit_state,
    )

__getattr__ = lazily(__name__, __file__)
