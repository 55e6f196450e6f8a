"""`visiontrain verify`: what it compares, says and returns."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
import yaml

from visiontrain.cli import main
from visiontrain.config.load import load_config
from visiontrain.data.loader import TrainLoader
from visiontrain.engine.window import GradientWindow
from visiontrain.errors import CheckpointError, ConfigError, DataError, UserError
from visiontrain.plan import plan_run
from visiontrain.run import verify as verify_module
from visiontrain.run.verify import choose_window, verify, verify_run

ROWS = ("exact", "single_images", "precision", "batchnorm", "mean_of_means")
CLEARLY = 0.01


@pytest.fixture(scope="module")
def tiny_network(tmp_path_factory):
    """A detector of four convolutions and a head on two levels."""
    trunk = [[-1, 1, "Conv", [channels, 3, 2]] for channels in (8, 16, 16, 24)]
    path = tmp_path_factory.mktemp("network") / "tiny.yaml"
    path.write_text(yaml.safe_dump({"task": "detect", "layers": [*trunk, [[2, 3], 1, "Detect", []]]}), encoding="utf-8")
    return path


@pytest.fixture
def settings(tiny_network, tiny_yolo):
    """A function that gives the settings of `verify` on a tiny network and eight small images, in windows of six."""

    def make(**keys):
        values = {
            "model": str(tiny_network),
            "imgsz": 64,
            "epochs": 3,
            "batch": 2,
            "nbs": 6,
            "warmup_epochs": 1,
            "amp": False,
            **keys,
        }
        if "data" not in values:
            values["data"] = str(tiny_yolo(8, box_counts=(1, 9, 0)))
        return load_config("verify", python=values)

    return make


def files_below(folder):
    return sorted((path, path.stat().st_mtime_ns) for path in folder.rglob("*"))


def test_the_update_of_real_images_is_that_of_the_full_batch(settings):
    document = verify_run(settings(json=True))
    assert document["passed"]
    assert document["exact"]["rel_error"] <= document["tolerance"] == 1e-9
    assert document["single_images"]["rel_error"] <= 1e-9
    assert document["precision"]["rel_error"] <= 1e-4
    assert document["batchnorm"]["rel_error"] > CLEARLY
    assert document["mean_of_means"]["rel_error"] > CLEARLY


def test_one_json_document_is_all_that_is_printed(settings, capsys):
    config = settings(json=True)
    assert verify(config) is None
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert set(document) == {
        *(*ROWS, "passed", "images", "micro_batches", "epoch", "window", "reference"),
        *("precision_name", "seconds", "tolerance"),
    }
    for row in ROWS:
        assert set(document[row]) == {"rel_error", "cosine", "norm_ratio", "groups"}
        assert set(document[row]["groups"]) == {"weights", "depthwise", "norms", "biases"}
        assert set(document[row]["groups"]["norms"]) == {"rel_error", "cosine", "norm_ratio"}
    assert (document["images"], document["micro_batches"]) == (6, [2, 2, 2])
    assert (document["epoch"], document["reference"], document["precision_name"]) == (2, "full batch", "fp32")
    assert "expected memory: about" in printed.err
    assert "expected time: about" in printed.err


def test_a_table_and_a_sentence_for_each_row_end_in_the_verdict(settings, capsys):
    verify(settings())
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "window 4 (the first full one after warmup, epoch 2): 6 images in 3 micro-batches of at most 2"
    assert lines[2].startswith("warning: BatchNorm sees micro-batches of 2")
    assert [line.partition(":")[0] for line in lines[3:5]] == ["expected memory", "expected time"]
    assert any("micro-batches of 2 give the update of one full batch (" in line for line in lines)
    assert any(line.startswith("mean of means, as commonly done: ") and line.endswith("% off") for line in lines)
    assert lines[-1] == "PASSED"
    assert not [line for line in lines[2:] if len(line) > 120 and not line.startswith("warning: ")]


def test_quiet_prints_the_result_alone(settings, capsys):
    verify(settings(quiet=True))
    assert capsys.readouterr().out.splitlines()[1].split()[:2] == ["rel.", "error"]


def test_nothing_is_written_and_no_state_of_the_process_changes(settings, tmp_path, monkeypatch):
    config = settings()
    monkeypatch.chdir(tmp_path)
    before, threads = files_below(tmp_path), torch.get_num_threads()
    random = torch.get_rng_state()
    verify(config)
    assert files_below(tmp_path) == before
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.get_num_threads() == threads
    assert not torch.are_deterministic_algorithms_enabled()


def test_the_same_settings_give_the_same_numbers(settings):
    first, second = (verify_run(settings(json=True)) for _ in range(2))
    assert [first[row] for row in ROWS] == [second[row] for row in ROWS]


@pytest.mark.parametrize(
    ("keys", "start", "size"),
    [
        ({"num_images": 20, "batch": 2, "nbs": 6, "epochs": 3, "warmup_epochs": 1}, 20, 6),
        ({"num_images": 20, "batch": 2, "nbs": 6, "epochs": 3}, 0, 6),
        ({"num_images": 20, "batch": 2, "nbs": 6, "epochs": 3, "warmup_epochs": 1.5}, 30, 6),
        ({"num_images": 5, "batch": 2, "nbs": 6, "epochs": 3, "warmup_epochs": 1}, 5, 5),  # none is full
        ({"num_images": 20, "batch": 2, "nbs": 8, "epochs": 2, "tail": "spread"}, 0, 10),
        ({"num_images": 22, "batch": 2, "nbs": 8, "epochs": 2, "tail": "spread"}, 0, 8),
        ({"num_images": 20, "batch": 2, "nbs": 6, "epochs": 1}, 0, 6),
    ],
)
def test_the_first_full_window_behind_the_ramp_is_taken(keys, start, size):
    plan = plan_run(**keys)
    window = choose_window(plan)
    assert (window.start, window.size) == (start, size)
    assert window in list(plan.all_windows())


def test_the_images_are_those_that_training_loads(settings, monkeypatch):
    loaded = []
    windows = TrainLoader.windows

    def spied(self, first_window=0):
        for window in windows(self, first_window):
            loaded.append(window)
            yield window

    compared = []
    monkeypatch.setattr(TrainLoader, "windows", spied)
    compare = verify_module.compare_cuts
    monkeypatch.setattr(
        verify_module,
        "compare_cuts",
        lambda settings, parts, whole, **fits: (
            compared.append((parts, whole)) or compare(settings, parts, whole, **fits)
        ),
    )
    verify_run(settings(json=True))
    [window], [(parts, whole)] = loaded, compared
    assert window.planned.start >= 8  # behind the ramp
    assert tuple(window) == parts
    assert torch.equal(torch.cat([part.images for part in parts]), whole.images)


def _scale_nothing(monkeypatch):
    monkeypatch.setattr(GradientWindow, "_scale", lambda self, params, world: None)


def _change_normalizers(monkeypatch, change):
    add = GradientWindow.add

    def changed(self, losses, *, num_images=0):
        add(self, replace(losses, normalizer=change(losses.normalizer)), num_images=num_images)

    monkeypatch.setattr(GradientWindow, "add", changed)


def _clamp_each_micro_batch(monkeypatch):
    _change_normalizers(monkeypatch, lambda normalizer: normalizer.clamp(min=1))


def _divide_by_the_nominal_count(monkeypatch):
    _change_normalizers(monkeypatch, lambda normalizer: normalizer * 12 / 8)


def _leave_one_out(monkeypatch):
    add = GradientWindow.add
    opened = set()

    def forgetful(self, losses, *, num_images=0):
        add(self, losses, num_images=num_images)
        if self not in opened:  # the first of the window
            opened.add(self)
            self.optimizer.zero_grad()

    monkeypatch.setattr(GradientWindow, "add", forgetful)


@pytest.mark.parametrize(
    ("plant", "keys"),
    [
        (_scale_nothing, {}),
        (_clamp_each_micro_batch, {}),
        (_leave_one_out, {}),
        (_divide_by_the_nominal_count, {"nbs": 12}),  # eight images are a short window
    ],
)
@pytest.mark.slow
def test_a_fault_in_accumulation_ends_in_exit_code_3(settings, monkeypatch, capsys, plant, keys):
    config = settings(**keys)
    plant(monkeypatch)
    assert verify(config) == 3
    printed = capsys.readouterr().out
    assert "ANOTHER update" in printed
    assert printed.endswith("FAILED\n")


def test_a_full_batch_that_does_not_fit_is_replaced_by_single_images(settings, monkeypatch, capsys):
    monkeypatch.setattr(verify_module, "free_memory", lambda device: 2**20)
    document = verify_run(settings())
    printed = capsys.readouterr().out
    assert "of 1 MB free, for a full batch in float64" in printed
    assert "more than 60%: single images are compared with instead" in printed
    assert "batchnorm: not measured, since a full batch does not fit into memory" in printed
    assert document["reference"] == "single images"
    assert document["passed"]
    assert document["batchnorm"]["rel_error"] is None


def test_memory_that_nobody_knows_is_taken_to_suffice(settings, monkeypatch):
    monkeypatch.setattr(verify_module, "free_memory", lambda device: None)
    assert verify_run(settings(json=True))["reference"] == "full batch"


def test_a_window_of_one_image_passes(settings, tiny_yolo):
    document = verify_run(settings(data=str(tiny_yolo(1)), json=True))
    assert document["passed"]
    assert document["micro_batches"] == [1]


def test_a_batch_that_holds_the_whole_window_is_told_to_accumulate_nothing(settings, capsys):
    document = verify_run(settings(batch=8, nbs=8))
    assert document["passed"]
    assert "nothing is accumulated in it; see the cut into single images" in capsys.readouterr().out


def test_images_without_any_box_are_compared_like_others_and_that_is_said(settings, tiny_yolo, capsys):
    data = tiny_yolo(8)
    for path in (data.parent / "labels" / "train").glob("*.txt"):
        path.write_text("", encoding="utf-8")
    document = verify_run(settings(data=str(data), json=True))
    assert document["passed"]
    assert "warning: none of its images has a label" in capsys.readouterr().err
    assert document["mean_of_means"]["rel_error"] == pytest.approx(2 / 3)  # each is divided by the floor, 1


def test_images_that_cannot_be_read_are_left_out_as_in_training(settings, tiny_yolo, capsys):
    data = tiny_yolo(8, box_counts=(1, 9, 0))
    broken = data.parent / "images" / "train" / "003.png"
    config = settings(data=str(data), json=True, mosaic=0.0, fraction=1.0, nbs=8)
    pixels = bytearray(broken.read_bytes())
    pixels[len(pixels) // 2] ^= 0xFF  # the file is whole, the picture is not
    broken.write_bytes(pixels)
    document = verify_run(config)
    assert document["passed"]
    assert document["images"] == sum(document["micro_batches"]) == 7
    assert "003.png: cannot be read; it is left out of its window" in capsys.readouterr().err


@pytest.mark.parametrize("norm", ["group", "frozen"])
def test_without_statistics_of_micro_batches_there_is_nothing_to_see(settings, capsys, norm):
    document = verify_run(settings(norm=norm))
    assert f"batchnorm: norm={norm} knows nothing of micro-batches" in capsys.readouterr().out
    assert document["passed"]
    assert document["batchnorm"]["rel_error"] <= 1e-4


@pytest.mark.slow
def test_activations_that_are_computed_twice_change_nothing(settings):
    plain, recomputed = (
        verify_run(settings(json=True, checkpoint_activations=value))["batchnorm"] for value in (False, True)
    )
    assert recomputed["rel_error"] == pytest.approx(plain["rel_error"], rel=1e-4)


@pytest.mark.parametrize("norm", ["batch", "group"])
@pytest.mark.slow
def test_trained_weights_are_verified_as_they_were_trained(run_training, capsys, norm):
    best = str(run_training(epochs=1, norm=norm).best)
    capsys.readouterr()
    document = verify_run(load_config("verify", python={"model": best, "batch": 2, "nbs": 4}))
    printed = capsys.readouterr().out
    assert printed.startswith(f"verify {best} on ")
    assert "fresh weights" not in printed
    assert ("norm=group knows nothing" in printed) == (norm == "group")
    assert document["passed"]
    assert document["images"] == 4


def test_weights_of_other_classes_are_refused(trained, settings, tiny_yolo):
    other = tiny_yolo(2, folder="other")
    other.write_text(other.read_text(encoding="utf-8").replace("green", "blue"), encoding="utf-8")
    with pytest.raises(ConfigError, match="its classes are red, blue; those of the weights are red, green"):
        verify_run(settings(model=str(trained.best), data=str(other)))


def test_an_image_size_that_the_weights_cannot_take_is_refused(trained, settings):
    with pytest.raises(ConfigError, match="imgsz = 70 is not a multiple"):
        verify_run(settings(model=str(trained.best), imgsz=70))


@pytest.mark.parametrize(
    ("keys", "kind", "message"),
    [
        ({"imgsz": 321}, ConfigError, "imgsz = 321 is not a multiple"),
        ({"model": "foo"}, ConfigError, "is neither a network's name nor a YAML file"),
        ({"model": "missing.pt"}, CheckpointError, "missing.pt: cannot be read"),
        ({"data": "missing.yaml"}, UserError, "missing.yaml"),
    ],
)
def test_what_training_would_refuse_is_refused(settings, keys, kind, message):
    with pytest.raises(kind, match=message):
        verify_run(settings(**keys))


def test_images_of_which_none_can_be_read_are_refused(settings, tiny_yolo):
    data = tiny_yolo(4)
    config = settings(data=str(data))
    for path in (data.parent / "images" / "train").glob("*.png"):
        pixels = bytearray(path.read_bytes())
        pixels[len(pixels) // 2] ^= 0xFF
        path.write_bytes(pixels)
    with pytest.raises(DataError, match=r"none of the \d images of window \d can be read"):
        verify_run(config)


def test_the_command_line_gives_exit_codes(tiny_network, tiny_yolo, capsys, monkeypatch):
    words = [f"data={tiny_yolo(4)}", f"model={tiny_network}", "imgsz=64", "batch=2", "nbs=4", "json=True"]
    assert main(["verify", *words]) == 0
    assert main(["verify", *words, "imgsz=70"]) == 2
    capsys.readouterr()
    _scale_nothing(monkeypatch)
    assert main(["verify", *words]) == 3
    assert json.loads(capsys.readouterr().out)["passed"] is False


@pytest.mark.slow
def test_the_default_detector_passes_on_real_images(test_data):
    keys = {"data": str(test_data / "bccd" / "data.yaml"), "batch": 4, "nbs": 8, "imgsz": 160, "json": True}
    document = verify_run(load_config("verify", python=keys))
    assert document["passed"]
    assert document["mean_of_means"]["rel_error"] > CLEARLY


def test_a_gradient_of_zero_proves_nothing(settings):
    with pytest.raises(DataError, match="the gradient of window 4 is 0, so there is nothing to compare"):
        verify_run(settings(box=0, cls=0, dfl=0))


def test_silence_is_silence(settings, capsys):
    assert verify_run(settings(), is_silent=True)["passed"]
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
def test_weights_are_compared_in_windows_of_their_own_training_and_not_as_another_network(trained, settings):
    document = verify_run(load_config("verify", python={"model": str(trained.best), "quiet": True}))
    assert document["micro_batches"] == [2, 2]  # batch=2 nbs=4, as they were trained
    with pytest.raises(ConfigError, match="norm = group: the weights are those of a network with norm = batch"):
        verify_run(settings(model=str(trained.best), norm="group"))


@pytest.mark.parametrize(
    ("keys", "text"),
    [({"norm": "sync"}, "so it is the same as norm=batch"), ({"norm": "frozen"}, "a fresh network has none")],
)
def test_what_the_plan_warns_of_is_said_here_too(settings, capsys, keys, text):
    verify_run(settings(**keys))
    assert text in capsys.readouterr().out
