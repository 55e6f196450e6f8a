"""What the user watches: a live progress line on a terminal, plain lines where the output is piped."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TextIO

from visiontrain.loggers.lines import RunLines, format_duration

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_WIDE = 120  # columns of a terminal that has room for the bar and the speed


EVENTS = ("start", "epoch", "warning", "end")
QUIET_EVENTS = ("warning", "end")


class ConsoleLogger:
    """Prints the banner, one line an epoch, warnings and the closing table.

    On a terminal a progress line below them follows the epoch: images done, losses, speed, time left. Elsewhere there
    is no such line and no control character.
    """

    def __init__(
        self, *, quiet: bool = False, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """
        Args:
            quiet: Print warnings and the closing table alone.
            stream: Where to; standard output by default.
            clock: Seconds from any moment on; rises.
        """
        self._stream = sys.stdout if stream is None else stream
        self._is_quiet = quiet
        self._lines = RunLines()
        self._progress = None if quiet or not self._stream.isatty() else _ProgressLine(self._stream, clock)

    def log(self, event: str, values: Mapping[str, Any]) -> None:
        if event == "window" and self._progress:
            self._progress.show(values)
        lines = self._lines.of(event, values)
        if not lines or event not in (QUIET_EVENTS if self._is_quiet else EVENTS):
            return
        if self._progress:
            self._progress.hide()
            if event == "epoch":
                self._progress.finish_epoch()
        for line in lines:
            print(_encodable(line, self._stream), file=self._stream)
        self._stream.flush()

    def close(self) -> None:
        """Takes the progress line away and gives the cursor back; call it however the run ends."""
        if self._progress:
            self._progress.hide()


def _encodable(line: str, stream: TextIO) -> str:
    """The line with `?` for what the stream cannot write: a run must not end over a sign in its banner."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return line.encode(encoding, "replace").decode(encoding)


class _Pace:
    """How fast images go by, and when the epoch and the run will be over."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._is_running = False
        self._started = 0.0
        self._images_at_start = 0
        self._epoch_seconds: float | None = None  # of the last whole epoch, validation included

    def speed(self, images_done: int) -> float | None:
        """Images per second in this epoch; None until there is something to divide."""
        now = self._clock()
        if not self._is_running:  # nobody said when this epoch began: count from here
            self._is_running = True
            self._started, self._images_at_start = now, images_done
        seconds, images = now - self._started, images_done - self._images_at_start
        return images / seconds if seconds > 0 and images > 0 else None

    def finish_epoch(self) -> None:
        now = self._clock()
        if self._is_running and self._images_at_start == 0:
            self._epoch_seconds = now - self._started
        self._is_running = True
        self._started, self._images_at_start = now, 0

    def time_left(self, values: Mapping[str, Any], speed: float | None) -> tuple[float, float] | None:
        """Seconds to the end of the epoch's training, and of the run."""
        if speed is None:
            return None
        # A window that is carried over into the next epoch counts more images than the epoch has.
        epoch_left = max(0, values["num_images"] - values["images_done"]) / speed
        per_epoch = self._epoch_seconds or values["num_images"] / speed
        return epoch_left, epoch_left + (values["epochs"] - values["epoch"]) * per_epoch


class _ProgressLine:
    """The live line. It is drawn when something is told, without a thread of its own."""

    def __init__(self, stream: TextIO, clock: Callable[[], float]) -> None:
        self._stream = stream
        self._pace = _Pace(clock)
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def show(self, values: Mapping[str, Any]) -> None:
        """Draw the state after a window; the epoch counts from 1."""
        speed = self._pace.speed(values["images_done"])
        left = self._pace.time_left(values, speed)
        losses = "  ".join(
            f"{name.rpartition('/')[2].removesuffix('_loss')} {float(value):.3f}"
            for name, value in values.get("losses", {}).items()
        )
        texts = {
            "epoch": f"{values['epoch']}/{values['epochs']}",
            "update": values["update"],
            "losses": losses,
            "speed": "-" if speed is None else f"{speed:.0f}",
            "left": "-" if left is None else f"{format_duration(left[0])}, run {format_duration(left[1])}",
        }
        if self._progress is None or self._task is None:
            self._progress = _make_progress(self._stream)
            self._task = self._progress.add_task("", total=values["num_images"], **texts)
            self._progress.start()
        self._progress.update(self._task, completed=values["images_done"], total=values["num_images"], **texts)
        self._progress.refresh()

    def hide(self) -> None:
        """Take the line away, to print above it or for good; the next `show` brings it back."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = self._task = None

    def finish_epoch(self) -> None:
        """The next images are of another epoch."""
        self._pace.finish_epoch()


def _make_progress(stream: TextIO) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn
    from rich.table import Column

    def text(template: str) -> TextColumn:
        return TextColumn(template, table_column=Column(no_wrap=True))

    console = Console(file=stream)
    epoch, done = text("epoch {task.fields[epoch]}"), text("{task.completed:.0f}/{task.total:.0f}")
    losses, left = text("{task.fields[losses]}"), text("left {task.fields[left]}")
    columns: tuple[ProgressColumn, ...]
    if console.width < _WIDE:
        columns = (epoch, done, losses, left)
    else:
        update, speed = text("update {task.fields[update]}"), text("{task.fields[speed]} img/s")
        columns = (epoch, BarColumn(bar_width=20), done, update, losses, speed, left)
    return Progress(
        *columns,
        console=console,
        auto_refresh=False,
        transient=True,  # the epoch's line of the table takes its place
        # Standard output and error stay what they are: what others print must not pass through here.
        redirect_stdout=False,
        redirect_stderr=False,
    )
