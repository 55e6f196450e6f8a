"""The small text files of a run folder."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from visiontrain.config.schema import Config
from visiontrain.errors import ConfigError


def write_args(path: Path, config: Config) -> None:
    """Every value and, as a comment, where it came from. The file can be typed as `cfg=` and gives the same run."""
    lines = ["# All settings of this run. To repeat it: visiontrain train cfg=args.yaml save_dir=ANOTHER_FOLDER"]
    for key, value in config.values().items():
        text = yaml.safe_dump({key: value}, default_flow_style=True, allow_unicode=True, width=math.inf)
        # Places and files are this run's own; repeating it must not write over it or ask for itself.
        mark = "# " if key in ("cfg", "resume", "save_dir", "task") else ""
        lines.append(f"{mark}{text.strip().removeprefix('{').removesuffix('}')}  # {config.origin(key)}")
    _write_whole(path, "\n".join(lines) + "\n")


def as_json(values: Mapping[str, Any]) -> str:
    """`values` as one JSON document; numbers that are not finite become null."""
    return json.dumps(_finite(values), indent=2, ensure_ascii=False, allow_nan=False)


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write `as_json(values)`."""
    _write_whole(path, as_json(values) + "\n")


def _write_whole(path: Path, text: str) -> None:
    """Write a file in one step: a run that is killed meanwhile leaves the old one or the new one.

    Raises:
        ConfigError: If the disk is full or the place cannot be written.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise ConfigError(
            f"{path}: cannot be written ({error.strerror or error}); make room, mend its rights or move away what is "
            "there"
        ) from error


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
