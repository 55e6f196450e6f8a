"""What stands for the names that torch and numpy write into pickles makes no more than a file has room for."""

import pytest
import torch

from visiontrain.models.pickles import Allowance, Reference, UnreadableError
from visiontrain.models.stored import Storage, StoredArray, StoredDtype, stored_rules

FLOATS = Reference("torch", "FloatStorage")


def rules_of(*, copied_bytes=100, file_size=100, storages=None):
    return stored_rules(Allowance(copied_bytes), file_size, {} if storages is None else storages)


@pytest.mark.parametrize("kind", ["list", "tuple", "set", "frozenset"])
def test_containers_are_copied_as_often_as_the_file_has_room_for(kind):
    build = rules_of(copied_bytes=100).builders[Reference("builtins", kind)]
    assert len(build([1, 2, 3])) == 3  # 16 bytes each
    with pytest.raises(UnreadableError, match="unfolds to far more"):
        build([1, 2, 3, 4])


def test_bytes_that_stand_as_text_are_copied_as_often_as_the_file_has_room_for():
    encode = rules_of(copied_bytes=10).builders[Reference("_codecs", "encode")]
    assert encode("\xff" * 6, "latin1") == b"\xff" * 6
    with pytest.raises(UnreadableError, match="unfolds to far more"):
        encode("\xff" * 6, "latin1")


@pytest.mark.parametrize("kind", ["set", "frozenset"])
def test_members_of_sets_are_plain_ones_which_can_be_hashed_at_no_risk(kind):
    with pytest.raises(ValueError, match="not plain"):
        rules_of().builders[Reference("builtins", kind)]([(1,)])


def test_a_storage_is_no_larger_than_the_file():
    storages: dict[str, Storage] = {}
    persistent = rules_of(file_size=100, storages=storages).persistent
    assert persistent(("storage", FLOATS, "0", "cpu", 25)) == Storage("0", torch.float32, 25)
    with pytest.raises(UnreadableError, match="claims more numbers"):
        persistent(("storage", FLOATS, "1", "cpu", 26))
    assert list(storages) == ["0"]


def test_an_array_has_as_many_numbers_as_its_shape_says():
    array, floats = StoredArray(), StoredDtype("f4")
    rules_of().give_state(array, (1, (2, 1), floats, False, bytes(8)))
    assert (array.dtype, array.shape) == (torch.float32, (2, 1))
    with pytest.raises(UnreadableError, match="another shape than its numbers"):
        rules_of().give_state(StoredArray(), (1, (3, 1), floats, False, bytes(8)))
