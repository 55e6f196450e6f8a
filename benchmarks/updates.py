"""Updates of a detector on random images, in one thread, as other benchmarks of training need them."""

from __future__ import annotations

import torch

from visiontrain.engine.noise import NoiseScale
from visiontrain.engine.window import GradientWindow
from visiontrain.losses.detection import DetectionCriterion
from visiontrain.models.build import build_network
from visiontrain.models.network import Network
from visiontrain.sample import Batch

NAMES = ("red", "white", "platelet")
BOXES = 12
"""In every image: about as many as in the blood cell pictures that most figures of this project are from."""


def make_network(model: str) -> Network:
    """Fresh weights, in training mode and with channels last, as in a training run."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return build_network(model, NAMES).to(memory_format=torch.channels_last).train()


def make_window(network: Network, noise: NoiseScale | None = None) -> GradientWindow:
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-4, momentum=0.9, nesterov=True, foreach=True)
    return GradientWindow(optimizer, model=network, clip=10.0, noise=noise)


def make_batch(images: int, imgsz: int, *, boxes: int = BOXES) -> Batch:
    """Random images of `imgsz` pixels with random boxes, so many in each."""
    generator = torch.Generator().manual_seed(0)
    corners = torch.rand(images, boxes, 2, 2, generator=generator) * imgsz
    pixels = torch.randint(0, 256, (images, 3, imgsz, imgsz), dtype=torch.uint8, generator=generator)
    return Batch(
        images=pixels.contiguous(memory_format=torch.channels_last),
        targets={
            "boxes": torch.cat([corners.amin(2), corners.amax(2) + 1], dim=-1),
            "classes": torch.randint(0, len(NAMES), (images, boxes), generator=generator),
        },
        paths=("",) * images,
        indices=tuple(range(images)),
        original_sizes=((imgsz, imgsz),) * images,
        matrices=torch.eye(3).expand(images, 3, 3),
    )


def update(network: Network, window: GradientWindow, batch: Batch, micro_batches: int = 1) -> None:
    """One optimizer step from `micro_batches` times the same batch."""
    criterion = DetectionCriterion()
    for index in range(micro_batches):
        with window.micro_batch(last=index == micro_batches - 1):
            window.add(criterion(network(batch.images), batch), num_images=len(batch))
    assert window.step().applied
