from __future__ import annotations

import numpy as np
import pytest
import torch

from visiontrain.data.transforms.policies import POLICIES, apply_policy


@pytest.fixture
def picture():
    return np.random.default_rng(0).integers(0, 256, (24, 24, 3), dtype=np.uint8)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_is_a_function_of_the_seed(policy, picture):
    before = picture.copy()
    results = [apply_policy(picture, policy, seed) for seed in range(8)]
    assert all(result.shape == picture.shape and result.dtype == np.uint8 for result in results)
    assert any(not np.array_equal(results[0], result) for result in results[1:])
    torch.rand(3)
    for seed, result in enumerate(results):
        np.testing.assert_array_equal(apply_policy(picture, policy, seed), result)
    np.testing.assert_array_equal(picture, before)
    assert results[0].flags.writeable


def test_the_global_generator_is_left_as_it_was(picture):
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    apply_policy(picture, "randaugment", 1)
    assert torch.equal(torch.rand(4), expected)
