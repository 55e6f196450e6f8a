"""Which checkpoints are written when, by whom, and what becomes of one that cannot be."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from visiontrain.config.schema import Config
from visiontrain.engine.checkpoint import SaveError
from visiontrain.engine.distributed import Group, Place
from visiontrain.engine.fit import EpochEnd, RunState
from visiontrain.errors import CheckpointError
from visiontrain.run import saving
from visiontrain.run.saving import Checkpoints


@dataclass
class Session:
    """What of a session the checkpoints look at."""

    config: Config = field(default_factory=Config)
    group: Group = field(default_factory=Group)
    state: RunState = field(default_factory=RunState)
    checkpoint: dict[str, Any] | None = None


class Disk:
    """Notes what is written and when; full while `is_full`."""

    def __init__(self, monkeypatch, folder):
        self.now, self.is_full = 0.0, False
        self.written, self.warned, self.told = [], [], []
        self._folder = folder
        monkeypatch.setattr(saving, "save_checkpoint", self._save)

    def _save(self, path, values, *, previous=None):
        self.written.append((path.name, values, previous and previous.name))
        if self.is_full:
            raise SaveError(f"{path}: cannot be written")

    def checkpoints(self, *, process=0, session=None, **settings):
        session = session or Session()
        session.config = replace(session.config, **settings)
        session.group = Group(Place(process, 2)) if process else Group()
        return Checkpoints(
            session,
            self._folder,
            clock=lambda: self.now,
            warn=self.warned.append,
            on_saved=lambda path, state: self.told.append((path.name, state.window)),
        )

    @property
    def names(self):
        return [name for name, _, _ in self.written]


@pytest.fixture
def disk(monkeypatch, tmp_path):
    return Disk(monkeypatch, tmp_path)


def values(state, metrics):
    return {"window": state.window, "metrics": metrics}


def end_of(epoch, *, is_best=False):
    return EpochEnd(RunState(window=4 * epoch, epoch=epoch), {}, {"metrics/mAP50(B)": 0.5}, is_best)


def test_an_epoch_is_kept_as_the_last_and_where_it_is_as_the_best_before(disk):
    """So that a run that is killed between the two goes on from the epoch before, and finds its best again."""
    checkpoints = disk.checkpoints()
    checkpoints.epoch(end_of(1, is_best=True), values)
    checkpoints.epoch(end_of(2), values)
    assert disk.names == ["best.pt", "last.pt", "last.pt"]
    assert [kept for _, kept, _ in disk.written] == [
        {"window": window, "metrics": {"metrics/mAP50(B)": 0.5}} for window in (4, 4, 8)
    ]
    assert [previous for _, _, previous in disk.written] == [None, "previous.pt", "previous.pt"]
    assert disk.told == [("best.pt", 4), ("last.pt", 4), ("last.pt", 8)]


@pytest.mark.parametrize(("period", "kept"), [(-1, []), (0, []), (2, ["epoch2.pt", "epoch4.pt"]), (5, ["epoch5.pt"])])
def test_every_so_many_epochs_one_is_kept_for_good(disk, period, kept):
    checkpoints = disk.checkpoints(save_period=period)
    for epoch in range(1, 6):
        checkpoints.epoch(end_of(epoch), values)
    assert [name for name in disk.names if name.startswith("epoch")] == kept


def test_inside_an_epoch_one_is_written_every_so_many_minutes(disk):
    checkpoints = disk.checkpoints(save_minutes=10)
    times = []
    for window in range(1, 100):
        disk.now = 30.0 * window
        checkpoints.between_windows(RunState(window=window), values, is_ending=False)
        if len(disk.written) > len(times):
            times.append(disk.now)
    assert times == [600.0, 1200.0, 1800.0, 2400.0]


def test_an_epochs_own_counts_among_those_of_the_minutes(disk):
    checkpoints = disk.checkpoints(save_minutes=10)
    disk.now = 500.0
    checkpoints.epoch(end_of(1), values)
    disk.now = 1000.0
    checkpoints.between_windows(RunState(window=5), values, is_ending=False)
    assert disk.names == ["last.pt"]


def test_a_run_that_ends_here_is_saved_at_once_unless_it_is_on_disk(disk):
    checkpoints = disk.checkpoints()
    checkpoints.between_windows(RunState(window=3), values, is_ending=True)
    checkpoints.between_windows(RunState(window=3), values, is_ending=True)
    assert disk.names == ["last.pt"]
    checkpoints.check_saved(RunState(window=3))


def test_a_run_that_goes_on_and_ends_before_its_first_window_is_on_disk_already(disk):
    session = Session(state=RunState(window=3), checkpoint={})
    checkpoints = disk.checkpoints(session=session)
    checkpoints.between_windows(RunState(window=3), values, is_ending=True)
    checkpoints.check_saved(RunState(window=3))
    assert disk.written == []


def test_a_checkpoint_that_could_not_be_written_is_told_and_tried_again_within_a_minute(disk):
    checkpoints = disk.checkpoints(save_minutes=15)
    times = []
    for window in range(1, 70):
        disk.now = 30.0 * window
        disk.is_full = not times
        checkpoints.between_windows(RunState(window=window), values, is_ending=False)
        if len(disk.written) > len(times):
            times.append(disk.now)
    assert times == [900.0, 960.0, 1860.0]
    (warning,) = disk.warned
    assert warning.endswith("last.pt: cannot be written; training goes on and tries again in 1 minute at the latest")


def test_who_saves_oftener_than_every_minute_tries_again_as_often(disk):
    checkpoints, disk.is_full = disk.checkpoints(save_minutes=0.5), True
    for window, disk.now in enumerate((30.0, 59.0, 60.0), 1):
        checkpoints.between_windows(RunState(window=window), values, is_ending=False)
    assert len(disk.written) == 2


def test_a_run_that_has_ended_and_is_not_on_disk_says_so(disk):
    checkpoints, disk.is_full = disk.checkpoints(), True
    checkpoints.epoch(end_of(1), values)
    with pytest.raises(CheckpointError, match=r"last\.pt: the run has ended and could not be saved; .*resume="):
        checkpoints.check_saved(RunState(window=4))
    disk.is_full = False
    checkpoints.epoch(end_of(1), values)
    checkpoints.check_saved(RunState(window=4))
    with pytest.raises(CheckpointError, match="could not be saved"):
        checkpoints.check_saved(RunState(window=5))


def test_of_several_processes_the_first_alone_writes_and_the_others_take_it_as_done(disk):
    checkpoints = disk.checkpoints(process=1)
    disk.now = 1e6
    checkpoints.epoch(end_of(1, is_best=True), values)
    checkpoints.between_windows(RunState(window=5), values, is_ending=True)
    checkpoints.save_best(RunState(window=5), values)
    checkpoints.check_saved(RunState(window=99))
    assert disk.written == disk.told == disk.warned == []


def test_weights_of_a_run_that_ends_before_any_were_ranked_are_its_best(disk):
    disk.checkpoints().save_best(RunState(window=5), values)
    assert [(name, kept) for name, kept, _ in disk.written] == [("best.pt", {"window": 5, "metrics": None})]
