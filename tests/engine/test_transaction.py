"""A window whose memory runs out is replayed on smaller micro-batches: the same images, the same update."""

import pytest
import torch
from torch import nn
from torch.optim import SGD

from visiontrain.engine.distributed import Group, Place
from visiontrain.engine.precision import Precision
from visiontrain.engine.transaction import OutOfMemoryInGroup, Transaction, is_out_of_memory
from visiontrain.engine.window import GradientWindow
from visiontrain.errors import ConfigError
from visiontrain.losses.sums import LossSum
from visiontrain.plan import Window
from visiontrain.sample import Batch


def batch_of(start, size, *, is_last):
    generator = torch.Generator().manual_seed(start)
    return Batch(
        images=torch.randint(0, 256, (size, 3, 2, 2), dtype=torch.uint8, generator=generator),
        targets={},
        paths=tuple(str(start + index) for index in range(size)),
        indices=tuple(range(start, start + size)),
        original_sizes=((2, 2),) * size,
        matrices=torch.eye(3).expand(size, 3, 3),
        is_last=is_last,
    )


class Loaded:
    def __init__(self, *sizes):
        self.planned = Window(index=3, epoch=0, start=0, sizes=sizes)
        self.batches = [batch_of(b.start, b.size, is_last=b.is_last) for b in self.planned.micro_batches]

    def __iter__(self):
        return iter(self.batches)


class Toy:
    """A network with dropout and running statistics, and a device on which `fits` images have room."""

    def __init__(self, *, fits=100, fails_at=(), batch=8, error=torch.OutOfMemoryError, processes=1):
        torch.manual_seed(0)
        self.network = nn.Sequential(nn.Flatten(), nn.Linear(12, 3)).double()
        self.network.register_buffer("passes", torch.zeros(()))
        self.optimizer = SGD(self.network.parameters(), lr=0.1)
        self.gradients = GradientWindow(self.optimizer, model=self.network)
        self.warnings, self.seen = [], []
        precision = Precision("fp32", "cpu", None)
        self.transaction = Transaction(
            self.gradients,
            batch=batch,
            precision=precision,
            warn=self.warnings.append,
            group=Group(Place(processes=processes)),
        )
        self.fits, self.fails_at, self.error = fits, list(fails_at), error

    def step(self, planned, batches):
        self.gradients.open(planned.size)
        self.seen.append([])
        for number, batch in enumerate(batches):
            with self.gradients.micro_batch(last=batch.is_last):
                self.network.passes += 1
                if len(batch) > self.fits or (self.fails_at and self.fails_at[0] == number and self.fails_at.pop(0)):
                    raise self.error("out of memory")
                outputs = self.network(batch.images.double() / 255)
                hits = (outputs.detach() > 0).double()
                self.gradients.add(
                    LossSum((outputs**2 * (1 + hits)).sum(), hits.sum(), floor=1.0), num_images=len(batch)
                )
            self.seen[-1].append((batch.indices, batch.is_last))
        return self.gradients.step()

    def run(self, *sizes):
        return self.transaction.run(Loaded(*sizes), self.step)


def assert_same_update(one, other):
    for param, wanted in zip(one.network.parameters(), other.network.parameters(), strict=True):
        torch.testing.assert_close(param, wanted, rtol=1e-12, atol=1e-15)


def test_a_window_that_fits_runs_once_on_the_planned_micro_batches():
    toy = Toy()
    toy.run(8, 8)
    assert toy.seen == [[(tuple(range(8)), False), (tuple(range(8, 16)), True)]]
    assert toy.warnings == []


@pytest.mark.parametrize("fits", [7, 4, 3, 1])
def test_a_window_that_does_not_fit_takes_the_same_step_with_every_image_once(fits):
    roomy, tight = Toy(), Toy(fits=fits)
    roomy.run(8, 8, 7)
    report = tight.run(8, 8, 7)
    assert report.applied
    assert report.num_images == 23
    assert_same_update(tight, roomy)
    replay = tight.seen[-1]
    assert [index for indices, _ in replay for index in indices] == list(range(23))
    assert [is_last for _, is_last in replay] == [False] * (len(replay) - 1) + [True]
    assert max(len(indices) for indices, _ in replay) <= fits


def test_a_failure_in_the_middle_drops_what_was_added_before_it():
    calm, hit = Toy(), Toy(fails_at=[3])
    calm.run(8, 8, 8, 8)
    hit.run(8, 8, 8, 8)
    assert_same_update(hit, calm)
    assert [len(attempt) for attempt in hit.seen] == [3, 8]
    assert hit.network.passes == 8  # those of the failed attempt are gone from the buffers


def test_the_smaller_micro_batch_is_kept_for_the_windows_after_and_told_once():
    toy = Toy(fits=4)
    toy.run(8, 8)
    toy.run(8, 8)
    assert toy.transaction.batch == 4
    assert len(toy.seen) == 3
    (warning,) = toy.warnings
    assert "window 4 is replayed with micro-batches of at most 4" in warning
    assert "the update stays the same, and checkpoint_activations=True needs less memory" in warning


def test_micro_batches_that_were_smaller_than_allowed_are_halved_from_what_they_were():
    toy = Toy(fits=2, batch=64)
    toy.run(3, 3)
    assert toy.transaction.batch == 2


@pytest.mark.parametrize("sizes", [(8, 8), (1, 1)])
def test_a_single_image_that_does_not_fit_is_an_error_with_a_remedy(sizes):
    toy = Toy(fits=0)
    with pytest.raises(ConfigError, match="does not fit; resume with checkpoint_activations=True, lower imgsz"):
        toy.run(*sizes)
    assert all(param.grad is None for param in toy.network.parameters())


@pytest.mark.parametrize(
    ("sizes", "batch", "largest"), [((8, 8), 8, 8), ((8, 8), 6, 6), ((3, 3), 64, 3), ((5, 4), 8, 5)]
)
def test_one_of_several_processes_replays_nothing_and_tells_what_was_too_much_for_all(sizes, batch, largest):
    toy = Toy(fits=1, batch=batch, processes=2)
    with pytest.raises(OutOfMemoryInGroup, match=f"out of memory at {largest} images over all processes") as caught:
        toy.run(*sizes)
    assert caught.value.largest == largest
    assert len(toy.seen) == 1
    assert toy.warnings == []
    assert all(param.grad is None for param in toy.network.parameters())


@pytest.mark.parametrize(("sizes", "processes"), [((2, 2), 2), ((1,), 2), ((3, 2), 3)])
def test_where_each_of_several_processes_holds_a_single_image_starting_again_would_not_help(sizes, processes):
    toy = Toy(fits=0, processes=processes)
    with pytest.raises(ConfigError, match="a single image does not fit; resume with checkpoint_activations=True"):
        toy.run(*sizes)
    assert all(param.grad is None for param in toy.network.parameters())


def test_other_errors_of_one_of_several_processes_pass_through():
    with pytest.raises(ValueError, match="out of memory"):
        Toy(fits=0, error=ValueError, processes=2).run(8)


def test_memory_that_runs_out_in_the_optimizers_step_ends_the_run_because_weights_may_have_moved(monkeypatch):
    toy = Toy()

    def fail():
        raise torch.OutOfMemoryError

    monkeypatch.setattr(toy.optimizer, "step", fail)
    with pytest.raises(ConfigError, match="memory: the optimizer's own step does not fit; choose a smaller model"):
        toy.run(8, 8)


def test_other_errors_pass_through():
    toy = Toy(fits=0, error=ValueError)
    with pytest.raises(ValueError, match="out of memory"):
        toy.run(8)
    toy = Toy(fits=0, error=RuntimeError)
    with pytest.raises(RuntimeError, match="out of memory"):
        toy.run(8)
    assert len(toy.seen) == 1


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError(), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), True),
        (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
    ],
)
def test_known_words_of_allocators_count_as_out_of_memory(error, expected):
    assert is_out_of_memory(error) is expected
