"""`compile=True`: the network's forward and backward passes as code that torch generates for this machine."""

from __future__ import annotations

import os
import shutil

import torch

from visiontrain.config.schema import Config
from visiontrain.engine.device import DeviceSetup
from visiontrain.errors import ConfigError
from visiontrain.models.network import Network

CXX_COMPILERS = ("g++", "c++", "clang++", "cl")
NOTE = (
    "compile=True: torch generates code for this network and size first, which takes a minute or more and is kept in "
    "TORCHINDUCTOR_CACHE_DIR; evaluation goes without"
)


def check_compile(config: Config, setup: DeviceSetup) -> None:
    """Raises ConfigError if the network is to be compiled and cannot be."""
    if not config.compile:
        return
    faults = []
    if config.checkpoint_activations:
        faults.append(
            "compile: decides by itself which activations are kept, and cannot be told to recompute all of them; leave "
            "out compile or checkpoint_activations"
        )
    if setup.device.type == "mps":
        faults.append("compile: does not support Metal devices; leave it out")
    elif setup.device.type == "cpu" and not _cxx_compiler():
        faults.append(
            f"compile: needs a C++ compiler ({', '.join(CXX_COMPILERS)}), and none is in PATH; install one, name it in "
            "the variable CXX, or leave compile out"
        )
    if faults:
        raise ConfigError(faults)


def compile_(network: Network) -> None:
    """Compile the network's passes in place, when they first run; names of parameters and copies of it stay plain."""
    # The compiler, which this loads, is told as well whether the run is to be deterministic.
    is_warned_of = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(torch.are_deterministic_algorithms_enabled(), warn_only=is_warned_of)
    network.compile()


def _cxx_compiler() -> str | None:
    named = os.environ.get("CXX")
    return next(filter(None, map(shutil.which, [named] if named else CXX_COMPILERS)), None)
