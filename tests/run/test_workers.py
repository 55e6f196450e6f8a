"""Loading processes and the shared memory that they need."""

from __future__ import annotations

import pytest

from visiontrain.config.load import load_config
from visiontrain.engine.device import DeviceSetup
from visiontrain.errors import ConfigError
from visiontrain.run import session as session_module
from visiontrain.run.session import open_session

MEGABYTE = 10**6


@pytest.fixture
def opened(monkeypatch, tiny_yolo, small_network):
    """A function that opens a session on a machine with four workers and so much shared memory."""

    def run(shm_bytes, **keys):
        monkeypatch.setattr(session_module, "shm_free", lambda: shm_bytes)
        plain = session_module.device_of
        monkeypatch.setattr(
            session_module,
            "device_of",
            lambda config, place: DeviceSetup(plain(config, place).device, threads=1, workers=4),
        )
        settings = {"data": str(tiny_yolo(8)), "model": str(small_network), "imgsz": 640, "batch": 8, "nbs": 8, **keys}
        return open_session(load_config("train", python=settings))

    return run


def test_without_a_limit_or_with_room_the_workers_stay(opened):
    assert opened(None).setup.workers == 4
    assert opened(1000 * MEGABYTE).setup.workers == 4


def test_a_small_shared_memory_takes_fewer_workers_and_says_so(opened):
    session = opened(64 * MEGABYTE)  # a container's default
    assert session.setup.workers == 1
    assert any("workers: 1 instead of 4: the shared memory has 64 MB left" in line for line in session.changes)


def test_workers_that_were_typed_and_do_not_fit_are_refused(opened):
    with pytest.raises(ConfigError, match="workers: 1 instead of 4"):
        opened(64 * MEGABYTE, workers=4)
