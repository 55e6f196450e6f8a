"""What went wrong in each image, and the images in the order in which they are worth looking at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from visiontrain.metrics.pairing import Pairing


@dataclass(frozen=True)
class ImageOutcome:
    """The errors in one image at the score threshold of the table."""

    misses: int
    """Boxes, or labels, that nothing was found for."""
    false_alarms: int
    """Detections, or classes, that stand for nothing."""
    wrong_classes: int
    """Boxes, or labels, taken for another class."""

    @property
    def num_errors(self) -> int:
        """All together; 0 for an image that is right."""
        return self.misses + self.false_alarms + self.wrong_classes


def outcome_of(pairing: Pairing) -> ImageOutcome:
    """Count what is left over in a pairing."""
    num_wrong = int(pairing.is_taken_for_another.sum())
    return ImageOutcome(
        misses=len(pairing.truth.classes) - int(pairing.is_found.sum()) - num_wrong,
        false_alarms=len(pairing.hits) - int(pairing.is_hit.sum()) - num_wrong,
        wrong_classes=num_wrong,
    )


def worst_first(outcomes: Sequence[ImageOutcome]) -> list[int]:
    """The places of the images, most errors first; of equal ones, more misses first, then the earlier image."""
    return sorted(range(len(outcomes)), key=lambda place: (-outcomes[place].num_errors, -outcomes[place].misses))
