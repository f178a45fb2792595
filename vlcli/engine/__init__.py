"""The trainer, optimizers, schedules, checkpoints, bundles, processes; built on accelerate."""

from typing import TYPE_CHECKING

from vlcli.lazy import lazily

if TYPE_CHECKING:
    from vlcli.engine.bundle import Bundle, find_bundle, load_bundle
    from vlcli.engine.evaluation import TaskRunner, evaluating
    from vlcli.engine.trackers import Tracker, read_log

__getattr__ = lazily(__name__, __file__)
