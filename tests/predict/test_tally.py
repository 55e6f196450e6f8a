import numpy as np
import pytest
import torch

from visiontrain.predict import tally as module
from visiontrain.predict.boxes import Boxes
from visiontrain.predict.parts import Frame
from visiontrain.predict.probs import Probs
from visiontrain.predict.results import Results
from visiontrain.predict.tally import Tally

NAMES = {0: "car", 1: "dog"}


def results_of(path, classes=(), *, number=None, is_live=False, probs=None, inference=4.0):
    rows = torch.tensor([[0.0, 0, 4, 4, 0.5, index] for index in classes]).reshape(-1, 6)
    return Results(
        np.zeros((8, 8, 3), np.uint8),
        path=path,
        names=NAMES,
        boxes=Boxes(rows, (8, 8)) if probs is None else None,
        probs=None if probs is None else Probs(torch.tensor(probs), (8, 8)),
        speed={"preprocess": 1.0, "inference": inference, "postprocess": 0.5},
        frame=None if number is None else Frame(number, 10.0, is_live),
    )


def told(tally, *results):
    return [line for one in results for line in tally.add(one)] + tally.close()


def test_each_picture_has_a_line_and_the_last_one_is_of_their_speed():
    lines = told(Tally(2), results_of("a.png", [0, 0, 1]), results_of("b.png", inference=8.0))
    assert lines == [
        "1/2 a.png: 2 car, 1 dog (4 ms)",
        "2/2 b.png: no detections (8 ms)",
        "speed of an image: 1.0 ms preprocess, 6.0 ms inference, 0.5 ms postprocess (2 images)",
    ]


def test_a_video_has_one_line_once_it_is_through():
    frames = [results_of("v.avi", [0], number=number) for number in (1, 3, 5)]
    tally = Tally(3)
    assert [tally.add(one) for one in (results_of("a.png"), *frames)][1:] == [[], [], []]
    assert told(tally, results_of("b.png"))[:2] == [
        "2/3 v.avi: 3 frames, 3 car (4 ms each)",
        "3/3 b.png: no detections (4 ms)",
    ]


@pytest.mark.parametrize("second", ["v.avi", "w.avi"])
def test_videos_that_follow_each_other_are_told_apart_even_if_they_are_one(second):
    frames = [results_of(path, [1], number=number) for path in ("v.avi", second) for number in (1, 2)]
    assert told(Tally(2), *frames)[:2] == [
        "1/2 v.avi: 2 frames, 2 dog (4 ms each)",
        f"2/2 {second}: 2 frames, 2 dog (4 ms each)",
    ]


def test_a_video_in_which_nothing_is_found_is_told_too():
    assert told(Tally(1), results_of("v.avi", number=1))[0] == "1/1 v.avi: 1 frame, nothing found (4 ms each)"


def test_frames_of_a_classifier_count_by_their_best_class():
    frames = [
        results_of("v.avi", number=index + 1, probs=probs) for index, probs in enumerate([[0.9, 0.1], [0.2, 0.8]])
    ]
    assert told(Tally(1), *frames)[0] == "1/1 v.avi: 2 frames, 1 car, 1 dog (4 ms each)"


def test_a_long_video_is_told_of_in_between(monkeypatch):
    monkeypatch.setattr(module, "EVERY_FRAMES", 2)
    lines = told(Tally(1), *(results_of("v.avi", [0], number=number) for number in (1, 2, 3)))
    assert lines[:2] == [
        "1/1 v.avi: 2 frames, 2 car (4 ms each) so far",
        "1/1 v.avi: 3 frames, 3 car (4 ms each)",
    ]


def test_each_frame_of_a_camera_has_a_line_at_once():
    tally = Tally(1)
    frames = [results_of("camera0", [1], number=number, is_live=True) for number in (1, 2)]
    assert [tally.add(one) for one in frames] == [
        ["camera0 frame 1: 1 dog (4 ms)"],
        ["camera0 frame 2: 1 dog (4 ms)"],
    ]
    assert tally.close()[0] == "1/1 camera0: 2 frames, 2 dog (4 ms each)"


def test_without_any_image_nothing_is_told():
    assert Tally(1).close() == []
