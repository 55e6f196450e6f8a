"""Learned and random policies of augmentation, as torchvision has them, as functions of a seed.

torchvision draws from torch's global generator. It is set for the moment of drawing and put back afterwards, so the
picture depends on the seed alone, and nothing else depends on the picture.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from PIL import Image as PillowImage

from visiontrain.data.transforms.geometry import FILL, Image

POLICIES = ("randaugment", "autoaugment", "augmix")
"""Source: Cubuk et al. 2019, RandAugment (arXiv:1909.13719), with 2 operations of magnitude 9; Cubuk et al. 2018,
AutoAugment (arXiv:1805.09501), with the policy found on ImageNet; Hendrycks et al. 2019, AugMix (arXiv:1912.02781),
with chains of severity 3."""


def apply_policy(image: Image, policy: str, seed: int) -> Image:
    """What a policy makes of an image.

    Args:
        image: (H, W, 3) uint8 RGB.
        policy: One of `POLICIES`.
        seed: Of all that it draws, in [0, 2⁶³).

    Returns:
        A new image of the same size.
    """
    change = _torchvision_policy(policy)
    with torch.random.fork_rng(devices=[]):
        # Not `torch.manual_seed`, which seeds the accelerators as well: those are not put back.
        torch.default_generator.manual_seed(seed)
        return np.array(change(PillowImage.fromarray(image)), np.uint8)


@lru_cache(maxsize=len(POLICIES))
def _torchvision_policy(policy: str) -> Callable[[PillowImage.Image], Any]:
    from torchvision.transforms import v2  # takes seconds to load

    makers = {"randaugment": v2.RandAugment, "autoaugment": v2.AutoAugment, "augmix": v2.AugMix}
    return makers[policy](interpolation=v2.InterpolationMode.BILINEAR, fill=FILL)
