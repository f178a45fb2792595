"""The world ``shapes`` as a registered component."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vlcli.data.shapes.config import ShapesConfig
from vlcli.data.shapes.make import make_shapes
from vlcli.data.world import World
from vlcli.progress import Progress


@dataclass(frozen=True, kw_only=True)
class Shapes(ShapesConfig, World):
    """Pictures of coloured shapes with annotations in every benchmark's own format.

    Its options are the fields of :class:`vlcli.data.shapes.ShapesConfig`.
    """

    def make(self, folder: Path, progress: Progress, workers: int) -> dict[str, int]:
        return make_shapes(folder, self, progress, workers)
