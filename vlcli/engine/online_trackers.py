"""Trackers of services through accelerate: Weights & Biases, MLflow, Comet, trackio."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from vlcli.engine.trackers import Tracker


class Online(Tracker):
    """Base of trackers of accelerate: a run with the stage's configuration and every line of the log.

    Args:
        folder: the stage's folder; with the folder above, the run's name.
        project: of the run.
        offline: keep everything on this machine.
        options: further arguments of the library's function that begins a run.
    """

    remote = True

    def __init__(
        self, folder: Path, *, project: str = "vlcli", offline: bool = False, options: dict[str, Any] | None = None
    ) -> None:
        super().__init__(folder)
        self.project, self.offline, self.options = project, offline, options or {}
        self.title = f"{folder.parent.name}/{folder.name}"
        self.run: Any = None

    def begin(self) -> Any:
        """Return accelerate's tracker, not started; called once by :meth:`resume`. Subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} does not begin")

    def resume(self, step: int) -> None:
        usual = sys.stdin
        with Path(os.devnull).open(encoding="utf-8") as nothing:  # without a login a library would ask, and wait
            sys.stdin = nothing
            try:
                self.run = self.begin()
                self.run.start()
            finally:
                sys.stdin = usual
        record = self.folder / "stage.json"
        if record.is_file():
            self.run.store_init_configuration(json.loads(record.read_text(encoding="utf-8")).get("config") or {})

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self.run.log(dict(values), step=step)

    def close(self) -> None:
        self.run.finish()


class WeightsAndBiases(Online):
    """Weights & Biases (wandb); ``offline`` writes to the stage's folder, and ``wandb sync`` sends it later."""

    packages: ClassVar[tuple[str, ...]] = ("wandb",)
    install: ClassVar[str] = "pip install 'vlcli[wandb]'"

    def begin(self) -> Any:
        from accelerate.tracking import WandBTracker

        os.environ.setdefault("WANDB_SILENT", "true")
        mode = {"mode": "offline"} if self.offline else {}
        return WandBTracker(self.project, name=self.title, dir=str(self.folder), **mode, **self.options)


class MLflow(Online):
    """MLflow, at MLFLOW_TRACKING_URI; ``offline`` writes ``mlflow.db`` to the stage's folder."""

    packages: ClassVar[tuple[str, ...]] = ("mlflow",)
    install: ClassVar[str] = "pip install 'vlcli[mlflow]'"

    def begin(self) -> Any:
        import mlflow
        from accelerate.tracking import MLflowTracker

        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # 7 last minutes where no server answers
        if self.offline:
            mlflow.set_tracking_uri(f"sqlite:///{self.folder.resolve() / 'mlflow.db'}")
        return MLflowTracker(self.project, run_name=self.title, **self.options)


class Comet(Online):
    """Comet (comet_ml); ``offline`` writes an archive to the stage's folder, and ``comet upload`` sends it later."""

    packages: ClassVar[tuple[str, ...]] = ("comet_ml",)
    install: ClassVar[str] = "pip install 'vlcli[comet]'"

    def begin(self) -> Any:
        from accelerate.tracking import CometMLTracker

        if self.offline:
            os.environ.setdefault("COMET_OFFLINE_DIRECTORY", str(self.folder))
        return CometMLTracker(self.project, **({"online": False} if self.offline else {}), **self.options)

    def resume(self, step: int) -> None:
        super().resume(step)
        self.run.tracker.set_name(self.title)


class Trackio(Online):
    """trackio, whose runs stay on this machine; ``options: {space_id: NAME}`` sends them to a Space."""

    packages: ClassVar[tuple[str, ...]] = ("trackio",)
    install: ClassVar[str] = "pip install 'vlcli[trackio]'"

    def begin(self) -> Any:
        from accelerate.tracking import TrackioTracker

        local = {"space_id": None} if self.offline else {}
        return TrackioTracker(self.project, name=self.title, **(self.options | local))
