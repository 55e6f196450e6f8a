import math
import time

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torchvision.ops import box_iou

from visiontrain.decode import class_probabilities, decode_detections


def random_outputs(seed, num_anchors=60, num_classes=3, low=-40.0, high=100.0):
    generator = torch.Generator().manual_seed(seed)
    corner = torch.rand(2, num_anchors, 2, generator=generator) * (high - low) + low
    size = torch.rand(2, num_anchors, 2, generator=generator) * 60 + 1
    # Few distinct values, so that there are equal scores in every image.
    scores = torch.randint(0, 21, (2, num_anchors, num_classes), generator=generator) / 20
    return torch.cat([corner, corner + size], dim=2), scores


def decode_slowly(
    boxes, scores, *, conf, iou, max_det, multi_label, agnostic=False, classes=None, max_candidates=30_000
):
    """One image, by the book."""
    conf = torch.tensor(conf).item()  # scores are float32, and so is what they are compared with
    candidates = []
    for anchor, row in enumerate(scores.tolist()):
        labels = range(len(row)) if multi_label else [row.index(max(row))]
        candidates += [
            (row[label], anchor, label)
            for label in labels
            if row[label] > conf and (classes is None or label in classes)
        ]
    candidates.sort(key=lambda candidate: -candidate[0])  # stable: equal scores stay in order of anchor and class
    kept = []
    for score, anchor, label in candidates[:max_candidates]:
        rivals = [k for k in kept if agnostic or k[2] == label]
        if all(box_iou(boxes[[anchor]], boxes[[k[1]]]).item() <= iou for k in rivals):
            kept.append((score, anchor, label))
    return kept[:max_det]


@settings(max_examples=12)
@given(
    seed=st.integers(0, 10_000),
    conf=st.sampled_from([0.0, 0.3, 0.5, 1.0]),
    iou=st.sampled_from([0.2, 0.45, 0.7]),
    max_det=st.sampled_from([1, 7, 300]),
    multi_label=st.booleans(),
    agnostic=st.booleans(),
    classes=st.sampled_from([None, [0], [2, 1]]),
    max_candidates=st.sampled_from([10, 30_000]),
)
# A score of 0.3 in float32 is a little more than 0.3.
@example(seed=0, conf=0.3, iou=0.2, max_det=300, multi_label=False, agnostic=False, classes=None, max_candidates=30_000)
def test_decoding_agrees_with_a_slow_loop(seed, **options):
    boxes, scores = random_outputs(seed)
    for image, found in enumerate(decode_detections(boxes, scores, **options)):
        expected = decode_slowly(boxes[image], scores[image], **options)
        torch.testing.assert_close(found["boxes"], boxes[image][[anchor for _, anchor, _ in expected]], rtol=0, atol=0)
        torch.testing.assert_close(found["scores"], torch.tensor([score for score, _, _ in expected]))
        assert found["classes"].tolist() == [label for _, _, label in expected]


def test_boxes_of_different_classes_never_suppress_each_other_wherever_they_lie():
    # Told apart by shifts, class 1 at x = -41 would come to lie on class 0 at x = 60.
    boxes = torch.tensor([[[60.0, 60, 100, 100], [-41, -41, -1, -1]]])
    scores = torch.tensor([[[0.9, 0.0], [0.0, 0.8]]])
    (found,) = decode_detections(boxes, scores, conf=0.1, iou=0.1, max_det=10, multi_label=True)
    assert len(found["boxes"]) == 2


def test_many_candidates_come_in_the_order_of_score_then_anchor():
    boxes, _ = random_outputs(0, num_anchors=3000, low=0, high=5000)
    scores = torch.full((2, 3000, 1), 0.5)
    for image, found in enumerate(
        decode_detections(boxes, scores, conf=0.1, iou=0.999, max_det=3000, multi_label=True)
    ):
        torch.testing.assert_close(found["boxes"], boxes[image], rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_every_precision_comes_out_as_float32(dtype):
    boxes, scores = random_outputs(1)
    boxes.requires_grad_()
    for found in decode_detections(boxes.to(dtype), scores.to(dtype), conf=0.2, iou=0.5, max_det=5, multi_label=True):
        assert (found["boxes"].dtype, found["scores"].dtype) == (torch.float32, torch.float32)
        assert found["classes"].dtype == torch.int64
        assert not found["boxes"].requires_grad


@pytest.mark.parametrize("multi_label", [True, False])
@pytest.mark.parametrize("num_anchors", [0, 60])
def test_an_image_without_detections_gives_empty_tensors(multi_label, num_anchors):
    boxes, scores = random_outputs(2, num_anchors=num_anchors)
    for found in decode_detections(boxes, scores, conf=1.0, iou=0.5, max_det=5, multi_label=multi_label):
        assert [tuple(found[key].shape) for key in ("boxes", "scores", "classes")] == [(0, 4), (0,), (0,)]


def test_candidates_beyond_the_cap_are_counted():
    boxes, scores = random_outputs(3)
    whole = decode_detections(boxes, scores, conf=0.5, iou=0.5, max_det=300, multi_label=True)
    capped = decode_detections(boxes, scores, conf=0.5, iou=0.5, max_det=300, multi_label=True, max_candidates=5)
    assert [int(found["num_dropped"]) for found in whole] == [0, 0]
    assert [int(found["num_dropped"]) for found in capped] == [int((image > 0.5).sum()) - 5 for image in scores]


def test_of_equal_scores_the_cap_keeps_the_first():
    boxes = torch.arange(10.0)[:, None] * 20 + torch.tensor([0.0, 0, 9, 9])
    scores = torch.tensor([0.5, 0.9, 0.5, 0.5, 0.5, 0.9, 0.5, 0.5, 0.5, 0.5])
    options = {"conf": 0.1, "iou": 0.5, "max_det": 300, "multi_label": True}
    (found,) = decode_detections(boxes[None], scores[None, :, None], **options, max_candidates=5)
    assert (found["boxes"][:, 0] / 20).tolist() == [1, 5, 0, 2, 3]
    assert int(found["num_dropped"]) == 5


def test_a_slow_machine_finds_the_same_detections(monkeypatch):
    boxes, scores = random_outputs(6)
    options = {"conf": 0.1, "iou": 0.5, "max_det": 300, "multi_label": True}
    expected = decode_detections(boxes, scores, **options)
    hours = iter(range(0, 10**9, 3600))
    for name in ("time", "monotonic", "perf_counter", "process_time"):
        monkeypatch.setattr(time, name, lambda: float(next(hours)))
    for found, wanted in zip(decode_detections(boxes, scores, **options), expected, strict=True):
        for key, values in wanted.items():
            torch.testing.assert_close(found[key], values, rtol=0, atol=0)


def test_an_image_is_decoded_the_same_alone_as_in_a_batch():
    boxes, scores = random_outputs(4)
    options = {"conf": 0.2, "iou": 0.5, "max_det": 50, "multi_label": False}
    together = decode_detections(boxes, scores, **options)
    for image in range(2):
        (alone,) = decode_detections(boxes[image : image + 1], scores[image : image + 1], **options)
        for key, values in alone.items():
            torch.testing.assert_close(values, together[image][key], rtol=0, atol=0)


def test_a_score_that_is_not_a_number_is_no_detection():
    boxes, scores = random_outputs(5)
    scores[:, 0] = float("nan")
    for multi_label in (True, False):
        for found in decode_detections(boxes, scores, conf=0.2, iou=0.5, max_det=300, multi_label=multi_label):
            assert found["scores"].isfinite().all()


def test_probabilities_of_classes_that_exclude_each_other_add_up_to_one():
    logits = torch.tensor([[1.0, 2.0, 0.0], [5.0, 5.0, 5.0]], dtype=torch.float64)
    first, second = class_probabilities(logits, multi_label=False)
    assert first.dtype == torch.float32
    total = sum(math.exp(value) for value in (1, 2, 0))
    assert first.tolist() == pytest.approx([math.exp(value) / total for value in (1, 2, 0)])
    assert second.tolist() == pytest.approx([1 / 3] * 3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_probabilities_of_several_classes_are_each_its_own(dtype):
    (found,) = class_probabilities(torch.tensor([[0.0, 2.0, -2.0]], dtype=dtype), multi_label=True)
    assert found.tolist() == pytest.approx([0.5, 1 / (1 + math.exp(-2)), 1 / (1 + math.exp(2))])
