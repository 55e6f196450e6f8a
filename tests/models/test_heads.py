import pytest
import torch

from visiontrain.models.heads import Classify, Detect, DetectionOutputs, anchor_grid, boxes_around, decode_boxes


def features(*sizes, channels=(8, 16), dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    pairs = zip(channels, sizes, strict=True)
    return [torch.randn(2, count, *size, generator=generator, dtype=dtype) for count, size in pairs]


def test_anchor_points_are_the_centers_of_cells_row_by_row_and_level_by_level():
    points, strides = anchor_grid([torch.zeros(1, 1, 2, 3), torch.zeros(1, 1, 1, 1)], (8, 16))
    expected = [[4, 4], [12, 4], [20, 4], [4, 12], [12, 12], [20, 12], [8, 8]]
    assert points.tolist() == expected
    assert strides.flatten().tolist() == [8] * 6 + [16]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_anchor_points_never_have_less_than_single_precision(dtype):
    points, strides = anchor_grid([torch.zeros(1, 1, 80, 80, dtype=dtype)], (8,))
    assert points.dtype == strides.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert points[-1].tolist() == [636, 636]


def test_logits_and_anchor_points_of_a_cell_stand_at_the_same_place():
    head = Detect((8, 16), (8, 16), num_classes=3).eval()
    levels = features((2, 3), (1, 2))
    outputs = head(*levels)
    single = head.class_branches[0](levels[0])[:, :, 1, 2]  # row 1, column 2
    place = 1 * 3 + 2
    torch.testing.assert_close(outputs.class_logits[:, place], single)
    assert outputs.anchor_points[place].tolist() == [20, 12]
    assert outputs.box_logits.shape == (2, 8, 64)


def test_a_box_reaches_the_expected_distance_to_each_side():
    probabilities = torch.zeros(4, 16)
    probabilities[0, 2] = 1  # left: 2 strides
    probabilities[1, 3] = probabilities[1, 4] = 0.5  # top: 3.5
    probabilities[2, 0] = 1  # right: 0
    probabilities[3, 15] = 1  # bottom: 15
    outputs = DetectionOutputs(
        box_logits=probabilities.clamp(min=1e-30).log().reshape(1, 1, 64),
        class_logits=torch.zeros(1, 1, 1),
        anchor_points=torch.tensor([[100.0, 200.0]]),
        strides=torch.tensor([[8.0]]),
    )
    expected = torch.tensor([[[100 - 16, 200 - 28, 100, 200 + 120]]], dtype=torch.float32)
    torch.testing.assert_close(decode_boxes(outputs), expected)


@pytest.mark.parametrize("is_autocast", [True, False])
@pytest.mark.parametrize(("dtype", "decoded"), [(torch.bfloat16, torch.float32), (torch.float64, torch.float64)])
def test_boxes_are_decoded_in_single_precision_or_better(dtype, decoded, is_autocast):
    logits = torch.randn(1, 2, 64, generator=torch.Generator().manual_seed(0)).to(dtype)
    outputs = DetectionOutputs(logits, torch.zeros(1, 2, 1, dtype=dtype), torch.zeros(2, 2), torch.ones(2, 1))
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_autocast):
        boxes = decode_boxes(outputs)
    assert boxes.dtype == decoded
    exact = decode_boxes(outputs._replace(box_logits=logits.double()))
    torch.testing.assert_close(boxes.double(), exact, rtol=1e-5, atol=0)


def test_boxes_around_points_have_the_distances_they_were_made_of():
    boxes = boxes_around(torch.tensor([[10.0, 20.0]]), torch.tensor([[1.0, 2.0, 3.0, 4.0]]))
    assert boxes.tolist() == [[9, 18, 13, 24]]


def test_at_first_a_head_expects_few_objects_of_a_few_strides():
    torch.manual_seed(0)
    head = Detect((8, 16), (8, 32), num_classes=10).eval()
    outputs = head(*features((8, 8), (2, 2)))
    mean = outputs.class_logits[:, :64].sigmoid().mean().item()
    assert mean == pytest.approx(5 / 10 / 80**2, rel=0.2)
    size = (decode_boxes(outputs)[..., 2:] - decode_boxes(outputs)[..., :2]) / outputs.strides
    assert 3.5 < size.mean() < 4.5


def test_a_classifier_looks_at_the_mean_over_the_map_whatever_its_size():
    torch.manual_seed(0)
    head = Classify(8, 3, hidden_channels=16).eval()
    (level,) = features((2, 3), channels=(8,))
    logits = head(level)
    assert logits.shape == (2, 3)
    torch.testing.assert_close(head(level.repeat(1, 1, 2, 2)), logits)
    torch.testing.assert_close(head(level.flip(2, 3)), logits)


def test_the_dropout_of_a_classifier_acts_in_training_only():
    head = Classify(8, 3, hidden_channels=64, dropout=0.5)
    (level,) = features((2, 3), channels=(8,))
    head.hidden.eval()
    assert not torch.equal(head(level), head(level))
    assert torch.equal(head.eval()(level), head(level))
