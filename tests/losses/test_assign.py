"""The assignment against a slow one that walks over images, boxes and anchor points in plain Python."""

import pytest
import torch
from torchvision.ops import complete_box_iou

from visiontrain.losses.assign import assign
from visiontrain.losses.rating import is_inside
from visiontrain.models.heads import anchor_grid

TOPK, ALPHA, BETA = 3, 0.5, 6.0


def grid(size=32, strides=(8, 16), dtype=torch.float64):
    return anchor_grid([torch.zeros(1, 1, size // s, size // s, dtype=dtype) for s in strides], strides)


def case(seed, *, images=2, boxes=4, classes=3, size=32):
    """Random predictions near random boxes, with padding."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape):
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    points, strides = grid(size)
    corner = uniform(images, boxes, 2) * size * 0.7
    gt_boxes = torch.cat([corner, corner + uniform(images, boxes, 2) * size * 0.6 + 1], dim=-1).clamp(max=size)
    gt_classes = torch.randint(0, classes, (images, boxes), generator=generator)
    for image in range(images):
        count = int(torch.randint(0, boxes + 1, (), generator=generator))
        gt_classes[image, count:] = -1
        gt_boxes[image, count:] = 0
    reach = uniform(images, len(points), 4) * 12
    pred_boxes = torch.cat([points - reach[..., :2], points + reach[..., 2:]], dim=-1)
    return uniform(images, len(points), classes), pred_boxes, points, strides, gt_boxes, gt_classes


def slow_assign(scores, pred_boxes, points, strides, gt_boxes, gt_classes):
    """Target scores, and the box of each anchor point or None."""
    target_scores, owners = torch.zeros_like(scores), []
    least = strides.min().item()
    for image in range(len(scores)):
        boxes = [n for n, label in enumerate(gt_classes[image].tolist()) if label >= 0]
        claims = {}
        overlap, metric = {}, {}
        for n in boxes:
            x1, y1, x2, y2 = gt_boxes[image, n].tolist()
            half_x, half_y = max(x2 - x1, least) / 2, max(y2 - y1, least) / 2
            inside = [
                a
                for a, (x, y) in enumerate(points.tolist())
                if abs(x - (x1 + x2) / 2) <= half_x and abs(y - (y1 + y2) / 2) <= half_y
            ]
            for a in inside:
                pair = complete_box_iou(gt_boxes[image, n : n + 1], pred_boxes[image, a : a + 1]).item()
                overlap[n, a] = max(0.0, pair)
                metric[n, a] = scores[image, a, gt_classes[image, n]].item() ** ALPHA * overlap[n, a] ** BETA
            for a in sorted(inside, key=lambda a: -metric[n, a])[:TOPK]:
                claims.setdefault(a, []).append(n)
        owner = {a: max(claimants, key=lambda n: overlap[n, a]) for a, claimants in claims.items()}
        for n in boxes:
            owned = [a for a, owning in owner.items() if owning == n]
            best_metric = max((metric[n, a] for a in owned), default=0.0)
            best_overlap = max((overlap[n, a] for a in owned), default=0.0)
            for a in owned:
                if best_metric > 0:
                    target_scores[image, a, gt_classes[image, n]] = metric[n, a] / best_metric * best_overlap
        owners.append([owner.get(a) for a in range(len(points))])
    return target_scores, owners


@pytest.fixture(params=["processor", "accelerator"])
def way(request, monkeypatch):
    """The two ways in which boxes and anchor points are searched; the second is a GPU's, walked on a processor."""
    monkeypatch.setattr("visiontrain.losses.assign.answers_at_once", lambda device: request.param == "processor")


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.usefixtures("way")
def test_the_assignment_equals_a_slow_loop(seed):
    arguments = case(seed)
    found = assign(*arguments, topk=TOPK, alpha=ALPHA, beta=BETA)
    target_scores, owners = slow_assign(*arguments)
    torch.testing.assert_close(found.target_scores, target_scores, rtol=1e-5, atol=1e-7)
    carries = target_scores.sum(dim=-1) > 0
    for image, owner in enumerate(owners):
        for a in carries[image].nonzero().flatten().tolist():
            assert found.foreground[image, a]
            assert found.gt_index[image, a] == owner[a]
            assert torch.equal(found.target_boxes[image, a], arguments[4][image, owner[a]])


@pytest.mark.parametrize("most", [1, 21, 100, 10_000])
@pytest.mark.usefixtures("way")
def test_the_pieces_in_which_pairs_are_looked_at_change_nothing(most, monkeypatch):
    arguments = case(0, images=3, boxes=5)
    whole = assign(*arguments, topk=TOPK)
    monkeypatch.setattr("visiontrain.losses.assign.MOST_PAIRS", most)
    assert all(torch.equal(a, b) for a, b in zip(assign(*arguments, topk=TOPK), whole, strict=True))


def test_an_anchor_point_between_equal_boxes_stays_with_the_first():
    points, strides = grid()
    box = torch.tensor([[[2.0, 2.0, 22.0, 22.0]]], dtype=torch.float64).expand(1, 3, 4)
    pred_boxes = torch.cat([points - 8, points + 8], dim=-1)[None]
    scores = torch.full((1, len(points), 1), 0.5, dtype=torch.float64)
    found = assign(scores, pred_boxes, points, strides, box, torch.zeros(1, 3, dtype=torch.int64))
    assert found.foreground.any()
    assert found.gt_index.max() == 0


@pytest.mark.parametrize("seed", range(5))
def test_a_box_takes_anchor_points_inside_it_and_at_most_topk(seed):
    scores, pred_boxes, points, strides, gt_boxes, gt_classes = case(seed)
    found = assign(scores, pred_boxes, points, strides, gt_boxes, gt_classes, topk=TOPK)
    inside = is_inside(points, gt_boxes, strides.amin())
    own = inside.gather(1, found.gt_index[:, None]).squeeze(1)
    assert own[found.foreground].all()
    assert (gt_classes.gather(1, found.gt_index)[found.foreground] >= 0).all()
    for image in range(len(scores)):
        counts = found.gt_index[image][found.foreground[image]].bincount(minlength=1)
        assert counts.max() <= TOPK


@pytest.mark.usefixtures("way")
def test_padding_changes_nothing():
    scores, pred_boxes, points, strides, gt_boxes, gt_classes = case(0)
    more_boxes = torch.nn.functional.pad(gt_boxes, (0, 0, 0, 5))
    more_classes = torch.nn.functional.pad(gt_classes, (0, 5), value=-1)
    found = assign(scores, pred_boxes, points, strides, gt_boxes, gt_classes)
    padded = assign(scores, pred_boxes, points, strides, more_boxes, more_classes)
    assert all(torch.equal(a, b) for a, b in zip(found, padded, strict=True))


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("boxes", [0, 3])
def test_images_without_boxes_have_no_foreground_and_no_score(boxes):
    scores, pred_boxes, points, strides, *_ = case(0)
    found = assign(
        scores, pred_boxes, points, strides, torch.zeros(2, boxes, 4), torch.full((2, boxes), -1, dtype=torch.int64)
    )
    assert not found.foreground.any()
    assert found.target_scores.sum() == 0
    assert found.target_scores.shape == scores.shape
    assert found.target_boxes.shape == pred_boxes.shape


@pytest.mark.parametrize("corner", [(0.0, 0.0), (7.9, 7.9), (15.0, 3.0), (30.0, 30.0), (8.0, 16.0)])
def test_a_box_smaller_than_a_cell_has_an_anchor_point_wherever_it_lies(corner):
    points, strides = grid()
    box = torch.tensor([[[*corner, corner[0] + 2, corner[1] + 1]]], dtype=torch.float64)
    pred_boxes = torch.cat([points - 4, points + 4], dim=-1)[None]
    scores = torch.full((1, len(points), 1), 0.01, dtype=torch.float64)
    found = assign(scores, pred_boxes, points, strides, box, torch.zeros(1, 1, dtype=torch.int64))
    assert found.foreground.any()


@pytest.mark.usefixtures("way")
def test_a_box_that_no_prediction_overlaps_still_owns_the_points_inside_it():
    points, strides = grid()
    far = torch.full((1, len(points), 4), 1000.0, dtype=torch.float64) + torch.tensor([0.0, 0, 1, 1])
    scores = torch.full((1, len(points), 1), 0.5, dtype=torch.float64)
    box = torch.tensor([[[2.0, 2.0, 22.0, 22.0]]], dtype=torch.float64)
    found = assign(scores, far, points, strides, box, torch.zeros(1, 1, dtype=torch.int64), topk=4)
    assert found.foreground.sum() == 4
    assert is_inside(points, box, strides.amin())[0, 0][found.foreground[0]].all()
    assert found.target_scores.sum() == 0


def test_targets_have_no_gradient_and_keep_double_precision():
    scores, pred_boxes, *rest = case(0)
    found = assign(scores.requires_grad_(), pred_boxes.requires_grad_(), *rest)
    assert not found.target_scores.requires_grad
    assert found.target_scores.dtype == torch.float64
