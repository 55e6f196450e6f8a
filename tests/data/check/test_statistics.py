from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visiontrain.data.check.statistics import AREA_EDGES, Histogram, split_statistics, statistics_document
from visiontrain.sample import Record, Records


def record(boxes, classes, *, height=100, width=100):
    return Record(Path("1.png"), height, width, np.array(boxes, np.float32).reshape(-1, 4), np.array(classes, np.int64))


@pytest.fixture
def detection():
    return Records(
        [
            record([(0, 0, 0.1, 0.1), (0, 0, 0.5, 0.5), (0, 0, 1, 1)], [0, 0, 1]),
            record([], [], width=200),
            record([(0, 0, 0.5, 0.25)], [0], width=200),
        ]
    )


def test_images_labels_and_classes_are_counted(detection):
    found = split_statistics(detection, 3, imgsz=100)
    assert (found.images, found.background, found.labels, found.most_labels) == (3, 1, 4, 3)
    assert found.class_labels == (3, 1, 0)
    assert found.class_images == (2, 1, 0)
    assert found.mean_labels == pytest.approx(4 / 3)
    assert found.imbalance == 3
    assert dict(found.sizes) == {(200, 100): 2, (100, 100): 1}


def test_boxes_are_small_medium_or_large_at_the_size_of_the_network(detection):
    def sizes(imgsz):
        boxes = split_statistics(detection, 3, imgsz=imgsz).boxes
        return boxes.small, boxes.medium, boxes.large

    assert sizes(100) == (2, 1, 1)  # 10 × 10, 50 × 50, 100 × 100, and 50 × 12.5
    assert sizes(20) == (4, 0, 0)
    assert sizes(1000) == (0, 0, 4)


def test_shapes_are_those_of_pixels_and_areas_those_of_the_image(detection):
    boxes = split_statistics(detection, 3, imgsz=100).boxes
    assert dict(zip(boxes.ratios.edges, boxes.ratios.counts, strict=False))[1 / 1.25] == 3  # the squares
    assert boxes.ratios.counts[-2] == 1  # 100 × 25 pixels
    assert dict(zip(boxes.areas.edges, boxes.areas.counts, strict=False))[0.3] == 1  # the whole image


@given(st.lists(st.floats(0, 1), max_size=50))
def test_every_value_is_in_one_bin_of_a_histogram(values):
    histogram = Histogram.of(np.array(values), AREA_EDGES)
    expected, _ = np.histogram(values, AREA_EDGES)
    assert list(histogram.counts) == expected.tolist()


def test_values_beyond_the_edges_are_in_the_outer_bins():
    assert Histogram.of(np.array([-1.0, 5.0]), (0.0, 1.0, 2.0)).counts == (1, 1)


def test_labels_without_boxes_are_counted_as_well():
    found = split_statistics(Records([record([], [2]), record([], [2, 0])]), 3, imgsz=100)
    assert found.boxes is None
    assert found.class_labels == (1, 0, 2)
    assert statistics_document(found, ("a", "b", "c"))["classes"]["c"] == {"images": 2, "labels": 2}


def test_a_split_without_images_or_labels_has_statistics():
    assert split_statistics(Records([]), 2, imgsz=100).imbalance is None
    assert split_statistics(Records([record([], [])]), 2, imgsz=100).class_labels == (0, 0)


def test_the_document_is_plain(detection):
    document = statistics_document(split_statistics(detection, 3, imgsz=100), ("a", "b", "c"))
    assert json.loads(json.dumps(document))["boxes"]["small"] == 2
    assert document["image_sizes"][0] == {"width": 200, "height": 100, "images": 2}
