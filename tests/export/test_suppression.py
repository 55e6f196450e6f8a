"""Suppression in the graph is that of the decoder."""

from __future__ import annotations

import pytest
import torch

from visiontrain.decode import decode_detections
from visiontrain.export.parity import compare_detections
from visiontrain.export.suppression import DETECTIONS, Suppression, with_suppression

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
SIDE = 128
# A detector that is given what it gives.
IDENTITY = """
<ir_version: 10, opset_import: ["" : 18]>
detector (float[B, A, 4] raw_boxes, float[B, A, C] raw_scores) => (float[B, A, 4] boxes, float[B, A, C] scores) {
    boxes = Identity (raw_boxes)
    scores = Identity (raw_scores)
}
"""


def suppressed(boxes, scores, suppression):
    model = with_suppression(onnx.parser.parse_model(IDENTITY), suppression)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run([DETECTIONS], {"raw_boxes": boxes.numpy(), "raw_scores": scores.numpy()})
    return torch.from_numpy(found)


def candidates(num_images, num_anchors, num_classes=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    corners = torch.rand(num_images, num_anchors, 2, generator=generator) * SIDE / 2
    sides = 8 + torch.rand(num_images, num_anchors, 2, generator=generator) * SIDE / 2
    scores = torch.rand(num_images, num_anchors, num_classes, generator=generator)
    return torch.cat([corners, corners + sides], dim=2), scores


@pytest.mark.parametrize("num_images", [1, 3])
@pytest.mark.parametrize(("num_anchors", "max_det"), [(120, 300), (120, 7), (5, 300), (120, 1)])
def test_it_finds_what_the_decoder_finds(num_images, num_anchors, max_det):
    boxes, scores = candidates(num_images, num_anchors)
    settings = {"conf": 0.3, "iou": 0.5, "max_det": max_det}
    found = suppressed(boxes, scores, Suppression(**settings))
    assert found.shape == (num_images, max_det, 6)
    expected = decode_detections(boxes, scores, multi_label=False, **settings)
    assert [int((rows[:, 4] > 0).sum()) for rows in found] == [len(one["scores"]) for one in expected]
    difference = compare_detections(expected, found, batch=num_images, conf=0.3, imgsz=SIDE)
    assert difference.relative < 1e-6
    for rows, one in zip(found, expected, strict=True):
        assert torch.equal(rows[: len(one["scores"]), 4], one["scores"])  # falling, nothing between them


def test_rows_that_hold_nothing_are_zero():
    boxes, scores = candidates(2, 20)
    scores[1] = 0.1
    found = suppressed(boxes, scores, Suppression(conf=0.3, iou=0.5, max_det=50))
    assert not found[1].any()
    assert not found[0][found[0][:, 4] == 0].any()


def test_boxes_of_different_classes_do_not_suppress_each_other():
    boxes = torch.tensor([[[0.0, 0, 10, 10], [0, 0, 10, 10], [0, 0, 10, 10]]])
    scores = torch.tensor([[[0.9, 0.0], [0.0, 0.8], [0.7, 0.1]]])
    found = suppressed(boxes, scores, Suppression(conf=0.25, iou=0.7, max_det=4))
    assert found[0, :, 4].tolist() == pytest.approx([0.9, 0.8, 0, 0])
    assert found[0, :2, 5].tolist() == [0, 1]
