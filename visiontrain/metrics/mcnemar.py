"""McNemar's exact test: whether two models that differ on some images differ by chance alone."""

from __future__ import annotations

import math


def mcnemar_p(only_first: int, only_second: int) -> float:
    """How often a fair coin, thrown for each image on which one model alone is right, falls as unevenly.

    Args:
        only_first: Images on which the first model alone is right.
        only_second: Images on which the second alone is.

    Returns:
        In (0, 1]; 1 where no image tells them apart.

    Source: McNemar 1947, "Note on the sampling error of the difference between correlated proportions or percentages";
    the exact, two-sided form.
    """
    num_told, fewer = only_first + only_second, min(only_first, only_second)
    log_ways = math.lgamma(num_told + 1)
    tail = math.fsum(
        math.exp(log_ways - math.lgamma(heads + 1) - math.lgamma(num_told - heads + 1) - num_told * math.log(2))
        for heads in range(fewer + 1)
    )
    return min(1.0, 2 * tail)
