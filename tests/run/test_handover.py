"""What processes hand to the one that started them comes out as it was put in."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from visiontrain import member
from visiontrain.errors import CheckpointError, ConfigError, DataError, Stopped, UserError
from visiontrain.run import handover


def test_values_come_back_as_they_were(tmp_path):
    values = {"values": {"lr0": 1e-3, "data": "a b/ü.yaml", "freeze": [0, 1], "model": None, "amp": True}}
    handover.write(tmp_path, handover.SETTINGS, values)
    assert handover.read(tmp_path, handover.SETTINGS) == values


def test_where_nothing_was_written_there_is_nothing(tmp_path):
    assert handover.read(tmp_path, handover.RESULT) is None
    assert handover.read_faults(tmp_path) is None


@pytest.mark.parametrize("kind", [UserError, ConfigError, DataError, CheckpointError])
def test_an_error_comes_back_as_it_was_raised_with_every_fault(tmp_path, kind):
    handover.write_faults(tmp_path, kind(["nbs = 0: is wrong", "batch = ü: is wrong"]))
    found = handover.read_faults(tmp_path)
    assert type(found) is kind
    assert found.faults == ("nbs = 0: is wrong", "batch = ü: is wrong")


def test_an_error_of_a_kind_of_its_own_comes_back_as_the_users(tmp_path):
    class Special(DataError):
        pass

    handover.write_faults(tmp_path, Special("x.png: is gone"))
    found = handover.read_faults(tmp_path)
    assert (type(found), found.faults) == (UserError, ("x.png: is gone",))


@pytest.mark.parametrize(
    ("stop", "code"), [(Stopped(signal.SIGTERM), 143), (Stopped(signal.SIGINT), 130), (KeyboardInterrupt(), 130)]
)
def test_what_a_signal_has_ended_has_the_exit_code_of_shells(stop, code):
    assert handover.signaled(stop) == code


def test_codes_of_different_ends_differ():
    codes = (handover.DONE, handover.FAILED, handover.WRONG_INPUT, handover.TO_START_AGAIN, 130, 143)
    assert len(set(codes)) == len(codes)


def test_a_process_that_has_nothing_to_do_learns_of_it_without_loading_anything_heavy():
    code = "import sys, visiontrain.member; print(*{'torch', 'numpy', 'matplotlib'} & set(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.strip() == ""


@pytest.mark.parametrize(("stop", "code"), [(KeyboardInterrupt(), 130), (Stopped(signal.SIGTERM), 143)])
def test_a_signal_ends_a_process_without_a_word_even_while_it_imports(monkeypatch, tmp_path, stop, code):
    def stopped(folder):
        raise stop

    monkeypatch.setattr(member, "_train", stopped)
    assert member.main(tmp_path) == code
    assert handover.read(tmp_path, handover.OVER) == {"code": code}
