"""The gradients of some windows in float64, as the optimizer gets them: `python gradients.py FOLDER NETWORK`.

Started by torchrun it shares every micro-batch with the other processes; PROCESS.pt holds one gradient a window.
"""

import os
import sys
from pathlib import Path

import torch

from visiontrain.config.load import load_config
from visiontrain.engine.evaluate import unmoved
from visiontrain.engine.window import GradientWindow
from visiontrain.models.norm import set_norm_
from visiontrain.plan import Part, Window
from visiontrain.run.prepare import fresh_network, task_of
from visiontrain.run.starts import joined, place_from
from visiontrain.sample import Batch

BOXES = (0, 1, 30, 2, 0, 5, 1, 9)  # of each image
WINDOWS = {"even": (0, 8), "one image": (2, 1), "short": (5, 3), "background first": (4, 4)}
"""Its first image and its images: of several processes one is without any, or has no box."""
SIZE, CLASSES = 64, 3


def images(start, count):
    """Images of the set as one batch."""
    numbers = range(start, start + count)
    most = max((BOXES[number] for number in numbers), default=0)
    pixels = torch.zeros(count, 3, SIZE, SIZE, dtype=torch.float64)
    boxes, classes = torch.zeros(count, most, 4), torch.full((count, most), -1)
    for row, number in enumerate(numbers):
        generator = torch.Generator().manual_seed(number)
        pixels[row] = torch.rand(3, SIZE, SIZE, dtype=torch.float64, generator=generator)
        corners = torch.rand(BOXES[number], 2, 2, generator=generator).sort(dim=1).values * SIZE
        boxes[row, : BOXES[number]] = corners.flatten(1)
        classes[row, : BOXES[number]] = torch.randint(CLASSES, (BOXES[number],), generator=generator)
    return Batch(
        images=pixels if count else torch.zeros(0, 3, 0, 0, dtype=torch.float64),
        targets={"boxes": boxes, "classes": classes},
        paths=tuple(map(str, numbers)),
        indices=tuple(numbers),
        original_sizes=((SIZE, SIZE),) * count,
        matrices=torch.eye(3).expand(count, 3, 3),
    )


class Recording(torch.optim.SGD):
    """Keeps the gradients that it is given, and moves nothing."""

    def __init__(self, network):
        super().__init__(network.parameters(), lr=0.0)
        self.gradient = None

    def step(self, closure=None):
        self.gradient = torch.cat([param.grad.flatten() for param in self.param_groups[0]["params"]])


def main(folder, model):
    config = load_config("train", python={"model": model, "imgsz": SIZE})
    task = task_of(config)
    network = fresh_network(config, task, tuple("abc")).double()
    set_norm_(network, "frozen")
    criterion, optimizer, gradients = task.criterion(network, config), Recording(network), {}
    with joined(place_from(os.environ)) as member:
        group = member.group
        window = GradientWindow(optimizer, model=group.replicate(network), gain=8.0)
        for name, (start, count) in WINDOWS.items():
            planned = Window(0, 0, start, (count,))
            window.open(planned.size)
            for part in Part(group.place.process, group.size, most=count if group.size == 1 else 4).of(planned):
                batch = images(part.start, part.size)
                with window.micro_batch(last=part.is_last), unmoved(network, by=batch):
                    window.add(criterion(window.model(batch.images), batch), num_images=len(batch))
            assert window.step().applied, name
            gradients[name] = optimizer.gradient
        torch.save(gradients, folder / f"{group.place.process}of{group.size}.pt")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), sys.argv[2])
