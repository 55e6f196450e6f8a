"""Write what was found in many images into one folder, each under a name of its own; videos become videos."""

from __future__ import annotations

from pathlib import Path

from visiontrain.predict.files import free_stem, write_image
from visiontrain.predict.parts import Frame, stem_of
from visiontrain.predict.results import Results
from visiontrain.predict.video_file import VideoFile

_LABELS = "labels"
_VIDEO_SUFFIX = ".mp4"


class ResultWriter:
    """Writes results into a run's folder: pictures, texts in `labels/`, cut-outs in `crops/<class>/`.

    A picture and its text share a name. The frames of a video become one video, and texts and cut-outs of their own,
    such as `street_frame_12.txt`. Nothing that is there is overwritten: equal names, from different folders or an
    earlier run, get `_2`, `_3` and so on. The last video is whole once the writer is closed.
    """

    def __init__(
        self,
        folder: Path,
        *,
        save: bool = True,
        save_txt: bool = False,
        save_crop: bool = False,
        save_conf: bool = False,
        show_labels: bool = True,
        line_width: int | None = None,
    ) -> None:
        """Set what is written.

        Args:
            folder: The run's folder; it is made when something is written.
            save: Whether to write the pictures with what was found drawn in.
            save_txt: Whether to write texts: label files, or the best classes of a classification.
            save_crop: Whether to write each detection cut out; refused for classifications.
            save_conf: Whether label files hold the scores; a classification's texts do anyway.
            show_labels: Whether names and scores are drawn.
            line_width: Of the boxes drawn, pixels; by default it grows with the image. Refused for classifications.
        """
        self._folder = folder
        self._save = save
        self._save_txt = save_txt
        self._save_crop = save_crop
        self._save_conf = save_conf
        self._show_labels = show_labels
        self._line_width = line_width
        self._clip = ""
        self._clip_stem = ""
        self._video: VideoFile | None = None

    def write(self, results: Results) -> list[Path]:
        """Write one image's results; returns the files written.

        Raises:
            ConfigError: If cut-outs or a width of lines are asked for and this is a classification.
        """
        labels = self._folder / _LABELS
        stem = self._stem_of(results)
        written = []
        if self._save:
            written.append(self._draw(results, stem))
        if self._save_txt:
            written.append(results.save_txt(labels / f"{stem}.txt", save_conf=self._save_conf))
        if self._save_crop:
            written += results.save_crop(self._folder / "crops", stem)
        return written

    def close(self) -> None:
        """Finish the video that is being written, if any."""
        if self._video is not None:
            self._video.close()
        self._video, self._clip = None, ""

    def _stem_of(self, results: Results) -> str:
        """A name that is free for the image's picture and text."""
        labels = self._folder / _LABELS
        if results.frame is None:
            self.close()
            return free_stem(stem_of(results.path), [(self._folder, ".jpg"), (labels, ".txt")])
        if results.path != self._clip or results.frame.number == 1:
            self._begin(results.path, results.frame)
        return free_stem(stem_of(self._clip_stem, results.frame), [(labels, ".txt")])

    def _begin(self, path: str, frame: Frame) -> None:
        self.close()
        self._clip, self._clip_stem = path, free_stem(stem_of(path), [(self._folder, _VIDEO_SUFFIX)])
        if self._save:
            self._video = VideoFile(self._folder / f"{self._clip_stem}{_VIDEO_SUFFIX}", fps=frame.fps)

    def _draw(self, results: Results, stem: str) -> Path:
        drawn = results.plot(labels=self._show_labels, line_width=self._line_width)
        if self._video is not None:
            self._video.add(drawn)
            return self._video.path
        picture = self._folder / f"{stem}.jpg"
        write_image(picture, drawn)
        return picture
