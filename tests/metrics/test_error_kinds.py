"""Each false alarm is of one kind, and a gain is what the mended detections score more."""

from __future__ import annotations

import numpy as np
import pytest

from visiontrain.metrics.detections import Detections, Truth
from visiontrain.metrics.error_kinds import error_kinds_of

KINDS = ("class", "location", "both", "duplicate", "background", "missed")
ROOM = 40  # pixels between the objects of a row


def box(place, *, shift=0.0):
    """An object of 20 × 20 pixels, or one of its size beside it."""
    return [place * ROOM + shift, 0, place * ROOM + shift + 20, 20]


def truth_of(classes):
    plain = np.zeros(len(classes), bool)
    boxes = np.array([box(place) for place in range(len(classes))], float).reshape(-1, 4)
    return Truth(boxes, np.array(classes, np.int64), plain, plain, np.full(len(classes), 400.0))


def found_of(rows):
    """Rows of box, score and class, in any order."""
    rows = sorted(rows, key=lambda row: -row[1])
    columns = list(zip(*rows, strict=True)) or [[], [], []]
    return Detections(
        np.array(columns[0], float).reshape(-1, 4), np.array(columns[1], float), np.array(columns[2], np.int64)
    )


LOCATION = 9  # pixels to the side: an overlap of 0.38
HITS = [(box(0), 0.6, 0), (box(1), 0.5, 1)]
PLANTED = {
    "class": (box(2), 0.9, 1),
    "location": (box(2, shift=LOCATION), 0.9, 0),
    "both": (box(2, shift=LOCATION), 0.9, 1),
    "duplicate": (box(0, shift=1), 0.55, 0),
    "background": (box(9), 0.9, 0),
}


@pytest.mark.parametrize("kind", PLANTED)
def test_one_planted_error_is_of_its_kind_alone(kind):
    truth, row = truth_of([0, 1, 0]), PLANTED[kind]
    kinds = error_kinds_of([truth], {0: found_of([*HITS, row])}, threshold=0.3, num_classes=2).kinds
    counts = {one.kind: one.per_class for one in kinds}
    assert tuple(counts) == KINDS
    label = row[2]
    assert counts[kind] == tuple(int(index == label) for index in range(2))
    covers_the_third_box = kind in ("class", "location")
    assert counts["missed"] == ((0, 0) if covers_the_third_box else (1, 0))
    assert all(sum(counts[other]) == 0 for other in KINDS if other not in (kind, "missed"))


@pytest.mark.parametrize("kind", PLANTED)
def test_the_gain_of_a_planted_error_is_what_the_mended_detections_score_more(kind, measure):
    truth, row = truth_of([0, 1, 0]), PLANTED[kind]
    mended = {"class": [(row[0], row[1], 0)], "location": [(box(2), row[1], 0)]}.get(kind, [])
    errors = error_kinds_of([truth], {0: found_of([*HITS, row])}, threshold=0.3, num_classes=2)
    gains = {one.kind: one.gain for one in errors.kinds}
    before, after = (
        measure([truth], {0: found_of([*HITS, *rows])}, names=("a", "b")).box.map50 for rows in ([row], mended)
    )
    assert gains[kind] == pytest.approx(after - before, abs=1e-12)
    assert gains[kind] > 0 or kind == "duplicate"  # a duplicate behind all hits costs nothing


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["both", "duplicate", "background"])
def test_the_gain_of_taking_errors_away_is_what_the_rest_scores_more(random_split, measure, seed, kind):
    """A detection alone in its image tells of which kind it is, where no better one is there to hit first."""
    truth, detections = random_split(seed)
    metrics = measure(truth, detections)
    kept = {}
    for place, found in detections.items():
        is_kept = [not is_of_kind(kind, truth[place], found, index) for index in range(len(found.scores))]
        kept[place] = Detections(found.boxes[is_kept], found.scores[is_kept], found.classes[is_kept])
    gain = next(one.gain for one in metrics.errors.kinds if one.kind == kind)
    assert gain == pytest.approx(measure(truth, kept).box.map50 - metrics.box.map50, abs=1e-12)


def is_of_kind(kind, truth, found, index):
    """A slow second reading of the table: how one more detection changes the counts of those before it."""
    counts = []
    for stop in (index, index + 1):
        part = Detections(found.boxes[:stop], found.scores[:stop], found.classes[:stop])
        kinds = error_kinds_of([truth], {0: part}, threshold=0, num_classes=4).kinds
        counts.append(next(one.count for one in kinds if one.kind == kind))
    return counts[1] > counts[0]


@pytest.mark.parametrize("seed", range(6))
def test_the_kinds_of_false_alarms_add_up_to_those_of_the_confusion_matrix(random_split, measure, seed):
    metrics = measure(*random_split(seed))
    counts = metrics.confusion.counts
    false_alarms = np.array([one.per_class for one in metrics.errors.kinds if one.kind != "missed"]).sum(axis=0)
    assert false_alarms.tolist() == (counts[:, :-1].sum(axis=0) - counts.diagonal()[:-1]).tolist()
    assert metrics.errors.threshold == metrics.best_threshold


def test_missed_boxes_are_mended_by_not_asking_for_them():
    truth, found = truth_of([0, 0, 0, 1]), found_of([(box(0), 0.9, 0)])
    missed = error_kinds_of([truth], {0: found}, threshold=0.3, num_classes=2).kinds[-1]
    assert missed.per_class == (2, 1)
    # Of class a one of three was found: 34 of 101 recall points. Of class b nothing is asked any more.
    assert missed.gain == pytest.approx(1 - (34 / 101) / 2)


def test_of_several_wrong_ones_on_a_box_mending_makes_the_best_a_hit_and_takes_the_others_away(measure):
    truth = truth_of([0])
    rows = [(box(0), 0.8, 1), (box(0), 0.7, 1), (box(9), 0.6, 0)]
    errors = error_kinds_of([truth], {0: found_of(rows)}, threshold=0.3, num_classes=2)
    assert {one.kind: one.count for one in errors.kinds if one.count} == {"class": 2, "background": 1}
    assert errors.kinds[0].gain == 1


def test_a_wrong_class_on_a_box_that_is_hit_is_mended_by_taking_it_away(measure):
    truth, hit, wrong, other = truth_of([0, 0, 1]), (box(0), 0.8, 0), (box(0), 0.9, 1), (box(2), 0.5, 1)
    errors = error_kinds_of([truth], {0: found_of([hit, wrong, other])}, threshold=0.3, num_classes=2)
    before, after = (
        measure([truth], {0: found_of(rows)}, names=("a", "b")).box.map50
        for rows in ([hit, wrong, other], [hit, other])
    )
    assert errors.kinds[0].gain == pytest.approx(after - before, abs=1e-12)
    assert after - before == pytest.approx(0.25)  # of class b; the second box of class a stays missed


def test_detections_below_the_threshold_are_not_counted_but_weigh_in_the_gain():
    truth = truth_of([0])
    kinds = error_kinds_of(
        [truth], {0: found_of([(box(9), 0.2, 0), (box(0), 0.1, 0)])}, threshold=0.15, num_classes=1
    ).kinds
    counts = {one.kind: one.count for one in kinds}
    assert (counts["background"], counts["missed"]) == (1, 1)
    assert {one.kind: one.gain for one in kinds}["background"] == pytest.approx(0.5)
    assert {one.kind: one.gain for one in kinds}["missed"] == 0  # below the threshold it is found


def test_a_detection_beyond_the_100_best_of_a_class_weighs_nothing():
    rows = [(box(9), 0.9, 0)] * 150 + [(box(0), 0.5, 0)]
    kinds = error_kinds_of([truth_of([0])], {0: found_of(rows)}, threshold=0.1, num_classes=1).kinds
    assert {one.kind: one.count for one in kinds}["background"] == 150
    assert all(one.gain == 0 for one in kinds if one.kind not in ("missed", "background"))


@pytest.mark.parametrize("found", [{}, {0: [(box(9), 0.9, 0)]}])
def test_without_boxes_gains_are_not_available(found):
    kinds = error_kinds_of([truth_of([])], {k: found_of(v) for k, v in found.items()}, threshold=0, num_classes=2).kinds
    assert sum(one.count for one in kinds) == len(found)
    assert all(np.isnan(one.gain) for one in kinds)


def test_the_document_is_plain(random_split, measure):
    document = measure(*random_split(0)).errors.document()
    assert [one["kind"] for one in document] == list(KINDS)
    assert all(one["count"] == sum(one["per_class"]) and type(one["gain"]) is float for one in document)
