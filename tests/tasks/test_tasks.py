"""What the trainer counts on in every task."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files

import pytest
import torch

from visiontrain.config.load import load_config
from visiontrain.config.schema import SETTINGS
from visiontrain.data.formats import FORMATS_OF_TASK
from visiontrain.plan import plan_run
from visiontrain.tasks import TASKS

GAINS = {"detect": 64.0, "classify": 1.0}
ROWS = {"boxes": torch.empty(0, 4), "scores": torch.empty(0), "classes": torch.empty(0, dtype=torch.int64)}
FOUND = {"detect": ROWS, "classify": {"probs": torch.tensor([0.25, 0.75])}}


@pytest.fixture(params=sorted(TASKS))
def task(request):
    return TASKS[request.param]


@pytest.fixture
def config(task):
    return replace(load_config("train", python={"task": task.name}), imgsz=64, mixup=0.5)


def test_every_task_stands_under_its_own_name_in_every_table():
    assert {name: task.name for name, task in TASKS.items()} == {name: name for name in TASKS}
    assert tuple(sorted(TASKS)) == tuple(sorted(FORMATS_OF_TASK)) == tuple(sorted(SETTINGS["task"].rules.choices))


def test_the_best_epoch_is_picked_by_a_column_that_is_written(task):
    assert task.ranking in task.metric_columns
    assert all(name.startswith("metrics/") for name in task.metric_columns)
    assert not any("/" in name for name in task.loss_columns)


def test_the_default_network_is_for_the_task_and_takes_the_default_size(task, config):
    network = task.fresh_network(replace(config, imgsz=task.default_imgsz), ("a", "b"))
    assert network.task == task.name
    network.check_size(task.default_imgsz)
    again = task.network(network.description, network.names)
    assert {name: tensor.shape for name, tensor in again.state_dict().items()} == {
        name: tensor.shape for name, tensor in network.state_dict().items()
    }


def test_the_bundled_sample_is_read_without_a_fault(task, config):
    folder = files("visiontrain.bundled") / task.default_data
    data = task.read(replace(config, data=str(folder / "data.yaml")), ("train", "val"))
    assert not data.faults
    assert set(data.splits) == {"train", "val"}


def test_a_step_is_the_customary_one(task):
    assert task.gain(plan_run(num_images=64, batch=8, nbs=64, epochs=1)) == GAINS[task.name]


def test_what_was_found_can_be_drawn_and_told(task):
    (marks,) = task.found_marks([FOUND[task.name]], ("a", "b"))
    assert marks.caption == {"detect": "", "classify": "b 0.75"}[task.name]
    content = task.found(FOUND[task.name], torch.eye(3).numpy(), (40, 60))
    assert content.orig_shape == (40, 60)


def test_what_is_finished_already_stays_as_it_is(task, config):
    network = task.fresh_network(config, ("a", "b")).eval()
    with torch.no_grad():
        finished = task.finish(network, network(torch.zeros(2, 3, 64, 64, dtype=torch.uint8)))
    assert task.finish(network, finished) is finished
