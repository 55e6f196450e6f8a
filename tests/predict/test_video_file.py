import cv2
import numpy as np
import pytest

from visiontrain.errors import ConfigError
from visiontrain.predict.video_file import VideoFile


def read_back(path):
    capture = cv2.VideoCapture(str(path))
    frames = []
    while (read := capture.read())[0]:
        frames.append(read[1])
    fps = capture.get(cv2.CAP_PROP_FPS)
    capture.release()
    return frames, fps


@pytest.mark.parametrize(("height", "width"), [(48, 64), (96, 128)])
def test_frames_come_back_in_order_at_their_rate(height, width, tmp_path):
    video = VideoFile(tmp_path / "new" / "ü.mp4", fps=12.5)
    for value in range(0, 250, 50):
        video.add(np.full((height, width, 3), value, np.uint8))
    video.close()
    frames, fps = read_back(video.path)
    assert (fps, frames[0].shape) == (12.5, (height, width, 3))
    assert [round(float(frame.mean()) / 50) for frame in frames] == [0, 1, 2, 3, 4]


def test_nothing_is_made_before_the_first_frame(tmp_path):
    video = VideoFile(tmp_path / "new" / "a.mp4", fps=10.0)
    video.close()
    assert list(tmp_path.iterdir()) == []


def test_a_frame_of_another_size_is_not_dropped_in_silence(tmp_path):
    video = VideoFile(tmp_path / "a.mp4", fps=10.0)
    video.add(np.zeros((48, 64, 3), np.uint8))
    with pytest.raises(AssertionError, match="another size"):
        video.add(np.zeros((64, 48, 3), np.uint8))
    video.close()


def test_where_videos_cannot_be_written_the_message_tells_what_to_do(tmp_path, monkeypatch):
    class Closed:
        fourcc = staticmethod(cv2.VideoWriter.fourcc)

        def __init__(self, *arguments):
            pass

        def isOpened(self):
            return False

    monkeypatch.setattr(cv2, "VideoWriter", Closed)
    with pytest.raises(ConfigError, match=r"a\.mp4: this OpenCV cannot write mp4v videos of 64 × 48; use save=False"):
        VideoFile(tmp_path / "a.mp4", fps=10.0).add(np.zeros((48, 64, 3), np.uint8))
