"""Batches on their way to the device: the next one is copied while the network computes on the one before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from visiontrain.sample import Batch


def on_device(batches: Iterable[Batch], device: torch.device, *, keeps_empty: bool = False) -> Iterator[Batch]:
    """The same batches on `device`.

    One without an image, as none could be read or none is this process's, is left out unless `keeps_empty`: a process
    of several takes part in every exchange.

    On a GPU each is copied one ahead of its use, on a stream of its own: from page-locked memory the copy and the
    computing go on at the same time. Elsewhere there is nothing to be gained, and none is held longer than it is used.
    """
    kept = (batch for batch in batches if keeps_empty or len(batch))
    return _one_ahead(kept, device) if device.type == "cuda" else (batch.to(device) for batch in kept)


def _one_ahead(batches: Iterator[Batch], device: torch.device) -> Iterator[Batch]:
    stream = torch.cuda.Stream(device)
    following = _copy(next(batches, None), device, stream)
    while following is not None:
        torch.cuda.current_stream(device).wait_stream(stream)
        batch = following
        for tensor in (batch.images, *batch.targets.values()):
            # Its memory was taken on the other stream, which must not give it away while this one still reads it.
            tensor.record_stream(torch.cuda.current_stream(device))
        following = _copy(next(batches, None), device, stream)
        yield batch


def _copy(batch: Batch | None, device: torch.device, stream: torch.cuda.Stream) -> Batch | None:
    if batch is None:
        return None
    with torch.cuda.stream(stream):
        return batch.to(device)
