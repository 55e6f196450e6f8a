"""What tests of pages and pictures share."""

from __future__ import annotations

from html.parser import HTMLParser

import cv2
import numpy as np
import pytest


class Checker(HTMLParser):
    """Follows the tags, and gathers what would be fetched or run."""

    void = frozenset({"meta", "img", "br", "line", "input"})

    def __init__(self):
        super().__init__()
        self.open, self.fetched, self.tags, self.ids, self.text = [], [], [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        for name, value in attributes:
            assert not name.startswith("on"), name
            if name in ("src", "href", "data", "srcset", "action"):
                self.fetched.append(value)
            if name == "id":
                self.ids.append(value)
        if tag not in self.void:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture
def checked():
    """A function that reads a page; it fails where tags are not closed, or something would run by itself."""

    def check(text):
        checker = Checker()
        checker.feed(text)
        assert checker.open == []
        return checker

    return check


@pytest.fixture
def review_document():
    """A function that makes the document of a detector's scores on images of 100 × 80 pixels."""

    def document(num_classes=3, *, names=None, paths=("a.jpg", "b.jpg"), **changed):
        names = names or [f"class {index}" for index in range(num_classes)]
        count, thresholds = len(names), np.linspace(0, 1, 21)
        falling = np.linspace(1, 0, 11).tolist()
        shot = {
            "width": 100,
            "height": 80,
            "truth": [[10, 10, 30, 30, 0], [50, 10, 70, 30, 0], [10, 50, 30, 70, count - 1]],
            "ignored": [],
            "crowds": [],
            "found": [
                [10, 10, 30, 30, 0.9, 0],  # a hit
                [80, 50, 95, 70, 0.8, 0],  # a false alarm
                [50, 10, 70, 31, 0.6, count - 1],  # another class
                [10, 50, 30, 70, 0.2, count - 1],  # a hit, below the threshold
            ],
            "misses": 1,
            "false_alarms": 1,
            "wrong_classes": 1,
        }
        return {
            "task": "detect",
            "split": "val",
            "images": 7,
            "instances": 21,
            "names": names,
            "threshold": 0.5,
            "num_capped": 0,
            "summary": {"metrics/mAP50(B)": 0.75, "metrics/mAP50-95(B)": 0.5},
            "intervals": {"metrics/mAP50-95(B)": [0.4, 0.6]},
            "columns": ["images", "precision"],
            "rows": [
                {"name": name, "images": 10 + place, "precision": None if place == 1 else 0.9 - place / 100}
                for place, name in enumerate(names)
            ],
            "curves": {
                "recall": np.linspace(0, 1, 11).tolist(),
                "precision": [None if place == 1 else falling for place in range(count)],
                "thresholds": thresholds.tolist(),
                "f1": [
                    None if place == 1 else (4 * thresholds * (1 - thresholds) * (1 - place / 100)).tolist()
                    for place in range(count)
                ],
            },
            "confusion": {"threshold": 0.5, "counts": (np.eye(count + 1, dtype=int) * 5 + 1).tolist()},
            "errors": [{"kind": "missed", "says": "nothing there", "count": 3, "gain": 0.125}],
            "gallery": [{"path": str(path), **shot} for path in paths],
            **changed,
        }

    return document


@pytest.fixture
def read_picture():
    """A function that decodes a picture, BGR."""

    def read(path):
        picture = cv2.imdecode(np.frombuffer(path.read_bytes(), np.uint8), cv2.IMREAD_COLOR)
        assert picture is not None
        return picture

    return read
