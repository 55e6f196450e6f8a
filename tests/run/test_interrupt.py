"""The first signal is noted and told, the second ends at once, and everything is as before afterwards."""

import os
import signal
import threading

import pytest

from visiontrain.errors import Stopped
from visiontrain.run.interrupt import SIGNALS, Interrupt


def handlers():
    return [signal.getsignal(signum) for signum in SIGNALS]


@pytest.mark.parametrize("signum", SIGNALS)
def test_the_first_signal_is_noted_and_told_and_the_second_ends_at_once(signum):
    told, before = [], handlers()
    with Interrupt(told.append) as interrupt:
        assert interrupt.signum is None
        os.kill(os.getpid(), signum)
        assert interrupt.signum == signum
        with pytest.raises(Stopped) as caught:
            os.kill(os.getpid(), signal.SIGTERM)
    assert caught.value.signum == signal.SIGTERM
    assert told == [f"{signal.Signals(signum).name}: the open window is finished and saved; once more ends at once"]
    assert handlers() == before


def test_a_signal_in_the_middle_of_a_line_of_output_is_noted_though_it_cannot_be_told():
    def tell(text):
        raise RuntimeError("reentrant call inside <_io.BufferedWriter name='<stdout>'>")

    with Interrupt(tell) as interrupt:
        os.kill(os.getpid(), signal.SIGTERM)
    assert interrupt.signum == signal.SIGTERM


def test_in_another_thread_signals_stay_as_they_are():
    inside, before = [], handlers()

    def enter():
        with Interrupt(pytest.fail):
            inside.extend(handlers())

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert inside == before


@pytest.mark.parametrize("signum", SIGNALS)
def test_alone_a_run_ends_by_the_signal_that_came(signum):
    with Interrupt(lambda text: None) as interrupt:
        assert interrupt.ending is None
        os.kill(os.getpid(), signum)
        assert interrupt.ending == signum


@pytest.mark.parametrize("struck", [0, 1])
@pytest.mark.parametrize("signum", SIGNALS)
def test_several_processes_end_by_a_signal_that_came_to_one_when_all_have_learned_of_it(signum, struck):
    members = [Interrupt(lambda text: None, is_alone=False) for _ in range(2)]
    with members[struck]:
        os.kill(os.getpid(), signum)
    assert [member.signum for member in members] == [signum if number == struck else None for number in range(2)]
    assert [member.ending for member in members] == [None, None]
    votes = [sum(cast) for cast in zip(*(member.votes() for member in members), strict=True)]
    for member in members:
        member.agree(votes)
    assert [member.ending for member in members] == [signum, signum]


@pytest.mark.parametrize(("signum", "is_told"), [(signal.SIGINT, True), (signal.SIGTERM, False)])
def test_of_several_processes_none_takes_what_torchrun_sends_for_a_wish(signum, is_told):
    told = []
    with Interrupt(told.append, is_alone=False) as interrupt:
        os.kill(os.getpid(), signum)
    assert (interrupt.signum, bool(told)) == (signum, is_told)


def test_where_no_signal_came_nobody_votes_and_nothing_is_agreed():
    interrupt = Interrupt(pytest.fail, is_alone=False)
    assert interrupt.votes() == [0.0] * len(SIGNALS)
    interrupt.agree(interrupt.votes())
    assert interrupt.ending is None


def test_what_was_agreed_stays_whatever_comes_later():
    interrupt = Interrupt(pytest.fail, is_alone=False)
    interrupt.agree([0.0, 1.0])
    interrupt.agree([2.0, 0.0])
    interrupt.agree([0.0, 0.0])
    assert interrupt.ending == SIGNALS[1]


def test_of_different_signals_at_once_all_processes_take_the_same():
    members = [Interrupt(pytest.fail, is_alone=False) for _ in range(2)]
    for member in members:
        member.agree([1.0, 1.0])
    assert {member.ending for member in members} == {SIGNALS[0]}
