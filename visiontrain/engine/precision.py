"""The dtype that forward passes run in, and the scaler that half precision needs."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch

# Processor flags of units that multiply bfloat16 natively; without one, bf16 autocast is slower than fp32.
NATIVE_BF16_FLAGS = ("avx512_bf16", "amx_bf16", "bf16")

CUDA_WITH_BF16 = (8, 0)  # compute capability of the first generation with such units


@dataclass
class Precision:
    """How forward passes are run. What it was chosen to be stays; fp32 may take over while the run goes on."""

    chosen: str
    """`fp32`, `bf16` or `fp16`."""
    device_type: str
    dtype: torch.dtype | None
    """Of the chosen precision; None in fp32."""
    chosen_scaler: torch.amp.GradScaler | None = None
    is_overruled: bool = False
    """Whether fp32 has taken over."""

    @property
    def name(self) -> str:
        """Of the precision in use."""
        return "fp32" if self.is_overruled else self.chosen

    @property
    def is_half(self) -> bool:
        """Whether the precision in use is half precision."""
        return self.dtype is not None and not self.is_overruled

    @property
    def scaler(self) -> torch.amp.GradScaler | None:
        """The scaler that the precision in use needs."""
        return None if self.is_overruled else self.chosen_scaler

    def autocast(self) -> AbstractContextManager[object]:
        """The context of the forward pass; in fp32 no autocast at all."""
        if self.dtype is None or self.is_overruled:
            return nullcontext()
        return torch.autocast(self.device_type, self.dtype)


def choose_precision(amp: str, device: torch.device) -> Precision:
    """Resolve `amp` for a device.

    Args:
        amp: `auto`, `True`, `False`, `fp16` or `bf16`. `auto` is the fastest that is native and needs no scaler,
            otherwise fp32; `True` is half precision whatever it costs: bf16 where it may be, else fp16.
        device: Where the forward pass runs.
    """
    name = {"False": "fp32", "fp16": "fp16", "bf16": "bf16"}.get(amp)
    if name is None:
        is_native = cuda_has_bf16(device) if device.type == "cuda" else has_native_bf16()
        otherwise = "fp32" if amp == "auto" else "fp16" if device.type == "cuda" else "bf16"
        name = "bf16" if is_native else otherwise
    dtype = {"fp32": None, "fp16": torch.float16, "bf16": torch.bfloat16}[name]
    scaler = torch.amp.GradScaler(device.type) if name == "fp16" else None
    return Precision(name, device.type, dtype, scaler)


def cuda_has_bf16(device: torch.device) -> bool:
    """Whether a GPU multiplies bfloat16 itself; torch's own answer counts emulation too, which is slow."""
    return torch.version.hip is not None or torch.cuda.get_device_capability(device) >= CUDA_WITH_BF16


def has_native_bf16() -> bool:
    """Whether the processor multiplies bfloat16 itself. Known on Linux; elsewhere False, which is merely slower."""
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.is_file():
        return False
    for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
        name, _, flags = line.partition(":")
        if name.strip().lower() in ("flags", "features"):
            return bool(set(NATIVE_BF16_FLAGS) & set(flags.split()))
    return False
