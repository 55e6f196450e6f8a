"""Train detectors and classifiers at the batch size the recipe wants, on the memory you have.

Importing this loads nothing: each public name brings its module along when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from visiontrain.engine.window import GradientWindow
    from visiontrain.errors import CheckpointError, ConfigError, DataError
    from visiontrain.losses.sums import LossSum
    from visiontrain.model import Model
    from visiontrain.plan import plan_run, plan_windows
    from visiontrain.predict.results import Results

__version__ = "0.1.0"
__all__ = [
    "CheckpointError",
    "ConfigError",
    "DataError",
    "GradientWindow",
    "LossSum",
    "Model",
    "Results",
    "__version__",
    "plan_run",
    "plan_windows",
]

_HOMES = {
    "CheckpointError": "visiontrain.errors",
    "ConfigError": "visiontrain.errors",
    "DataError": "visiontrain.errors",
    "GradientWindow": "visiontrain.engine.window",
    "LossSum": "visiontrain.losses.sums",
    "Model": "visiontrain.model",
    "Results": "visiontrain.predict.results",
    "plan_run": "visiontrain.plan",
    "plan_windows": "visiontrain.plan",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value  # found directly the next time
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
