"""`flip_swap`: pairs of classes that a flip sideways turns into each other, such as arrows to the left and right."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def faults_of_flip_swap(pairs: Sequence[tuple[int, int]]) -> list[str]:
    """What is wrong with the pairs."""
    indices = [index for pair in pairs for index in pair]
    if len(set(indices)) == len(indices) and min(indices, default=0) >= 0:
        return []
    return [f"flip_swap = {pairs} is not a list of pairs of classes; give class indices from 0, each once"]


def swap_classes(classes: NDArray[np.int64], pairs: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """(N,) classes, in which those of each pair have changed places."""
    swapped = classes.copy() if pairs else classes
    for one, other in pairs:
        swapped[classes == one] = other
        swapped[classes == other] = one
    return swapped
