"""Updates are told in rows, none twice and none forgotten; progress at most ten times a second."""

from __future__ import annotations

import pytest
import torch

from visiontrain.engine.branches import Share
from visiontrain.engine.fit import RunState
from visiontrain.engine.schedule import Rates
from visiontrain.engine.window import WindowReport
from visiontrain.plan import plan_windows
from visiontrain.run.update_log import Progress, UpdateLog


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def report(loss):
    shares = {"box_loss": Share(torch.tensor(2.0 * loss), torch.tensor(2.0), 0.0)}
    return WindowReport(True, 4, shares, torch.tensor(2.0), torch.tensor(1.0))


RATES = Rates(0.01, 0.1, 0.9)


def test_rows_wait_until_seconds_have_passed_or_somebody_asks(clock):
    told = []
    log = UpdateLog(lambda event, values: told.append((event, values["rows"])), clock)
    log.add(report(0.5), RunState(updates=1), RATES)
    clock.now = 9.9
    log.add(report(0.25), RunState(updates=2), RATES)
    assert told == []
    clock.now = 10.0
    log.add(report(0.125), RunState(updates=3), RATES)
    assert told == [
        (
            "updates",
            [
                {"update": 1, "box_loss": 0.5, "lr": 0.01},
                {"update": 2, "box_loss": 0.25, "lr": 0.01},
                {"update": 3, "box_loss": 0.125, "lr": 0.01},
            ],
        )
    ]
    log.flush()
    assert len(told) == 1  # nothing is left
    log.add(report(1.0), RunState(updates=4), RATES)
    log.flush()
    assert [row["update"] for row in told[1][1]] == [4]


def test_progress_is_shown_ten_times_a_second(clock):
    told = []
    progress = Progress(lambda event, values: told.append((event, values)), clock, epochs=3, num_images=8)
    windows = list(plan_windows(num_images=8, batch=2, nbs=4))
    for number, moment in enumerate([0.0, 0.09, 0.11, 0.2, 0.22]):
        clock.now = moment
        progress.show(windows[0], report(0.5), RunState(updates=number), RATES)
    assert [values["update"] for _, values in told] == [0, 2, 4]
    assert told[0] == (
        "window",
        {
            "epoch": 1,
            "epochs": 3,
            "images_done": windows[0].stop,
            "num_images": 8,
            "update": 0,
            "losses": {"box_loss": 0.5},
            "lr": 0.01,
        },
    )
