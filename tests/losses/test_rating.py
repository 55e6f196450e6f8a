"""Rating only the pairs inside against rating them all, and the pairs inside against a loop."""

import pytest
import torch

from visiontrain.losses.rating import (
    OUTSIDE,
    Boxes,
    Points,
    is_inside,
    pairs_inside,
    rate_all,
    rate_inside,
    with_places,
)
from visiontrain.models.heads import anchor_grid

SIZE, STRIDES = 64, (8, 16, 32)
CLASSES = 3


def grid(dtype=torch.float64):
    xy, strides = anchor_grid([torch.zeros(1, 1, SIZE // s, SIZE // s, dtype=dtype) for s in STRIDES], STRIDES)
    return with_places(Points(xy, strides.amin()))


def case(seed, *, dtype=torch.float64, images=3, boxes=5):
    """Boxes of all sizes with padding, and predictions near the anchor points."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape):
        return torch.rand(*shape, generator=generator, dtype=dtype)

    points = grid(dtype)
    count = len(points.xy)
    corner = uniform(images, boxes, 2) * SIZE
    xyxy = torch.cat([corner, (corner + uniform(images, boxes, 2) ** 3 * SIZE).clamp(max=SIZE)], dim=-1)
    is_real = uniform(images, boxes) < 0.7
    rows = torch.randint(0, CLASSES, (images, boxes), generator=generator) + CLASSES * torch.arange(images)[:, None]
    reach = uniform(images, count, 4) * 12
    pred_boxes = torch.cat([points.xy - reach[..., :2], points.xy + reach[..., 2:]], dim=-1)
    return Boxes(xyxy, is_real, rows), points, pred_boxes, uniform(images * CLASSES, count)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("seed", range(10))
def test_rating_the_pairs_inside_gives_what_rating_all_gives(seed, dtype):
    arguments = case(seed, dtype=dtype)
    every, few = rate_all(*arguments, alpha=0.5, beta=6.0), rate_inside(*arguments, alpha=0.5, beta=6.0)
    torch.testing.assert_close(few.metric, every.metric)
    is_rated = every.metric >= 0
    assert is_rated.any()
    torch.testing.assert_close(few.overlaps[is_rated], every.overlaps[is_rated])


@pytest.mark.parametrize("rate", [rate_all, rate_inside])
def test_the_scores_that_ratings_are_made_of_stay_as_they_are(rate):
    arguments = case(0)
    before = [tensor.clone() for tensor in arguments[2:]]
    rate(*arguments, alpha=0.5, beta=6.0)
    assert all(torch.equal(a, b) for a, b in zip(arguments[2:], before, strict=True))


@pytest.mark.parametrize("rate", [rate_all, rate_inside])
def test_padding_has_no_anchor_point(rate):
    boxes, *rest = case(0)
    rating = rate(boxes._replace(is_real=torch.zeros_like(boxes.is_real)), *rest, alpha=0.5, beta=6.0)
    assert (rating.metric == OUTSIDE).all()


@pytest.mark.parametrize("seed", range(5))
def test_pairs_are_of_real_boxes_and_the_points_inside_them(seed):
    boxes, points, *_ = case(seed)
    expected = []
    for box, (corners, is_real) in enumerate(zip(boxes.xyxy.flatten(0, 1), boxes.is_real.flatten(), strict=True)):
        (x1, y1, x2, y2), least = corners.tolist(), points.least_size.item()
        half_x, half_y = max(x2 - x1, least) / 2, max(y2 - y1, least) / 2
        for point, (x, y) in enumerate(points.xy.tolist()):
            if is_real and abs(x - (x1 + x2) / 2) <= half_x and abs(y - (y1 + y2) / 2) <= half_y:
                expected.append((box, point))
    assert sorted(zip(*(index.tolist() for index in pairs_inside(boxes, points)), strict=True)) == expected


def test_a_point_on_the_edge_is_inside_by_either_way():
    points = grid()
    box = torch.tensor([[[4.0, 12.0, 20.0, 28.0]]], dtype=torch.float64)  # its corners are cell centers of stride 8
    boxes = Boxes(box, torch.ones(1, 1, dtype=torch.bool), torch.zeros(1, 1, dtype=torch.int64))
    _, found = pairs_inside(boxes, points)
    assert torch.equal(found, is_inside(points.xy, box, points.least_size).flatten().nonzero().squeeze(1))
    assert {(4.0, 12.0), (20.0, 28.0)} <= {tuple(point) for point in points.xy[found].tolist()}
