"""Box geometry: a warped box is the hull of its warped corners."""

import numpy as np

from visiontrain.boxes import clip_boxes, warp_boxes

NONE = np.zeros((0, 4), np.float32)


def random_boxes(count=20, size=100.0):
    rng = np.random.default_rng(0)
    corners = rng.uniform(0, size, (count, 2, 2))
    return np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1).astype(np.float32)


def test_dtype_is_kept_and_no_boxes_stay_no_boxes():
    assert clip_boxes(random_boxes(), 3, 4).dtype == np.float32
    assert clip_boxes(NONE, 3, 4).shape == (0, 4)


def test_shifting_and_scaling_moves_the_corners():
    matrix = np.array([[2.0, 0, 10], [0, 3, -5], [0, 0, 1]])
    np.testing.assert_allclose(warp_boxes(np.array([[1.0, 2, 3, 4]], np.float32), matrix), [[12, 1, 16, 7]])


def test_a_box_turned_by_a_quarter_has_its_sides_exchanged():
    matrix = np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])
    np.testing.assert_allclose(warp_boxes(np.array([[1.0, 2, 4, 8]], np.float32), matrix), [[-8, 1, -2, 4]])


def test_a_warped_box_is_the_hull_of_its_corners_under_perspective():
    matrix = np.array([[1.1, 0.2, 3], [-0.1, 0.9, 4], [1e-3, 2e-3, 1]])
    boxes = random_boxes()
    expected = []
    for x1, y1, x2, y2 in boxes.astype(np.float64):
        points = []
        for x, y in ((x1, y1), (x2, y1), (x2, y2), (x1, y2)):
            u, v, w = matrix @ (x, y, 1)
            points.append((u / w, v / w))
        xs, ys = zip(*points, strict=True)
        expected.append((min(xs), min(ys), max(xs), max(ys)))
    warped = warp_boxes(boxes, matrix)
    assert warped.dtype == np.float32
    np.testing.assert_allclose(warped, expected, rtol=1e-5)


def test_warping_no_boxes_gives_no_boxes():
    assert warp_boxes(NONE, np.eye(3)).shape == (0, 4)


def test_clipping_keeps_boxes_inside_and_leaves_its_argument_alone():
    boxes = np.array([[-1.0, -2, 300, 3], [1, 2, 3, 4]], np.float32)
    before = boxes.copy()
    np.testing.assert_array_equal(clip_boxes(boxes, 200, 100), [[0, 0, 200, 3], [1, 2, 3, 4]])
    np.testing.assert_array_equal(boxes, before)
