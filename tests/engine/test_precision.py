"""Which precision `amp` means where, and what it does to a forward pass."""

import pytest
import torch

from visiontrain.engine import precision
from visiontrain.engine.precision import Precision, choose_precision, has_native_bf16

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
# Tests of a GPU's choice make a scaler for it where there is none.
no_gpu_needed = pytest.mark.filterwarnings("ignore:torch.cuda.amp.GradScaler|.*CUDA is not available")


@pytest.fixture
def hardware(monkeypatch):
    def has_bf16(answer):
        monkeypatch.setattr(precision, "has_native_bf16", lambda: answer)
        monkeypatch.setattr(precision, "cuda_has_bf16", lambda device: answer)

    return has_bf16


@no_gpu_needed
@pytest.mark.parametrize(
    ("amp", "device", "is_native", "name"),
    [
        *(("False", device, native, "fp32") for device in (CPU, CUDA) for native in (True, False)),
        *(("auto", device, True, "bf16") for device in (CPU, CUDA)),
        *(("auto", device, False, "fp32") for device in (CPU, CUDA)),
        *(("True", device, True, "bf16") for device in (CPU, CUDA)),
        ("True", CPU, False, "bf16"),
        ("True", CUDA, False, "fp16"),
        *((name, device, native, name) for name in ("fp16", "bf16") for device in (CPU, CUDA) for native in (0, 1)),
    ],
)
def test_amp_means_what_its_description_says(hardware, amp, device, is_native, name):
    hardware(is_native)
    chosen = choose_precision(amp, device)
    assert chosen.name == name
    assert chosen.device_type == device.type
    assert chosen.dtype == {"fp32": None, "fp16": torch.float16, "bf16": torch.bfloat16}[name]
    assert (chosen.scaler is not None) == (name == "fp16")


@pytest.mark.parametrize(
    ("name", "dtype"), [("False", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_a_forward_pass_inside_autocast_has_the_chosen_dtype(name, dtype):
    with choose_precision(name, CPU).autocast():
        assert torch.nn.functional.linear(torch.ones(2, 2), torch.ones(2, 2)).dtype == dtype
    assert torch.nn.functional.linear(torch.ones(2, 2), torch.ones(2, 2)).dtype == torch.float32


def test_fp32_does_not_open_autocast_at_all():
    with torch.autocast("cpu", torch.bfloat16), Precision("fp32", "cpu", None).autocast():
        assert torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("flags\t\t: fpu avx512f avx512_bf16 amx_tile\n", True),
        ("processor: 0\nflags : fpu amx_bf16\n", True),
        ("Features : fp asimd bf16 i8mm\n", True),
        ("flags : fpu avx2 avx512f\n", False),
        ("model name : avx512_bf16\n", False),
        ("", False),
    ],
)
def test_native_bf16_is_read_from_the_processors_flags(tmp_path, monkeypatch, text, expected):
    (tmp_path / "cpuinfo").write_text(text, encoding="utf-8")
    monkeypatch.setattr(precision, "Path", lambda _: tmp_path / "cpuinfo")
    assert has_native_bf16() is expected


def test_without_a_list_of_flags_bf16_counts_as_not_native(tmp_path, monkeypatch):
    monkeypatch.setattr(precision, "Path", lambda _: tmp_path / "cpuinfo")
    assert has_native_bf16() is False


@pytest.mark.parametrize(("capability", "expected"), [((7, 5), False), ((8, 0), True), ((9, 0), True)])
def test_a_gpu_that_merely_emulates_bf16_does_not_count(monkeypatch, capability, expected):
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert precision.cuda_has_bf16(CUDA) is expected
