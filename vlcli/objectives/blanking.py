"""Controls that see one modality only: the other is replaced by the same blank in every example.

A blank carries nothing: one region of zeros (so that not even the number of boxes is told), one grey picture, or a
sentence of special tokens only. Since it is the same for all, it is encoded once a batch.
"""

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
    rows = {"text_rows": view.text_rows, "image_rows": view.image_rows}
    text, images = view.text, view.images
    if only == "text" and images is not None:
        images, rows["image_rows"] = blank_images(images), torch.zeros_like(view.image_rows)
    if only == "images" and text is not None:
        text, rows["text_rows"] = blank_text(text), torch.zeros_like(view.text_rows)
    return View(text, images, **rows, aligned=False, mask_labels=view.mask_labels)


def blank_text(text: Text) -> Text:
    """Return one row that holds the first text's special tokens alone."""
    columns = (text.special[0] & text.mask[0]).nonzero()[:, 0]
    row = text.select(torch.zeros(1, dtype=torch.long))
    flags = torch.ones(1, len(columns), dtype=torch.bool, device=text.ids.device)
    segments = None if row.segments is None else row.segments[:, columns]
    nowhere = torch.full_like(row.ids[:, columns], -1)
    return Text(row.ids[:, columns], flags, flags.clone(), nowhere, segments, keys=[""], raw=[""])


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
