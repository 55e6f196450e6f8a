from __future__ import annotations

import hashlib
import json
import multiprocessing
import subprocess
import sys
from itertools import islice, product
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from visiontrain.data.cache import open_image_cache
from visiontrain.data.collate import collate_detection
from visiontrain.data.dataset import EvalDataset, TrainDataset
from visiontrain.data.formats import read_data_set
from visiontrain.data.loader import EvalLoader, TrainLoader
from visiontrain.data.sampler import Sampler
from visiontrain.data.transforms.letterbox import Letterbox
from visiontrain.data.transforms.train import AugmentSettings, TrainTransform
from visiontrain.plan import ALL, Part, plan_run

NUM_IMAGES, EPOCHS = 11, 2


@pytest.fixture
def records(tiny_yolo):
    return read_data_set(tiny_yolo(NUM_IMAGES)).splits["train"]


@pytest.fixture
def loader_of(records):
    def make(*, batch=4, workers=0, part=ALL):
        transform = TrainTransform(AugmentSettings(imgsz=64, mosaic_until_epoch=1, mixup=0.3), 5)
        plan = plan_run(num_images=NUM_IMAGES, batch=batch, nbs=8, epochs=EPOCHS)
        dataset = TrainDataset(records, transform, sampler=Sampler(len(records), seed=5), imgsz=64)
        return TrainLoader(dataset, plan, collate_detection, workers=workers, part=part)

    return make


def fingerprints(batches):
    """A hash of each image with its targets, in order."""
    found = []
    for batch in batches:
        for row, index in enumerate(batch.indices):
            kept = batch.targets["classes"][row] >= 0
            parts = (batch.images[row], batch.targets["boxes"][row][kept], batch.targets["classes"][row][kept])
            content = b"".join(part.contiguous().numpy().tobytes() for part in parts)
            found.append((index, hashlib.sha256(content).hexdigest()))
    return found


def run_of(loader, first_window=0):
    return fingerprints(batch for window in loader.windows(first_window) for batch in window)


def test_samples_are_the_same_for_any_number_of_workers_and_any_batch(loader_of):
    expected = run_of(loader_of())
    assert len(expected) == NUM_IMAGES * EPOCHS
    assert len({print_ for _, print_ in expected}) == NUM_IMAGES * EPOCHS
    assert run_of(loader_of(batch=1)) == expected
    assert run_of(loader_of(batch=8)) == expected
    assert run_of(loader_of(workers=2)) == expected


def test_every_image_comes_exactly_once_in_every_epoch(loader_of):
    indices = [index for index, _ in run_of(loader_of())]
    for epoch in range(EPOCHS):
        assert sorted(indices[epoch * NUM_IMAGES : (epoch + 1) * NUM_IMAGES]) == list(range(NUM_IMAGES))


@pytest.mark.parametrize(("processes", "most"), [(2, None), (3, None), (5, None), (2, 3)])
def test_the_samples_of_all_processes_are_those_of_one(loader_of, processes, most):
    parts = [loader_of(part=Part(process, processes, most)).windows() for process in range(processes)]
    together = []
    for windows in zip(*parts, strict=True):
        assert len({len(window) for window in windows}) == 1
        for batches in zip(*windows, strict=True):
            assert len({batch.is_last for batch in batches}) == 1
            together += fingerprints(batches)
    assert together == run_of(loader_of())


def test_a_process_without_an_image_of_a_micro_batch_has_a_batch_without_images(loader_of):
    batches = [batch for window in loader_of(batch=2, part=Part(2, 3)).windows() for batch in window]
    assert {len(batch) for batch in batches} == {0}
    assert {tuple(batch.images.shape) for batch in batches} == {(0, 3, 0, 0)}
    assert {name: len(targets) for name, targets in batches[0].targets.items()} == {"boxes": 0, "classes": 0}
    assert any(batch.is_last for batch in batches)


def test_a_run_taken_up_at_a_later_window_is_the_rest_of_the_run(loader_of):
    loader = loader_of()
    whole = [fingerprints(window) for window in loader.windows()]
    for first in range(len(whole)):
        assert [fingerprints(window) for window in loader.windows(first)] == whole[first:]


def test_windows_are_those_of_the_plan_and_their_last_micro_batch_says_so(loader_of):
    for window in loader_of().windows():
        batches = list(window)
        assert tuple(len(batch) for batch in batches) == window.planned.sizes
        assert [batch.is_last for batch in batches] == [False] * (len(batches) - 1) + [True]
        assert window.t_data > 0


def test_a_window_can_be_replayed_and_may_be_left_early(loader_of):
    expected = run_of(loader_of())
    found = []
    for window in loader_of().windows():
        next(iter(window))  # left after one micro-batch, as an error would
        found += fingerprints(window)
        assert [batch.indices for batch in window] == [batch.indices for batch in window]
    assert found == expected


def test_a_window_nobody_iterated_over_does_not_shift_the_next(loader_of):
    expected = [fingerprints(window) for window in loader_of().windows()]
    found = [fingerprints(window) if place % 2 else None for place, window in enumerate(loader_of().windows())]
    assert found[1::2] == expected[1::2]


def test_a_new_iteration_may_begin_before_the_old_one_ended(loader_of):
    loader = loader_of()
    expected = run_of(loader_of())
    next(loader.windows())
    assert run_of(loader) == expected
    loader.close()


def test_no_global_random_state_and_no_thread_count_is_touched(loader_of):
    import random

    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    threads = torch.get_num_threads(), cv2.getNumThreads()
    run_of(loader_of())
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert np.array_equal(np.random.get_state()[1], states[2])
    assert (torch.get_num_threads(), cv2.getNumThreads()) == threads


@pytest.mark.slow
def test_workers_that_are_closed_in_the_midst_of_their_work_end_in_order(loader_of):
    before = set(multiprocessing.active_children())
    loader = loader_of(batch=1, workers=1)
    list(next(loader.windows()))
    workers = set(multiprocessing.active_children()) - before
    loader.close()
    for worker in workers:
        worker.join(30)
    assert [worker.exitcode for worker in workers] == [0]


@pytest.fixture
def mixed_records(tmp_path):
    """A split of seven images in three proportions."""
    from PIL import Image

    for folder in ("images", "labels"):
        (tmp_path / folder).mkdir()
    for index, size in enumerate([(64, 48), (48, 64), (64, 64), (128, 96), (64, 48), (48, 64), (64, 48)]):
        Image.new("RGB", size, (index * 30, 0, 0)).save(tmp_path / "images" / f"{index}.png")
        (tmp_path / "labels" / f"{index}.txt").write_text("0 .5 .5 .5 .5\n")
    (tmp_path / "data.yaml").write_text("train: images\nnames: [a]\n")
    return read_data_set(tmp_path).splits["train"]


def test_an_image_is_evaluated_with_the_same_pixels_in_any_batch(mixed_records):
    dataset = EvalDataset(mixed_records, Letterbox(64, 16))
    runs = [sorted(fingerprints(EvalLoader(dataset, collate_detection, batch=b, workers=0))) for b in (1, 2, 3, 7)]
    assert [index for index, _ in runs[0]] == list(range(7))
    assert all(run == runs[0] for run in runs)


def test_batches_of_evaluation_hold_one_shape_and_come_again_in_the_same_order(mixed_records):
    loader = EvalLoader(EvalDataset(mixed_records, Letterbox(64, 16)), collate_detection, batch=2, workers=0)
    first, second = list(loader), list(loader)
    assert fingerprints(first) == fingerprints(second)
    assert {tuple(batch.images.shape[2:]) for batch in first} == {(48, 64), (64, 48), (64, 64)}
    assert max(map(len, first)) == 2
    assert sorted(index for batch in first for index in batch.indices) == list(range(7))


@pytest.mark.parametrize("processes", [2, 3, 5])
def test_processes_evaluate_every_image_once_and_in_the_batches_of_one(mixed_records, processes):
    def loader(part=ALL):
        return EvalLoader(
            EvalDataset(mixed_records, Letterbox(64, 16)), collate_detection, batch=2, workers=0, part=part
        )

    whole = [batch.indices for batch in loader()]
    parts = [[batch.indices for batch in loader(Part(process, processes))] for process in range(processes)]
    assert sorted(batch for part in parts for batch in part) == sorted(whole)
    counts = [sum(map(len, part)) for part in parts]
    assert max(counts) - min(counts) <= 2
    prints = sorted(fingerprints(loader()))
    assert (
        sorted(one for process in range(processes) for one in fingerprints(loader(Part(process, processes)))) == prints
    )


@pytest.mark.slow
def test_workers_of_evaluation_serve_several_iterations(mixed_records):
    dataset = EvalDataset(mixed_records, Letterbox(64, 16))
    expected = fingerprints(EvalLoader(dataset, collate_detection, batch=2, workers=0))
    loader = EvalLoader(dataset, collate_detection, batch=2, workers=1)
    assert fingerprints(loader) == expected
    assert fingerprints(loader) == expected
    loader.close()


def test_an_unreadable_image_keeps_its_place_with_no_weight(records, loader_of):
    records[3].path.write_bytes(b"gone bad")
    batches = [batch for window in loader_of().windows() for batch in window]
    assert sum(len(batch.unreadable) for batch in batches) == EPOCHS
    assert sum(map(len, batches)) == (NUM_IMAGES - 1) * EPOCHS
    evaluated = list(EvalLoader(EvalDataset(records, Letterbox(64, 32)), collate_detection, batch=4, workers=0))
    assert [path for batch in evaluated for path in batch.unreadable] == [str(records[3].path)]


SHARED = 64
"""Samples that two processes make together."""
REAL = AugmentSettings(imgsz=320, mosaic_until_epoch=1, mixup=0.3)


def real_dataset(bccd):
    records = read_data_set(bccd, splits=("train",)).splits["train"]
    sampler = Sampler(len(records), seed=5)
    return TrainDataset(records, TrainTransform(REAL, 5), sampler=sampler, imgsz=REAL.imgsz)


def print_every_second(bccd, rank):
    """What one of two processes makes of each micro-batch: every second sample of it."""
    dataset = real_dataset(bccd)
    plan = plan_run(num_images=len(dataset), batch=8, nbs=64, epochs=1)
    micro_batches = islice(dataset.sampler.micro_batches(plan), SHARED // 8)
    keys = [key for micro_batch in micro_batches for key in micro_batch[rank::2]]
    print(json.dumps([(key.place, *fingerprints([collate_detection([dataset[key]])])[0]) for key in keys]))


@pytest.mark.slow
def test_two_processes_make_together_what_one_makes(test_data):
    commands = [[sys.executable, __file__, str(test_data / "bccd"), str(rank)] for rank in range(2)]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    parts = [json.loads(run.communicate()[0]) for run in runs]
    together = [tuple(found) for _, *found in sorted(parts[0] + parts[1])]
    dataset = real_dataset(test_data / "bccd")
    plan = plan_run(num_images=len(dataset), batch=SHARED, nbs=SHARED, epochs=1)
    (window,) = islice(TrainLoader(dataset, plan, collate_detection, workers=0).windows(), 1)
    assert together == fingerprints(window)
    assert len(together) == SHARED


BATCHES, WORKERS, CACHES = (1, 8, 64), (0, 2), ("none", "ram", "disk")
EVERYTHING = list(product(BATCHES, WORKERS, CACHES))
"""What the machine decides, and a sample must not depend on."""
A_FEW = [(1, 0, "none"), (64, 0, "disk"), (8, 2, "ram")]


def first_samples(records, count, imgsz, folder, machine):
    """One hash over the images and boxes of the first `count` training samples."""
    batch, workers, where = machine
    cache = None
    if where != "none":
        cache = open_image_cache(records, where, imgsz=imgsz, free_memory=None, threads=2, folder=folder)
    transform = TrainTransform(AugmentSettings(imgsz=imgsz, mosaic_until_epoch=1, mixup=0.3), 5)
    plan = plan_run(num_images=len(records), batch=batch, nbs=64, epochs=2)
    dataset = TrainDataset(records, transform, sampler=Sampler(len(records), seed=5), imgsz=imgsz, cache=cache)
    loader = TrainLoader(dataset, plan, collate_detection, workers=workers)
    batches = (batch for window in loader.windows() for batch in window)
    found = list(islice((one for batch in batches for one in fingerprints([batch])), count))
    loader.close()
    assert len(found) == count
    return hashlib.sha256(repr(found).encode()).hexdigest()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "imgsz", "machines"),
    [(32, 320, A_FEW), pytest.param(200, 640, EVERYTHING, marks=pytest.mark.slow)],
    ids=["quick", "whole"],
)
def test_real_samples_do_not_depend_on_batch_workers_or_cache(test_data, tmp_path, count, imgsz, machines):
    records = read_data_set(test_data / "bccd", splits=("train",)).splits["train"]
    hashes = {machine: first_samples(records, count, imgsz, tmp_path / "caches", machine) for machine in machines}
    assert len(set(hashes.values())) == 1, hashes


if __name__ == "__main__":  # one of two processes
    print_every_second(Path(sys.argv[1]), int(sys.argv[2]))
