"""What has to be installed for a format; asking imports nothing."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from visiontrain.errors import ConfigError

NEEDED: Mapping[str, tuple[str, ...]] = {
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "torchscript": (),
    "exported_program": (),
    "safetensors": ("safetensors",),
}
"""Packages by format, those that check the file included."""
TO_RUN = ("onnxruntime",)
"""Packages that running an ONNX file takes."""


def require(packages: tuple[str, ...], what: str) -> None:
    """Raises ConfigError, naming what to install, unless all of `packages` are there for `what`."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise ConfigError(
            f"{what}: needs {', '.join(missing)}, which {verb} not installed; pip install 'visiontrain[export]'"
        )
