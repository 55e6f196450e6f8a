"""`visiontrain export`: writes trained weights for other programs, and compares what they give with the network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from visiontrain.config.schema import Config
from visiontrain.errors import ConfigError
from visiontrain.export.packages import NEEDED, require

if TYPE_CHECKING:
    from visiontrain.run.exporting import Exported

CHECK_FAILED = 3
"""Exit code."""


class ExportError(RuntimeError):
    """An exported file does not give what its network gives."""


def export(config: Config) -> int | None:
    """The command; returns 3 if the file does not give what the network gives, and is therefore not kept."""
    return None if export_run(config).is_passed else CHECK_FAILED


def export_run(config: Config) -> Exported:
    """Export `model`, and print how far the outputs of the file are off.

    Raises:
        UserError: If the input is wrong, or a package is missing.
    """
    # Before torch is loaded, which takes seconds: who has no model or lacks a package is told at once.
    if config.model is None:
        raise ConfigError("model: is not given; name trained weights, such as model=runs/detect/train/weights/best.pt")
    require(NEEDED[config.format], f"format = {config.format}")
    from visiontrain.run.exporting import write_checked

    return write_checked(config)
