import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torchvision

import visiontrain
from visiontrain import nms as ours


def random_boxes(count, num_classes=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    corner = torch.rand(count, 2, generator=generator) * 300 - 100
    boxes = torch.cat([corner, corner + torch.rand(count, 2, generator=generator) * 60 + 1], dim=1)
    scores = torch.rand(count, generator=generator)
    return boxes, scores, torch.randint(0, num_classes, (count,), generator=generator)


@pytest.mark.parametrize("iou", [0.0, 0.3, 0.7, 1.0])
def test_suppression_is_that_of_torchvision(iou):
    boxes, scores, _ = random_boxes(500)
    assert torch.equal(ours.nms(boxes, scores, iou), torchvision.ops.nms(boxes, scores, iou))


@pytest.mark.parametrize("count", [1, 200, ours.MOST_MOVED, ours.MOST_MOVED + 1, 3000])
def test_suppression_within_classes_is_that_of_torchvision(count):
    boxes, scores, labels = random_boxes(count)
    kept = ours.nms_by_class(boxes, scores, labels, 0.5).sort().values
    assert torch.equal(kept, torchvision.ops.batched_nms(boxes - boxes.amin(), scores, labels, 0.5).sort().values)
    assert len(kept) < count or count == 1


def test_few_boxes_and_many_are_told_apart_by_class_alike(monkeypatch):
    boxes, scores, labels = random_boxes(400)
    moved = ours.nms_by_class(boxes, scores, labels, 0.5).sort().values
    monkeypatch.setattr(ours, "MOST_MOVED", 0)
    assert torch.equal(moved, ours.nms_by_class(boxes, scores, labels, 0.5).sort().values)


def loaded_after(code):
    """Which of the heavy packages a fresh process holds after `code`."""
    root = str(Path(visiontrain.__file__).parents[1])
    names = "('torchvision', 'torch._dynamo', 'triton', 'sympy')"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint([name for name in {names} if name in sys.modules])"],
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return done.stdout.strip()


SUPPRESS = """
import torch
from visiontrain.nms import nms
boxes = torch.tensor([[0.0, 0, 9, 9], [0, 0, 9, 8]])
assert nms(boxes, torch.tensor([0.5, 0.6]), 0.5).tolist() == [1]
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="its libraries are found by torchvision alone")
def test_suppression_loads_the_kernel_alone():
    assert loaded_after(SUPPRESS) == "[]"


@pytest.mark.slow
def test_where_the_kernel_is_not_found_torchvision_brings_it():
    hidden = "import visiontrain.nms\nvisiontrain.nms.find_spec = lambda name: None"
    assert "torchvision" in loaded_after(hidden + SUPPRESS)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="its libraries are found by torchvision alone")
def test_training_our_own_detector_loads_neither_torchvision_nor_the_compiler(tmp_path):
    keys = "epochs=1 imgsz=64 fraction=0.2 plots=False quiet=True"
    arguments = ["train", *keys.split(), f"save_dir={tmp_path}/run"]
    code = f"from visiontrain.cli import main\nassert main({arguments!r}) == 0"
    assert loaded_after(code).splitlines()[-1] == "[]"
