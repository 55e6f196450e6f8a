"""The processes of a group open one session, or say in what they differ."""

from __future__ import annotations

import pytest

from visiontrain.config.load import load_config
from visiontrain.engine.distributed import Group, Place
from visiontrain.errors import ConfigError
from visiontrain.run.session import open_session
from visiontrain.run.starts import Member


class Twins(Group):
    """Two processes, of which the other one finds the same as this one, but for `differing`."""

    def __init__(self, **differing):
        super().__init__(Place(process=0, processes=2, local=0, locals=2))
        self.differing = differing

    def meet(self):
        pass

    def gather(self, value):
        return [value, {**value, **self.differing}]


@pytest.fixture
def settings(tiny_yolo, small_network):
    def make(mode="train", **keys):
        return load_config(mode, python={"data": str(tiny_yolo()), "model": str(small_network), "imgsz": 64, **keys})

    return make


def member(**differing):
    return Member(Twins(**differing), is_launched=True)


def test_processes_that_find_the_same_open_the_session(settings):
    session = open_session(settings(), member=member())
    assert session.config.processes == 2
    assert not session.config.is_typed("processes")


def test_all_that_differs_is_said_at_once(settings):
    with pytest.raises(ConfigError) as caught:
        open_session(settings(), member=member(plan="another", precision="another"))
    assert [fault.partition(" differ")[0] for fault in caught.value.faults] == ["plan", "precision"]


@pytest.mark.parametrize("what", ["data: labels, sizes or file names", "network", "plan", "precision"])
def test_whatever_differs_is_an_error(settings, what):
    with pytest.raises(ConfigError, match=f"^{what} differ between the processes"):
        open_session(settings(), member=member(**{what: "another"}))


def test_as_many_processes_as_were_typed_must_have_been_started(settings):
    with pytest.raises(ConfigError, match="processes = 3: 2 were started; leave processes out under torchrun"):
        open_session(settings(processes=3), member=member())


def test_a_plan_counts_the_processes_that_training_would_start(settings):
    assert open_session(settings("plan", processes=2)).config.processes == 2
    assert open_session(settings("plan")).config.processes == 1
