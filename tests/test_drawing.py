"""Boxes and names are drawn into a copy, inside the image, readable on any class color."""

import numpy as np
import pytest
import torch

from visiontrain.drawing import class_color, draw_boxes, draw_lines, draw_text, label_text, text_color

NAMES = ("cell", "Plättchen", "细胞")


def gray(height: int = 120, width: int = 160) -> np.ndarray:
    return np.full((height, width, 3), 128, np.uint8)


def test_the_image_given_is_not_written_into():
    image = gray()
    drawn = draw_boxes(image, [[10, 20, 60, 90]], [0], NAMES)
    assert (image == 128).all()
    assert drawn.shape == image.shape
    assert drawn.dtype == np.uint8


def test_the_box_has_its_class_color_and_nothing_far_from_it_changes():
    drawn = draw_boxes(gray(), [[40, 30, 80, 90]], [3], {3: "cell"}, line_width=1, labels=False)
    assert tuple(drawn[60, 40]) == class_color(3)
    assert tuple(drawn[90, 60]) == class_color(3)
    assert (drawn[:25] == 128).all()
    assert (drawn[40:80, 50:70] == 128).all()


@pytest.mark.parametrize(
    "box", [[-20, -30, 300, 400], [155, 115, 160, 120], [0, 0, 1, 1], [float("nan"), 0, 10, float("inf")]]
)
def test_boxes_at_and_beyond_the_border_are_drawn_with_their_label_inside(box):
    drawn = draw_boxes(gray(), [box], [0], ("a name that is longer than the image is wide",), [0.5])
    assert (drawn != 128).any()


def test_tensors_and_lists_draw_the_same():
    boxes, classes, scores = [[10, 10, 50, 50], [60, 60, 90, 100]], [0, 1], [0.9, 0.2]
    from_tensors = draw_boxes(gray(), torch.tensor(boxes), torch.tensor(classes), NAMES, torch.tensor(scores))
    assert (from_tensors == draw_boxes(gray(), boxes, classes, NAMES, scores)).all()


def test_the_highest_score_lies_on_top():
    boxes = [[20, 20, 100, 100]] * 2
    drawn = draw_boxes(gray(), boxes, [0, 1], NAMES, [0.9, 0.1], labels=False, line_width=3)
    assert tuple(drawn[60, 20]) == class_color(0)


def test_no_boxes_leave_the_image_as_it_is():
    assert (draw_boxes(gray(), np.zeros((0, 4)), [], NAMES, []) == 128).all()


def test_names_that_the_font_lacks_are_written_otherwise():
    assert label_text(0, NAMES) == "cell"
    assert label_text(1, NAMES, 0.5) == "Plattchen  0.50"
    assert label_text(2, NAMES) == "class 2"
    assert label_text(9, NAMES) == "9"
    assert label_text(9, {9: "x"}) == "x"


def test_text_stands_out_from_every_class_color():
    def luminance(color):
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in color)]
        return 0.0722 * linear[0] + 0.7152 * linear[1] + 0.2126 * linear[2]

    for index in range(21):
        light, dark = sorted((luminance(class_color(index)), luminance(text_color(class_color(index)))), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5  # what WCAG asks of text
    assert len({class_color(index) for index in range(21)}) == 21


def test_text_is_moved_into_the_image():
    image = gray(40, 200)
    width, height = draw_text(image, "abc", 190, 39, background=(0, 0, 0))
    assert width < 200
    assert (image[-1, -width:] == 0).all()  # the background reaches the corner, and no farther back than its width
    assert (image[: 40 - height] == 128).all()


def panel_of(drawn: np.ndarray) -> tuple[int, int]:
    """Height and width of what was written into a gray image, background included."""
    is_written = (drawn != 128).any(axis=2)
    return int(is_written.any(axis=1).sum()), int(is_written.any(axis=0).sum())


def test_lines_lie_below_each_other_in_the_upper_left_corner():
    image = gray(300, 400)
    heights = [panel_of(draw_lines(image, ["0.93  cat"] * count))[0] for count in (1, 2, 5)]
    assert heights == [heights[0], 2 * heights[0], 5 * heights[0]]
    drawn = draw_lines(image, ["0.93  cat"] * 2)
    assert (drawn[0, 0] == 0).all()
    assert (image == 128).all()
    np.testing.assert_array_equal(drawn[: heights[0]], drawn[heights[0] : 2 * heights[0]])


def test_letters_grow_with_the_image():
    small, large = (panel_of(draw_lines(gray(side, side), ["cat"]))[0] for side in (300, 1500))
    assert large > 2 * small


@pytest.mark.parametrize(("height", "width", "factor"), [(28, 28, 10), (32, 8, 8), (200, 255, 2), (1, 256, 1)])
def test_an_image_too_small_for_letters_is_enlarged_by_a_whole_factor(height, width, factor):
    image = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    drawn = draw_lines(image, ["x"])
    assert drawn.shape == (factor * height, factor * width, 3)
    last_pixel = drawn[-factor:, -factor:].reshape(-1, 3)
    np.testing.assert_array_equal(last_pixel, np.broadcast_to(image[-1, -1], last_pixel.shape))


def test_lines_without_room_are_cut_or_left_out_but_for_the_first():
    drawn = draw_lines(gray(300, 300), ["a name that is longer than the image is wide " * 3])
    assert 200 < panel_of(drawn)[1] <= 300
    line_height = panel_of(draw_lines(gray(300, 300), ["cat"]))[0]
    assert panel_of(draw_lines(gray(3 * line_height - 1, 300), ["cat"] * 5))[0] == 2 * line_height
    assert panel_of(draw_lines(gray(4, 300), ["cat"] * 5))[0] == 4


@pytest.mark.parametrize("image", [np.zeros((4, 4), np.uint8), np.zeros((4, 4, 3), np.float32)])
def test_an_image_of_another_form_is_refused(image):
    with pytest.raises(ValueError, match="should be \\(H, W, 3\\) uint8"):
        draw_boxes(image, [], [], NAMES)
    with pytest.raises(ValueError, match="should be \\(H, W, 3\\) uint8"):
        draw_lines(image, ["cat"])


def test_numbers_that_differ_are_refused():
    with pytest.raises(ValueError, match="1 boxes do not go with 2 classes"):
        draw_boxes(gray(), [[0, 0, 1, 1]], [0, 1], NAMES)
