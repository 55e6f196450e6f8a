import numpy as np
import pytest
import torch

from visiontrain.predict.boxes import Boxes, find_boxes

DATA = torch.tensor([[4.0, 6.0, 24.0, 16.0, 0.9, 0.0], [0.0, 0.0, 64.0, 48.0, 0.8, 1.0], [8, 8, 9, 9, 0.25, 0]])


def decoded(boxes):
    count = len(boxes)
    return {"boxes": torch.tensor(boxes), "scores": torch.full((count,), 0.5), "classes": torch.arange(count)}


def test_boxes_are_given_in_every_form():
    boxes = Boxes(DATA, (48, 64))
    assert (len(boxes), boxes.shape, boxes.id) == (3, (3, 6), None)
    torch.testing.assert_close(boxes.xyxy[0], torch.tensor([4.0, 6, 24, 16]))
    torch.testing.assert_close(boxes.xywh[0], torch.tensor([14.0, 11, 20, 10]))
    torch.testing.assert_close(boxes.xyxyn[0], torch.tensor([4 / 64, 6 / 48, 24 / 64, 16 / 48]))
    torch.testing.assert_close(boxes.xywhn[0], torch.tensor([14 / 64, 11 / 48, 20 / 64, 10 / 48]))
    torch.testing.assert_close(boxes.conf, torch.tensor([0.9, 0.8, 0.25]))
    assert boxes.cls.tolist() == [0, 1, 0]


def test_boxes_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"\(3, 4\); they should be \(N, 6\)"):
        Boxes(torch.zeros(3, 4), (8, 8))


def test_boxes_of_the_network_go_back_to_the_source_image():
    matrix = np.array([[0.5, 0, 3], [0, 0.5, 7], [0, 0, 1]], np.float32)
    boxes = find_boxes(decoded([[4.0, 8, 13, 17]]), matrix, (30, 40))
    torch.testing.assert_close(boxes.data, torch.tensor([[2.0, 2, 20, 20, 0.5, 0]]))
    assert boxes.orig_shape == (30, 40)


def test_boxes_are_cut_at_the_image_and_left_out_where_nothing_is_left():
    boxes = find_boxes(decoded([[-5.0, -5, 50, 20], [41, 0, 60, 10], [10, 5, 10, 9]]), np.eye(3), (30, 40))
    assert boxes.xyxy.tolist() == [[0, 0, 40, 20]]
    assert boxes.cls.tolist() == [0]
