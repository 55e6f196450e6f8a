"""What a run goes on with: which run is meant, its settings, its place in the plan, its threads. Nothing is trained."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace

import pytest
import torch

from visiontrain.config.load import load_config
from visiontrain.config.schema import Config
from visiontrain.engine.checkpoint import load_checkpoint, save_checkpoint
from visiontrain.engine.device import DeviceSetup
from visiontrain.engine.fit import RunState
from visiontrain.errors import CheckpointError, ConfigError
from visiontrain.plan import plan_run
from visiontrain.run.resuming import (
    Resumed,
    config_from,
    go_on,
    like_before,
    state_of,
    state_values,
    stored_args,
    versions,
)


def asked(**typed):
    return load_config("train", python=typed)


def test_true_is_the_run_of_project_that_was_written_to_last(trained, tmp_path):
    project = (tmp_path / "project").resolve()
    for name, seconds in (("a", 2), ("b", 1)):
        shutil.copytree(trained.save_dir, project / name)
        for path in (project / name).rglob("*"):
            os.utime(path, (seconds, seconds))
    config = asked(resume=True, project=str(project))
    assert go_on(config).folder == project / "a"
    os.utime(project / "b" / "weights" / "last.pt", (3, 3))
    assert go_on(config).folder == project / "b"
    assert go_on(config).config.project is None  # it said where to look, and is not the run's own


def test_true_where_there_is_no_run_names_the_place(tmp_path):
    with pytest.raises(ConfigError, match=r"resume = True: there is no run in .*nowhere, no .*name the run"):
        go_on(asked(resume=True, project=str(tmp_path / "nowhere")))


def test_another_project_is_refused_where_the_run_was_named(trained):
    with pytest.raises(ConfigError, match=r"project = 'elsewhere': the run to go on has .*leave project out"):
        go_on(asked(resume=str(trained.save_dir), project="elsewhere"))


def test_batchnorm_and_groupnorm_are_other_networks(trained):
    assert go_on(asked(resume=str(trained.save_dir), norm="frozen")).config.norm == "frozen"
    with pytest.raises(ConfigError, match="norm = 'group': the run to go on has 'batch', which cannot change"):
        go_on(asked(resume=str(trained.save_dir), norm="group"))


def test_weights_without_an_optimizer_cannot_go_on(trained):
    values = load_checkpoint(trained.last)
    save_checkpoint(trained.last, {key: value for key, value in values.items() if key not in ("format", "optimizer")})
    with pytest.raises(CheckpointError, match=r"holds weights but no optimizer state; resume from a last\.pt"):
        go_on(asked(resume=str(trained.save_dir)))


def test_settings_come_back_as_they_were_without_those_of_another_version():
    config = replace(Config(freeze=(0, 1), lr0=0.5), origins={"lr0": "python", "freeze": "cfg file"})
    args = stored_args(config)
    args["values"]["of_another_version"] = 1
    again = config_from(args)
    assert again == config
    assert (again.origin("lr0"), again.origin("freeze"), again.origin("nbs")) == ("python", "cfg file", "default")


def cpu(threads):
    return replace(DEVICE, threads=threads)


DEVICE = DeviceSetup(torch.device("cpu"), threads=4, workers=0)


def place_of(folder, **state):
    plan = plan_run(num_images=8, batch=2, nbs=4, epochs=2, warmup_epochs=0)
    return state_of(Resumed(Config(), folder, {"plan": state_values(RunState(**state))}), plan, DEVICE)


def test_the_place_in_the_plan_is_found_by_images(tmp_path):
    assert place_of(tmp_path, images=12, window=99).window == 3


def test_a_place_at_which_no_window_begins_is_told_with_what_to_do(tmp_path):
    with pytest.raises(ConfigError, match="no window of the new plan begins at image 6; leave batch, epochs and tail"):
        place_of(tmp_path, images=6)


def test_a_run_that_has_all_its_images_and_no_results_is_still_to_be_closed(tmp_path):
    assert place_of(tmp_path, images=16, window=4).window == 4
    (tmp_path / "results.json").touch()
    with pytest.raises(ConfigError, match="has finished its 2 epochs; type a larger epochs="):
        place_of(tmp_path, images=16, window=4, epoch=2)


@pytest.mark.parametrize(("before", "threads", "lines"), [(2, 2, 0), (4, 4, 0), (8, 4, 1)])
def test_threads_are_those_of_the_run_where_there_are_so_many(before, threads, lines):
    setup, told = like_before(cpu(4), {"threads": before, "versions": versions()})
    assert (setup.threads, len(told)) == (threads, lines)
    assert all("the run had 8, here are 4: bits will differ by rounding" in line for line in told)


def test_another_version_is_told():
    _, told = like_before(cpu(4), {"threads": 4, "versions": {**versions(), "torch": "0.1"}})
    assert told == (f"torch: the run had version 0.1, here is {torch.__version__}: bits may differ",)
