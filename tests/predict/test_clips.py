import contextlib
import os
import subprocess
import sys
import textwrap

import cv2
import numpy as np
import pytest

from visiontrain.errors import DataError
from visiontrain.predict.clips import FFMPEG_LOG_LEVEL, VIDEO_FPS, Clip, open_capture

FRAMES = [np.full((24, 32, 3), value, np.uint8) for value in range(0, 200, 20)]  # ten, each of one gray


def open_quietly(address):
    return open_capture(address, quiet=contextlib.nullcontext())


def walk(clip):
    messages = []
    return list(clip.images(messages.append)), messages


@pytest.mark.parametrize("stride", [1, 2, 3, 9, 10, 99])
def test_every_so_manieth_frame_of_a_video_is_read_from_the_first(stride, tmp_path, write_video):
    path = str(write_video(tmp_path / "ü clip.avi", FRAMES, fps=20.0))
    images, messages = walk(Clip(path, path, open_quietly, stride))
    assert [image.frame.number for image in images] == list(range(1, 11, stride))
    assert {image.path for image in images} == {path}
    assert {image.frame.fps for image in images} == {20 / stride}
    for image in images:
        assert np.abs(image.image.astype(int) - FRAMES[image.frame.number - 1]).max() <= 2  # JPEG
    assert messages == []


def test_a_video_whose_name_looks_like_a_pattern_is_a_video(tmp_path, write_video):
    path = str(write_video(tmp_path / "a.avi", FRAMES).rename(tmp_path / "a%02d.avi"))
    assert len(walk(Clip(path, path, open_quietly))[0]) == 10


def test_frames_are_rgb(tmp_path, write_video):
    blue = np.zeros((24, 32, 3), np.uint8)
    blue[..., 0] = 255  # BGR
    path = str(write_video(tmp_path / "a.avi", [blue]))
    (image,), _ = walk(Clip(path, path, open_quietly))
    assert image.image[12, 16, 2] > 240
    assert image.image[12, 16, 0] < 15


def test_frames_that_are_passed_over_are_not_decoded(fake_capture):
    capture = fake_capture(FRAMES)
    walk(Clip("a", "a", lambda address: capture, 4))
    assert (capture.num_grabbed, capture.num_decoded) == (11, 3)


def test_frames_are_read_when_their_turn_comes_and_the_file_is_closed_with_the_walk(fake_capture):
    capture = fake_capture(FRAMES)
    stream = Clip("a", "a", lambda address: capture).images(print)
    next(stream)
    assert (capture.num_grabbed, capture.is_released) == (1, False)
    stream.close()
    assert capture.is_released


def test_a_walk_to_the_end_closes_the_file_too_and_a_second_one_opens_it_anew(fake_capture):
    captures = []

    def open_fake(address):
        captures.append(fake_capture(FRAMES))
        return captures[-1]

    clip = Clip("a", "a", open_fake)
    assert len(walk(clip)[0]) == len(walk(clip)[0]) == 10
    assert [capture.is_released for capture in captures] == [True, True]


@pytest.mark.parametrize("told", [0.0, -1.0, float("nan"), 90_000.0])
def test_a_rate_that_is_none_is_taken_for_thirty_frames_a_second(told, fake_capture):
    images, _ = walk(Clip("a", "a", lambda address: fake_capture(FRAMES, fps=told), 2))
    assert images[0].frame.fps == VIDEO_FPS / 2


@pytest.mark.parametrize(("announced", "is_told"), [(-1, False), (0, False), (10, False), (10.5, False), (20, True)])
def test_a_video_that_ends_long_before_its_announced_end_is_told(announced, is_told, fake_capture):
    images, messages = walk(Clip("a.avi", "a.avi", lambda address: fake_capture(FRAMES, announced=announced)))
    assert len(images) == 10
    assert messages == (
        [f"a.avi: ends after 10 of {announced} frames; it is cut short or damaged there"] if is_told else []
    )


def test_a_frame_that_cannot_be_decoded_ends_the_video(fake_capture):
    images, messages = walk(Clip("a", "a", lambda address: fake_capture([*FRAMES[:3], None, *FRAMES], announced=14)))
    assert len(images) == 3
    assert messages == ["a: ends after 3 of 14 frames; it is cut short or damaged there"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"is_opened": False}, r"a\.mp4: the video cannot be opened: it is damaged, or of a kind"),
        ({"is_opened": True}, r"a\.mp4: the video gives no frame: it is damaged, or of a kind"),
    ],
)
def test_a_video_without_a_frame_is_refused_and_closed(options, message, fake_capture):
    capture = fake_capture([], **options)
    with pytest.raises(DataError, match=message):
        walk(Clip("a.mp4", "a.mp4", lambda address: capture))
    assert capture.is_released


def test_a_camera_that_does_not_answer_is_told_by_its_number(fake_capture):
    with pytest.raises(DataError, match="camera7: the camera cannot be opened; they count from 0"):
        walk(Clip("camera7", 7, lambda address: fake_capture([], is_opened=False)))


def test_a_camera_whose_frames_end_is_told(fake_capture):
    images, messages = walk(Clip("camera0", 0, lambda address: fake_capture(FRAMES[:2])))
    assert [image.is_live for image in images] == [True, True]
    assert messages == ["camera0: gives no more frames after 2"]


@pytest.mark.parametrize("before", [None, "16"])
def test_the_environment_is_as_before_once_a_video_is_open(before, tmp_path, monkeypatch):
    if before is None:
        monkeypatch.delenv(FFMPEG_LOG_LEVEL, raising=False)
    else:
        monkeypatch.setenv(FFMPEG_LOG_LEVEL, before)
    assert not open_quietly(str(tmp_path / "none.mp4")).isOpened()
    assert os.environ.get(FFMPEG_LOG_LEVEL) == before


@pytest.mark.slow
def test_broken_videos_and_missing_cameras_leave_nothing_on_the_terminal(tmp_path, write_video, repository):
    noise = np.random.default_rng(0).integers(0, 256, (10, 96, 128, 3), dtype=np.uint8)
    content = write_video(tmp_path / "a.avi", list(noise)).read_bytes()
    (tmp_path / "cut.avi").write_bytes(content[: len(content) * 2 // 3])
    (tmp_path / "torn.avi").write_bytes(content[:2000])  # within its header
    (tmp_path / "broken.mp4").write_bytes(b"no video at all" * 100)
    program = textwrap.dedent("""
        import sys
        from visiontrain.data.decoders import QUIET_OPENCV
        from visiontrain.predict.clips import Clip, open_capture
        from visiontrain.errors import DataError
        for address in (*sys.argv[1:], 97):
            clip = Clip(str(address), address, lambda one: open_capture(one, quiet=QUIET_OPENCV))
            try:
                print(len(list(clip.images(lambda message: None))))
            except DataError as error:
                print("refused")
    """)
    words = [sys.executable, "-c", program, *(str(tmp_path / name) for name in ("broken.mp4", "torn.avi", "cut.avi"))]
    done = subprocess.run(words, cwd=repository, capture_output=True, text=True, check=True)
    broken, torn, num_frames, no_camera = done.stdout.split()
    assert ({broken, torn, no_camera}, done.stderr) == ({"refused"}, "")
    assert 1 <= int(num_frames) < 10


def test_opencv_itself_counts_the_frames_that_are_written(tmp_path, write_video):
    capture = cv2.VideoCapture(str(write_video(tmp_path / "a.avi", FRAMES)))
    assert capture.get(cv2.CAP_PROP_FRAME_COUNT) == 10
    capture.release()
