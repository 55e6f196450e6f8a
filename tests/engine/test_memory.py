"""Memory is measured as the system tells it, and what is concluded from few images holds for many."""

from __future__ import annotations

import pytest
import torch

from visiontrain.engine.memory import (
    NEVER_FITS,
    ResidentMeter,
    largest,
    meter_of,
    micro_batch_sizes_for,
    peak_of,
    straight_line,
)

MB = 2**20
needs_linux = pytest.mark.skipif(
    meter_of(torch.device("cpu")) is None, reason="this system does not tell a process's memory"
)


@pytest.mark.parametrize(
    ("nbs", "most", "sizes"),
    [
        (64, 1000, (1, 2, 4, 8, 16, 32, 64)),
        (60, 1000, (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 16, 20, 30, 32, 60)),
        (61, 1000, (1, 2, 4, 8, 16, 32, 61)),
        (64, 20, (1, 2, 4, 8, 16)),
        (1, 1000, (1,)),
        (64, 1, (1,)),
    ],
)
def test_sizes_divide_a_window_or_are_powers_of_two_and_there_are_so_many_images(nbs, most, sizes):
    assert micro_batch_sizes_for(nbs, most) == sizes


@pytest.mark.parametrize("fitting", [1, 2, 7, 24, 200])
def test_the_largest_divides_the_window_unless_another_is_twice_as_large(fitting):
    for nbs in range(1, 130):
        sizes = [size for size in micro_batch_sizes_for(nbs, 1000) if size <= fitting]
        chosen = largest(sizes, nbs)
        assert chosen in sizes
        assert 2 * chosen > max(sizes)
        if nbs % chosen:
            assert all(size <= chosen / 2 for size in sizes if nbs % size == 0)


@pytest.mark.parametrize(("nbs", "fitting", "chosen"), [(64, 24, 16), (60, 24, 20), (61, 24, 16), (61, 61, 61)])
def test_the_largest_of_what_fits(nbs, fitting, chosen):
    assert largest([size for size in micro_batch_sizes_for(nbs, 1000) if size <= fitting], nbs) == chosen


def test_two_measurements_tell_the_rest():
    needs = straight_line((2, 100 + 2 * 30), (4, 100 + 4 * 30), least_slope=0)
    assert [needs(images) for images in (1, 2, 16)] == [130, 160, 580]


def test_an_image_takes_no_less_than_is_known():
    assert straight_line((2, 500), (4, 490), least_slope=25.0)(8) == 590


@needs_linux
def test_what_is_held_at_once_is_measured_and_what_was_freed_before_does_not_hide_it():
    survivors = []

    def hold(megabytes):
        def run():
            # Pieces so small that they come from the C library's heap, which cannot shrink below one that stays.
            pieces = [torch.ones(MB // 128) for _ in range(32 * megabytes)]
            survivors.append(torch.ones(1024))
            del pieces

        return run

    meter = ResidentMeter()
    for megabytes in (64, 96, 64, 32):  # the smaller behind the larger
        measured = meter.peak(hold(megabytes)) / MB
        assert measured == pytest.approx(megabytes, rel=0.2, abs=6)


def test_running_out_of_memory_fits_never_and_other_errors_are_told():
    class Meter:
        def peak(self, run):
            run()
            return 1

    def run_out():
        raise torch.OutOfMemoryError("CUDA out of memory")

    def fail():
        raise RuntimeError("shapes do not match")

    assert peak_of(Meter(), run_out) == NEVER_FITS
    with pytest.raises(RuntimeError, match="shapes do not match"):
        peak_of(Meter(), fail)


def test_other_devices_have_no_meter():
    assert meter_of(torch.device("mps")) is None
