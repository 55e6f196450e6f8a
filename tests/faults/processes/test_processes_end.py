"""Several processes end together and with one message, whatever ends them."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from visiontrain.engine.checkpoint import load_checkpoint

pytestmark = pytest.mark.slow

STRUCK = Path(__file__).with_name("struck.py")
WINDOWS_PER_EPOCH = 2


def messages_of(ended):
    """The lines on standard error that are not torchrun's own."""
    return [line for line in ended.err.splitlines() if line.startswith("visiontrain")]


def test_patience_ends_all(program, words, rows_of, tmp_path):
    keys = {"patience": 1, "lr0": 1e-12, "epochs": 10}  # nothing gets better
    ended = program("-m", "visiontrain", *words(tmp_path / "run", processes=2, **keys))
    assert ended.code == 0, ended.err
    assert [row["epoch"] for row in rows_of(tmp_path / "run")] == [1, 2]
    assert ended.out.count("stopped before epoch 10: 1 epochs (patience) without a better one") == 1


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_and_the_run_goes_on_to_the_same_bits(kind, program, words, outcome_of, repository, tmp_path):
    whole = program("-m", "visiontrain", *words(tmp_path / "whole", processes=2, epochs=40))
    assert whole.code == 0, whole.err
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "visiontrain", *words(folder, processes=2, epochs=40)]
    process = subprocess.Popen(command, cwd=repository, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while not (folder / "weights" / "last.pt").exists():
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.02)
    process.send_signal(kind)
    said = process.communicate(timeout=120)[0]
    assert process.returncode == 128 + kind, said
    assert said.count("once more ends at once") == (kind == signal.SIGINT), said  # torchrun itself sends SIGTERM
    assert len(re.findall(r"stopped and saved at image \d+; go on with resume=", said)) == 1, said
    assert load_checkpoint(folder / "weights" / "last.pt")["plan"]["epoch"] < 40
    again = program("-m", "visiontrain", "train", f"resume={folder}")
    assert again.code == 0, again.err
    assert outcome_of(folder) == outcome_of(tmp_path / "whole")


@pytest.mark.parametrize("process", [0, 1])
def test_a_signal_to_one_process_ends_all(process, torchrun, words, tmp_path):
    ended = torchrun(STRUCK, process, "tell:window:3:SIGTERM", *words(tmp_path / "run"), restarts=2)
    assert ended.code != 0
    assert len(re.findall(r"stopped and saved at image", ended.out + ended.err)) == 1
    assert load_checkpoint(tmp_path / "run" / "weights" / "last.pt")["plan"]["updates"] in (3, 4)


@pytest.mark.parametrize("process", [0, 1])
@pytest.mark.parametrize("stage", ["data", "window", "validation"])
def test_a_fault_that_one_process_finds_ends_all_with_its_sentence(process, stage, torchrun, words, tmp_path):
    folder = tmp_path / "run"
    ended = torchrun(STRUCK, process, f"fail:{stage}:1:user", *words(folder), restarts=2)
    assert ended.code != 0
    assert messages_of(ended) == ["visiontrain train: x.png: is struck; mend it"], ended.err
    assert "exitcode  : 2" in ended.err
    assert folder.exists() == (stage != "data")


@pytest.mark.parametrize("process", [0, 1])
def test_an_error_of_the_program_in_one_process_is_told_once(process, torchrun, words, tmp_path):
    ended = torchrun(STRUCK, process, "fail:window:2:program", *words(tmp_path / "run"), restarts=2)
    assert ended.code != 0
    assert ended.err.count("ZeroDivisionError: struck") == 1, ended.err


def test_wrong_input_is_told_once_and_leaves_nothing_behind(program, words, tmp_path):
    ended = program("-m", "visiontrain", *words(tmp_path / "run", processes=2, data=tmp_path / "none.yaml"))
    assert ended.code == 2
    assert len(messages_of(ended)) == len(ended.err.splitlines()) == 1, ended.err
    assert "none.yaml" in ended.err
    assert not (tmp_path / "run").exists()


def test_a_full_disk_is_told_and_ends_all_only_when_there_is_nothing_left_to_train(torchrun, words, rows_of, tmp_path):
    ended = torchrun(STRUCK, 0, "fill", *words(tmp_path / "run"))
    assert ended.code != 0
    assert len(rows_of(tmp_path / "run")) == 2
    assert "the disk is full; training goes on" in ended.out
    (last,) = messages_of(ended)
    assert "the run has ended and could not be saved; make room and go on" in last


def test_memory_that_runs_out_in_one_process_starts_all_again_with_half(program, torchrun, words, rows_of, tmp_path):
    calm = program("-m", "visiontrain", *words(tmp_path / "calm"))
    assert calm.code == 0, calm.err
    ended = torchrun(STRUCK, 1, "exhaust:1", *words(tmp_path / "run"), restarts=3)
    assert ended.code == 0, ended.err
    for limit in (4, 2):
        assert ended.out.count(f"with micro-batches of at most {limit} images over all processes") == 1, ended.out
    mine, others = (load_checkpoint(tmp_path / name / "weights" / "last.pt") for name in ("run", "calm"))
    assert mine["micro_batch"] == 2
    assert mine["plan"]["updates"] == others["plan"]["updates"] == 2 * WINDOWS_PER_EPOCH
    for name, tensor in others["model"].items():
        torch.testing.assert_close(mine["model"][name], tensor, rtol=0, atol=1e-5)


def test_memory_that_runs_out_where_nobody_starts_again_ends_with_what_to_do(torchrun, words, tmp_path):
    folder = tmp_path / "run"
    ended = torchrun(STRUCK, 1, "exhaust:1", *words(folder))
    assert ended.code != 0
    (message,) = messages_of(ended)
    assert "memory: 8 images over all processes do not fit, and the group may not start again" in message
    assert f"resume={folder} batch=4" in message


@pytest.mark.parametrize("stage", ["data", "validation", "save"])
def test_waiting_for_one_process_has_no_limit_of_time(stage, torchrun, words, tmp_path):
    ended = torchrun(STRUCK, 0, f"sleep:{stage}:7:5", *words(tmp_path / "run", save_minutes=15, epochs=1))
    assert ended.code == 0, ended.err


def test_processes_end_with_the_one_that_has_started_them(program, words, repository, tmp_path):
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "visiontrain", *words(folder, processes=2, epochs=10_000)]
    process = subprocess.Popen(command, cwd=repository, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    while not (folder / "weights" / "last.pt").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.communicate(timeout=60)  # the pipe is closed when the last of them has ended


def test_functions_of_the_calling_process_are_refused_in_others(words, tmp_path):
    from visiontrain import Model
    from visiontrain.errors import ConfigError

    model = Model()
    model.add_callback("on_epoch_end", print)
    with pytest.raises(ConfigError, match="callbacks: are functions of this process, and others train; start"):
        model.train(**dict(word.split("=", 1) for word in words(tmp_path / "run", processes=2)[1:]))
    assert not (tmp_path / "run").exists()
