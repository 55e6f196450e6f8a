"""The box that a line of a label file means, for drawing what a reader dropped or clipped."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from visiontrain.data.formats.yolo_labels import hull_of, is_shape


def box_of_row(file: str, line: int | None) -> tuple[float, float, float, float] | None:
    """What a row of the YOLO text form says, unclipped: xyxy in fractions of the image.

    Args:
        file: The label file.
        line: In it, from 1.

    Returns:
        None where there is no such row, or it says nothing that can be drawn.
    """
    if line is None or Path(file).suffix.lower() != ".txt":
        return None
    try:
        with Path(file).open(encoding="utf-8", errors="replace") as rows:
            row = next(islice(rows, line - 1, None), "")
        numbers = [float(field) for field in row.split()[1:]]
    except (OSError, ValueError):
        return None
    if not is_shape(len(numbers)):
        return None
    box = hull_of(numbers)
    return box if all(abs(side) < float("inf") for side in box) else None
