"""SIGINT and SIGTERM as a wish to end: the open window is finished, the run saved; a second signal ends it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

from visiontrain.errors import Stopped

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """Notes the first signal while it is entered. In threads other than the main one signals stay as they are.

    Several processes end together: by a signal that came to any of them, once all have learned of it.
    """

    def __init__(self, tell: Callable[[str], None], *, is_alone: bool = True) -> None:
        """
        Args:
            tell: Given one sentence when the first signal comes.
            is_alone: Whether there is one process.
        """
        self.signum: int | None = None
        """The signal that came to this process, None while none did."""
        self._is_alone = is_alone
        self._agreed: int | None = None
        self._tell = tell
        self._before: dict[int, Any] = {}

    @property
    def ending(self) -> int | None:
        """The signal by which all processes end."""
        return self.signum if self._is_alone else self._agreed

    def votes(self) -> list[float]:
        """For each of `SIGNALS` whether it came to this process."""
        return [float(self.signum == signum) for signum in SIGNALS]

    def agree(self, votes: Sequence[float]) -> None:
        """Learn what came to all processes.

        Args:
            votes: Of all, summed.
        """
        came = [int(signum) for signum, count in zip(SIGNALS, votes, strict=True) if count]
        if came and self._agreed is None:
            self._agreed = came[0]

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
        if signum == signal.SIGTERM and not self._is_alone:  # also from torchrun, to whom another process has been lost
            return
        with suppress(RuntimeError):  # Python's, where the signal has come in the middle of writing to the same stream
            self._tell(f"{signal.Signals(signum).name}: the open window is finished and saved; once more ends at once")
