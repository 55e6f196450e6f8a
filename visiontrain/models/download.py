"""Weights that torchvision offers: from torch's cache folder, or else from the internet."""

from __future__ import annotations

import pickle
from http.client import HTTPException
from pathlib import Path

import torch
from torch import Tensor

from visiontrain.errors import ConfigError
from visiontrain.models.offered import check_reachable, first_line, kept_file, missing_fault

DAMAGED = (pickle.UnpicklingError, EOFError, ValueError, KeyError)
"""What torch's safe loader makes of files that are no weights, besides RuntimeError."""


def torchvision_weights(name: str) -> dict[str, Tensor]:
    """The weights that torchvision offers for one of its networks, by name, on the CPU.

    Args:
        name: Of the network in torchvision.

    Raises:
        ConfigError: If they cannot be had; nothing was made on disk unless the server answered.
    """
    import torchvision  # loads torch's compiler: not for networks of our own

    weights = torchvision.models.get_model_weights(name).DEFAULT
    file = cached_file(weights.url)
    was_there = file.exists()
    try:
        if not was_there:
            check_reachable(weights.url)
        return weights.get_state_dict(progress=True, check_hash=True, map_location="cpu", weights_only=True)
    except (OSError, HTTPException, RuntimeError, *DAMAGED) as error:  # RuntimeError: a digest that does not fit
        if was_there:
            raise ConfigError(
                f"pretrained = True: {file} is damaged, or holds no weights ({first_line(error)}); remove it, and it "
                f"will be fetched from {weights.url} again"
            ) from error
        raise ConfigError(missing_fault(name, weights.url, Path(torch.hub.get_dir()), error)) from error


def cached_file(url: str) -> Path:
    """Where torch keeps what it fetches from `url`."""
    return kept_file(url, Path(torch.hub.get_dir()))
