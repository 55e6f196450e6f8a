"""A group of processes starts, starts again, and ends with one message."""

from __future__ import annotations

import signal
from datetime import timedelta
from itertools import repeat

import pytest
from torch.distributed import DistNetworkError, HashStore, TCPStore  # type: ignore[attr-defined]

from visiontrain.engine.distributed import Group, Place
from visiontrain.engine.transaction import OutOfMemoryInGroup
from visiontrain.errors import ConfigError, Ended, Stopped
from visiontrain.run import starts as starts_module
from visiontrain.run.handover import DONE, FAILED, TO_START_AGAIN, WRONG_INPUT
from visiontrain.run.starts import Member, Starts, joined, place_from

TORCHRUN = {"RANK": "5", "WORLD_SIZE": "8", "MASTER_ADDR": "there", "MASTER_PORT": "29500"}


class TestPlace:
    def test_what_torchrun_says_is_the_place(self):
        environment = {**TORCHRUN, "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
        assert place_from(environment) == Place(process=5, processes=8, local=1, locals=4)

    def test_where_nothing_is_said_of_machines_there_is_one(self):
        assert place_from(TORCHRUN) == Place(process=5, processes=8, local=5, locals=8)

    @pytest.mark.parametrize("missing", TORCHRUN)
    def test_a_process_to_which_not_all_is_said_was_started_by_itself(self, missing):
        assert place_from({name: value for name, value in TORCHRUN.items() if name != missing}) is None


@pytest.fixture(params=["alone", "of a group"])
def start(request):
    """A function that gives what the next start of a run remembers; alone there is no next."""
    store = HashStore()
    alone = Starts(_run=1)
    return lambda: Starts(store, _run=1) if request.param == "of a group" else alone


class TestMemory:
    def test_what_was_remembered_is_known_to_the_starts_that_follow(self, start):
        assert start().recall("folder") is None
        start().remember("folder", "runs/a b/ü")
        assert start().recall("folder") == "runs/a b/ü"
        start().remember("folder", "other")
        assert start().recall("folder") == "other"
        assert start().recall("limit") is None

    def test_each_run_of_a_script_has_a_memory_of_its_own(self):
        store = HashStore()
        first, second = Starts(store), Starts(store)
        first.remember("over", "0")
        assert second.recall("over") is None

    def test_of_all_processes_one_is_the_first(self):
        store = HashStore()
        asked = [Starts(store, _run=1).is_first_to("say it") for _ in range(3)]
        assert asked == [True, False, False]
        assert Starts(store, _run=1).is_first_to("say something else")

    def test_a_process_alone_is_always_the_first(self):
        starts = Starts()
        assert starts.is_first_to("say it")
        assert starts.is_first_to("say it")

    @pytest.mark.parametrize(("remembered", "limit"), [(None, None), ("6", 6)])
    def test_the_limit_that_an_earlier_start_has_left_is_a_number(self, start, remembered, limit):
        if remembered is not None:
            start().remember("limit", remembered)
        assert Member(starts=start()).remembered_limit() == limit


@pytest.fixture
def launcher(monkeypatch):
    """A function that tells this process that a launcher has started it, and gives what its starts remember."""
    store = HashStore()
    monkeypatch.setattr(starts_module, "_store", lambda place: store)
    monkeypatch.setattr(starts_module, "_runs", repeat(1))  # every start is one of the same run
    monkeypatch.setattr(starts_module, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(starts_module, "SECONDS_TO_BE_ENDED", 0.0)
    monkeypatch.setattr(starts_module, "end_when_orphaned", lambda: None)  # or the tests would

    def tell(number=0, most=3):
        monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(number))
        monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", str(most))
        return Starts(store, number, most, _run=1)

    return tell


ONE = Place(0, 1)
"""The only process of a group, which a launcher has started all the same."""


def end_by(error):
    with joined(ONE):
        raise error


class TestJoined:
    def test_a_process_that_was_started_by_itself_is_alone_and_its_errors_are_its_own(self):
        with joined(None) as member:
            assert (member.group.size, member.is_launched, member.starts.store) == (1, False, None)
        with pytest.raises(OutOfMemoryInGroup), joined(None):
            raise OutOfMemoryInGroup(8)

    def test_a_start_knows_its_number_and_how_many_may_follow(self, launcher):
        launcher(number=2, most=5)
        with joined(ONE) as member:
            assert (member.starts.number, member.starts.most, member.is_launched) == (2, 5, True)
            assert member.group.place == ONE

    @pytest.mark.parametrize(("is_kept", "watched"), [("True", [True]), ("False", [])])
    def test_a_process_that_a_launcher_has_started_ends_when_that_has_gone(
        self, launcher, monkeypatch, is_kept, watched
    ):
        launcher()
        monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", is_kept)
        calls = []
        monkeypatch.setattr(starts_module, "end_when_orphaned", lambda: calls.append(True))
        with joined(ONE):
            assert calls == watched

    def test_the_memory_of_a_group_is_the_store_of_its_launcher(self, monkeypatch):
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=10))
        monkeypatch.setattr(starts_module, "end_when_orphaned", lambda: None)
        monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", str(store.port))
        with joined(ONE) as member:
            member.starts.remember("folder", "runs/detect/train")
            assert store.num_keys() > 0
            assert Starts(store, _run=member.starts._run).recall("folder") == "runs/detect/train"

    def test_what_is_done_is_remembered(self, launcher):
        starts = launcher()
        with joined(ONE):
            assert starts.recall("over") is None
        assert starts.recall("over") == str(DONE)
        with joined(ONE) as member:  # of another process, or of a group that lost one at its end
            assert member.starts.recall("over") == str(DONE)

    @pytest.mark.parametrize(
        ("error", "code"),
        [
            (ConfigError("nbs = 0: is wrong"), WRONG_INPUT),
            (Stopped(signal.SIGTERM), 143),
            (KeyboardInterrupt(), 130),
            (ZeroDivisionError("ours"), FAILED),
            (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), FAILED),
        ],
    )
    def test_an_error_ends_the_group_for_good_and_one_process_says_it(self, launcher, error, code):
        starts = launcher()
        with pytest.raises(type(error)):
            end_by(error)
        assert starts.recall("over") == str(code)
        with pytest.raises(Ended) as another:  # that has the same to say, or another thing
            end_by(ConfigError("something else"))
        assert another.value.code == code

    def test_of_processes_that_fail_at_once_one_speaks(self, launcher):
        launcher()
        members = [joined(ONE) for _ in range(3)]
        for member in members:
            member.__enter__()
        first, *others = members
        error = ConfigError("x.png: is gone")
        assert not first.__exit__(ConfigError, error, None)  # it goes on to whoever prints it
        for other in others:
            with pytest.raises(Ended) as end:
                other.__exit__(ConfigError, error, None)
            assert end.value.code == WRONG_INPUT

    def test_who_leaves_the_word_to_another_ends_behind_it(self, launcher, monkeypatch):
        launcher()
        waited = []
        monkeypatch.setattr(starts_module, "PATIENCE_SECONDS", 7.0)
        monkeypatch.setattr(Group, "wait_for_loss", lambda group, seconds: waited.append((group.place, seconds)))
        with pytest.raises(KeyboardInterrupt):
            end_by(KeyboardInterrupt())
        assert waited == []
        starts_module._starts(ONE).remember("over", str(DONE))  # the other one has begun before that
        with pytest.raises(Ended):
            end_by(KeyboardInterrupt())
        assert waited == [(ONE, 7.0)]

    @pytest.mark.parametrize("error", [None, RuntimeError("Connection closed by peer")])
    def test_where_all_end_by_a_signal_none_goes_before_all_have_come_and_none_waits_for_a_speaker(
        self, launcher, monkeypatch, error
    ):
        starts, met = launcher(), []

        def meet(group):
            met.append(starts.recall("over"))
            if error is not None:  # another one has heard a second signal
                raise error

        monkeypatch.setattr(Group, "meet", meet)
        for _ in range(2):
            starts.remember("over", str(DONE))
            with pytest.raises(Stopped):
                end_by(Stopped(signal.SIGTERM, is_agreed=True))
        assert met == ["143", "143"]

    @pytest.mark.parametrize("code", [FAILED, WRONG_INPUT, 130, 143])
    def test_a_group_that_has_ended_for_a_reason_that_stays_is_not_begun_again(self, launcher, code):
        launcher(number=1).remember("over", str(code))
        with pytest.raises(Ended) as end, joined(ONE):
            pytest.fail("was begun")
        assert end.value.code == code

    @pytest.mark.parametrize(
        "error", [DistNetworkError("failed to recv, got 0 bytes"), RuntimeError("Connection closed by peer [::1]:5")]
    )
    def test_who_loses_another_process_says_nothing_and_asks_for_another_start(self, launcher, error, capsys):
        starts = launcher()
        with pytest.raises(Ended) as end:
            end_by(error)
        assert end.value.code == TO_START_AGAIN
        assert starts.recall("over") is None
        assert capsys.readouterr().out == ""

    def test_where_the_launcher_has_gone_with_its_store_an_error_is_told_all_the_same(self, launcher, monkeypatch):
        launcher()

        def gone(self, do):
            raise DistNetworkError("Connection reset by peer")

        monkeypatch.setattr(Starts, "is_first_to", gone)
        with pytest.raises(ConfigError, match="x: is wrong"):
            end_by(ConfigError("x: is wrong"))


class TestOutOfMemory:
    @pytest.mark.parametrize(("largest", "limit"), [(8, 4), (7, 4), (3, 2)])
    def test_the_group_starts_again_with_half_as_many_images_and_one_process_says_so(
        self, launcher, largest, limit, capsys
    ):
        starts = launcher()
        for _ in range(2):
            with pytest.raises(Ended) as end:
                end_by(OutOfMemoryInGroup(largest))
            assert end.value.code == TO_START_AGAIN
        assert Member(starts=starts).remembered_limit() == limit
        assert starts.recall("over") is None
        assert capsys.readouterr().out == (
            "warning: out of memory: the group starts again from its last checkpoint with micro-batches of at most "
            f"{limit} images over all processes; the updates stay the same\n"
        )

    def test_it_is_said_again_in_the_start_after(self, launcher, capsys):
        for number, largest in enumerate((8, 4)):
            launcher(number)
            with pytest.raises(Ended):
                end_by(OutOfMemoryInGroup(largest))
        assert capsys.readouterr().out.count("warning: out of memory") == 2

    @pytest.mark.parametrize(("number", "most"), [(0, 0), (3, 3)])
    def test_where_no_start_is_left_the_run_ends_with_what_to_turn(self, launcher, number, most):
        starts = launcher(number, most)
        starts.remember("folder", "runs/detect/train")
        with pytest.raises(
            ConfigError,
            match=r"memory: 8 images over all processes do not fit, .*--max-restarts.*resume=runs/detect/train batch=4",
        ):
            end_by(OutOfMemoryInGroup(8))
        assert starts.recall("over") == str(WRONG_INPUT)
