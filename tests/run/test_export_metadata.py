"""What an exported file tells of itself."""

from __future__ import annotations

import json

import pytest

from visiontrain.config.load import load_config
from visiontrain.export.program import Program
from visiontrain.export.suppression import Suppression
from visiontrain.models.torchvision_models import build_torchvision, normalization_of
from visiontrain.run.export_metadata import metadata_of
from visiontrain.tasks import TASKS


def metadata(network, args=None, suppression=None):
    finish = TASKS[network.task].finish
    program = Program(network, lambda outputs: finish(network, outputs), 64, is_dynamic=True, opset=18, simplify=True)
    config = load_config("export", python={"task": network.task})
    return {
        key: value if key == "task" else json.loads(value)
        for key, value in metadata_of(config, program, args or {}, suppression).items()
    }


def test_normalization_is_what_the_network_takes_from_images_in_0_to_1(two_level_detector):
    assert metadata(two_level_detector)["normalization"] == {"mean": [0.0] * 3, "std": [1.0] * 3}
    mean, std = normalization_of("squeezenet1_1")
    told = metadata(build_torchvision("squeezenet1_1", ("a", "b")))["normalization"]
    assert told["mean"] == pytest.approx(mean, abs=1e-5)
    assert told["std"] == pytest.approx(std, abs=1e-5)


def test_names_strides_and_suppression_are_told_and_paths_are_not(two_level_detector):
    args = {"data": "/home/somebody/data.yaml", "model": "/home/somebody/my.yaml", "single_cls": False, "imgsz": 32}
    told = metadata(two_level_detector, args, Suppression(conf=0.5, iou=0.6, max_det=7))
    assert (told["task"], told["names"], told["strides"]) == ("detect", ["red", "green"], [8, 16])
    assert told["nms"] == {"conf": 0.5, "iou": 0.6, "max_det": 7}
    assert told["args"] == {"single_cls": False, "imgsz": 64}
    assert "somebody" not in json.dumps(told)
    assert told["network"]["layers"]
    assert len(told["network_sha256"]) == 64
