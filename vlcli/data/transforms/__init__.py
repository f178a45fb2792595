"""Joint transforms: pictures change together with their boxes, label maps and sentences."""

from vlcli.data.transforms.base import Transform, lent
from vlcli.data.transforms.scene import Scene, crop, flip, may_flip, resize

__all__ = ["Scene", "Transform", "crop", "flip", "lent", "may_flip", "resize"]
