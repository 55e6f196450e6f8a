"""A run that waits for its data says so once, with what to turn."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from visiontrain.run.waiting import DataWait


@dataclass
class Window:
    t_data: float


def row(t_data, t_step):
    return {"t_data": t_data, "t_step": t_step, "t_val": 1e6}


def wait_of(**settings):
    return DataWait(**{"workers": 2, "cores": 8, "is_cached": False, "on_cpu": False, **settings})


def test_it_is_said_once_with_the_share_and_again_at_the_end():
    wait = wait_of()
    assert wait.add(row(43, 57)) == "data took 43 % of the time: raise workers (now 2), or type cache=ram"
    assert wait.add(row(90, 10)) is None
    assert wait.sentence().startswith("data took 66 % of the time")  # 133 of 200 seconds


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({"workers": 2}, "raise workers (now 2), or type cache=ram"),
        ({"workers": 7}, "type cache=ram"),
        ({"workers": 2, "is_cached": True}, "raise workers (now 2)"),
        ({"workers": 7, "is_cached": True}, "all cores are at work, and images are cached already; use less"),
        ({"workers": 0, "on_cpu": True}, "type cache=ram"),
        ({"workers": 0, "on_cpu": True, "is_cached": True}, "the processor that trains also makes the samples, and"),
    ],
)
def test_the_remedy_is_one_that_is_left(settings, remedy):
    assert wait_of(**settings).add(row(50, 50)).startswith(f"data took 50 % of the time: {remedy}")


@pytest.mark.parametrize("times", [(9, 1), (24, 76), (0, 0)])
def test_nothing_is_said_where_little_is_waited(times):
    wait = wait_of()
    assert wait.add(row(*times)) is None
    assert wait.sentence() is None


def test_the_first_window_is_left_out_as_workers_start_in_it():
    wait = wait_of()
    wait.note_first(Window(t_data=50))
    wait.note_first(Window(t_data=1000))
    assert wait.add(row(60, 90)) is None  # 10 of 100 seconds
    assert wait.add(row(40, 0)) == "data took 36 % of the time: raise workers (now 2), or type cache=ram"
