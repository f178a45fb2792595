"""shapes: a generated world of coloured shapes that writes every benchmark's files in that benchmark's own format.

Pictures are PNGs of two to five shapes with exact boxes, masks and scene graphs; the texts are true of them by
construction, and the sets whose published form is balanced are balanced here exactly. Nothing in this package
imports torch.
"""

from vlcli.data.shapes.config import KINDS, PALETTE, PARTS, STATEMENTS, ShapesConfig
from vlcli.data.shapes.make import config_of, describe, make_shapes

__all__ = ["KINDS", "PALETTE", "PARTS", "STATEMENTS", "ShapesConfig", "config_of", "describe", "make_shapes"]
