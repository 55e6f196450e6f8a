"""Within a window nothing asks the device for a number: on a GPU each such question would make it wait."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from visiontrain.engine.window import GradientWindow
from visiontrain.losses.classification import ClassificationCriterion
from visiontrain.losses.detection import DetectionCriterion
from visiontrain.models.classifiers import build_classifier
from visiontrain.models.detectors import build_detector
from visiontrain.sample import Batch

NAMES = ("a", "b")


def batch_of(targets):
    return Batch(
        images=torch.zeros(2, 3, 64, 64, dtype=torch.uint8),
        targets=targets,
        paths=("", ""),
        indices=(0, 1),
        original_sizes=((64, 64),) * 2,
        matrices=torch.eye(3).expand(2, 3, 3),
    )


def detection():
    boxes, classes = torch.rand(2, 3, 4), torch.zeros(2, 3, dtype=torch.int64)
    return build_detector("det-n", NAMES), DetectionCriterion(), batch_of({"boxes": boxes, "classes": classes})


def classification():
    targets = {"classes": torch.zeros(2, 1, dtype=torch.int64), "shares": torch.ones(2, 1)}
    return build_classifier("cls-n", NAMES, imgsz=64), ClassificationCriterion(num_classes=2), batch_of(targets)


@pytest.mark.parametrize("task", [detection, classification])
def test_forward_loss_and_backward_ask_for_no_number(task, monkeypatch):
    # On a processor, where these tensors claim to be, the loss asks, since the answer costs nothing there.
    for module in ("assign", "detection"):
        monkeypatch.setattr(f"visiontrain.losses.{module}.answers_at_once", lambda device: False)
    with FakeTensorMode(allow_non_fake_inputs=True):  # its tensors hold no numbers, and raise where one is asked for
        network, criterion, batch = task()
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1, foreach=True)
        window = GradientWindow(optimizer, model=network, clip=10.0)
        window.open(2)
        with window.micro_batch(last=True):
            window.add(criterion(network.train()(batch.images), batch), num_images=2)
        with pytest.raises(DataDependentOutputException):
            window.step()  # the one question of a window: whether all is finite
