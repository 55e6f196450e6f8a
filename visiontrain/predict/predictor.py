"""A trained network and a stream of images give a stream of results, in memory that does not grow.

Letters: B images of a batch, H × W pixels of the network's input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from time import perf_counter
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from visiontrain.predict.parts import SourceImage
from visiontrain.predict.results import Content, Results
from visiontrain.protocols import Decoder

Prepare: TypeAlias = Callable[[NDArray[np.uint8]], tuple[NDArray[np.uint8], NDArray[np.floating]]]
"""(H, W, 3) RGB → the network's input (H, W, 3) RGB, and the (3, 3) matrix source pixels → input pixels."""
Found: TypeAlias = Callable[[Mapping[str, Tensor], NDArray[np.floating], tuple[int, int]], Content]
"""What was decoded for an image, the matrix of `Prepare`, height and width of the image → what was found in it."""


@dataclass(frozen=True)
class _Prepared:
    source: SourceImage
    image: NDArray[np.uint8]
    """(H, W, 3) RGB, the network's input."""
    matrix: NDArray[np.floating]
    preprocess_ms: float


class Predictor:
    """Runs a network over images. The network is put into evaluation mode and left in it."""

    def __init__(
        self,
        network: nn.Module,
        decoder: Decoder,
        prepare: Prepare,
        names: Mapping[int, str],
        *,
        found: Found,
        device: torch.device,
        batch: int = 1,
        precision: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """Put the parts together.

        Args:
            network: Takes (B, 3, H, W) uint8 RGB on `device`, where it lies itself.
            decoder: Turns its outputs into predictions, one entry for each image.
            prepare: Makes the network's input of an image, such as the letterbox.
            names: Class names by index.
            found: Makes of an image's predictions what its results hold: `find_boxes` or `find_probs`.
            device: Where the network runs.
            batch: The most images that run at once. Only images of one prepared size that follow each other do.
            precision: Gives the context in which the network runs, such as an autocast.
        """
        assert batch >= 1, batch
        self._network = network
        self._decoder = decoder
        self._prepare = prepare
        self._names = dict(names)
        self._found = found
        self._device = device
        self._batch = batch
        self._precision = precision

    def __call__(self, images: Iterable[SourceImage]) -> Iterator[Results]:
        """The results of each image, in order; at most `batch` images are held."""
        for group in self._groups(images):
            yield from self._predict(group)

    def _groups(self, images: Iterable[SourceImage]) -> Iterator[list[_Prepared]]:
        group: list[_Prepared] = []
        for source in images:
            begin = perf_counter()
            image, matrix = self._prepare(source.image)
            prepared = _Prepared(source, image, matrix, _ms_since(begin))
            if group and (len(group) == self._batch or group[0].image.shape != image.shape):
                yield group
                group = []
            group.append(prepared)
            # Do not wait for the next image, which may take long to come; and let a camera wait for none.
            if len(group) == self._batch or source.is_live:
                yield group
                group = []
        if group:
            yield group

    def _predict(self, group: list[_Prepared]) -> list[Results]:
        begin = perf_counter()
        pixels = np.stack([prepared.image for prepared in group]).transpose(0, 3, 1, 2)  # (B, 3, H, W)
        batch = torch.from_numpy(np.ascontiguousarray(pixels)).to(self._device)
        stack_ms = _ms_since(begin) / len(group)

        self._network.eval()  # each time: the caller may have trained between two images of the stream
        # Never across a `yield`: the mode would leak into the caller's code.
        with torch.inference_mode():
            begin = perf_counter()
            with self._precision():
                outputs = self._network(batch)
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)  # or the time would be found in the decoder's
            inference_ms = _ms_since(begin) / len(group)
            begin = perf_counter()
            decoded = self._decoder(outputs)
        contents = [
            self._found(predictions, prepared.matrix, prepared.source.image.shape[:2])
            for predictions, prepared in zip(decoded, group, strict=True)
        ]
        postprocess_ms = _ms_since(begin) / len(group)
        return [
            Results.of(
                content,
                np.ascontiguousarray(prepared.source.image[..., ::-1]),
                path=prepared.source.path,
                frame=prepared.source.frame,
                names=self._names,
                speed={
                    "preprocess": prepared.preprocess_ms + stack_ms,
                    "inference": inference_ms,
                    "postprocess": postprocess_ms,
                },
            )
            for prepared, content in zip(group, contents, strict=True)
        ]


def _ms_since(begin: float) -> float:
    return (perf_counter() - begin) * 1e3
