"""The group of processes: alone it is one process; together all meet, and a group that starts again finds its own."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import Future
from datetime import timedelta
from functools import partial

import pytest
import torch
import torch.distributed
from torch import nn
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from visiontrain.engine import distributed
from visiontrain.engine.distributed import Group, Place, alone, is_peer_lost, join, leave

SECONDS = 10
"""After which a test that waits in vain fails."""
PROCESS = """
import os
import sys
import time
from datetime import timedelta

import torch
from torch import nn
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from visiontrain.engine.distributed import Place, join

number, port, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
torch.set_num_threads(1)
store = TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=60))
group = join(Place(number, 3, local=number % 2, locals=2 - number // 2), store)  # two machines, of two and of one
if number == 2:
    time.sleep(0.3)
    store.set("the last is here", "")
group.meet()
met = store.check(["the last is here"])
torch.manual_seed(number)
network, other = nn.BatchNorm1d(4), nn.BatchNorm1d(4)
network.running_mean += number
other.running_mean += 10 + number
with torch.no_grad():
    network.weight += number
group.share_buffers_(network, other)
before = network.weight.tolist()
group.share_weights_(network)
made = []
found = {
    "met": met,
    "gathered": group.gather(("value of", number)),
    "first": group.first_gives(lambda: made.append("first") or f"of {number}"),
    "before others": group.first_before_others(lambda: made.append("before others") or f"of {number}"),
    "machine": group.machine_gives(lambda: made.append("machine") or {"of": number}),
    "made": made,
    "buffers": (network.running_mean.tolist(), other.running_mean.tolist()),
    "weights": (before, network.weight.tolist()),
    "replica": type(group.replicate(nn.Linear(3, 2))).__name__,
    "gradients": None,
}
replica = group.replicate(nn.Linear(1, 1, bias=False))
replica(torch.full((1, 1), float(number))).sum().backward()
found["gradients"] = replica.module.weight.grad.tolist()
torch.save(found, out)
os._exit(0)  # as if killed: nothing is tidied away
"""


@pytest.fixture(scope="module")
def store():
    """A store that several processes reach, as a launcher keeps it; groups of other tests have left things there."""
    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=SECONDS))


def in_threads(*works):
    """What the functions return that run at the same time; one that waits in vain is left behind."""
    found = [Future() for _ in works]
    for work, future in zip(works, found, strict=True):
        threading.Thread(target=lambda work=work, future=future: future.set_result(work()), daemon=True).start()
    return [future.result(SECONDS) for future in found]


class TestAlone:
    def test_a_process_alone_is_the_first_of_one(self):
        group = alone()
        assert (group.size, group.is_first, group.place) == (1, True, Place(0, 1, 0, 1))

    @pytest.mark.parametrize("give", [Group.first_gives, Group.first_before_others, Group.machine_gives])
    def test_what_is_made_for_all_is_made_once_and_handed_out_as_it_is(self, give):
        made = []
        value = give(alone(), lambda: made.append(object()) or made[0])
        assert [value] == made

    def test_it_gathers_its_own_value_and_meets_nobody(self):
        alone().meet()
        assert alone().gather("own") == ["own"]

    def test_its_network_stays_as_it_is(self):
        network = nn.BatchNorm2d(3)
        before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
        assert alone().replicate(network) is network
        alone().share_buffers_(network)
        alone().share_weights_(network)
        torch.testing.assert_close(dict(network.state_dict()), before, rtol=0, atol=0)

    def test_leaving_no_group_is_no_error(self):
        leave()


class Waiting:
    """What a barrier gives: done when it was looked at a few times, whether all came or one has gone."""

    def __init__(self, looks, error=None):
        self._looks, self._error = looks, error

    def is_completed(self):
        self._looks -= 1
        return self._looks < 0

    def wait(self):
        assert self._looks < 0, "waited for in a way that hears no signal"
        if self._error is not None:
            raise self._error


class Thread(Group):
    """A process that is a thread, and meets the others at a barrier of theirs."""

    def __init__(self, process, barrier):
        super().__init__(Place(process, barrier.parties))
        self._barrier = barrier

    def meet(self):
        self._barrier.wait(SECONDS)


class TestMeeting:
    @pytest.fixture
    def barrier(self, monkeypatch):
        """A function that puts `work` in place of torch's barrier, and gives what it was asked and the pauses."""

        def replace(work):
            asked, pauses = [], []
            monkeypatch.setattr(torch.distributed, "barrier", lambda **keys: asked.append(keys) or work)
            monkeypatch.setattr(distributed.time, "sleep", pauses.append)
            return asked, pauses

        return replace

    def test_it_looks_now_and_then_whether_all_are_there(self, barrier):
        asked, pauses = barrier(Waiting(3))
        Group(Place(0, 2), waiting="those that wait").meet()
        assert asked == [{"group": "those that wait", "async_op": True}]
        assert pauses == [distributed.SHORTEST_LOOK * factor for factor in (1, 2, 4)]

    def test_between_two_looks_lies_no_more_than_a_moment(self, barrier):
        _, pauses = barrier(Waiting(100))
        Group(Place(0, 2)).meet()
        assert max(pauses) == distributed.LONGEST_LOOK

    def test_who_waits_learns_that_another_has_gone(self, barrier):
        barrier(Waiting(1, RuntimeError("Connection closed by peer")))
        with pytest.raises(RuntimeError, match="closed by peer"):
            Group(Place(0, 2)).meet()

    def test_who_waits_for_a_loss_goes_when_there_is_one(self, barrier):
        asked, _ = barrier(Waiting(1, RuntimeError("Connection closed by peer")))
        Group(Place(0, 2), waiting="those that wait").wait_for_loss(SECONDS)
        assert asked == [{"group": "those that wait", "async_op": True}]

    def test_who_waits_for_a_loss_is_not_sent_away_by_others_that_wait(self, barrier, monkeypatch):
        work = iter([Waiting(0), Waiting(0), Waiting(0, RuntimeError("Connection closed by peer"))])
        barrier(None)
        asked = []
        monkeypatch.setattr(torch.distributed, "barrier", lambda **keys: asked.append(keys) or next(work))
        Group(Place(0, 2), waiting="those that wait").wait_for_loss(SECONDS)
        assert len(asked) == 3

    def test_who_waits_for_a_loss_waits_no_longer_than_it_was_told(self, barrier):
        barrier(Waiting(10**9))
        Group(Place(0, 2), waiting="those that wait").wait_for_loss(0.01)

    def test_where_the_group_is_not_formed_there_is_nothing_to_hear(self, barrier):
        asked, pauses = barrier(Waiting(0))
        Group(Place(0, 2)).wait_for_loss(3.0)
        assert (asked, pauses) == ([], [3.0])

    def test_the_first_has_made_it_before_the_others_begin(self):
        barrier, order = threading.Barrier(3), []

        def member(process):
            def make():
                order.append(("begins", process))
                threading.Event().wait(0.02)
                order.append(("ends", process))
                return process

            return Thread(process, barrier).first_before_others(make)

        assert in_threads(*(partial(member, process) for process in range(3))) == [0, 1, 2]
        assert order[:2] == [("begins", 0), ("ends", 0)]
        assert sorted(order[2:]) == [("begins", 1), ("begins", 2), ("ends", 1), ("ends", 2)]


class TestStartingAgain:
    def agree(self, store, size):
        """The name that the processes of a group agree on, the later ones first."""
        places = [Place(process, size) for process in range(size)]
        works = [partial(distributed._agree_on_name, place, store) for place in places]
        return in_threads(*reversed(works))

    @pytest.mark.parametrize("sizes", [(2, 2, 2), (3, 2), (2, 4)])
    def test_every_group_has_a_name_of_its_own_that_all_its_processes_know(self, store, sizes):
        names = [self.agree(store, size) for size in sizes]
        assert all(len(set(told)) == 1 for told in names)
        assert len({told[0] for told in names}) == len(sizes)

    def test_a_question_that_an_earlier_group_has_left_is_not_taken_for_one_of_now(self, store):
        store.set("visiontrain: process 1 asks", "of a process that was killed")
        answered = threading.Event()

        def second():
            assert answered.wait(SECONDS)  # comes when the old question has been answered
            return distributed._agree_on_name(Place(1, 2), store)

        def first():
            return distributed._agree_on_name(Place(0, 2), store)

        def watch():
            distributed._wait_until(lambda: store.check(["visiontrain: answer to of a process that was killed"]))
            answered.set()

        one, other, _ = in_threads(first, second, watch)
        assert one == other

    def test_a_group_does_not_find_what_the_one_before_has_left(self, store):
        def own():
            return torch.distributed.distributed_c10d._get_default_store()

        join(Place(0, 1), store)
        own().set("address", "nobody answers there any more")
        assert own().check(["address"])
        leave()
        join(Place(0, 1), store)
        assert not own().check(["address"])
        leave()


@pytest.mark.slow
def test_what_processes_give_each_other_also_where_an_earlier_group_was_killed(store, tmp_path):
    script = tmp_path / "process.py"
    script.write_text(PROCESS, encoding="utf-8")
    for _ in range(2):
        store.delete_key("the last is here")
        outs = [tmp_path / str(number) for number in range(3)]
        running = [
            subprocess.Popen([sys.executable, str(script), str(number), str(store.port), str(out)])
            for number, out in enumerate(outs)
        ]
        assert [process.wait(timeout=120) for process in running] == [0, 0, 0]
        found = [torch.load(out) for out in outs]
        for number, mine in enumerate(found):
            assert mine["met"]
            assert mine["gathered"] == [("value of", 0), ("value of", 1), ("value of", 2)]
            assert mine["first"] == "of 0"
            assert mine["before others"] == f"of {number}"
            assert mine["machine"] == {"of": 0 if number < 2 else 2}  # the first of its machine
            assert mine["buffers"] == ([0.0] * 4, [10.0] * 4)
            assert mine["weights"] == ([1.0 + number] * 4, [1.0] * 4)
            assert mine["replica"] == "DistributedDataParallel"
            assert mine["gradients"] == [[1.0]]  # the mean of 0, 1 and 2
        assert [mine["made"] for mine in found] == [
            ["first", "before others", "machine"],
            ["before others"],
            ["before others", "machine"],
        ]


@pytest.mark.parametrize(
    ("error", "is_lost"),
    [
        # From gloo, NCCL and the store of torch 2.x.
        (
            RuntimeError(
                "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:9"
            ),
            True,
        ),
        (
            RuntimeError(
                "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:589] Read error: Connection reset by peer"
            ),
            True,
        ),
        (RuntimeError("Gloo connectFullMesh failed with [pair.cc:144] no error"), True),
        (RuntimeError("[unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete"), True),
        (RuntimeError("writev [127.0.0.1]:28241: Broken pipe"), True),
        (torch.distributed.DistBackendError("NCCL communicator was aborted on rank 1."), True),
        (torch.distributed.DistNetworkError("failed to recv, got 0 bytes"), True),
        (torch.distributed.DistStoreError("wait timeout after 300000ms"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied (2x12 and 3x4)"), False),
        (RuntimeError("the window's last micro-batch gave no gradient to a.weight"), False),
        (torch.OutOfMemoryError("CUDA out of memory."), False),
        (ValueError("Connection closed by peer"), False),
        (BrokenPipeError(32, "Broken pipe"), False),  # of somebody's own pipe
    ],
)
def test_what_the_loss_of_another_process_sounds_like(error, is_lost):
    assert is_peer_lost(error) is is_lost
