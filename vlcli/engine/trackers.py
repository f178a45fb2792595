"""Trackers write the numbers of a run while it trains."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from vlcli.errors import ComponentError
from vlcli.files import write_text
from vlcli.progress import Progress


class Tracker:
    """Base of every tracker; built on rank 0.

    Attributes:
        remote: it needs a service; an error ends the tracker, not the training.

    Args:
        folder: the stage's folder.
    """

    remote: ClassVar[bool] = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def resume(self, step: int) -> None:
        """Prepare for a run; called once before the first step. Lines after ``step`` will come again.

        Args:
            step: optimizer steps already done; 0 for a new run.
        """

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Keep one line of numbers; called every ``log_every`` steps and after each evaluation. Subclasses define it.

        Args:
            step: optimizer steps done.
            values: numbers by name.

        Raises:
            NotImplementedError: the subclass does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} does not log")

    def close(self) -> None:
        """Write what is pending; called once after the last step."""


class JsonLines(Tracker):
    """One JSON object a line: losses, metrics, gradient norm, learning rate, rate, share of time waiting for data.

    Args:
        folder: the stage's folder.
        file: the file in it.
    """

    def __init__(self, folder: Path, *, file: str = "log.jsonl") -> None:
        super().__init__(folder)
        self.path = folder / file

    def resume(self, step: int) -> None:
        # A line cut short by a kill goes too.
        kept = [line for line in read_log(self.path) if line["step"] <= step] if step else []
        write_text(self.path, "".join(json.dumps(line) + "\n" for line in kept))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")


class TensorBoard(Tracker):
    """TensorBoard event files.

    Args:
        folder: the stage's folder.
        directory: the folder in it.
    """

    def __init__(self, folder: Path, *, directory: str = "tensorboard") -> None:
        super().__init__(folder)
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            what = "The tracker 'tensorboard' needs TensorBoard, which is not installed."
            raise ComponentError(what, hint="pip install 'vlcli[tensorboard]'") from error
        self._open = partial(SummaryWriter, str(folder / directory))

    def resume(self, step: int) -> None:
        self._writer = self._open(purge_step=step + 1 if step else None)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


def tell(trackers: list[Tracker], call: Callable[[Tracker], None], progress: Progress) -> None:
    """Call each tracker; a ``remote`` one that fails is removed with a warning."""
    for tracker in list(trackers):
        try:
            call(tracker)
        except Exception as error:
            if not tracker.remote:
                raise
            trackers.remove(tracker)
            text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
            why = f"{type(error).__name__}: {text}".removesuffix(": ")[:200]
            progress.warn(f"the tracker {type(tracker).__name__} ended, training goes on without it: {why}")


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a JSON-lines log, without truncated ones."""
    lines: list[dict[str, Any]] = []
    for text in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        with suppress(ValueError):
            lines.append(json.loads(text))
    return [line for line in lines if isinstance(line, dict) and isinstance(line.get("step"), int)]
