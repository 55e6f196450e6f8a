"""How many processes a run starts, what becomes of their ends, and that the one that starts them stays as it was."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
from pathlib import Path

import pytest

from visiontrain.config.load import load_config
from visiontrain.config.schema import SETTINGS, Config
from visiontrain.engine.checkpoint import load_checkpoint, save_checkpoint
from visiontrain.errors import ConfigError, DataError, Stopped
from visiontrain.run import handover
from visiontrain.run import launch as launch_module
from visiontrain.run.callbacks import Callbacks
from visiontrain.run.launch import GRACE_SECONDS, GRACE_VARIABLE, launch, processes_to_launch
from visiontrain.run.resuming import config_from
from visiontrain.run.train import TrainResult, train_run

LOGGER = logging.getLogger("torch.distributed.elastic.agent.server.api")


def asked(**typed):
    return load_config("train", python=typed)


@pytest.fixture(autouse=True)
def _started_by_itself(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)


class TestProcesses:
    @pytest.mark.parametrize(
        ("typed", "processes"),
        [
            ({}, 1),
            ({"device": "cpu"}, 1),
            ({"device": "1"}, 1),
            ({"device": "0,1"}, 2),
            ({"device": [0, 1, 2]}, 3),
            ({"device": "cpu", "processes": 2}, 2),
            ({"device": "0,1", "processes": 2}, 2),
            ({"processes": 1}, 1),
        ],
    )
    def test_they_are_those_that_were_typed_or_one_for_each_device(self, typed, processes):
        assert processes_to_launch(asked(**typed)) == processes

    def test_under_torchrun_none_are_started(self, monkeypatch):
        monkeypatch.setenv("RANK", "0")
        assert processes_to_launch(asked(device="cpu", processes=2)) == 1

    @pytest.mark.parametrize(("origin", "processes"), [("command line", 3), ("decided", 1)])
    def test_a_run_goes_on_in_as_many_as_were_typed_for_it_but_not_in_those_of_torchrun(
        self, trained, origin, processes
    ):
        values = load_checkpoint(trained.last)
        values["args"]["values"].update(processes=3, batch=4)
        values["args"]["origins"]["processes"] = origin
        save_checkpoint(trained.last, {key: value for key, value in values.items() if key != "format"})
        assert processes_to_launch(asked(resume=str(trained.save_dir))) == processes
        assert processes_to_launch(asked(resume=str(trained.save_dir), processes=2)) == 2

    def test_a_run_does_not_go_on_in_more_than_share_its_micro_batches(self, trained):
        batch = load_checkpoint(trained.last)["args"]["values"]["batch"]
        assert processes_to_launch(asked(resume=str(trained.save_dir), processes=batch)) == batch
        with pytest.raises(ConfigError, match=f"processes = {batch + 1}: share .* with batch = {batch} some"):
            processes_to_launch(asked(resume=str(trained.save_dir), processes=batch + 1))


class TestLaunch:
    def test_processes_get_the_settings_and_give_the_result(self, monkeypatch):
        config, seen = asked(batch=8, nbs=32, device="cpu", processes=2), []

        def run(folder, processes):
            seen.append((folder, processes, config_from(handover.read(folder, handover.SETTINGS))))
            handover.write(folder, handover.RESULT, {"updates": 3})

        monkeypatch.setattr(launch_module, "_launch", run)
        assert launch(config, 2) == {"updates": 3}
        ((folder, processes, given),) = seen
        assert (processes, given) == (2, config)
        assert all(given.origin(key) == config.origin(key) for key in SETTINGS)
        assert not folder.exists()

    def test_their_folder_goes_whatever_becomes_of_them(self, monkeypatch):
        seen = []

        def run(folder, processes):
            seen.append(folder)
            raise ConfigError("nbs = 0: is wrong")

        monkeypatch.setattr(launch_module, "_launch", run)
        with pytest.raises(ConfigError, match="nbs = 0"):
            launch(Config(), 2)
        assert not seen[0].exists()


class TestFailure:
    def test_what_a_process_has_said_is_the_error_whatever_the_codes(self, tmp_path):
        handover.write_faults(tmp_path, DataError(["x.png: is gone", "y.png: is gone"]))
        error = launch_module._failure(tmp_path, {0: 2, 1: -9})
        assert (type(error), error.faults) == (DataError, ("x.png: is gone", "y.png: is gone"))

    @pytest.mark.parametrize(("code", "signum"), [(130, signal.SIGINT), (143, signal.SIGTERM)])
    def test_a_signal_that_a_process_has_heard_ends_the_command_by_it(self, tmp_path, code, signum):
        error = launch_module._failure(tmp_path, {0: -15, 1: code})
        assert (type(error), error.signum) == (Stopped, signum)

    def test_other_ends_are_told_process_by_process_with_what_to_do(self, tmp_path):
        error = launch_module._failure(tmp_path, {1: -9, 0: 1})
        assert error.faults == (
            "processes: the group has ended (process 0 by exit code 1, process 1 by SIGKILL); what it says of that "
            "stands above, and resume= goes on from its last checkpoint",
        )

    @pytest.mark.parametrize(
        ("codes", "told"),
        [
            ({0: handover.TO_START_AGAIN, 1: -9}, "process 1 by SIGKILL"),
            ({0: handover.TO_START_AGAIN}, "process 0 by exit code 75"),
        ],
    )
    def test_who_has_lost_another_is_no_cause_unless_there_is_no_other(self, tmp_path, codes, told):
        assert f"({told})" in str(launch_module._failure(tmp_path, codes))


class TestSettings:
    """Of the process that starts others: the launcher changes its signals, environment and logs."""

    def test_inside_the_launcher_is_quiet_and_patient_and_outside_all_is_as_it_was(self, monkeypatch):
        monkeypatch.delenv(GRACE_VARIABLE, raising=False)
        monkeypatch.setenv("TORCHELASTIC_SIGNALS_TO_HANDLE", "mine")
        LOGGER.setLevel(logging.WARNING)
        kinds = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
        handlers = [signal.getsignal(kind) for kind in kinds]

        def launch_in_vain():
            with launch_module._launcher_settings():
                assert os.environ[GRACE_VARIABLE] == str(GRACE_SECONDS)
                assert LOGGER.level == logging.CRITICAL
                os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = "the launcher's"
                for kind in kinds:
                    signal.signal(kind, signal.SIG_IGN)
                raise ConfigError("x")

        with pytest.raises(ConfigError, match="x"):
            launch_in_vain()
        assert GRACE_VARIABLE not in os.environ
        assert os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] == "mine"
        assert LOGGER.level == logging.WARNING
        assert [signal.getsignal(kind) for kind in kinds] == handlers

    def test_a_patience_that_the_user_has_set_stays(self, monkeypatch):
        monkeypatch.setenv(GRACE_VARIABLE, "7")
        with launch_module._launcher_settings():
            assert os.environ[GRACE_VARIABLE] == "7"
        assert os.environ[GRACE_VARIABLE] == "7"

    def test_in_another_thread_signals_are_left_alone(self):
        done = []

        def enter():
            with launch_module._launcher_settings():
                done.append(True)

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        assert done == [True]


def test_nothing_is_left_behind_by_a_launcher_that_cannot_begin(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(launch_module, "_launch", lambda folder, processes: None)
    assert launch(asked(), 2) == {}
    assert list(Path(tmp_path).iterdir()) == []


def test_functions_of_the_user_are_refused_where_other_processes_train(monkeypatch):
    monkeypatch.setattr("visiontrain.run.train.launch", lambda config, processes: pytest.fail("was launched"))
    callbacks = Callbacks()
    callbacks.add("on_epoch_end", print)
    with pytest.raises(
        ConfigError, match="callbacks: are functions of this process, and others train; start the script"
    ):
        train_run(asked(device="cpu", processes=2), callbacks=callbacks)


def test_the_result_of_other_processes_is_that_of_a_run(monkeypatch, tmp_path):
    result = TrainResult({"metrics/mAP50(B)": 0.5}, tmp_path, tmp_path / "best.pt", tmp_path / "last.pt", 3, 12)
    plain = json.loads(json.dumps(result.to_plain()))
    monkeypatch.setattr("visiontrain.run.train.launch", lambda config, processes: plain)
    assert train_run(asked(device="cpu", processes=2)) == result
