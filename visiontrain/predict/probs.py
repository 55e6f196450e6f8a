"""How probable a classifier holds each class for one image, and how that is told, written and drawn.

Letters: C classes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from visiontrain.drawing import draw_lines, label_text
from visiontrain.errors import ConfigError
from visiontrain.predict.arrays import Array, as_numpy, on_cpu

NUM_BEST = 5
"""How many classes are told, written and drawn."""


def find_probs(decoded: Mapping[str, Tensor], matrix: NDArray[np.floating], orig_shape: tuple[int, int]) -> Probs:
    """The probabilities that were decoded for an image, on the CPU.

    Args:
        decoded: `probs` (C,).
        matrix: (3, 3), pixels of the original image → pixels of the network's input; no place is found, so none moves.
        orig_shape: Height and width of the original image.
    """
    # A copy: the row would keep the whole batch alive, and it may have been made in inference mode.
    return Probs(decoded["probs"].to("cpu", torch.float32, copy=True), orig_shape)


class Probs:
    """The probability of each class for an image. Of equal ones, the class with the lower index comes first."""

    plural: ClassVar[str] = "classifications"
    columns: ClassVar[tuple[str, ...]] = ("name", "class", "confidence")
    """Of a table with a row for each of the five best."""

    def __init__(self, data: Array, orig_shape: tuple[int, int]) -> None:
        """Hold probabilities.

        Args:
            data: (C,) float32 in [0, 1]. They add up to 1, unless an image may be of several classes at once.
            orig_shape: Height and width of the original image.
        """
        if data.ndim != 1 or not len(data):
            raise ValueError(f"probs: {tuple(data.shape)}; they should be (C,): one for each class, at least one")
        self.data = data
        self.orig_shape = orig_shape

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.data.shape)

    @property
    def top1(self) -> int:
        """The most probable class."""
        return self.top5[0]

    @property
    def top5(self) -> list[int]:
        """The five most probable classes, best first; all where there are fewer."""
        order = torch.as_tensor(self.data).argsort(descending=True, stable=True)
        return [int(index) for index in order[:NUM_BEST].tolist()]

    @property
    def top1conf(self) -> Array:
        """The probability of the most probable class, without dimensions."""
        return self.data[self.top1]

    @property
    def top5conf(self) -> Array:
        """(5,) the probabilities of `top5`; (C,) where there are fewer classes."""
        return self.data[self.top5]

    def __len__(self) -> int:
        """The number of classes."""
        return len(self.data)

    def __repr__(self) -> str:
        return f"Probs({len(self)} classes, top1 {self.top1}):\n{self.data}"

    def to(self, *args: Any, **kwargs: Any) -> Probs:
        """The same as a tensor on another device or of another precision; arguments as for `Tensor.to`."""
        return Probs(torch.as_tensor(self.data).to(*args, **kwargs), self.orig_shape)

    def cpu(self) -> Probs:
        return Probs(on_cpu(self.data), self.orig_shape)

    def numpy(self) -> Probs:
        """The same probabilities as a numpy array."""
        return Probs(as_numpy(self.data), self.orig_shape)

    def verbose(self, names: Mapping[int, str]) -> str:
        """The five best with their probabilities, such as `cat 0.93, dog 0.05`."""
        return ", ".join(f"{names.get(index, index)} {probability:.2f}" for index, probability in self._best())

    def tally(self) -> Counter[int]:
        """The most probable class, once: what an image counts as among others."""
        return Counter([self.top1])

    def summary(self, names: Mapping[int, str], *, normalize: bool, decimals: int) -> list[dict[str, Any]]:
        """Plain dictionaries, one for each of the five best: `name`, `class`, `confidence`; no box to scale."""
        return [
            {"name": names.get(index, str(index)), "class": index, "confidence": round(probability, decimals)}
            for index, probability in self._best()
        ]

    def lines(self, names: Mapping[int, str], *, save_conf: bool) -> list[str]:
        """The five best as `0.93 cat`; the probability is there in any case, as readers of such files expect."""
        return [f"{probability:.2f} {names.get(index, index)}" for index, probability in self._best()]

    def draw(
        self, image: NDArray[np.uint8], names: Mapping[int, str], *, conf: bool, labels: bool, line_width: int | None
    ) -> NDArray[np.uint8]:
        """Write the five best into a copy of (H, W, 3) uint8 BGR; arguments as for `Results.plot`.

        Raises:
            ConfigError: If the width of lines is given.
        """
        if line_width is not None:
            raise ConfigError(f"line_width = {line_width}: a classification has no boxes to draw; leave it out")
        if not labels:
            return image.copy()
        return draw_lines(
            image,
            [
                f"{probability:.2f}  {label_text(index, names)}" if conf else label_text(index, names)
                for index, probability in self._best()
            ],
        )

    def cut(self, image: NDArray[np.uint8]) -> list[tuple[int, NDArray[np.uint8]]]:
        """Refuse: no place was found.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError("save_crop: a classification has no boxes to cut out; leave it out, or use a detector")

    def _best(self) -> list[tuple[int, float]]:
        return list(zip(self.top5, self.top5conf.tolist(), strict=True))
