"""Plan how a run's images are cut into optimizer steps and micro-batches.

A *window* is the images behind one optimizer step; a *micro-batch* is the part of it that is in memory at once.
Images are counted from the start of the run: image x of a run over n images belongs to epoch `x // n` and stands at
place `x % n` of that epoch's permutation. Pure arithmetic: no torch, no data set, no counter that a loop could lose.

Letters: n images in an epoch, x a position in images since the start of the run, X the images of the warmup.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import accumulate as running_sum
from typing import Literal, get_args

from visiontrain.errors import ConfigError

Tail = Literal["flush", "spread", "carry"]
TAILS: tuple[str, ...] = get_args(Tail)


@dataclass(frozen=True)
class MicroBatch:
    """The images `[start, start + size)` of a run, in memory at once."""

    start: int
    size: int
    is_last: bool
    """Whether its window closes behind it: the only micro-batch whose gradients are exchanged between processes."""


@dataclass(frozen=True)
class Window:
    """The images `[start, start + size)` of a run, behind one optimizer step."""

    index: int
    """Counted from 0 over the whole run."""
    epoch: int
    """The epoch, from 0, in which the window opens."""
    start: int
    sizes: tuple[int, ...]
    """Images in each micro-batch; they differ by at most one."""

    @property
    def number(self) -> int:
        """As people count: from 1, the number of its update."""
        return self.index + 1

    @property
    def size(self) -> int:
        return sum(self.sizes)

    @property
    def stop(self) -> int:
        return self.start + self.size

    @property
    def micro_batches(self) -> tuple[MicroBatch, ...]:
        starts = running_sum(self.sizes[:-1], initial=self.start)
        last = len(self.sizes) - 1
        return tuple(
            MicroBatch(start, size, index == last)
            for index, (start, size) in enumerate(zip(starts, self.sizes, strict=True))
        )


@dataclass(frozen=True)
class Part:
    """What one of several processes takes of every micro-batch; a process alone takes all of it."""

    process: int = 0
    """Its number, from 0."""
    processes: int = 1
    most: int | None = None
    """Images in memory at once over all processes; larger micro-batches are cut. None: as they were planned."""

    def of(self, window: Window) -> tuple[MicroBatch, ...]:
        """The process's images of each micro-batch of `window`; their numbers differ by at most one between processes.

        All processes have as many micro-batches, so where there are fewer images than processes some hold none.
        """
        sizes = [size for planned in window.sizes for size in micro_batch_sizes(planned, self.most or planned)]
        starts = running_sum(sizes[:-1], initial=window.start)
        return tuple(
            self._own(MicroBatch(start, size, place == len(sizes) - 1))
            for place, (start, size) in enumerate(zip(starts, sizes, strict=True))
        )

    def _own(self, whole: MicroBatch) -> MicroBatch:
        shares = cut_evenly(whole.size, self.processes)
        return MicroBatch(whole.start + sum(shares[: self.process]), shares[self.process], whole.is_last)


ALL = Part()
"""The part of a process that is alone."""


@dataclass(frozen=True)
class Plan:
    """Every window of a run. Made by `plan_run`.

    `window_sizes[e]` holds the images of each window that opens in epoch e (equal epochs share one tuple).
    """

    num_images: int
    batch: int
    nbs: int
    epochs: int
    warmup_images: int
    tail: Tail
    window_sizes: tuple[tuple[int, ...], ...] = field(repr=False)

    @property
    def accumulate(self) -> int:
        return accumulate_of(self.batch, self.nbs)

    @property
    def total_images(self) -> int:
        return self.num_images * self.epochs

    @property
    def full_window(self) -> int:
        return self.batch * self.accumulate

    @property
    def weight_decay_factor(self) -> float:
        """What keeps the decay per image as in the recipe when a full window is not exactly `nbs` images."""
        return self.full_window / self.nbs

    @cached_property
    def first_window(self) -> tuple[int, ...]:
        """Index of the first window of each epoch; one more entry holds the number of windows of the run."""
        return tuple(running_sum(map(len, self.window_sizes), initial=0))

    @cached_property
    def first_image(self) -> tuple[int, ...]:
        """Position of the first image of the first window of each epoch; one more entry holds the images of the run."""
        return tuple(running_sum(map(sum, self.window_sizes), initial=0))

    @property
    def num_updates(self) -> int:
        return self.first_window[-1]

    def smallest_share(self, processes: int) -> int:
        """The fewest images of a micro-batch that one of so many processes has; one alone is little for BatchNorm."""
        windows = {size for sizes in set(self.window_sizes) for size in sizes}
        smallest = min(min(micro_batch_sizes(size, self.batch)) for size in windows)
        return max(1, smallest // processes)

    def windows(self, epoch: int) -> Iterator[Window]:
        """The windows that open in `epoch` (from 0), in order."""
        index, start = self.first_window[epoch], self.first_image[epoch]
        for size in self.window_sizes[epoch]:
            yield Window(index, epoch, start, micro_batch_sizes(size, self.batch))
            index, start = index + 1, start + size

    def all_windows(self, first: int = 0) -> Iterator[Window]:
        """The windows of the run in order, from the one with index `first` on."""
        for epoch in range(self.epochs):
            if self.first_window[epoch + 1] > first:
                yield from (window for window in self.windows(epoch) if window.index >= first)

    def window_at(self, image: int) -> int | None:
        """The index of the window that begins at an image, counted over the whole run; None where none does."""
        if image in self.first_image:
            # Of epochs that open no window of their own (tail=carry) the last one's index is the same.
            return self.first_window[self.first_image.index(image)]
        epoch = bisect_right(self.first_image, image) - 1
        return next((window.index for window in self.windows(epoch) if window.start == image), None)

    def epochs_within(self, images: int) -> int:
        """Epochs whose last image is among the first `images` of the run."""
        return images // self.num_images


def accumulate_of(batch: int, nbs: int) -> int:
    """Micro-batches to a full window."""
    return max(1, round(nbs / batch))


def micro_batch_sizes(size: int, batch: int) -> tuple[int, ...]:
    """A window's images cut into the fewest micro-batches of at most `batch`, whose sizes differ by at most one."""
    return cut_evenly(size, -(-size // batch))


@lru_cache(maxsize=4096)
def cut_evenly(size: int, parts: int) -> tuple[int, ...]:
    """Cut `size` into `parts` parts whose sizes differ by at most one, larger ones first."""
    smaller, larger = divmod(size, parts)
    return (smaller + 1,) * larger + (smaller,) * (parts - larger)


def plan_run(
    *,
    num_images: int,
    batch: int,
    nbs: int,
    epochs: int = 1,
    warmup_epochs: float = 0.0,
    tail: Tail = "flush",
) -> Plan:
    """Plan all windows of a run.

    Args:
        num_images: Images in an epoch.
        batch: Most images in memory at once, over all processes.
        nbs: Nominal batch size: images per optimizer step that the recipe was made for.
        epochs: Passes over the images.
        warmup_epochs: Epochs over which the window grows from one micro-batch to `accumulate`; at most `epochs - 1`.
        tail: What becomes of the images that do not fill an epoch's last window: `flush` makes them a short window
            (or adds them to the one before, if they are few), `spread` makes all windows of an epoch nearly equal,
            `carry` fills the window from the next epoch.

    Raises:
        ConfigError: If a number is out of range; all faults at once.
    """
    _check(num_images, batch, nbs, epochs, warmup_epochs, tail)
    # Capped before it is rounded: the product of a huge number may be infinite.
    warmup_images = round(min(warmup_epochs * num_images, (epochs - 1) * num_images))
    ramp = _Ramp(batch, nbs, warmup_images)
    if tail == "carry":
        sizes = _cut_carrying(num_images, epochs, ramp)
    else:
        sizes = _cut_epochs(num_images, epochs, ramp, spread=tail == "spread")
    return Plan(num_images, batch, nbs, epochs, warmup_images, tail, sizes)


def plan_windows(
    *,
    num_images: int,
    batch: int,
    nbs: int,
    epochs: int = 1,
    warmup_epochs: float = 0.0,
    tail: Tail = "flush",
) -> Iterator[Window]:
    """The windows of a run, one for each optimizer step; arguments and errors as for `plan_run`."""
    plan = plan_run(num_images=num_images, batch=batch, nbs=nbs, epochs=epochs, warmup_epochs=warmup_epochs, tail=tail)
    return plan.all_windows()


@dataclass(frozen=True)
class _Ramp:
    """How many images a window should hold, by where it opens."""

    batch: int
    nbs: int
    warmup_images: int

    def size_at(self, x: int) -> int:
        accumulate = accumulate_of(self.batch, self.nbs)
        if x >= self.warmup_images:
            return accumulate * self.batch
        return max(1, round(1 + (accumulate - 1) * x / self.warmup_images)) * self.batch

    def cut(self, start: int, stop: int) -> tuple[int, ...]:
        """Cut `[start, stop)` into windows; a short rest joins the window before it."""
        sizes: list[int] = []
        x = start
        while x < stop:
            sizes.append(min(self.size_at(x), stop - x))
            x += sizes[-1]
        is_short = len(sizes) > 1 and sizes[-1] < self.size_at(stop - sizes[-1])
        if is_short and sizes[-1] < max(2, self.nbs / 8):
            rest = sizes.pop()
            sizes[-1] += rest
        return tuple(sizes)


def _cut_epochs(n: int, epochs: int, ramp: _Ramp, *, spread: bool) -> tuple[tuple[int, ...], ...]:
    touched = min(epochs, -(-ramp.warmup_images // n))  # epochs that the ramp reaches into
    warm = [ramp.cut(epoch * n, (epoch + 1) * n) for epoch in range(touched)]
    full = ramp.size_at(ramp.warmup_images)
    settled = cut_evenly(n, max(1, round(n / full))) if spread else ramp.cut(touched * n, (touched + 1) * n)
    return (*warm, *(settled,) * (epochs - touched))


def _cut_carrying(n: int, epochs: int, ramp: _Ramp) -> tuple[tuple[int, ...], ...]:
    by_epoch: list[list[int]] = [[] for _ in range(epochs)]
    x = 0
    for size in ramp.cut(0, n * epochs):
        by_epoch[x // n].append(size)
        x += size
    return tuple(map(tuple, by_epoch))


def _check(num_images: int, batch: int, nbs: int, epochs: int, warmup_epochs: float, tail: str) -> None:
    counts = {
        "num_images": (num_images, "it is the images in an epoch"),
        "batch": (batch, "it is the most images held in memory at once (nbs sets the images per optimizer step)"),
        "nbs": (nbs, "it is the nominal batch size: the images per optimizer step"),
        "epochs": (epochs, "it is the passes over the images"),
    }
    faults = [
        f"{name} = {value!r} is not a positive integer; {meaning}"
        for name, (value, meaning) in counts.items()
        if not isinstance(value, int) or isinstance(value, bool) or value < 1
    ]
    is_number = isinstance(warmup_epochs, int | float) and not isinstance(warmup_epochs, bool)
    if not is_number or not 0 <= warmup_epochs < float("inf"):
        faults.append(f"warmup_epochs = {warmup_epochs!r} is not a finite number from 0 up; 0 means no warmup")
    if tail not in TAILS:
        faults.append(f"tail = {tail!r} is unknown; choose one of {', '.join(TAILS)}")
    if faults:
        raise ConfigError(faults)
