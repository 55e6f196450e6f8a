"""What a run folder holds, read with patience: what is missing or damaged is told, and the rest is read.

The run may still go on, may have been killed, may be of another version, and its files may have been edited.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from visiontrain.data.images import read_reduced
from visiontrain.errors import DataError
from visiontrain.report.curves import Columns, read_columns
from visiontrain.report.review import Review, read_review
from visiontrain.report.run_page import Argument, Picture
from visiontrain.report.thumbnails import as_jpeg

PIECES = ("args.yaml", "plan.json", "results.csv", "results.json", "review.json", "train.log", "weights")
PICTURES: Mapping[str, str] = {
    "train_batch0.jpg": "the first images as training saw them",
    "labels.png": "labels of the training images",
}
_PICTURE_SIDE = 1100  # pixels
_MOST_PICTURE_PIXELS = 60_000_000
_MOST_WARNINGS = 20
_ARGUMENT = re.compile(r"(?:# )?(\w+): (.*?)  # (default|cfg file|command line|python|sample|decided)")
_WRONG = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError)

Value = TypeVar("Value")


@dataclass
class RunFolder:
    """Reads the pieces of a run; keeps what it lacked."""

    path: Path
    missing: list[str] = field(default_factory=list)
    """One line each."""

    @property
    def is_training(self) -> bool:
        """Whether something was trained here, and not only scored."""
        return any((self.path / name).is_file() for name in ("args.yaml", "plan.json", "results.csv", "train.log"))

    def results(self) -> Mapping[str, Any]:
        """What the end of the run wrote; empty while it goes on."""
        return self._json("results.json", "is not there: the run still goes on, or was interrupted", dict)

    def columns(self) -> Columns | None:
        """The rows of the epochs."""
        path = self.path / "results.csv"
        if not path.is_file():
            self._lacks("results.csv: is not there: no epoch has ended, so there are no curves")
            return None
        return self._read(path.name, lambda: read_columns(path))

    def review(self) -> Review | None:
        """The scores in detail."""
        document = self._json(
            "review.json",
            "is not there: nothing was scored yet, or with an older version; visiontrain val scores its weights and "
            "makes a page of its own",
            lambda value: value,
        )
        if document is None or document == {}:
            return None
        review, faults = read_review(document)
        self.missing += [f"review.json: {fault}" for fault in faults]
        return review

    def plan(self) -> tuple[list[tuple[str, str]], list[tuple[str, str]], list[str]]:
        """The plan in words, the windows of each epoch, and its warnings."""
        document = self._json("plan.json", "is not there, so windows and schedule are not known", dict)
        if document:
            read = self._read(
                "plan.json",
                lambda: (_plan_in_words(document), _windows_in_words(document), [str(x) for x in document["warnings"]]),
            )
            if read is not None:
                return read
        return [], [], []

    def arguments(self) -> list[Argument]:
        """Every setting and where it came from; `val` keeps them with its scores."""
        if not (self.path / "args.yaml").is_file():
            kept = self._read(
                "review.json", lambda: [Argument(*map(str, row)) for row in self._plain_json("review.json")["settings"]]
            )
            if kept:
                return kept
        text = self._text("args.yaml", "is not there, so the settings are not known")
        found = [Argument(*match.groups()) for match in map(_ARGUMENT.fullmatch, text.splitlines()) if match]
        if text and not found:
            self.missing.append("args.yaml: holds no settings that can be read")
        return found

    def environment(self) -> list[tuple[str, str]]:
        """Versions and devices; of a run that has not noted them, what its log says first."""
        found = self._read("review.json", lambda: self._plain_json("review.json").get("environment"))
        if isinstance(found, Mapping):
            return [(str(name), _in_words(value)) for name, value in found.items()]
        first = self._text("train.log", None).splitlines()[:1]
        return [("train.log", line) for line in first]

    def warnings(self) -> list[str]:
        """What the run warned of, each once."""
        lines = self._text("train.log", None).splitlines()
        told = dict.fromkeys(line.removeprefix("warning: ") for line in lines if line.startswith("warning: "))
        return list(told)[:_MOST_WARNINGS]

    def pictures(self) -> list[Picture]:
        """Those that the page shows."""
        found = []
        for name, caption in PICTURES.items():
            path = self.path / name
            if path.is_file():
                jpeg = self._read(name, lambda path=path: as_jpeg(_image(path, _PICTURE_SIDE)))  # type: ignore[misc]
                found += [] if jpeg is None else [Picture(caption, jpeg)]
        if not any((self.path / name).is_file() for name in PICTURES):
            self._lacks("pictures of the training images: are not there (train draws them, unless plots=False)")
        return found

    def _lacks(self, line: str) -> None:
        """Note a piece of a training run that is not there; what was only scored never had it."""
        if self.is_training or line.startswith("review.json"):
            self.missing.append(line)

    def _json(self, name: str, unless: str, read: Callable[[Any], Any]) -> Any:
        if not (self.path / name).is_file():
            self._lacks(f"{name}: {unless}")
            return {}
        value = self._read(name, lambda: read(self._plain_json(name)))
        return {} if value is None else value

    def _plain_json(self, name: str) -> Any:
        path = self.path / name
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

    def _text(self, name: str, unless: str | None) -> str:
        """The text of a file; it may be long, and some of it no text."""
        path = self.path / name
        if not path.is_file():
            if unless is not None:
                self._lacks(f"{name}: {unless}")
            return ""
        return self._read(name, lambda: path.read_text(encoding="utf-8", errors="replace")) or ""

    def _read(self, name: str, read: Callable[[], Value]) -> Value | None:
        try:
            return read()
        except OSError as error:
            self.missing.append(f"{name}: cannot be read ({error.strerror or error})")
        except DataError as error:
            self.missing.append(str(error).removeprefix(f"{self.path}/"))
        except _WRONG:
            self.missing.append(f"{name}: is damaged")
        return None


def read_shot(path: str, long_side: int) -> NDArray[np.uint8] | None:
    """An image of the data set, (H, W, 3) uint8 RGB; None where it cannot be read."""
    try:
        return _image(Path(path), long_side)
    except (DataError, ValueError):
        return None


def _image(path: Path, long_side: int) -> NDArray[np.uint8]:
    return read_reduced(path, long_side, max_pixels=_MOST_PICTURE_PIXELS)


def _plan_in_words(plan: Mapping[str, Any]) -> list[tuple[str, str]]:
    sizes, average = plan["images_per_update"], plan["ema"]
    factor = float(plan["weight_decay_factor"])
    pairs = [
        ("images", f"{plan['images']:,} in an epoch, {plan['epochs']} epochs"),
        (
            "images per update",
            f"batch {plan['batch']} × accumulate {plan['accumulate']}, nbs {plan['nbs']}; from {sizes['min']} to "
            f"{sizes['max']}, {float(sizes['mean']):.3g} in the mean",
        ),
        ("updates", f"{plan['updates']:,}"),
        ("warmup", f"{plan['warmup_images']:,} images"),
        ("tail", f"{plan['tail']}"),
        ("optimizer", f"{plan['optimizer']}"),
        ("weight decay", f"{plan['weight_decay']:g}" + ("" if factor == 1 else f" (× {factor:g} of what was asked)")),
        ("normalization", f"{plan['norm']}"),
    ]
    if average:
        pairs.append(("average of weights", f"over about {float(average['updates']):.3g} updates"))
    rates = "; ".join(f"{one['lr']:.3g} in epoch {one['epoch']}" for one in plan["lr"])
    return [*pairs, ("learning rate", rates), ("memory", f"about {plan['memory_mb']} MB")]


def _windows_in_words(plan: Mapping[str, Any]) -> list[tuple[str, str]]:
    """`epochs 4 to 50`, `3 × 64, 13`."""
    told = []
    for group in plan["windows"]:
        first, last = group["first_epoch"], group["last_epoch"]
        counted = [(size, len(list(members))) for size, members in groupby(group["images"])]
        sizes = ", ".join(f"{count} × {size}" if count > 1 else f"{size}" for size, count in counted)
        told.append((f"epoch {first}" if first == last else f"epochs {first} to {last}", sizes))
    return told


def _in_words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {version}" for name, version in value.items() if version is not None)
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)
