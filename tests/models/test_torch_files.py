import io
import pickle
import zipfile
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn

from visiontrain.models.pickles import UnreadableError
from visiontrain.models.torch_files import read_torch_file

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


def test_a_tensor_that_repeats_its_numbers_is_left_inert():
    found = opened(saved({"w": torch.ones(1).expand(1 << 40)}))
    assert found.not_run == {"torch._utils._rebuild_tensor_v2": 1}


@pytest.mark.parametrize("is_zip", [True, False])
def test_a_file_that_was_cut_short_is_refused_at_any_place(is_zip):
    data = saved({"w": torch.ones(50)}, _use_new_zipfile_serialization=is_zip)
    for cut in range(0, len(data), 7):
        with pytest.raises(UnreadableError):
            tensors_of(data[:cut])


@pytest.mark.parametrize("order", [b"big", b"little"])
def test_the_order_of_bytes_is_that_of_this_machine_or_refused(order, monkeypatch):
    data = saved({"w": torch.ones(2)})
    monkeypatch.setattr("sys.byteorder", {b"big": "little", b"little": "big"}[order])
    rewritten = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(rewritten, "w") as new:
        for name in old.namelist():
            new.writestr(name, order if name.endswith("byteorder") else old.read(name))
    with pytest.raises(UnreadableError, match="another byte order"):
        opened(rewritten.getvalue())


def test_a_compressed_archive_and_the_form_of_2017_are_refused():
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(10**6))
    with pytest.raises(UnreadableError, match="compressed or encrypted"):
        opened(packed.getvalue())
    with pytest.raises(UnreadableError, match="form of 2017"):
        opened(bytes(257) + b"ustar" + bytes(250))
