"""A run's hours count over all its starts; where they run out it ends behind the window, saved and in good order."""

from __future__ import annotations

import math

import pytest

from visiontrain.config.load import load_config
from visiontrain.config.schema import Config
from visiontrain.engine.checkpoint import load_checkpoint
from visiontrain.engine.fit import EpochSums, RunState
from visiontrain.errors import ConfigError
from visiontrain.run import record
from visiontrain.run.time_limit import TimeLimit, check_time_left, seconds_taken, why_ended


class Clock:
    now = 50.0

    def __call__(self):
        return self.now


def state_after(seconds, *, of_open_epoch=0.0, **values):
    return RunState(seconds=seconds, sums=EpochSums(seconds=of_open_epoch), **values)


@pytest.mark.parametrize(("state", "left"), [(RunState(), 1800), (state_after(1000, of_open_epoch=500), 300)])
def test_the_hours_run_out_after_what_earlier_starts_have_left_of_them(state, left):
    clock = Clock()
    limit = TimeLimit(0.5, state, clock)
    clock.now += left - 1
    assert not limit.has_run_out()
    clock.now += 1
    assert limit.has_run_out()


def test_without_hours_they_never_run_out():
    clock = Clock()
    limit = TimeLimit(None, RunState(), clock)
    clock.now = math.nextafter(math.inf, 0)
    assert not limit.has_run_out()


def test_a_run_whose_hours_are_over_goes_on_with_more_of_them_only():
    state = state_after(3000, of_open_epoch=600)
    assert seconds_taken(state) == 3600
    with pytest.raises(ConfigError, match=r"^time = 1: the run has taken 1 hours already; type a larger time="):
        check_time_left(Config(time=1.0), state)
    check_time_left(Config(time=1.1), state)
    check_time_left(Config(), state)


def test_why_a_run_has_ended_is_patience_or_the_hours():
    assert why_ended(Config(epochs=9, patience=2), RunState(epoch=4, best_epoch=2)) == (
        "stopped before epoch 9: 2 epochs (patience) without a better one"
    )
    for patience in (0, 3):
        assert why_ended(Config(epochs=9, patience=patience, time=0.5), RunState(epoch=4, best_epoch=2)) == (
            "stopped before epoch 9: its 0.5 hours (time) have run out in epoch 5"
        )


@pytest.fixture
def hours_after(monkeypatch):
    """A function that has a run's hours run out behind so many windows, without any time going by."""

    def install(num_windows):
        monkeypatch.setattr(record, "TimeLimit", lambda hours, state, clock: Windows(state, num_windows))

    return install


class Windows:
    """In place of the limit: the state, which is the run's own, tells how many windows there were."""

    def __init__(self, state, most):
        self._state, self._most = state, most

    def has_run_out(self):
        return self._state.window >= self._most


@pytest.mark.slow
@pytest.mark.parametrize(("num_windows", "epochs"), [(1, 0), (2, 1), (3, 1)])
def test_a_run_ends_behind_the_window_with_its_best_and_last_weights_written(
    run_training, hours_after, capsys, num_windows, epochs
):
    hours_after(num_windows)
    result = run_training(time=0.5, epochs=3, warmup_epochs=0)
    last, best = load_checkpoint(result.last), load_checkpoint(result.best)
    assert last["plan"]["window"] == num_windows
    assert last["plan"]["images"] == 4 * num_windows
    assert last["plan"]["epoch"] == epochs
    assert best["plan"]["epoch"] == epochs
    assert (result.save_dir / "results.json").is_file()
    assert set(result.metrics)
    said = f"time = 0.5: the hours have run out at image {4 * num_windows} of 24; the run is saved, and goes on"
    assert said in capsys.readouterr().err + (result.save_dir / "train.log").read_text(encoding="utf-8")


@pytest.mark.slow
def test_hours_that_run_out_with_the_last_window_take_nothing_from_the_run(run_training, hours_after):
    hours_after(6)
    result = run_training(time=0.5, epochs=3, warmup_epochs=0)
    assert load_checkpoint(result.last)["plan"]["epoch"] == 3
    assert "the hours have run out" not in (result.save_dir / "train.log").read_text(encoding="utf-8")


def test_hours_are_a_number_above_none():
    for typed in ("0", "-1", "1:30", "nan", "10001"):
        with pytest.raises(ConfigError, match=r"time = .* is not a number above 0 to 10000, or None"):
            load_config("train", command_line=[f"time={typed}"])
    assert load_config("train", command_line=["time=1.5"]).time == 1.5
