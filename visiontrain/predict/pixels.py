"""Images that come from memory, as (H, W, 3) uint8 RGB: arrays, PIL images, tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps

from visiontrain.errors import ConfigError


def rgb_of_array(array: NDArray[Any], name: str) -> NDArray[np.uint8]:
    """(H, W, 3) BGR or (H, W) gray, uint8 → (H, W, 3) uint8 RGB. Raises ConfigError for any other array."""
    is_gray = array.ndim == 2 or (array.ndim == 3 and array.shape[2] == 1)
    is_bgr = array.ndim == 3 and array.shape[2] == 3
    if not (is_gray or is_bgr) or array.dtype != np.uint8 or not array.size:
        raise ConfigError(
            f"source {name}: an array {array.shape} {array.dtype}; it should be (H, W, 3) uint8 BGR as OpenCV reads "
            "images, or (H, W) uint8 gray (with alpha: leave its channel out; several images: a list)"
        )
    if is_gray:
        return np.repeat(array.reshape(*array.shape[:2], 1), 3, axis=2)
    return np.ascontiguousarray(array[..., ::-1])


def rgb_of_pil(image: Image.Image, name: str) -> NDArray[np.uint8]:
    """PIL image, turned upright → (H, W, 3) uint8 RGB. Raises ConfigError for more than 8 bits a channel."""
    if image.mode in ("F", "I") or image.mode.startswith("I;"):
        raise ConfigError(
            f"source {name}: a PIL image of mode {image.mode}; it should have 8 bits a channel: scale it, or give the "
            "file's path"
        )
    if not all(image.size):
        raise ConfigError(f"source {name}: a PIL image of {image.width} × {image.height} pixels; it should have some")
    return np.array(ImageOps.exif_transpose(image).convert("RGB"))


def rgb_of_tensor(tensor: torch.Tensor, name: str) -> NDArray[np.uint8]:
    """(3, H, W) RGB, uint8 or float in [0, 1] → (H, W, 3) uint8 RGB. Raises ConfigError for any other tensor."""
    if tensor.ndim != 3 or tensor.shape[0] != 3 or not tensor.numel():
        raise ConfigError(
            f"source {name}: a tensor {tuple(tensor.shape)}; it should be (3, H, W) or (B, 3, H, W) RGB, with height "
            "and width"
        )
    tensor = tensor.detach().cpu()
    if tensor.is_floating_point():
        low, high = float(tensor.min()), float(tensor.max())
        if not (low >= 0 and high <= 1):  # NaN is neither
            raise ConfigError(
                f"source {name}: a float tensor with values from {low:g} to {high:g}; it should lie in [0, 1] (divide "
                "by 255) or be uint8"
            )
        tensor = (tensor.double() * 255).round().to(torch.uint8)
    elif tensor.dtype != torch.uint8:
        raise ConfigError(f"source {name}: a tensor of {tensor.dtype}; it should be uint8, or float in [0, 1]")
    return np.ascontiguousarray(tensor.permute(1, 2, 0).numpy())
