import math

import pytest
import torch
from torch.nn.functional import pad
from torchvision.ops import complete_box_iou

from visiontrain.data.collate import collate_detection
from visiontrain.losses.assign import assign
from visiontrain.losses.detection import DetectionCriterion, box_losses, distribution_focal_loss
from visiontrain.models.build import build_network
from visiontrain.models.heads import DetectionOutputs, anchor_grid, decode_boxes
from visiontrain.sample import Batch

SIZE = 64


def make_batch(counts, *, padding=0, seed=0, classes=3):
    """Images with `counts` boxes each, padded to the most of them and `padding` more."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (len(counts), 3, SIZE, SIZE), dtype=torch.uint8, generator=generator)
    most = max(counts) + padding
    boxes = torch.zeros(len(counts), most, 4)
    labels = torch.full((len(counts), most), -1, dtype=torch.int64)
    for image, count in enumerate(counts):
        corner = torch.rand(count, 2, generator=generator) * 0.6 * SIZE
        boxes[image, :count] = torch.cat([corner, corner + torch.rand(count, 2, generator=generator) * 24 + 3], dim=1)
        labels[image, :count] = torch.randint(0, classes, (count,), generator=generator)
    return as_batch(images, boxes, labels)


def as_batch(images, boxes, labels):
    count = len(images)
    return Batch(
        images=images,
        targets={"boxes": boxes, "classes": labels},
        paths=("",) * count,
        indices=tuple(range(count)),
        original_sizes=((SIZE, SIZE),) * count,
        matrices=torch.eye(3).expand(count, 3, 3),
    )


def trimmed(batch):
    """The same batch with as little padding as its own images need, as a loader would have made it."""
    most = int((batch.targets["classes"] >= 0).sum(dim=1).max())
    return as_batch(batch.images, batch.targets["boxes"][:, :most], batch.targets["classes"][:, :most])


def random_outputs(num_images, *, seed=0, classes=3, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    points, strides = anchor_grid([torch.zeros(1, 1, SIZE // s, SIZE // s, dtype=dtype) for s in (8, 16)], (8, 16))
    # Falling logits: boxes of a few strides, which overlap those of `make_batch`.
    box_logits = torch.randn(num_images, len(points), 64, generator=generator, dtype=dtype)
    box_logits = box_logits - torch.arange(16, dtype=dtype).repeat(4)
    class_logits = torch.randn(num_images, len(points), classes, generator=generator, dtype=dtype)
    return DetectionOutputs(box_logits.requires_grad_(), class_logits.requires_grad_(), points, strides)


def assigned(outputs, batch):
    return assign(
        outputs.class_logits.detach().sigmoid(),
        decode_boxes(outputs).detach(),
        outputs.anchor_points,
        outputs.strides,
        batch.targets["boxes"],
        batch.targets["classes"],
    )


@pytest.fixture(scope="module")
def network():
    """A small detector in double precision with frozen BatchNorm: what a cut of a batch must not change."""
    torch.manual_seed(0)
    return build_network("det-n", ("a", "b", "c")).double().eval()


@pytest.mark.parametrize(
    "counts",
    [(3, 3, 3, 3), (1, 12, 2, 7, 1, 0), (0, 9, 0, 0), (0, 0, 0, 0)],
    ids=["even", "skewed", "mostly empty", "empty"],
)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_cutting_a_batch_changes_neither_sums_nor_gradients(network, counts, size):
    criterion = DetectionCriterion()
    batch = make_batch(counts, padding=2)

    def run(parts):
        network.zero_grad()
        sums = [criterion(network(part.images), part) for part in parts]
        for part in sums:
            part.total.backward()
        gradient = torch.cat([parameter.grad.flatten() for parameter in network.parameters()])
        values = [torch.stack([part.total.detach() for part in sums]).sum()]
        values += [torch.stack([part.normalizer for part in sums]).sum()]
        values += [torch.stack([part.parts[name] for part in sums]).sum() for name in sorted(sums[0].parts)]
        return torch.stack(values), gradient

    whole, whole_gradient = run([batch])
    cut, cut_gradient = run([trimmed(part) for part in batch.split(size)])
    torch.testing.assert_close(cut, whole, rtol=1e-12, atol=1e-12)
    assert (cut_gradient - whole_gradient).norm() <= 1e-12 * whole_gradient.norm()
    assert whole_gradient.norm() > 0


def test_the_loss_equals_a_slow_one_over_every_anchor_point():
    outputs, batch = random_outputs(3), make_batch((4, 0, 6))
    found = DetectionCriterion(box=2.0, cls=3.0, dfl=5.0)(outputs, batch)
    boxes, scores = decode_boxes(outputs).detach(), outputs.class_logits.detach().sigmoid()
    targets = assigned(outputs, batch)
    box = cls = dfl = 0.0
    for image in range(3):
        for a in range(boxes.shape[1]):
            for c in range(3):
                p, t = scores[image, a, c].item(), targets.target_scores[image, a, c].item()
                cls -= t * math.log(p) + (1 - t) * math.log(1 - p)
            weight = targets.target_scores[image, a].sum().item()
            if not weight:
                continue
            target = targets.target_boxes[image, a]
            box += (1 - complete_box_iou(boxes[image, a][None], target[None]).item()) * weight
            point, stride = outputs.anchor_points[a], outputs.strides[a]
            sides = torch.cat([point - target[:2], target[2:] - point]) / stride
            for side, logits in zip(sides.tolist(), outputs.box_logits[image, a].detach().reshape(4, 16), strict=True):
                side = min(max(side, 0.0), 14.99)
                chance = logits.softmax(dim=0)
                low = int(side)
                entropy = (low + 1 - side) * chance[low].log() + (side - low) * chance[low + 1].log()
                dfl -= entropy.item() / 4 * weight
    expected = {"box_loss": 2 * box, "cls_loss": 3 * cls, "dfl_loss": 5 * dfl}
    assert {name: part.item() for name, part in found.parts.items()} == pytest.approx(expected, rel=1e-6)
    assert found.total.item() == pytest.approx(sum(expected.values()), rel=1e-6)
    assert found.normalizer.item() == pytest.approx(targets.target_scores.sum().item())
    assert found.normalizer.item() > 1
    assert not found.normalizer.requires_grad


@pytest.mark.parametrize("padding", [0, 4])
def test_a_batch_of_background_has_a_finite_loss_and_teaches_the_classes(padding):
    outputs = random_outputs(2)
    loss = DetectionCriterion()(outputs, make_batch((0, 0), padding=padding))
    loss.total.backward()
    assert loss.total.isfinite()
    assert (loss.normalizer.item(), loss.floor) == (0.0, 1.0)
    assert (outputs.class_logits.grad > 0).all()  # every score is to fall
    assert (outputs.box_logits.grad == 0).all()


def test_a_batch_without_images_has_sums_of_zero_that_hang_on_every_parameter(two_level_detector):
    batch = collate_detection([])
    loss = DetectionCriterion()(two_level_detector.eval()(batch.images), batch)
    assert [value.item() for value in (loss.total, loss.normalizer, *loss.parts.values())] == [0.0] * 5
    whole = DetectionCriterion()(two_level_detector(make_batch([1]).images), make_batch([1]))
    assert (list(loss.parts), loss.name) == (list(whole.parts), whole.name)
    loss.total.backward()
    assert all(param.grad is not None and not param.grad.any() for param in two_level_detector.parameters())


def test_each_gain_scales_its_part_and_no_other():
    outputs, batch = random_outputs(2), make_batch((3, 5))
    single = DetectionCriterion(box=1.0, cls=1.0, dfl=1.0)(outputs, batch).parts
    scaled = DetectionCriterion(box=2.0, cls=3.0, dfl=4.0)(outputs, batch).parts
    assert {name: (scaled[name] / single[name]).item() for name in single} == pytest.approx(
        {"box_loss": 2.0, "cls_loss": 3.0, "dfl_loss": 4.0}
    )


def test_the_loss_is_taken_in_single_precision_where_the_network_ran_in_half():
    outputs, batch = random_outputs(2, dtype=torch.float32), make_batch((3, 5))
    half = DetectionOutputs(outputs.box_logits.bfloat16(), outputs.class_logits.bfloat16(), *outputs[2:])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = DetectionCriterion()(half, batch)
    assert loss.total.dtype == loss.normalizer.dtype == torch.float32
    torch.testing.assert_close(loss.total, DetectionCriterion()(outputs, batch).total, rtol=0.02, atol=0)


def test_the_gradient_is_the_slope_of_the_loss_while_the_assignment_stands():
    outputs, batch = random_outputs(1), make_batch((4,))
    assignment = assigned(outputs, batch)

    def dfl_sum(box_logits):  # the CIoU loss has no such gradient: its trade-off is constant by definition
        return box_losses(outputs._replace(box_logits=box_logits), assignment, most=40)[1]

    assert torch.autograd.gradcheck(dfl_sum, outputs.box_logits, fast_mode=True)


@pytest.mark.parametrize("most", [50, 10_000])
def test_anchor_points_that_carry_no_box_would_not_add_anything(most, monkeypatch):
    outputs, batch = random_outputs(2), make_batch((3, 5))
    assignment = assigned(outputs, batch)
    as_many_as_carry_one = box_losses(outputs, assignment, most=most)
    monkeypatch.setattr("visiontrain.losses.detection.answers_at_once", lambda device: False)
    torch.testing.assert_close(box_losses(outputs, assignment, most=most), as_many_as_carry_one, rtol=1e-12, atol=0)


def test_distribution_focal_loss_is_least_where_the_bins_share_the_distance_by_nearness():
    chance = torch.full((16,), 1e-9, dtype=torch.float64)
    chance[3], chance[4] = 0.3, 0.7
    distance = torch.tensor(3.7, dtype=torch.float64)
    best = distribution_focal_loss(chance.log(), distance)
    assert best.item() == pytest.approx(-(0.3 * math.log(0.3) + 0.7 * math.log(0.7)))
    other = chance.clone()
    other[3], other[4] = 0.4, 0.6
    assert distribution_focal_loss(other.log(), distance) > best


@pytest.mark.parametrize(("distance", "bin_"), [(-3.0, 0), (0.0, 0), (40.0, 15)])
def test_distances_that_the_bins_cannot_express_count_as_the_nearest_they_can(distance, bin_):
    loss = distribution_focal_loss(
        torch.eye(16, dtype=torch.float64)[bin_].clamp(min=1e-12).log(), torch.tensor(distance)
    )
    assert loss.item() < 0.3


def test_padding_does_not_change_the_loss():
    outputs, batch = random_outputs(2), make_batch((3, 5))
    boxes, labels = batch.targets["boxes"], batch.targets["classes"]
    more = as_batch(batch.images, pad(boxes, (0, 0, 0, 90)), pad(labels, (0, 90), value=-1))
    criterion = DetectionCriterion()
    torch.testing.assert_close(criterion(outputs, more).total, criterion(outputs, batch).total, rtol=1e-12, atol=0)


@pytest.mark.slow
def test_a_detector_learns_a_handful_of_boxes_by_heart():
    torch.manual_seed(0)
    network = build_network("det-n", ("a", "b", "c"))
    batch = make_batch((2, 1))
    criterion = DetectionCriterion()
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3)
    means = []
    for _ in range(30):
        loss = criterion(network(batch.images), batch)
        mean = loss.total / loss.normalizer.clamp(min=loss.floor)
        optimizer.zero_grad()
        mean.backward()
        optimizer.step()
        means.append(mean.item())
    assert means[-1] < 0.4 * means[0]
