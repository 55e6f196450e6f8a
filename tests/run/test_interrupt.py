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
