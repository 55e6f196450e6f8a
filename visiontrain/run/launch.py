"""`processes=` and `device=0,1`: start the processes of a run by torchrun's own launcher, from within.

The processes get the settings as a file, and neither the words that this one was started with nor the script that
called it: what is right here is right there.

Source: the documentation of torch.distributed.launcher and torch.distributed.elastic.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from visiontrain.config.load import contradictions_of_processes, processes_asked_for
from visiontrain.config.schema import Config
from visiontrain.errors import ConfigError, Stopped, UserError
from visiontrain.run import handover
from visiontrain.run.interrupt import SIGNALS
from visiontrain.run.resuming import go_on, stored_args

PROGRAM = ("-m", "visiontrain.member")
MOST_STARTS = 10
"""That may follow the first; a fault of the user's and a program's error end a group for good."""
GRACE_SECONDS = 120
"""That processes have after a signal for their window and the checkpoint, unless the user has set it otherwise."""
GRACE_VARIABLE = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"


def processes_to_launch(config: Config) -> int:
    """Processes that are to be started for this run: 1 where it trains in this one."""
    if "RANK" in os.environ:
        return 1  # torchrun has started them
    if config.resume:
        config = go_on(config).config
        faults = contradictions_of_processes(config)
        if faults:
            raise ConfigError(faults)
    return processes_asked_for(config)


def launch(config: Config, processes: int) -> dict[str, Any]:
    """Train in so many processes of this machine.

    Returns:
        What the first one says of the run, as plain values.

    Raises:
        UserError: What they say is wrong, or how they failed.
        Stopped: If a signal has ended them.
    """
    with TemporaryDirectory(prefix="visiontrain-") as name:
        folder = Path(name)
        handover.write(folder, handover.SETTINGS, stored_args(config))
        _launch(folder, processes)
        return handover.read(folder, handover.RESULT) or {}


def _launch(folder: Path, processes: int) -> None:
    # Here, so that whoever trains in one process does without these modules.
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    with _launcher_settings():
        asked = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=processes,
            run_id=uuid.uuid4().hex,
            rdzv_backend="c10d",
            rdzv_endpoint="127.0.0.1:0",
            local_addr="127.0.0.1",
            max_restarts=MOST_STARTS,
            logs_specs=DefaultLogsSpecs(log_dir=str(folder)),
        )
        try:
            elastic_launch(asked, sys.executable)(*PROGRAM, str(folder))
        except SignalException as stop:
            raise Stopped(int(stop.sigval)) from stop
        except ChildFailedError as error:
            raise _failure(folder, {rank: failure.exitcode for rank, failure in error.failures.items()}) from error


def _failure(folder: Path, codes: dict[int, int]) -> UserError | Stopped:
    """Why the processes have failed."""
    said = handover.read_faults(folder)
    if said is not None:
        return said
    stopped = next((code - handover.SIGNALED for code in codes.values() if code - handover.SIGNALED in SIGNALS), None)
    if stopped is not None:
        return Stopped(stopped)
    causes = {rank: code for rank, code in codes.items() if code != handover.TO_START_AGAIN} or codes
    ended = ", ".join(f"process {rank} by {_how(code)}" for rank, code in sorted(causes.items()))
    return ConfigError(
        f"processes: the group has ended ({ended}); what it says of that stands above, and resume= goes on from its "
        "last checkpoint"
    )


def _how(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


@contextmanager
def _launcher_settings() -> Iterator[None]:
    """Inside, the launcher is quiet and patient; outside, signals, logs and environment are as they were."""
    names = [name for name in logging.root.manager.loggerDict if name.startswith("torch.distributed.elastic")]
    loggers = [(logging.getLogger(name), logging.getLogger(name).level) for name in names]
    variables = {name: os.environ.get(name) for name in (GRACE_VARIABLE, "TORCHELASTIC_SIGNALS_TO_HANDLE")}
    is_main = threading.current_thread() is threading.main_thread()
    kinds = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT") if hasattr(signal, name)]
    handlers = {kind: signal.getsignal(kind) for kind in kinds} if is_main else {}
    os.environ.setdefault(GRACE_VARIABLE, str(GRACE_SECONDS))
    for logger, _ in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in loggers:
            logger.setLevel(level)
        for name, value in variables.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        for kind, handler in handlers.items():
            signal.signal(kind, handler)
