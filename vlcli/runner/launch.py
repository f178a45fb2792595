"""Starts the processes of a run on this machine with torch's elastic agent."""

import logging
import os
import signal
import sys
import uuid

from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from vlcli import stopping
from vlcli.engine import peers
from vlcli.errors import VlcliError

EVERY = 0.1  # seconds between two looks at the processes


def launch(count: int) -> int:
    """Run this command line in ``count`` processes and return its exit code.

    Raises:
        VlcliError: a signal from outside ended one of the processes; the others are ended too.
    """
    handled = ",".join(signal.Signals(number).name for number in stopping.SIGNALS)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=count,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
        monitor_interval=EVERY,
        signals_to_handle=handled,
    )
    os.environ[stopping.LAUNCHER] = str(os.getpid())
    logging.disable(logging.ERROR)  # the agent logs what is told below
    try:
        elastic_launch(config, sys.executable)("-m", "vlcli", *sys.argv[1:])
    except SignalException as stop:
        return stopping.Stopped(stop.sigval).code
    except ChildFailedError as error:
        return _told(error.failures, count)
    return 0


def _told(failures: dict[int, ProcessFailure], count: int) -> int:
    killed = {rank: failure for rank, failure in failures.items() if failure.exitcode < 0}
    if not killed:
        return max(failure.exitcode for failure in failures.values())  # the process has told why
    rank, failure = min(killed.items(), key=lambda item: item[1].timestamp)
    name = failure.signal_name()
    why = ": perhaps because memory ran out" if name == "SIGKILL" else ""
    what, where = f"Process {rank} of {count} is gone; the others are ended too.", f"rank {rank}, pid {failure.pid}"
    raise VlcliError(what, where=where, got=f"signal {name} ended it{why}", hint=peers.HINT)
