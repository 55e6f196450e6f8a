"""What has to be installed for a tracker; asking imports nothing."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

from visiontrain.errors import ConfigError

TRACKERS = ("tensorboard", "mlflow", "wandb")
"""Loggers that are packages of their own, each named as its package and as our extra."""


def require_packages(names: Iterable[str]) -> None:
    """Raises ConfigError, with the command that installs it, for each of the trackers `names` that is not there."""
    faults = [
        f"logger = {name}: needs the package {name}, which is not installed; pip install 'visiontrain[{name}]'"
        for name in names
        if not _is_installed(name)
    ]
    if faults:
        raise ConfigError(faults)


def _is_installed(package: str) -> bool:
    spec = find_spec(package)
    return spec is not None and spec.origin is not None  # any folder of that name, such as ./wandb, has a spec
