from __future__ import annotations

import pytest
import torch

from visiontrain.engine.prefetch import on_device
from visiontrain.sample import Batch


def batch_of(*numbers):
    count = len(numbers)
    return Batch(
        images=torch.tensor(numbers, dtype=torch.uint8).reshape(-1, 1, 1, 1).expand(-1, 3, 4, 4).contiguous(),
        targets={"classes": torch.zeros(count, 1, dtype=torch.int64)},
        paths=tuple(map(str, numbers)),
        indices=numbers,
        original_sizes=((4, 4),) * count,
        matrices=torch.eye(3).expand(count, 3, 3),
    )


BATCHES = [(1, 2), (), (3,), (), (4, 5, 6), ()]


def test_batches_come_in_order_and_those_without_an_image_are_left_out():
    found = on_device([batch_of(*numbers) for numbers in BATCHES], torch.device("cpu"))
    assert [batch.indices for batch in found] == [(1, 2), (3,), (4, 5, 6)]


def test_those_without_an_image_are_kept_where_a_process_takes_part_in_every_exchange():
    found = on_device([batch_of(*numbers) for numbers in BATCHES], torch.device("cpu"), keeps_empty=True)
    assert [batch.indices for batch in found] == BATCHES


def test_on_a_processor_none_is_asked_for_before_it_is_used():
    asked = []

    def batches():
        for number in (1, 2):
            asked.append(number)
            yield batch_of(number)

    found = on_device(batches(), torch.device("cpu"))
    next(found)
    assert asked == [1]


@pytest.mark.gpu
def test_on_a_gpu_the_next_is_copied_before_this_one_is_used():
    asked, device = [], torch.device("cuda", 0)

    def batches():
        for number in (1, 2, 3):
            asked.append(number)
            yield batch_of(number).pin_memory()

    found = on_device(batches(), device)
    first = next(found)
    assert asked == [1, 2]
    assert first.images.device == device
    assert [batch.images[0, 0, 0, 0].item() for batch in (first, *found)] == [1, 2, 3]
