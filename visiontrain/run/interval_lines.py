"""How sure a score is, in a line, where there are few images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from visiontrain.loggers.lines import short_name
from visiontrain.protocols import Judged


def interval_lines(metrics: Mapping[str, Any]) -> list[str]:
    """One line with the intervals of the metrics; none where there are many images, or too few to tell."""
    judged = cast(Judged, metrics)
    intervals = judged.intervals if metrics else ()
    if not intervals:
        return []
    named = ", ".join(f"{short_name(one.name)} {one}" for one in intervals)
    return [f"{100 * intervals[0].level:g} % intervals, as there are only {judged.images} images: {named}"]
