import io
import pickle
import re
import struct
import zipfile
from collections import Counter, OrderedDict

import numpy as np
import pytest
import torch
from torch import nn

from visiontrain.models.pickles import Allowance, UnreadableError
from visiontrain.models.stored import Storage, StoredArray, StoredTensor
from visiontrain.models.torch_files import TorchFile, read_torch_file

DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
]


def saved(value, **settings):
    buffer = io.BytesIO()
    torch.save(value, buffer, **settings)
    return buffer.getvalue()


def opened(data):
    return read_torch_file(io.BytesIO(data), len(data))


def tensors_of(data):
    found = opened(data)
    return {name: found.tensor(stored) for name, stored in found.root.items()}


@pytest.mark.parametrize("is_zip", [True, False])
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_tensors_of_all_types_and_layouts_come_out_as_torch_reads_them(is_zip, protocol):
    base = torch.arange(24.0)
    state = OrderedDict((str(dtype), (torch.arange(6) % 3).to(dtype).view(2, 3)) for dtype in DTYPES)
    state |= {"t": base.view(4, 6).t(), "part": base[3:9].view(2, 3), "step": base[::5], "scalar": torch.tensor(3.0)}
    state |= {"empty": torch.empty(0, 3), "parameter": nn.Parameter(torch.ones(2))}
    state |= {"last": torch.ones(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)}
    data = saved(state, _use_new_zipfile_serialization=is_zip, pickle_protocol=protocol)
    found = tensors_of(data)
    assert list(found) == list(state)
    for name, tensor in state.items():
        torch.testing.assert_close(found[name], tensor.detach(), rtol=0, atol=0)
        assert found[name].stride() == tensor.stride()
    assert found["t"].untyped_storage().data_ptr() == found["part"].untyped_storage().data_ptr()


def test_numpy_arrays_and_scalars_are_read_and_arrays_of_objects_stay_without_a_type():
    values = {
        "c": np.arange(6, dtype=np.float32).reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "empty": np.empty((0, 2), np.float16),
        "scalar": np.float64(2.5),
        "objects": np.array([{}, None], dtype=object),
        "big": np.arange(3, dtype=">f4"),
    }
    found = opened(pickle.dumps(values, 2))
    assert found.form == "pickle"
    assert found.root["scalar"] == 2.5
    assert found.root["objects"].dtype is None
    assert found.root["big"].dtype is None
    for name in ("c", "fortran", "empty"):
        assert np.array_equal(found.tensor(found.root[name]).numpy(), values[name])


@pytest.mark.parametrize("tensor", [torch.ones(1).expand(1 << 40), torch._neg_view(torch.ones(2))])
def test_a_tensor_that_repeats_or_turns_its_numbers_is_left_inert(tensor):
    found = opened(saved({"w": tensor}))
    assert found.not_run == {"torch._utils._rebuild_tensor_v2": 1}


@pytest.mark.parametrize("is_zip", [True, False])
def test_a_file_that_was_cut_short_is_refused_at_any_place(is_zip):
    data = saved({"w": torch.ones(50)}, _use_new_zipfile_serialization=is_zip)
    for cut in range(0, len(data), 7):
        with pytest.raises(UnreadableError):
            tensors_of(data[:cut])


def rewritten(data, change):
    """An archive whose entries are what `change` makes of their names and contents."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(buffer, "w") as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))
    return buffer.getvalue()


@pytest.mark.parametrize("order", [b"big", b"little"])
def test_the_order_of_bytes_is_that_of_this_machine_or_refused(order, monkeypatch):
    data = saved({"w": torch.ones(2)})
    monkeypatch.setattr("sys.byteorder", {b"big": "little", b"little": "big"}[order])
    changed = rewritten(data, lambda name, content: order if name.endswith("byteorder") else content)
    with pytest.raises(UnreadableError, match="another byte order"):
        opened(changed)


def test_an_entry_that_is_shorter_than_its_tensors_is_not_read_on_into_the_next():
    data = saved({"w": torch.ones(50), "v": torch.ones(50)})
    with pytest.raises(UnreadableError, match="reach beyond their numbers"):
        tensors_of(rewritten(data, lambda name, content: content[:-4] if name.endswith("data/0") else content))


def test_a_tensor_that_claims_more_than_its_storage_has_is_refused_before_its_numbers_are_read():
    data = saved({"w": torch.ones(50)[10:]})
    with pytest.raises(UnreadableError, match="reach beyond their numbers"):
        opened(rewritten(data, lambda _, content: content.replace(b"K\x28\x85", b"K\x29\x85")))  # 41 from the tenth on


def test_of_several_pickles_in_an_archive_the_outermost_is_the_file():
    buffer = io.BytesIO(saved({"w": torch.ones(2)}))
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr("archive/extra/data.pkl", pickle.dumps({}))
    assert list(tensors_of(buffer.getvalue())) == ["w"]


def test_the_pickle_of_an_archive_alone_lacks_its_numbers():
    with zipfile.ZipFile(io.BytesIO(saved({"w": torch.ones(2)}))) as archive:
        name = next(name for name in archive.namelist() if name.endswith("data.pkl"))
        alone = archive.read(name)
    with pytest.raises(UnreadableError, match="its tensors have no numbers"):
        opened(alone)


@pytest.mark.parametrize(
    ("pattern", "replacement", "message"),
    [
        (rb"\x80\x02M\xe9\x03\.", b"\x80\x02M\xea\x03.", "version of torch's old form"),
        (rb"(?<=little_endianq.)[\x88\x89]", b"N", "another byte order"),
        (re.escape(struct.pack("<q", 50)) + rb"(?=\x00\x00\x80\x3f)", struct.pack("<q", 49), "of another length than"),
        (rb"\]q.X.\x00\x00\x00[^q]*q.a\.", b"].", "cut short"),
    ],
    ids=["version", "order of bytes", "length", "number of storages"],
)
def test_a_stream_whose_parts_contradict_each_other_is_refused(pattern, replacement, message):
    whole = saved({"w": torch.ones(50)}, _use_new_zipfile_serialization=False)
    data, count = re.subn(pattern, lambda _: replacement, whole, flags=re.DOTALL)
    assert count == 1
    with pytest.raises(UnreadableError, match=message):
        opened(data)


def test_no_more_is_asked_of_a_file_than_it_holds():
    class Wary(io.BytesIO):
        def read(self, count=-1):
            assert 0 <= count <= len(self.getvalue())
            return super().read(count)

    data = b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b"short."
    with pytest.raises(UnreadableError, match="damaged"):
        read_torch_file(Wary(data), len(data))


def test_numbers_that_several_names_or_types_refer_to_are_copied_once_and_no_more_than_allowed():
    def stored(key, count=4):
        return StoredTensor(Storage(key, torch.float32, count), torch.float32, 0, (count,), (1,))

    file = TorchFile("torch", None, Counter(), lambda key, count: bytearray(count), Allowance(40))
    assert file.tensor(stored("a")).data_ptr() == file.tensor(stored("a")).data_ptr()
    with pytest.raises(UnreadableError, match="reach beyond their numbers"):
        file.tensor(stored("a", 5))  # the same storage, told to be longer
    file.tensor(StoredArray(torch.float32, (4,), raw=bytes(16)))
    for another in (stored("b"), StoredArray(torch.float32, (4,), raw=bytes(16))):
        with pytest.raises(UnreadableError, match="unfolds to far more"):
            file.tensor(another)


def test_a_compressed_archive_and_the_form_of_2017_are_refused():
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(10**6))
    with pytest.raises(UnreadableError, match="compressed or encrypted"):
        opened(packed.getvalue())
    with pytest.raises(UnreadableError, match="form of 2017"):
        opened(bytes(257) + b"ustar" + bytes(250))
