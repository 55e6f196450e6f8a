"""Weights that torchvision offers: from torch's cache folder, or else from the internet."""

from __future__ import annotations

import pickle
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from queue import Empty, SimpleQueue
from threading import Thread
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import torch
import torchvision
from torch import Tensor

from visiontrain.errors import ConfigError

DAMAGED = (pickle.UnpicklingError, EOFError, ValueError, KeyError)
"""What torch's safe loader makes of files that are no weights, besides RuntimeError."""
PATIENCE_SECONDS = 2.0
"""For the server's first answer. Torch itself would wait for as long as the system does, and make folders before."""


def torchvision_weights(name: str) -> dict[str, Tensor]:
    """The weights that torchvision offers for one of its networks, by name, on the CPU.

    Args:
        name: Of the network in torchvision.

    Raises:
        ConfigError: If they cannot be had; nothing was made on disk unless the server answered.
    """
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
                f"pretrained = True: {file} is damaged, or holds no weights ({_first_line(error)}); remove it, and it "
                f"will be fetched from {weights.url} again"
            ) from error
        raise ConfigError(
            f"pretrained = True: the weights of {name} are missing and could not be fetched ({_first_line(error)}); "
            f"download {weights.url} on another machine and put it into {file.parent} as {file.name}, or give "
            "pretrained=file.pth"
        ) from error


def cached_file(url: str) -> Path:
    """Where torch keeps what it fetches from `url`."""
    return Path(torch.hub.get_dir()) / "checkpoints" / PurePosixPath(urlsplit(url).path).name


def check_reachable(url: str, *, seconds: float = PATIENCE_SECONDS) -> None:
    """Raises OSError or HTTPException unless a server answers within so many seconds, whatever its answer is."""
    answers: SimpleQueue[OSError | HTTPException | None] = SimpleQueue()

    def ask() -> None:
        try:
            urlopen(Request(url, method="HEAD"), timeout=seconds).close()
        except HTTPError:
            answers.put(None)
        except (OSError, HTTPException) as error:
            answers.put(error)
        else:
            answers.put(None)

    # Apart, since no time limit holds for finding the server's address.
    Thread(target=ask, daemon=True).start()
    try:
        error = answers.get(timeout=seconds)
    except Empty:
        raise TimeoutError(f"no answer within {seconds:g} s") from None
    if error is not None:
        raise error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
