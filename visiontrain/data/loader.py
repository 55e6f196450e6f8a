"""Micro-batches in the order of the plan, made ahead of time by worker processes.

One torch loader serves a whole run, so workers start once and prefetch across epochs. What it yields does not depend
on the number of workers, and no global random state is touched.
"""

from __future__ import annotations

import atexit
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import cv2
import torch
from torch.utils.data import DataLoader

from visiontrain.data.dataset import EvalDataset, TrainDataset, UnreadableImage
from visiontrain.data.workers import end_with_parent, signals_wait
from visiontrain.plan import ALL, Part, Plan, Window
from visiontrain.sample import Batch, Sample

Collate = Callable[[Sequence[Sample | UnreadableImage]], Batch]


class LoadedWindow:
    """The micro-batches of one window: loaded when first iterated over, kept for being replayed."""

    def __init__(self, planned: Window, load: Callable[[], Batch], num_batches: int) -> None:
        self.planned = planned
        self.t_data = 0.0
        """Seconds spent waiting for the loader so far."""
        self._load = load
        self._num_batches = num_batches
        self._batches: list[Batch] = []

    def __len__(self) -> int:
        """Micro-batches."""
        return self._num_batches

    def __iter__(self) -> Iterator[Batch]:
        for place in range(len(self)):
            if place == len(self._batches):
                self._load_next()
            yield self._batches[place]

    def load_rest(self) -> None:
        """Load what was not iterated over, so that the next window begins where it should."""
        while len(self._batches) < len(self):
            self._load_next()

    def _load_next(self) -> None:
        start = time.perf_counter()
        batch = self._load()
        self.t_data += time.perf_counter() - start
        self._batches.append(replace(batch, is_last=len(self._batches) == len(self) - 1))


class TrainLoader:
    """The windows of a run, in order, with their images: of several processes each loads its part of every micro-batch.

    Where a process has no image of a micro-batch, it has a batch without images.
    """

    def __init__(
        self,
        dataset: TrainDataset,
        plan: Plan,
        collate: Collate,
        *,
        workers: int,
        pin_memory: bool = False,
        part: Part = ALL,
    ) -> None:
        """
        Args:
            dataset: As many images as the plan has in an epoch; its sampler says which stands where.
            plan: The run.
            collate: Makes a batch of samples.
            workers: Worker processes; 0 loads in this one.
            pin_memory: Whether batches are put into page-locked memory.
            part: What this process takes of every micro-batch.
        """
        assert len(dataset) == plan.num_images, f"{len(dataset)} images, planned for {plan.num_images}"
        self._plan = plan
        self._part = part
        self._sampler = dataset.sampler
        self._make = partial(_make_loader, dataset, collate, workers=workers, pin_memory=pin_memory)
        self._batches: Iterator[Any] | None = None

    def windows(self, first_window: int = 0) -> Iterator[LoadedWindow]:
        """All windows of the run from `first_window` on, counted over the whole run.

        Only one such iteration can be under way; a new one ends the workers of the one before.
        """
        self.close()
        keys = self._sampler.micro_batches(self._plan, first_window=first_window, part=self._part)
        with signals_wait():
            self._batches = iter(self._make(keys))
        for planned in self._plan.all_windows(first_window):
            window = LoadedWindow(planned, self._next_batch, len(self._part.of(planned)))
            yield window
            window.load_rest()
        self.close()

    def close(self) -> None:
        """End the workers. A window not loaded yet can no longer be."""
        self._batches = None  # torch ends its workers with the iterator that owns them

    def _next_batch(self) -> Batch:
        assert self._batches is not None, "the loader was closed before this window was loaded"
        return next(self._batches)


class EvalLoader:
    """The batches of a split, the same at every iteration; workers stay alive in between.

    A batch holds images of one letterboxed shape, so what the network makes of an image does not depend on its
    neighbors. Images therefore come sorted by their proportions; `Batch.indices` tells which they are.
    """

    def __init__(
        self,
        dataset: EvalDataset,
        collate: Collate,
        *,
        batch: int,
        workers: int,
        pin_memory: bool = False,
        part: Part = ALL,
    ) -> None:
        """
        Args:
            dataset: The split.
            collate: Makes a batch of samples.
            batch: Most images in a batch.
            workers: Worker processes; 0 loads in this one.
            pin_memory: Whether batches are put into page-locked memory.
            part: Of several processes each scores the batches of its own number, counted round.
        """
        records = dataset.records
        order = sorted(range(len(records)), key=lambda index: (records[index].height / records[index].width, index))
        starts = range(part.process * batch, len(order), part.processes * batch)
        indices = [order[start : start + batch] for start in starts]
        make_batches = partial(_collate_by_shape, collate)
        self._make = partial(_make_loader, dataset, make_batches, indices, workers=workers, pin_memory=pin_memory)
        self._loader: DataLoader[Any] | None = None

    def __iter__(self) -> Iterator[Batch]:
        if self._loader is None:
            self._loader = self._make()
        with signals_wait():
            loaded = iter(self._loader)
        for batches in loaded:
            yield from batches

    def close(self) -> None:
        """End the workers; a later iteration starts new ones."""
        self._loader = None  # torch ends its workers with the loader that owns them


def _make_loader(
    dataset: TrainDataset | EvalDataset, collate: Any, keys: Any, *, workers: int, pin_memory: bool
) -> DataLoader[Any]:
    return DataLoader(
        dataset,
        batch_sampler=keys,
        num_workers=workers,
        collate_fn=collate,
        pin_memory=pin_memory,
        worker_init_fn=_start_worker if workers else None,
        multiprocessing_context="spawn" if workers else None,
        persistent_workers=workers > 0,
        generator=torch.Generator(),  # else torch would draw from the global one
    )


def _start_worker(_: int) -> None:
    """Runs first in each worker process: one thread, as there are several workers; signals are the parent's matter."""
    end_with_parent()
    cv2.setNumThreads(1)
    torch.set_num_threads(1)
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, signal.SIG_IGN)
    # When a run ends early, a thread of the worker is still handing a batch over. An interpreter that ends in order
    # (CPython before 3.14) unwinds that thread inside C++, which aborts the process, and torch takes that for a fault
    # of the worker. Forked workers end without these last steps, too.
    atexit.register(os._exit, 0)


def _collate_by_shape(collate: Collate, samples: Sequence[Sample | UnreadableImage]) -> list[Batch]:
    """One batch for each shape of image, in order of appearance."""
    groups: dict[tuple[int, ...], list[Sample | UnreadableImage]] = {}
    for sample in samples:
        shape = sample.image.shape if isinstance(sample, Sample) else ()
        groups.setdefault(shape, []).append(sample)
    return [collate(group) for group in groups.values()]
