"""`visiontrain env`: versions and devices, for a bug report."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

import visiontrain
from visiontrain.config.schema import Config
from visiontrain.engine.device import available_cores
from visiontrain.engine.precision import has_native_bf16
from visiontrain.run.files import as_json

PACKAGES = (
    "torch",
    "torchvision",
    "numpy",
    "opencv-python",
    "pillow",
    "pyyaml",
    "faster-coco-eval",
    "rich",
    "matplotlib",
)


def env(config: Config) -> None:
    """Print what the program runs on."""
    found = environment()
    if config.json:
        print(as_json(found))
        return
    packages = found.pop("packages")
    for name, value in {**found, **packages}.items():
        print(f"{name:<18} {', '.join(value) or 'none' if isinstance(value, list) else value}")


def environment() -> dict[str, Any]:
    """Versions and devices, as plain values."""
    return {
        "visiontrain": visiontrain.__version__,
        "python": platform.python_version(),
        # Not platform.platform(), which starts a program to ask for the processor.
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": available_cores(),
        "threads": torch.get_num_threads(),
        "native_bf16": has_native_bf16(),
        "cuda": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
        "packages": {name: _version_of(name) for name in PACKAGES},
    }


def _version_of(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
