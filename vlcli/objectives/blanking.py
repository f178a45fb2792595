"""Controls that see one modality only: the other is the same blank in every example, encoded once a batch.

A blank is one region of zeros (so that not even the number of boxes is told), one grey picture, or a sentence of
special tokens only.
"""

from dataclasses import replace
from typing import Literal

import torch

from vlcli.nn import ForwardPasses, Images, Pixels, Regions, Text, View

# What a model may see: ``text`` blanks the images, ``images`` blanks the text
Only = Literal["both", "text", "images"]


def seen(step: ForwardPasses, view: str, only: Only) -> str:
    """Return the name of the view that shows ``only`` one modality of ``view``, added to the step's batch once."""
    if only == "both":
        return view
    name = f"{view}/only-{only}"
    if name not in step.batch.views:
        step.batch.views[name] = blank(step.view(view), only)
    return name


def blank(view: View, only: Only) -> View:
    """Return the same examples with the other modality blank."""
    shown = replace(view, aligned=False)
    if only == "text" and view.images is not None:
        shown.images, shown.image_rows = blank_images(view.images), torch.zeros_like(view.image_rows)
    if only == "images" and view.text is not None:
        shown.text, shown.text_rows = blank_text(view.text), torch.zeros_like(view.text_rows)
    return shown


def blank_text(text: Text) -> Text:
    """Return one row that holds the first text's special tokens alone."""
    columns = (text.special[0] & text.mask[0]).nonzero()[:, 0]
    ids = text.ids[:1, columns]
    segments = None if text.segments is None else text.segments[:1, columns]
    real, special = torch.ones_like(ids, dtype=torch.bool), torch.ones_like(ids, dtype=torch.bool)
    return Text(ids, real, special, torch.full_like(ids, -1), segments, keys=[""], raw=[""])


def blank_images(images: Images) -> Images:
    """Return one row that shows nothing, in every form that the images have."""
    blank, regions, pixels, concepts = Images(["blank"]), images.regions, images.pixels, images.concepts
    if regions is not None:
        blank.regions = Regions(
            features=torch.zeros_like(regions.features[:1, :1]),  # (1, 1, D)
            boxes=torch.zeros_like(regions.boxes[:1, :1]),
            mask=torch.ones_like(regions.mask[:1, :1]),
            sizes=torch.ones_like(regions.sizes[:1]),
        )
    if pixels is not None:
        blank.pixels = Pixels(torch.zeros_like(pixels.images[:1]), torch.ones_like(pixels.sizes[:1]))
    if concepts is not None:
        blank.concepts = concepts.select(torch.zeros(1, dtype=torch.long)).map(torch.zeros_like)
    return blank
