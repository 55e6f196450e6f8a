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
        text = argument_of(key, value)
        # Places and files are this run's own; repeating it must not write over it or ask for itself.
        mark = "# " if key in ("cfg", "resume", "save_dir", "task") else ""
        lines.append(f"{mark}{key}: {text}  # {config.origin(key)}")
    write_whole(path, "\n".join(lines) + "\n")


def argument_of(key: str, value: Any) -> str:
    """A value as it can be typed."""
    text = yaml.safe_dump({key: value}, default_flow_style=True, allow_unicode=True, width=math.inf)
    return text.strip().removeprefix("{").removesuffix("}").removeprefix(f"{key}: ")


def as_json(values: Mapping[str, Any]) -> str:
    """`values` as one JSON document; numbers that are not finite become null."""
    return json.dumps(as_plain(values), indent=2, ensure_ascii=False, allow_nan=False)


def write_json(path: Path, values: Mapping[str, Any], *, indent: int | None = 2) -> None:
    """Write `values` as one JSON document; numbers that are not finite become null."""
    write_whole(path, json.dumps(as_plain(values), indent=indent, ensure_ascii=False, allow_nan=False) + "\n")


def write_whole(path: Path, text: str) -> None:
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


def as_plain(value: Any) -> Any:
    """A value as it comes back from JSON."""
    if isinstance(value, Mapping):
        return {key: as_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
