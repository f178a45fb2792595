"""Defines the base class of generated worlds: data roots made from options and a seed."""

from abc import ABC, abstractmethod
from pathlib import Path

from vlcli.progress import Progress


class World(ABC):
    """A generated data root; a subclass is a frozen dataclass with keyword-only fields, the options of a recipe.

    The stage kind ``make`` and ``vlcli data make`` build a world from the options and call :meth:`make` once.
    """

    @abstractmethod
    def make(self, folder: Path, progress: Progress, workers: int) -> dict[str, int]:
        """Write the world; called once per stage. Every byte follows from the fields, whatever ``workers`` is.

        Args:
            folder: the data root to write; DataError: it holds something else.
            progress: where to report.
            workers: processes that draw.

        Returns:
            How many pictures and annotations of each sort there are.
        """
