"""Perceptual prints: near pictures have near prints, however they were resized, brightened or compressed.

Letters: N prints of 32 bytes.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

PRINT_BYTES = 32
ALIKE_BITS = 15
"""The most bits of 256 in which the prints of two copies of a picture differ. Copies of photographs at half of the size
or at JPEG quality 60 stayed within 14, those made 15 % brighter within 16; different pictures of BCCD, of hands before
one wall and of aquariums were at least 24 bits apart."""
EVEN = 2.0
"""Standard deviation of the grey levels, 0 to 255, below which a picture has nothing to tell it by: blank frames are
not copies of each other."""

_THUMBNAIL, _FREQUENCIES = 64, 16
_KEY_BYTES = 2
_MOST_NEIGHBORS = 32
_BITS = np.array([bin(byte).count("1") for byte in range(256)], np.uint8)


def print_of(image: NDArray[np.uint8]) -> bytes | None:
    """The signs of a picture's lowest frequencies against their median; None for one of a single color.

    Args:
        image: (H, W, 3) uint8 RGB.

    Source: Zauner 2010, Implementation and Benchmarking of Perceptual Image Hash Functions, the
        DCT based hash; here with 16 × 16 frequencies of a 64 × 64 picture, which tell objects before one background
        apart.
    """
    grey = cv2.resize(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), (_THUMBNAIL, _THUMBNAIL), interpolation=cv2.INTER_AREA)
    if float(np.std(grey)) < EVEN:
        return None
    low = np.asarray(cv2.dct(grey.astype(np.float32)))[:_FREQUENCIES, :_FREQUENCIES].ravel()  # (256,)
    return np.packbits(low > np.median(low)).tobytes()


def bits_between(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> NDArray[np.int64]:
    """(N,) bits in which the (N, 32) prints `a` and `b` differ, row by row."""
    return np.asarray(_BITS[a ^ b].sum(axis=1, dtype=np.int64))


def find_alike(
    prints: NDArray[np.uint8], groups: NDArray[np.int64], *, most_bits: int = ALIKE_BITS
) -> NDArray[np.int64]:
    """For each print one of a lower group that is near it.

    Prints that differ in fewer bits than there are keys of two bytes have a key in common, so only those are compared:
    they are sorted once for each key. Where very many share one, such as the frames of a film, each is compared with
    its next in that order alone, so the time grows as N log N.

    Args:
        prints: (N, 32) uint8.
        groups: (N,), such as the number of the split.
        most_bits: In which near prints may differ; all that share no crowded key are found up to 15.

    Returns:
        (N,) index of a near print of a lower group, -1 where none was found.

    Source: Norouzi, Punjani and Fleet 2012, Fast Search in Hamming Space with Multi-Index Hashing (keys); Charikar
        2002, Similarity Estimation Techniques from Rounding Algorithms (neighbors in sorted order).
    """
    # In an order of chance, so that equal prints of two groups lie mixed.
    chance = np.random.default_rng(0).permutation(len(prints))
    prints, groups = prints[chance], groups[chance]
    found = np.full(len(prints), -1, np.int64)
    for start in range(0, PRINT_BYTES, _KEY_BYTES):
        turned = np.ascontiguousarray(np.roll(prints, -start, axis=1))
        order = np.argsort(turned.view(f"S{PRINT_BYTES}").ravel(), kind="stable")
        keys = turned[:, :_KEY_BYTES].copy().view(np.uint16).ravel()[order]
        for step in range(1, min(_MOST_NEIGHBORS, len(prints) - 1) + 1):
            share_key = keys[:-step] == keys[step:]
            if not share_key.any():
                break
            a, b = order[:-step][share_key], order[step:][share_key]
            lower, upper = np.where(groups[a] < groups[b], a, b), np.where(groups[a] < groups[b], b, a)
            is_new = (groups[lower] != groups[upper]) & (found[upper] < 0)
            lower, upper = lower[is_new], upper[is_new]
            is_near = bits_between(prints[lower], prints[upper]) <= most_bits
            found[upper[is_near]] = lower[is_near]
    alike = np.full(len(prints), -1, np.int64)
    alike[chance] = np.where(found < 0, -1, chance[found])
    return alike
