"""What detections are taken for: boxes of the ground truth by class and by what stands on them.

The diagonal holds the hits of the table: precision, recall and F1 worked out from the matrix are those of the table at
the same score threshold. Letters: C classes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from visiontrain.metrics.pairing import MATCH_IOU, Pairing

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Confusion:
    """Counts of one split at one score threshold."""

    counts: Ints
    """(C + 1, C + 1) rows: the class of the box, and last the background, for detections on no box; columns: the class
    of the detection, and last the boxes that nothing was found on."""
    threshold: float
    """The score from which a detection counts."""
    names: tuple[str, ...]
    iou: float = MATCH_IOU
    """The overlap from which a detection is on a box."""

    @property
    def precision(self) -> Floats:
        """(C,) 0 where nothing was taken for the class, nan where no box is of it."""
        return self._share(self.counts[:, :-1].sum(axis=0))

    @property
    def recall(self) -> Floats:
        """(C,) nan where no box is of the class."""
        return self._share(self.counts[:-1].sum(axis=1))

    @property
    def f1(self) -> Floats:
        """(C,) nan where no box is of the class."""
        return self._share((self.counts[:, :-1].sum(axis=0) + self.counts[:-1].sum(axis=1)) / 2)

    def _share(self, of: NDArray[np.number]) -> Floats:
        hits, has_boxes = self.counts.diagonal()[:-1], self.counts[:-1].sum(axis=1) > 0
        return np.where(has_boxes, hits / np.where(of > 0, of, 1), np.nan)


def confusion_of(pairings: Iterable[Pairing], *, threshold: float, names: tuple[str, ...]) -> Confusion:
    """Count the pairs of all images; `threshold` is what they were paired at."""
    num_classes = len(names)
    counts = np.zeros((num_classes + 1, num_classes + 1), np.int64)
    for pairing in pairings:
        taken = np.where(pairing.is_hit, pairing.hits, pairing.wrong)
        of_box = np.append(pairing.truth.classes, num_classes)[taken]  # -1, no box, is the background at the end
        np.add.at(counts, (of_box, pairing.found.classes), 1)
        missed = pairing.truth.classes[~(pairing.is_found | pairing.is_taken_for_another)]
        counts[:-1, -1] += np.bincount(missed, minlength=num_classes)
    return Confusion(counts, threshold, names)
