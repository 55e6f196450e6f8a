"""The test is exact."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import pytest

from visiontrain.metrics.mcnemar import mcnemar_p


@pytest.mark.parametrize(
    ("first", "second"), [(0, 0), (0, 1), (0, 5), (6, 0), (3, 9), (9, 3), (10, 10), (40, 70), (400, 521)]
)
def test_it_is_the_binomial_test_of_a_fair_coin(first, second):
    tail = sum(comb(first + second, heads) for heads in range(min(first, second) + 1))
    expected = min(Fraction(1), Fraction(2 * tail, 2 ** (first + second)))
    assert mcnemar_p(first, second) == pytest.approx(float(expected), rel=1e-9)


def test_five_images_to_none_may_be_chance_and_six_hardly():
    assert mcnemar_p(0, 5) > 0.05 > mcnemar_p(0, 6)


def test_very_many_images_do_not_overflow():
    assert 0.3 < mcnemar_p(50_000, 50_300) < 0.4
