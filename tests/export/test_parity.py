"""The gate: what is within rounding passes, and what is planted does not."""

from __future__ import annotations

import pytest
import torch

from visiontrain.export.parity import ROUNDING, TOLERANCE, compare_detections, compare_runs
from visiontrain.models.build import build_network
from visiontrain.models.classifiers import build_classifier
from visiontrain.tasks import TASKS

NAMES = ("red", "green", "blue")


def images(*, size=64, count=4):
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=generator)


def run_of(network):
    finish = TASKS[network.task].finish

    @torch.inference_mode()
    def run(batch):
        return finish(network, network(batch))

    return run


@pytest.fixture
def detector(two_level_detector, write_weights):
    write_weights(two_level_detector)  # gives it statistics
    return two_level_detector


@pytest.fixture
def classifier(write_weights):
    network = build_classifier("squeezenet1_1", NAMES)
    write_weights(network)
    return network


def passed(differences):
    return {difference.output: difference.is_passed for difference in differences}


def test_the_same_program_passes(detector, classifier):
    for network in (detector, classifier):
        differences = compare_runs(run_of(network), run_of(network), [images()])
        assert all(difference.is_passed and difference.largest == 0 for difference in differences)
        assert not any(difference.is_blind for difference in differences)


def test_what_rounding_does_passes_and_what_it_does_not_fails(detector):
    reference = run_of(detector)

    def scaled(by):
        return lambda batch: {name: value * by for name, value in reference(batch).items()}

    assert all(passed(compare_runs(reference, scaled(1 + 1e-6), [images()])).values())
    assert not any(passed(compare_runs(reference, scaled(1 + 2 * TOLERANCE), [images()])).values())


def test_swapped_channels_are_caught(detector, classifier):
    for network in (detector, classifier):
        run = run_of(network)
        assert not any(passed(compare_runs(run, lambda batch, run=run: run(batch.flip(1)), [images()])).values())


def test_missing_normalization_is_caught(detector, classifier):
    def in_bytes(network):
        return lambda batch: TASKS[network.task].finish(network, network(batch.float()))

    def as_it_comes(network):  # in [0, 1], and not by mean and deviation
        return lambda batch: TASKS[network.task].finish(network, network.network(batch.float() / 255))

    for network, planted in ((detector, in_bytes), (classifier, in_bytes), (classifier, as_it_comes)):
        with torch.inference_mode():
            assert not any(passed(compare_runs(run_of(network), planted(network), [images()])).values())


def test_another_order_of_strides_is_caught(detector):
    reference = run_of(detector)
    fine = (64 // 8) ** 2  # anchor points of the finer level

    def reordered(batch):
        return {name: torch.cat([value[:, fine:], value[:, :fine]], 1) for name, value in reference(batch).items()}

    assert passed(compare_runs(reference, reordered, [images()])) == {"boxes": False, "scores": False}


def test_swapped_strides_are_caught(detector):
    reference = run_of(detector)
    other = detector.layers[-1]

    @torch.inference_mode()
    def swapped(batch):
        strides, other.strides = other.strides, other.strides[::-1]
        try:
            return TASKS["detect"].finish(detector, detector(batch))
        finally:
            other.strides = strides

    assert not passed(compare_runs(reference, swapped, [images()]))["boxes"]


@pytest.mark.parametrize("planted", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite_fails(detector, planted):
    reference = run_of(detector)

    def broken(batch):
        outputs = {name: value.clone() for name, value in reference(batch).items()}
        outputs["boxes"][0, 0, 0] = planted
        return outputs

    assert passed(compare_runs(reference, broken, [images()])) == {"boxes": False, "scores": True}


def test_an_output_that_is_missing_or_of_another_shape_fails(detector):
    reference = run_of(detector)
    assert not any(passed(compare_runs(reference, lambda batch: {}, [images()])).values())
    assert not any(passed(compare_runs(reference, lambda batch: reference(batch[:1]), [images()])).values())


def test_where_colors_hardly_matter_less_is_allowed_and_blindness_is_told():
    """Untrained statistics leave hardly anything of an image in the outputs."""
    network = build_network(
        {"task": "detect", "layers": [[-1, 1, "Conv", [8, 3, 8]], [[0], 1, "Detect", [4]]]}, NAMES
    ).eval()
    with torch.no_grad():
        for parameter in network.layers[0].parameters():
            parameter *= 1e-6
    differences = compare_runs(run_of(network), run_of(network), [images()])
    assert all(difference.is_blind and difference.limit == ROUNDING for difference in differences)


def detections(boxes, scores, classes):
    return {
        "boxes": torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4),
        "scores": torch.tensor(scores, dtype=torch.float32),
        "classes": torch.tensor(classes, dtype=torch.int64),
    }


BOXES = [[0, 0, 10, 10], [20, 20, 40, 40]]


@pytest.mark.parametrize(
    ("rows", "is_same"),
    [
        ([[0, 0, 10, 10, 0.9, 0], [20, 20, 40, 40, 0.6, 1]], True),
        ([[20, 20, 40, 40, 0.6, 1], [0, 0, 10, 10, 0.9, 0]], True),  # equal scores may come in either order
        ([[0, 0, 10, 10, 0.9, 0]], False),  # one is missing
        ([[0, 0, 10, 10, 0.9, 0], [20, 20, 40, 40, 0.6, 1], [50, 50, 60, 60, 0.7, 1]], False),  # one too many
        ([[0, 0, 10, 10, 0.9, 0], [20, 20, 40, 40, 0.6, 0]], False),  # another class
        ([[0, 0, 10, 10, 0.9, 0], [20, 20, 41, 40, 0.6, 1]], False),
        ([[0, 0, 10, 10, 0.9, 0], [20, 20, 40, 40, 0.61, 1]], False),
        ([[0, 0, 10, 10, 0.9, 0], [20, 20, 40, 40, 0.6, 1], [5, 5, 9, 9, 0.25, 1]], True),  # at the threshold
    ],
)
def test_detections_are_compared_with_the_nearest_of_the_other_side(rows, is_same):
    found = torch.zeros(1, 5, 6)
    found[0, : len(rows)] = torch.tensor(rows)
    expected = [detections(BOXES, [0.9, 0.6], [0, 1])]
    assert compare_detections(expected, found, batch=1, conf=0.25, imgsz=64).is_passed == is_same


def test_no_detections_on_either_side_is_the_same_but_tells_nothing():
    difference = compare_detections([detections([], [], [])], torch.zeros(1, 5, 6), batch=1, conf=0.25, imgsz=64)
    assert difference.is_passed
    assert difference.is_blind
