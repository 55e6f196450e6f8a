import math

import pytest
import torch
from torchvision.ops import box_iou, complete_box_iou, distance_box_iou

from visiontrain.losses.geometry import complete_iou, iou, pairwise_ciou


def random_boxes(count, seed, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    corner = torch.rand(count, 2, generator=generator, dtype=dtype) * 50
    size = torch.rand(count, 2, generator=generator, dtype=dtype) * 40 + 1
    return torch.cat([corner, corner + size], dim=1)


def slow_ciou(a, b):
    """Equations 9 to 11 of arXiv:2005.03572, one pair of boxes at a time, in plain Python."""
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - width * height
    overlap = width * height / union
    diagonal = (max(a[2], b[2]) - min(a[0], b[0])) ** 2 + (max(a[3], b[3]) - min(a[1], b[1])) ** 2
    distance = ((a[0] + a[2] - b[0] - b[2]) / 2) ** 2 + ((a[1] + a[3] - b[1] - b[3]) / 2) ** 2
    angles = [math.atan((box[2] - box[0]) / (box[3] - box[1])) for box in (a, b)]
    ratio = 4 / math.pi**2 * (angles[0] - angles[1]) ** 2
    return overlap - distance / diagonal - ratio * ratio / (1 - overlap + ratio)


def test_overlaps_equal_the_library_s():
    a, b = random_boxes(7, 0), random_boxes(5, 1)
    torch.testing.assert_close(iou(a[:, None], b[None]), box_iou(a, b), rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(pairwise_ciou(a, b), complete_box_iou(a, b), rtol=1e-7, atol=1e-9)


def test_complete_overlap_equals_the_published_formula_pair_by_pair():
    a, b = random_boxes(20, 2), random_boxes(20, 3)
    expected = [slow_ciou(*pair) for pair in zip(a.tolist(), b.tolist(), strict=True)]
    torch.testing.assert_close(complete_iou(a, b), torch.tensor(expected, dtype=a.dtype), rtol=1e-7, atol=1e-9)


def test_the_pairwise_form_holds_the_elementwise_one_on_its_diagonal_and_keeps_batches_apart():
    a, b = random_boxes(6, 4).reshape(2, 3, 4), random_boxes(6, 5).reshape(2, 3, 4)
    torch.testing.assert_close(pairwise_ciou(a, b).diagonal(dim1=1, dim2=2), complete_iou(a, b))


@pytest.mark.parametrize("scale", [1e-2, 1.0, 1e3])
def test_overlap_does_not_depend_on_the_unit(scale):
    a, b = random_boxes(9, 6), random_boxes(9, 7)
    torch.testing.assert_close(complete_iou(a * scale, b * scale), complete_iou(a, b), rtol=1e-4, atol=1e-6)


def test_a_box_overlaps_itself_wholly_and_an_empty_box_nothing():
    box = torch.tensor([[3.0, 4.0, 30.0, 44.0]])
    empty = torch.zeros(1, 4)
    torch.testing.assert_close(complete_iou(box, box), torch.ones(1))
    assert iou(empty, empty).item() == 0
    assert iou(box, empty).item() == 0


def test_the_gradient_is_finite_even_between_empty_boxes():
    boxes = torch.zeros(2, 4, requires_grad=True)
    complete_iou(boxes, torch.tensor([[0.0, 0, 0, 0], [5, 5, 9, 9]])).sum().backward()
    assert boxes.grad is not None
    assert boxes.grad.isfinite().all()


def test_the_gradient_is_that_of_the_formula_with_a_constant_trade_off():
    a, b = random_boxes(4, 8).requires_grad_(), random_boxes(4, 9)
    with torch.no_grad():
        angle = [torch.atan((box[:, 2] - box[:, 0]) / (box[:, 3] - box[:, 1])) for box in (a, b)]
        ratio = 4 / math.pi**2 * (angle[0] - angle[1]) ** 2
        trade_off = ratio / (1 - box_iou(a, b).diagonal() + ratio)

    def with_constant_trade_off(boxes):
        angle = torch.atan((boxes[:, 2] - boxes[:, 0]) / (boxes[:, 3] - boxes[:, 1]))
        other = torch.atan((b[:, 2] - b[:, 0]) / (b[:, 3] - b[:, 1]))
        return distance_box_iou(boxes, b).diagonal() - trade_off * 4 / math.pi**2 * (angle - other) ** 2

    (expected,) = torch.autograd.grad(with_constant_trade_off(a).sum(), a)
    (found,) = torch.autograd.grad(complete_iou(a, b).sum(), a)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-8)
