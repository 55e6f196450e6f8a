"""SIGINT and SIGTERM as a wish to end: the open window is finished, the run saved; a second signal ends it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

from visiontrain.errors import Stopped

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """Notes the first signal while it is entered. In threads other than the main one signals stay as they are."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        """
        Args:
            tell: Given one sentence when the first signal comes.
        """
        self.signum: int | None = None
        """The signal that came, None while none did."""
        self._tell = tell
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._before = {signum: signal.signal(signum, self._handle) for signum in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self.signum is not None:
            raise Stopped(signum)
        self.signum = signum
        with suppress(RuntimeError):  # Python's, where the signal has come in the middle of writing to the same stream
            self._tell(f"{signal.Signals(signum).name}: the open window is finished and saved; once more ends at once")
