"""`sampling=balanced`: images of rare classes are seen more often, the epoch stays as long as it is.

Letters: n images, C classes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from visiontrain.sample import Records

_DRAW_STREAM = 0xBA1A
"""Keeps these draws apart from those of order and samples, which have streams of their own."""


def image_weights(records: Records, *, power: float) -> NDArray[np.float64]:
    """How often each image should be seen, relative to the others.

    The weight of a class is (share of images with the most frequent class / share of images with this one) ** power,
    the weight of an image that of its rarest class; an image without labels has weight 1.

    Source: Gupta, Dollár, Girshick 2019, LVIS (arXiv:1908.03195), appendix B.2, "repeat factor sampling", with its
    threshold at the most frequent class. There the power is 1/2; with 1 and one label for each image all classes are
    seen equally often.

    Args:
        records: The split.
        power: From 0 (all alike) to 1.

    Returns:
        (n,) at least 1.
    """
    weights = np.ones(len(records))
    label_sets = [np.unique(record.classes) for record in records]
    if not any(map(len, label_sets)):
        return weights
    num_images_of = np.bincount(np.concatenate(label_sets))
    class_weights = (num_images_of.max() / np.maximum(num_images_of, 1)) ** power
    for place, labels in enumerate(label_sets):
        if len(labels):
            weights[place] = class_weights[labels].max()
    return weights


def drawn_order(weights: NDArray[np.float64], seed: int, epoch: int) -> NDArray[np.int64]:
    """(n,) the images of an epoch in the order in which it sees them. Read-only.

    Systematic resampling: an image with n times its share of all weights equal to w comes floor(w) or ceil(w) times,
    so chance is as small as it can be, and no image waits for ever.

    Args:
        weights: (n,) positive.
        seed: Of the run.
        epoch: From 0.
    """
    rng = np.random.default_rng([_DRAW_STREAM, seed, epoch])
    shuffled = rng.permutation(len(weights))  # else the same neighbors would share a place in every epoch
    ends = np.cumsum(weights[shuffled])
    marks = (np.arange(len(weights)) + rng.random()) * (ends[-1] / len(weights))
    drawn = shuffled[np.searchsorted(ends, marks, side="right").clip(max=len(weights) - 1)]
    order = rng.permutation(drawn)
    order.flags.writeable = False
    return order


def occurrences_of(order: NDArray[np.int64]) -> NDArray[np.int64]:
    """(n,) how often the image at each place came before it."""
    by_image = np.argsort(order, kind="stable")
    is_first = np.ones(len(order), bool)
    is_first[1:] = order[by_image][1:] != order[by_image][:-1]
    starts = np.maximum.accumulate(np.where(is_first, np.arange(len(order)), 0))
    occurrences = np.empty(len(order), np.int64)
    occurrences[by_image] = np.arange(len(order)) - starts
    return occurrences
