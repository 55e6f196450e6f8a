"""Several processes make the updates of one, exchange once a window, and validate what one validates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from visiontrain.engine.checkpoint import load_checkpoint

pytestmark = pytest.mark.slow

GRADIENTS = Path(__file__).with_name("gradients.py")
SPIED = Path(__file__).with_name("spied.py")
STRUCK = Path(__file__).with_name("struck.py")
WINDOWS_PER_EPOCH = 2  # of 16 and of 5 images


def assert_alike(folder, other, rows_of):
    """Weights to 1e-5, the same updates, losses and metrics to rounding."""
    mine, others = (load_checkpoint(one / "weights" / "last.pt") for one in (folder, other))
    for kind in ("model", "ema"):
        for name, tensor in others[kind].items():
            torch.testing.assert_close(mine[kind][name], tensor, rtol=0, atol=1e-5)
    for row, other_row in zip(rows_of(folder), rows_of(other), strict=True):
        assert row == pytest.approx(other_row, rel=1e-4, abs=1e-6)


def test_the_gradient_of_processes_is_that_of_the_whole_window_in_one(program, torchrun, small_network, tmp_path):
    for ended in (
        program(GRADIENTS, tmp_path, small_network),
        *(torchrun(GRADIENTS, tmp_path, small_network, processes=processes) for processes in (2, 3)),
    ):
        assert ended.code == 0, ended.err
    whole = torch.load(tmp_path / "0of1.pt")
    assert len(whole) == 4
    for name, wanted in whole.items():
        for path in ("0of2.pt", "1of2.pt", "0of3.pt", "1of3.pt", "2of3.pt"):
            error = (torch.load(tmp_path / path)[name] - wanted).norm() / wanted.norm()
            assert error < 1e-9, (name, path, error)


@pytest.fixture
def alone(program, words, tmp_path):
    """The folder of a run in one process, of 21 images in training and in validation."""
    ended = program("-m", "visiontrain", *words(tmp_path / "alone", epochs=10))
    assert ended.code == 0, ended.err
    return tmp_path / "alone"


@pytest.mark.parametrize("processes", [2, 3])
def test_processes_make_the_updates_of_one(processes, alone, program, words, rows_of, tmp_path):
    folder = tmp_path / "together"
    ended = program("-m", "visiontrain", *words(folder, epochs=10, processes=processes))
    assert ended.code == 0, ended.err
    assert ended.err == ""
    assert f"batch 8 ({processes} processes × {'4' if processes == 2 else '2 to 3'}) × accumulate 2 = 16" in ended.out
    assert_alike(folder, alone, rows_of)
    assert load_checkpoint(folder / "weights" / "last.pt")["plan"]["updates"] == 10 * WINDOWS_PER_EPOCH
    assert len(list(tmp_path.glob("*/weights/last.pt"))) == 2


def test_a_process_without_images_takes_part_with_weight_zero(program, torchrun, words, rows_of, tmp_path):
    # 3 processes share micro-batches of 2, and the last window of an epoch, of 5 images, ends with one of 1.
    keys = {"batch": 2, "nbs": 8, "tail": "flush"}
    alone = program("-m", "visiontrain", *words(tmp_path / "alone", **keys))
    together = torchrun("-m", "visiontrain", *words(tmp_path / "together", **keys), processes=3)
    for ended in (alone, together):
        assert ended.code == 0, ended.err
    assert "batch 2 is smaller than processes = 3: 1 of them have no image" in together.out
    assert_alike(tmp_path / "together", tmp_path / "alone", rows_of)


def test_gradients_are_exchanged_once_a_window_and_weights_are_the_same_after_every_update(torchrun, words, tmp_path):
    ended = torchrun(SPIED, tmp_path, *words(tmp_path / "run", epochs=3, batch=4, norm="batch"))
    assert ended.code == 0, ended.err
    first, second = (json.loads((tmp_path / f"{process}.json").read_text()) for process in range(2))
    updates = 3 * WINDOWS_PER_EPOCH
    assert first["digests"] == second["digests"]
    assert len(set(first["digests"])) == updates
    for process in (first, second):
        assert process["calls"]["gradients"] == process["buckets"] * updates
        vectors = process["calls"]["all_reduce"] - process["calls"]["gradients"]  # the spy's own way for these
        assert vectors == updates
    assert first["calls"] == second["calls"]


def test_what_freezes_and_thaws_is_exchanged_from_then_on(torchrun, words, tmp_path):
    keys = {"freeze": 3, "unfreeze_epoch": 2, "epochs": 3}
    ended = torchrun(SPIED, tmp_path, *words(tmp_path / "run", **keys))
    assert ended.code == 0, ended.err
    first, second = (json.loads((tmp_path / f"{process}.json").read_text()) for process in range(2))
    assert first["digests"] == second["digests"]
    assert len(set(first["digests"])) == 3 * WINDOWS_PER_EPOCH


def test_a_process_of_backgrounds_and_one_of_objects_do_not_wait_for_each_other(program, tiny_yolo, words, tmp_path):
    data = tiny_yolo(2, splits=("train", "val"), box_counts=(0, 5))
    ended = program("-m", "visiontrain", *words(tmp_path / "run", data=data, batch=2, nbs=2, processes=2, epochs=4))
    assert ended.code == 0, ended.err


def test_a_run_goes_on_with_another_number_of_processes_in_the_same_windows(alone, torchrun, words, rows_of, tmp_path):
    folder = tmp_path / "run"
    stopped = torchrun(STRUCK, 1, "tell:window:7:SIGTERM", *words(folder, epochs=10))
    assert stopped.code != 0
    assert "stopped and saved at image" in stopped.out + stopped.err
    for processes, most, blow in ((1, 4, "tell:window:5:SIGTERM"), (3, 8, "spare")):
        torchrun(STRUCK, 0, blow, "train", f"resume={folder}", processes=processes)
        note = f"processes: 2 → {processes}; the windows stay, with micro-batches of at most {most} images"
        assert note in (folder / "train.log").read_text(encoding="utf-8")
    assert_alike(folder, alone, rows_of)


def test_the_images_of_a_machine_are_cached_once_for_its_processes(program, words, tmp_path, alone, rows_of):
    ended = program("-m", "visiontrain", *words(tmp_path / "run", epochs=10, cache="ram", processes=2))
    assert ended.code == 0, ended.err
    assert ended.out.count("cache: 21 images in ") == 1
    assert_alike(tmp_path / "run", alone, rows_of)


SCRIPT = """
import argparse
from visiontrain import Model
parser = argparse.ArgumentParser()
parser.add_argument("--needed", required=True)
settings = dict(word.split("=", 1) for word in parser.parse_args().needed.split())
result = Model().train(**settings)
print("trained", result.save_dir, result.updates, sorted(result.metrics))
"""


def test_a_script_with_words_of_its_own_trains_in_several_processes(program, words, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    _, *settings = words(tmp_path / "run", processes=2)
    ended = program(script, "--needed", " ".join(settings))
    assert ended.code == 0, ended.err
    metrics = "['metrics/mAP50(B)', 'metrics/mAP50-95(B)', 'metrics/precision(B)', 'metrics/recall(B)']"
    assert f"trained {tmp_path / 'run'} {2 * WINDOWS_PER_EPOCH} {metrics}" in ended.out
