"""Pictures on disk and the boxes given with them: files, tar shards, box files, class numbering."""

from typing import TYPE_CHECKING

from vlcli.lazy import lazily

if TYPE_CHECKING:
    from vlcli.images.boxes import BoxList, boxes_for, image_id, read_boxes
    from vlcli.images.files import open_image, to_rgb
    from vlcli.images.labels import Labels


__getattr__ = lazily(__name__, __file__)
