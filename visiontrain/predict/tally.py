"""Tell what was found: a line for each picture and for each video, and how long an image took on average."""

from __future__ import annotations

from collections import Counter

from visiontrain.predict.boxes import told_counts
from visiontrain.predict.results import Results

EVERY_FRAMES = 1000
"""A long video is told of in between, after so many frames of it."""


class Tally:
    """Counts results as they come, and gives the lines that are due."""

    def __init__(self, num_parts: int) -> None:
        """
        Args:
            num_parts: Pictures, videos and cameras that are to come.
        """
        self._num_parts = num_parts
        self._part = 0
        self._clip: _ClipTally | None = None
        self._num_images = 0
        self._milliseconds: dict[str, float] = {}

    def add(self, results: Results) -> list[str]:
        """Count one image's results, and give the lines that are due."""
        self._num_images += 1
        for stage, milliseconds in results.speed.items():
            self._milliseconds[stage] = self._milliseconds.get(stage, 0.0) + milliseconds
        lines = self._end_clip() if self._clip is not None and not self._clip.goes_on_with(results) else []
        if self._clip is None:
            self._part += 1
        if results.frame is None:
            return [*lines, f"{self._place()} {results.path}: {results.verbose()} ({_inference_ms(results):.0f} ms)"]
        self._clip = self._clip or _ClipTally(results.path, results.names)
        self._clip.add(results)
        if results.frame.is_live:
            what = f"{results.path} frame {results.frame.number}: {results.verbose()}"
            return [*lines, f"{what} ({_inference_ms(results):.0f} ms)"]
        if self._clip.num_frames % EVERY_FRAMES == 0:
            lines.append(f"{self._place()} {self._clip.told()} so far")
        return lines

    def close(self) -> list[str]:
        """The lines that are due at the end."""
        lines = self._end_clip()
        if self._num_images:
            means = ", ".join(f"{ms / self._num_images:.1f} ms {stage}" for stage, ms in self._milliseconds.items())
            images = "1 image" if self._num_images == 1 else f"{self._num_images} images"
            lines.append(f"speed of an image: {means} ({images})")
        return lines

    def _end_clip(self) -> list[str]:
        clip, self._clip = self._clip, None
        return [] if clip is None else [f"{self._place()} {clip.told()}"]

    def _place(self) -> str:
        return f"{self._part}/{self._num_parts}"


class _ClipTally:
    """What was found in the frames of one video."""

    def __init__(self, path: str, names: dict[int, str]) -> None:
        self.num_frames = 0
        self._path = path
        self._names = names
        self._counts: Counter[int] = Counter()
        self._inference_ms = 0.0

    def goes_on_with(self, results: Results) -> bool:
        return results.frame is not None and results.frame.number > 1 and results.path == self._path

    def add(self, results: Results) -> None:
        self.num_frames += 1
        self._counts += results.tally()
        self._inference_ms += _inference_ms(results)

    def told(self) -> str:
        frames = "1 frame" if self.num_frames == 1 else f"{self.num_frames} frames"
        found = told_counts(self._counts, self._names) or "nothing found"
        return f"{self._path}: {frames}, {found} ({self._inference_ms / self.num_frames:.0f} ms each)"


def _inference_ms(results: Results) -> float:
    return results.speed["inference"]
