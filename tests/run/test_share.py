"""How many images are in memory at once follows from the run's own processes, not from those that came back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from visiontrain.config.schema import Config
from visiontrain.engine.distributed import Group, Place
from visiontrain.run.share import memory_share


def share_of(size, *, batch=8, began=4, stored=None, remembered=None):
    """What a group of `size` holds of a run that began with `began`; `stored` is the micro-batch of its checkpoint."""
    config = replace(Config(), batch=batch, processes=began)
    checkpoint = None if stored is None else {"micro_batch": stored, "args": {"values": {"batch": 8}}}
    return memory_share(config, checkpoint, Group(Place(processes=size)), remembered=remembered)


@pytest.mark.parametrize(
    ("size", "most"),
    [(4, 8), (3, 6), (2, 4), (1, 2), (8, 8)],  # two images in each process, and no more than batch in all
)
def test_a_group_that_came_back_in_another_size_is_asked_for_no_more_of_each(size, most):
    assert share_of(size).most == most


@pytest.mark.parametrize(("size", "most"), [(3, 8), (2, 6), (1, 3)])
def test_uneven_shares_are_counted_by_the_largest(size, most):
    assert share_of(size, began=3).most == most


@pytest.mark.parametrize("began", [1, 2, 5, 8, 16])
@pytest.mark.parametrize("size", [1, 2, 3, 8, 20])
@pytest.mark.parametrize("batch", [1, 7, 8, 64])
def test_no_process_holds_more_than_one_held_at_first(batch, size, began):
    share = share_of(size, batch=batch, began=began)
    assert 1 <= share.most <= share.limit == batch
    assert -(-share.most // size) <= -(-batch // began)


def test_what_was_found_to_fit_before_is_kept():
    assert share_of(4, stored=4).most == 4
    assert share_of(2, stored=4).most == 2


def test_a_batch_that_is_typed_anew_is_tried_anew():
    assert share_of(4, batch=16, stored=4).most == 16


@pytest.mark.parametrize(("stored", "remembered", "most"), [(None, 4, 4), (8, 4, 4), (4, 8, 4), (None, None, 8)])
def test_what_an_earlier_start_has_left_counts_where_it_is_less(stored, remembered, most):
    assert share_of(4, stored=stored, remembered=remembered).most == most


def test_a_group_in_its_first_size_keeps_what_it_was_asked_for():
    share = share_of(4)
    assert share.limit_by(share.most) == 8


def test_what_a_smaller_group_finds_to_fit_is_told_for_the_processes_of_the_run():
    share = share_of(1)
    assert share.limit_by(share.most) == 8  # nothing new was found
    assert share.limit_by(1) == 4  # one image at once in each of four
    assert share_of(4, stored=share.limit_by(1)).most == 4
