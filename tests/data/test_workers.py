from __future__ import annotations

import os
import threading
from itertools import chain, repeat

import pytest

from visiontrain.data import workers as workers_module
from visiontrain.data.workers import end_when_orphaned, fitting_workers, lowered_workers_message, shm_free

MB = 10**6


@pytest.mark.parametrize(
    ("shm_bytes", "expected"),
    [(0, 0), (1 * MB, 0), (15 * MB, 1), (64 * MB, 6), (100 * MB, 8), (10_000 * MB, 8), (None, 8)],
)
def test_workers_are_as_many_as_shared_memory_holds_batches_for(shm_bytes, expected):
    assert fitting_workers(8, batch_bytes=4 * MB, shm_bytes=shm_bytes) == expected


def test_what_fits_never_overflows_and_one_more_would():
    for batch_bytes in (1, 3 * MB, 50 * MB):
        for shm_bytes in (1 * MB, 64 * MB, 1000 * MB):
            for held in (0, 30 * MB):
                found = fitting_workers(16, batch_bytes=batch_bytes, shm_bytes=shm_bytes, prefetch=3, held_bytes=held)
                taken = [held + batch_bytes * (1 + 3 * workers) for workers in (found, found + 1)]
                assert found == 0 or taken[0] <= 0.9 * shm_bytes
                assert found == 16 or taken[1] > 0.9 * shm_bytes


def test_none_asked_for_is_none():
    assert fitting_workers(0, batch_bytes=MB, shm_bytes=100 * MB) == 0


def test_the_message_says_what_was_found_and_what_to_turn():
    message = lowered_workers_message(8, 0, batch_bytes=4_915_200, shm_bytes=MB)
    assert message == (
        "workers: 0 instead of 8: the shared memory has 1 MB left for batches of 4.9 MB; "
        "give it more (docker run --shm-size=1g or --ipc=host) or use a smaller batch"
    )


def test_free_shared_memory_is_told_where_it_has_a_limit(monkeypatch, tmp_path):
    monkeypatch.setattr("visiontrain.data.workers.SHARED_MEMORY", tmp_path)
    assert shm_free() > 0
    monkeypatch.setattr("visiontrain.data.workers.SHARED_MEMORY", tmp_path / "absent")
    assert shm_free() is None


def test_a_process_ends_when_its_parent_is_another(monkeypatch):
    parents, ended = chain(repeat(7, 3), repeat(1)), threading.Event()
    monkeypatch.setattr(workers_module, "SECONDS_BETWEEN_LOOKS", 0.001)
    monkeypatch.setattr(os, "getppid", lambda: next(parents))
    monkeypatch.setattr(os, "_exit", lambda code: ended.set())
    end_when_orphaned()
    assert ended.wait(60)
    assert next(parents) == 1  # not before the parent had gone
