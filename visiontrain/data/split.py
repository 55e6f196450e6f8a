"""Split a part off a split, for data sets that bring no validation split of their own."""

from __future__ import annotations

import numpy as np

from visiontrain.errors import DataError
from visiontrain.sample import Records

STREAM = 0x5B117
"""Keeps these random numbers apart from others of the same seed."""


def split_off(records: Records, fraction: float, seed: int) -> tuple[Records, Records]:
    """Cut records in two, so that each class occurs in about the same share of images on both sides.

    Classes are shared out one after the other, the rarest first, each image to the side that lacks the class most.
    An image that is listed more than once stays on one side.

    Args:
        records: At least two different images.
        fraction: The part of the images to split off, in (0, 1); rounded to whole images, at least one on either side.
        seed: Of the choice; equal seeds give equal splits.

    Returns:
        What is left, and what was split off, both in the order of `records`.

    Raises:
        ValueError: If `fraction` is not in (0, 1).
        DataError: If there are fewer than two different images.

    Source: Sechidis, Tsoumakas and Vlahavas 2011, On the Stratification of Multi-Label Data, algorithm 1; here with
        sizes that are kept exactly.
    """
    if not 0 < fraction < 1:
        raise ValueError(f"fraction = {fraction} is not between 0 and 1")
    places_of: dict[str, list[int]] = {}
    for place, record in enumerate(records):
        places_of.setdefault(str(record.path), []).append(place)
    images = list(places_of.values())
    if len(images) < 2:
        raise DataError(
            f"train: has {len(images)} image{'s' * (len(images) != 1)}, which cannot be split in two; give a "
            "validation split, or set val_fraction to 0"
        )
    classes_of = [frozenset(int(number) for place in places for number in records[place].classes) for places in images]
    num_off = min(len(images) - 1, max(1, round(fraction * len(images))))
    is_off = _share_out(classes_of, num_off, np.random.default_rng((seed, STREAM)))
    off = sorted(place for places, chosen in zip(images, is_off, strict=True) if chosen for place in places)
    left = sorted(place for places, chosen in zip(images, is_off, strict=True) if not chosen for place in places)
    return Records([records[place] for place in left]), Records([records[place] for place in off])


def _share_out(classes_of: list[frozenset[int]], num_off: int, rng: np.random.Generator) -> list[bool]:
    """Which images are split off, exactly `num_off` of them."""
    share = num_off / len(classes_of)
    members: dict[int, list[int]] = {}
    for image in rng.permutation(len(classes_of)).tolist():
        for number in classes_of[image]:
            members.setdefault(number, []).append(image)
        if not classes_of[image]:
            members.setdefault(-1, []).append(image)  # background counts as a class of its own
    waiting = {number: len(images) for number, images in members.items()}
    wanted = {number: [count * (1 - share), count * share] for number, count in waiting.items()}
    room = [len(classes_of) - num_off, num_off]
    side_of: dict[int, int] = {}
    while waiting:
        rarest = min(waiting, key=lambda number: (waiting[number], number))
        for image in members[rarest]:
            if image in side_of:
                continue
            side = max((0, 1), key=lambda side: (room[side] > 0, wanted[rarest][side], room[side]))
            side_of[image] = side
            room[side] -= 1
            for number in classes_of[image] or (-1,):
                wanted[number][side] -= 1
                if number in waiting:
                    waiting[number] -= 1
        del waiting[rarest]
    return [side_of[image] == 1 for image in range(len(classes_of))]
