"""Transforms pictures together with their boxes, label maps and sentences."""

from vlcli.data.transforms.base import Transform, TransformInput, crop, flip, lent, may_flip, resize

__all__ = ["Transform", "TransformInput", "crop", "flip", "lent", "may_flip", "resize"]
