"""Defines the base class of drawings, what a drawing is given, and how pictures are opened and written."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from vlcli.data import Pipeline, Reader, load_image
from vlcli.engine import Bundle, TaskRunner
from vlcli.features import FeatureStore
from vlcli.files import write_text, written
from vlcli.nn import Batch, Layout
from vlcli.nn.records import EncoderOutput, Recorder
from vlcli.progress import Progress
from vlcli.recipe.stage_record import StageRecord
from vlcli.tasks.base import Task

# Small pictures are enlarged to this many pixels before anything is drawn on them
SHORT = 240


class Album:
    """The pictures of a pipeline's examples."""

    def __init__(self, data: Pipeline) -> None:
        self.files = {name: path for reader in data.readers for name, path in reader.image_files().items()}

    def open(self, name: str) -> Image.Image:
        return load_image(self.files[name])


def token_boxes(layout: Layout, row: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Returns boxes (N, 4) in [0, 1] of a row's image tokens, and which tokens (N,) lie on the plane."""
    row = 0 if len(layout.valid) == 1 else row
    there = (layout.valid[row] & ~layout.special[row] & ~layout.centre[row, :, 0].isnan()).cpu()
    tokens = there.nonzero()[:, 0]  # (N,)
    if layout.boxes is not None:
        return layout.boxes[row].cpu()[tokens].numpy(), tokens.numpy()
    rows, columns = layout.grid or (1, 1)
    corner = layout.centre[row].cpu()[tokens].numpy()[:, ::-1]  # (N, 2) column, row
    size = np.array([columns, rows], np.float32)
    return np.concatenate([corner / size, (corner + 1) / size], 1), tokens.numpy()


def scaled(boxes: NDArray[np.float32], picture: Image.Image) -> NDArray[np.float32]:
    """Scales boxes (N, 4) in [0, 1] to pixels of a picture."""
    return boxes * np.array([picture.width, picture.height] * 2, np.float32)


def enlarged(picture: Image.Image) -> Image.Image:
    """Enlarges a picture whose shorter side has less than :data:`SHORT` pixels."""
    scale = SHORT / min(picture.size)
    return picture if scale <= 1 else ImageOps.scale(picture, scale, Image.Resampling.LANCZOS)


def pieces(bundle: Bundle, batch: Batch) -> list[tuple[int, str]]:
    """Returns place and spelling of the first sentence's pieces, without class token and separators."""
    text: Any = batch.clean.text
    names, special = bundle.tokenizer.tokens(text.ids[0].tolist()), text.special[0].tolist()
    return [(place, name) for place, (name, off) in enumerate(zip(names, special, strict=True)) if not off]


def recorded(runner: TaskRunner, batch: Batch) -> tuple[dict[str, Tensor], EncoderOutput, int]:
    """Passes a batch forward; returns attention by name, states of image tokens, the number of text tokens (or 0)."""
    record = Recorder()
    step = runner.step(batch, record=record)
    if "fuse" in runner.model.capabilities and batch.clean.text is not None:
        fused = step.fused()
        return record.attention, fused.image, len(fused.text.layout)
    return record.attention, step.image(), 0


PLOTS = "pip install 'vlcli[plots]'"
"""The command that installs matplotlib."""
# Dots per inch of figures
DOTS = 120


class DrawingContext(Protocol):
    """What a drawing is given. Whatever costs time (weights, data) is opened when it is asked for.

    Attributes:
        folder: where pictures go.
        root: the data root.
        sources: the folders that ``from`` names, by the names used there.
    """

    folder: Path
    root: Path
    sources: Mapping[str, Path]
    device: str
    progress: Progress

    def bundle(self, source: str | None = None) -> Bundle:
        """Returns a source's trained model (None: the first one); UsageError: no sources, DataError: no model."""

    def bundles(self) -> dict[str, Bundle]:
        """Returns every trained model among the sources, by source."""

    def records(self) -> dict[str, StageRecord]:
        """Returns the sources' ``stage.json`` by source; DataError: a source is no finished stage."""

    def task(self, bundle: Bundle | None = None) -> Task | None:
        """Returns the task that the stage names, else the model's own; None where neither has one."""

    def readers(self, bundle: Bundle | None = None) -> list[Reader]:
        """Returns the data sets that the stage names, else those of the task; UsageError: neither names any."""

    def data(self, bundle: Bundle, limit: int | None = None) -> Pipeline:
        """Returns :meth:`readers`, loaded as the model wants them; only the first ``limit`` examples of each."""

    def runner(self, bundle: Bundle, limit: int | None = None) -> TaskRunner:
        """Returns the model on :meth:`data`: batches, passes, predictions."""

    def features(self) -> FeatureStore | None:
        """Returns the stores that the stage names or that come before it; None where there are none."""


class Drawing:
    """Base of every drawing; its keyword-only parameters are what a recipe may set.

    A drawing that needs an optional package names it in ``packages``, and the command that installs it in ``install``.
    """

    paper: ClassVar[str] = ""
    reads_data: ClassVar[bool] = False
    """Whether the task's own data set is read where the stage names none: its files are then looked for beforehand."""

    def draw(self, scene: DrawingContext) -> list[Path]:
        """Draw figures; called once per draw stage, without gradient. Subclasses define it.

        Args:
            scene: opens models, data and features when they are asked for; ``scene.folder`` is where to write.

        Returns:
            The files, figures first.

        Raises:
            NotImplementedError: the subclass does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} draws nothing")


def new_figure(width: float, height: float) -> Any:
    """Returns a matplotlib figure, its size in inches, that needs no screen (the drawing names the package)."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save_picture(picture: Any, path: Path) -> Path:
    """Writes a PIL image or a matplotlib figure as PNG; equal pictures make equal files."""
    with written(path) as beside:
        if isinstance(picture, Image.Image):
            picture.save(beside, format="png")
        else:
            picture.savefig(beside, format="png", dpi=DOTS, metadata={"Software": None})
    return path


def save_numbers(value: Any, path: Path) -> Path:
    """Writes the numbers behind a picture as JSON."""
    return write_text(path, json.dumps(value, indent=1))
