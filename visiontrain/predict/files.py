"""Writing pictures and texts where nothing else is overwritten."""

from __future__ import annotations

import re
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from visiontrain.errors import ConfigError


def write_image(path: Path, image_bgr: NDArray[np.uint8]) -> None:
    """Encode (H, W, 3) uint8 BGR by the path's ending and write it; folders are made.

    Raises:
        ConfigError: If images of that ending cannot be written, or nothing can be written there.
    """
    if not path.suffix or not cv2.haveImageWriter(f"image{path.suffix}"):
        raise ConfigError(
            f"{path}: images ending in {path.suffix or '(nothing)'} cannot be written; use .jpg, .png or .webp"
        )
    is_encoded, content = cv2.imencode(path.suffix, image_bgr)
    if not is_encoded:
        height, width = image_bgr.shape[:2]
        raise ConfigError(f"{path}: an image of {width} × {height} cannot be written in this format; use .png")
    write_file(path, content.tobytes())  # cv2.imwrite fails on non-ASCII paths on Windows


def write_file(path: Path, content: bytes) -> None:
    """Write a file; folders are made.

    Raises:
        ConfigError: If it cannot be written there: a file lies where a folder is wanted, or the disk is full.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        in_the_way = next((parent for parent in path.parents if parent.is_file()), None)
        reason = error.strerror or error if in_the_way is None else f"{in_the_way} is a file, not a folder"
        raise ConfigError(
            f"{path}: cannot be written ({reason}); choose another place, make room or mend its rights"
        ) from error


def free_stem(stem: str, places: list[tuple[Path, str]]) -> str:
    """`stem`, or `stem_2`, `stem_3`, ...: the first under which no file lies in any of `places`.

    Args:
        stem: The name wanted, without its ending.
        places: Folders and the endings that the name will have in them.
    """
    candidate, number = stem, 1
    while any((folder / f"{candidate}{suffix}").exists() for folder, suffix in places):
        number += 1
        candidate = f"{stem}_{number}"
    return candidate


def folder_name(class_name: str) -> str:
    """A class's name as the name of a folder on any system."""
    return re.sub(r'[<>:"/\\|?*\x00-\x1f]', "_", class_name).strip(" .") or "_"
