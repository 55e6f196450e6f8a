import numpy as np
import pytest

from visiontrain.predict.parts import Frame, Picture, SourceImage, stem_of

IMAGE = np.zeros((4, 4, 3), np.uint8)


@pytest.mark.parametrize(
    ("path", "frame", "stem"),
    [
        ("a/b/cells.tar.png", None, "cells.tar"),
        ("image0", None, "image0"),
        ("a/street.mp4", Frame(12, 25.0), "street_frame_12"),
        ("camera0", Frame(1, 30.0, is_live=True), "camera0_frame_1"),
    ],
)
def test_files_are_named_after_the_image_or_the_video_and_its_frame(path, frame, stem):
    assert stem_of(path, frame) == stem


def test_only_a_frame_of_a_camera_is_live():
    assert not SourceImage("a", IMAGE).is_live
    assert not SourceImage("a", IMAGE, Frame(1, 30.0)).is_live
    assert SourceImage("a", IMAGE, Frame(1, 30.0, is_live=True)).is_live


def test_a_picture_is_read_when_its_turn_comes():
    read = []
    picture = Picture("a", lambda: read.append("a") or IMAGE)
    stream = picture.images(print)
    assert read == []
    assert [image.path for image in stream] == read == ["a"]
