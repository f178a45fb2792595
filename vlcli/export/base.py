"""Base class of exporters."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from vlcli.nn.model import DataSpec, Model
from vlcli.progress import Progress


class Trained(Protocol):
    """A trained model as exporters see it (``vlcli.engine.bundle.Bundle`` is one).

    ``module`` holds model and objectives (``.model``, ``.objectives`` by name) in evaluation mode; ``tokenizer`` is
    None for a model without text; ``text_options`` say how sentences are prepared, cut and ended.
    """

    module: Any
    tokenizer: Any
    data_spec: DataSpec
    folder: Path
    text_options: dict[str, Any]

    @property
    def model(self) -> Model: ...


@dataclass
class Exported:
    """Result of an export.

    ``files`` are paths relative to the folder, by role; ``notes`` lines for the user; ``metrics`` differences from the
    original.
    """

    files: dict[str, str]
    notes: list[str] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)


class Exporter:
    """Base of every exporter; built without positional arguments.

    Attributes:
        packages: modules that it imports and vlcli does not install; without them recipes that name it are refused.
        install: the command that installs them.
        writes: ``transformers`` for an exporter whose folder ``model/`` AutoModel loads: ``hub`` calls it too.
    """

    paper: ClassVar[str] = ""
    packages: ClassVar[tuple[str, ...]] = ()
    install: ClassVar[str] = ""
    writes: ClassVar[str] = ""

    def export(self, trained: Trained, folder: Path, progress: Progress) -> Exported:
        """Write a trained model, and check the files against it; called once per export stage. Subclasses define it.

        Args:
            trained: the model, its objectives, tokenizer and sizes, in evaluation mode.
            folder: where to write, existing and empty.
            progress: where to report.

        Returns:
            The files by role, notes, and measured differences.

        Raises:
            NotImplementedError: the subclass does not define it.
            UsageError: the model cannot be written in this format.
        """
        raise NotImplementedError(f"{type(self).__name__} does not export")
