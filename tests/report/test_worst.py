"""The worst images are drawn with what is wrong in them."""

from __future__ import annotations

import numpy as np
import pytest

from visiontrain.report.review import read_review
from visiontrain.report.worst import MOST_TILES, TILE, draw_worst, verdicts

GREY = np.full((80, 100, 3), 128, np.uint8)


@pytest.fixture
def reviewed(review_document):
    return lambda **changed: read_review(review_document(**changed))[0]


def test_each_box_is_drawn_by_what_became_of_it(reviewed):
    review = reviewed()
    told = [(verdict.text, verdict.is_dashed) for verdict in verdicts(review.gallery[0], 0.5, review.names)]
    assert told == [
        ("", False),  # a hit
        ("class 0  0.80", False),
        ("class 2  0.60, is class 0", False),
        ("class 2", True),  # missed: its detection scores less than 0.5
    ]
    assert [verdict.text for verdict in verdicts(review.gallery[0], 0.1, review.names)].count("") == 2


def test_what_need_not_be_found_is_neither_missed_nor_a_false_alarm(reviewed, review_document):
    shot = review_document()["gallery"][0]
    shot = {
        **shot,
        "truth": [],
        "ignored": shot["truth"][:1],
        "crowds": [[78, 48, 100, 80, 0]],
        "found": shot["found"][:2],
    }
    review = reviewed(gallery=[shot])
    assert list(verdicts(review.gallery[0], 0.5, review.names)) == []


def test_boxes_lie_where_they_are_in_the_tile(reviewed, tmp_path, read_picture):
    path = tmp_path / "schlimm ü.jpg"
    assert draw_worst(reviewed(paths=["a.jpg"]), lambda *_: GREY, path)
    picture = read_picture(path)
    top = picture.shape[0] - TILE - 24 - 6 + (TILE - TILE * 80 // 100) // 2  # of the image in its tile
    x, y = 6 + 80 * TILE // 100, top + 60 * TILE // 100  # the left edge of the false alarm
    blue, _, red = picture[y, x].astype(int)
    assert red > 180
    assert blue < 80
    assert abs(picture[y, x + 20].astype(int) - 128).max() < 30


def test_unreadable_images_have_a_stand_in_and_no_more_than_asked_for_are_drawn(reviewed, tmp_path, read_picture):
    path = tmp_path / "a.jpg"
    asked = []
    assert draw_worst(reviewed(paths=["x.jpg"] * 20), lambda name, side: asked.append(side), path)
    assert asked == [TILE] * MOST_TILES
    assert read_picture(path).shape[1] == 4 * (TILE + 6) + 6


def test_without_errors_nothing_is_drawn(reviewed, tmp_path):
    assert not draw_worst(reviewed(gallery=[]), lambda *_: GREY, tmp_path / "a.jpg")
    assert list(tmp_path.iterdir()) == []


def test_a_classifiers_images_have_what_they_are_and_were_taken_for(reviewed, tmp_path, read_picture):
    shot = {"path": "größe.jpg", "width": 9, "height": 9, "labels": ["Kätzchen"], "probs": [["dog", 0.75]]}
    assert draw_worst(reviewed(gallery=[shot]), lambda *_: GREY, tmp_path / "a.jpg")
    assert read_picture(tmp_path / "a.jpg").shape[:2] == (TILE + 24 + 12, TILE + 12)
